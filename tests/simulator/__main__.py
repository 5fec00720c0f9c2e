"""Runs seeds of the simulator.

python -m tests.simulator --seeds 0:10000 --mode quorum --jobs 2 --keep-going    many
python -m tests.simulator --seed 17 --mode quorum --verbose                      one, with all that happens
python -m tests.simulator --seed 17 --mode quorum --shrink --save FILE           makes a failing one small
python -m tests.simulator --replay FILE --verbose                                a scenario from a file
python -m tests.simulator --seeds 17 --mode quorum --report FOLDER               its logs, and what they look like
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.simulator import knobs
from tests.simulator.mutants import MUTANTS
from tests.simulator.report import reported
from tests.simulator.runner import Work, run
from tests.simulator.scenario import MODES, Scenario
from tests.simulator.scheduler import Violation
from tests.simulator.search import Search
from tests.simulator.shrink import outcome, shrink
from tests.simulator.simulation import Simulation


def main() -> int:
    options = _parser().parse_args()
    faults = tuple(name for name in options.faults.split(",") if name)
    work = Work(options.mode, faults, options.mutant, options.liveness, options.analysed)
    if options.replay or options.seed is not None:
        with work.broken():
            return _one(Scenario.load(options.replay) if options.replay else work.plan(options.seed), options)
    if options.search:
        return _search(options)
    return _report(work, options) if options.report else _many(work, options)


def _search(options: argparse.Namespace) -> int:
    search = Search(options.mode)
    for _ in range(options.search):
        search.step()
    print(search.coverage.text() if options.coverage else f"{len(search.coverage.seeds)} pairs of state and event")
    print(f"{options.search} runs, {len(search.corpus)} in the corpus, {len(search.failures)} failed")
    for scenario, violation in search.failures:
        print(f"{scenario.text()}FAILS: {violation}\n")
    if options.save and search.failures:
        options.save.write_text(search.failures[0][0].text())
    return 1 if search.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run the scenario in a file")
    parser.add_argument("--seeds", default="0:1000", metavar="A:B", help="run A to B-1; A: only this one")
    parser.add_argument("--mode", default="", choices=("", *MODES), help="the seed decides by default")
    parser.add_argument("--faults", default="", metavar="NAME,...", help="kinds of faults; the seed decides by default")
    parser.add_argument("--mutant", default="", choices=("", *MUTANTS), help="break the HA core like that")
    parser.add_argument("--analysed", action="store_true", help="the analysis judges each run, too, by its logs")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="logs and report of each seed, in folders")
    parser.add_argument("--liveness", action="store_true", help="outside of a core the faults of each seed never end")
    parser.add_argument("--coverage", action="store_true", help="print which events have met which states")
    parser.add_argument("--search", type=int, default=0, metavar="N", help="N runs that look for what is new")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--shrink", action="store_true", help="make the first scenario that fails small")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the scenario to a file")
    parser.add_argument("--verbose", action="store_true", help="print what happens also when nothing fails")
    return parser


def _one(scenario: Scenario, options: argparse.Namespace) -> int:
    if options.shrink:
        violation = outcome(scenario)
        scenario = shrink(scenario, violation) if violation else scenario
    if options.save:
        options.save.write_text(scenario.text())
    simulation, text = Simulation(scenario), ""
    try:
        simulation.run()
    except Violation as violation:
        text = str(violation)
    if text or options.verbose:
        print(simulation.schedule())
        print(f"\n{scenario.text()}")
    print(f"FAILS: {text}" if text else "holds")
    return 1 if text else 0


def _seeds(options: argparse.Namespace) -> range:
    first, _, last = options.seeds.partition(":")
    return range(int(first), int(last or int(first) + 1))


def _report(work: Work, options: argparse.Namespace) -> int:
    """One folder for each seed; what any judge says against it."""
    wrong = False
    for seed in _seeds(options):
        folder = options.report / f"seed-{seed}"
        with work.broken():
            text = reported(work.plan(seed), folder)
        print(f"{folder / 'report.html'}: {f'FAILS: {text}' if text else 'holds'}", flush=True)
        wrong = wrong or bool(text)
    return int(wrong)


def _many(work: Work, options: argparse.Namespace) -> int:
    began = time.perf_counter()
    report = run(_seeds(options), work, options.jobs, options.keep_going)
    seconds = time.perf_counter() - began
    print(f"longest repair: {report.slowest[0]:.1f} virtual seconds, seed {report.slowest[1]}")
    rate = 1000 * seconds / max(1, report.seeds)
    print(f"{report.seeds} seeds, {len(report.failures)} failed, {seconds:.1f} s, {rate:.1f} ms for each")
    print(", ".join(f"{name}: {count}" for name, count in sorted(report.counts.items())))
    if options.coverage:
        print(report.coverage.text())
        print(knobs.text(report.knobs))
    if not report.failures:
        return 0
    seed = min(report.failures)[0]
    if options.shrink:
        with work.broken():
            _one(work.plan(seed), options)
    else:
        mode = f" --mode {work.mode}" if work.mode else ""
        print(f"to see it: python -m tests.simulator --seed {seed}{mode} --shrink")
    return 1


if __name__ == "__main__":
    sys.exit(main())
