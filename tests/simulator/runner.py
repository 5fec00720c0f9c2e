"""Runs many seeds, on several processors if so wished, and says how far it has come."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tests.simulator import knobs
from tests.simulator import report as reports
from tests.simulator.coverage import Coverage
from tests.simulator.mutants import MUTANTS
from tests.simulator.plan import plan
from tests.simulator.scenario import Scenario
from tests.simulator.scheduler import Violation
from tests.simulator.simulation import Simulation

PRINTED = 50
"""Failing seeds that are printed, about; after that they are only counted."""
CHUNK = 20
"""Seeds that a process gets at a time."""


@dataclass(frozen=True)
class Work:
    """What to run."""

    mode: str = ""
    faults: tuple[str, ...] = ()
    mutant: str = ""
    liveness: bool = False
    """Has every seed a core that must live?"""
    analysed: bool = False
    """The analysis judges each run, too (`report.py`)."""

    def plan(self, seed: int) -> Scenario:
        return plan(seed, self.mode, self.faults, self.liveness)

    def broken(self) -> AbstractContextManager[None]:
        """The HA core as the mutant has it."""
        return MUTANTS[self.mutant].apply() if self.mutant else nullcontext()


@dataclass
class Report:
    """What came of some seeds."""

    seeds: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, -1)
    """Virtual seconds of the longest repair, and its seed."""

    coverage: Coverage = field(default_factory=Coverage)
    knobs: Counter[str] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        self.coverage.update(other.coverage.seeds)
        self.seeds += other.seeds
        self.failures += other.failures
        self.counts += other.counts
        self.knobs += other.knobs
        self.slowest = max(self.slowest, other.slowest)


def run_seed(seed: int, work: Work) -> Report:
    """The mutant must have been applied."""
    simulation, wrong = _judged(work.plan(seed), work.analysed)
    report = Report(1, [(seed, wrong)] if wrong else [])
    report.counts.update(simulation.history.counts)
    report.coverage.add(seed, simulation.pairs)
    report.knobs = knobs.turned(simulation.scenario)
    report.counts["steps"] += simulation.scheduler.steps
    report.counts[f"mode {simulation.scenario.mode}"] += 1
    report.slowest = (simulation.repair_time, seed)
    return report


def _judged(scenario: Scenario, analysed: bool) -> tuple[Simulation, str]:
    """The run, and what is wrong with it.  A judge that fails is a failure of its seed."""
    if analysed:
        return reports.judged(scenario)
    simulation = Simulation(scenario)
    try:
        simulation.run()
    except Violation as violation:
        return simulation, str(violation)
    except Exception:
        return simulation, f"the simulator has failed:\n{traceback.format_exc()}"
    return simulation, ""


def run_chunk(seeds: Sequence[int], work: Work) -> Report:
    report = Report()
    with work.broken():
        for seed in seeds:
            report.add(run_seed(seed, work))
    return report


def _run_chunk(job: tuple[Sequence[int], Work]) -> Report:
    """Much lives until the end of its run: to look for garbage after a chunk takes a tenth of the time less."""
    gc.set_threshold(20_000, 50, 100)
    report = run_chunk(*job)
    gc.collect()
    return report


def run(seeds: Sequence[int], work: Work, jobs: int, keep_going: bool) -> Report:
    """Prints the seeds that fail as they do, and progress to standard error."""
    total, began = Report(), time.monotonic()
    for report in _reports([(seeds[at : at + CHUNK], work) for at in range(0, len(seeds), CHUNK)], jobs):
        total.add(report)
        for seed, text in report.failures[: max(0, PRINTED - len(total.failures) + len(report.failures))]:
            print(f"\rseed {seed} FAILS: {text}", flush=True)
        _progress(total, len(seeds), time.monotonic() - began)
        if total.failures and not keep_going:
            break
    sys.stderr.write("\n")
    return total


def _reports(chunks: list[tuple[Sequence[int], Work]], jobs: int) -> Iterator[Report]:
    if jobs <= 1:
        yield from map(_run_chunk, chunks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(_run_chunk, chunks)


def _progress(report: Report, seeds: int, seconds: float) -> None:
    rate = report.seeds / max(seconds, 1e-6)
    left = (seeds - report.seeds) / rate
    line = f"{report.seeds}/{seeds} seeds, {len(report.failures)} failed, {rate:.1f} a second, {left:.0f} s left"
    sys.stderr.write(f"\r{line:<78}")
    sys.stderr.flush()
