"""Many mutants, some at a time, each in a process of its own with a time limit."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.mutants.calls import Calls, stages
from tests.mutants.finder import ROOT
from tests.mutants.judges import Plan, judge
from tests.mutants.operators import Mutant, mutants
from tests.mutants.processes import Child, start, wait
from tests.mutants.verdicts import Verdicts

KNOWN = Path(__file__).parent / "equivalent.yaml"
SURVIVED = ""
SPARE_SECONDS = 15.0
"""Processor time of a mutant, in addition to three times that of its tests and seeds."""
SEED_SECONDS = 0.4


@dataclass(frozen=True)
class Target:
    """`PATH`, `PATH:FUNCTION` or `PATH:LINE`."""

    path: str
    function: str = ""
    line: int = 0

    @classmethod
    def of(cls, text: str) -> Target:
        path, _, rest = text.partition(":")
        return cls(path, line=int(rest)) if rest.isdigit() else cls(path, rest)

    def matches(self, mutant: Mutant) -> bool:
        if self.line:
            return mutant.line == self.line
        return not self.function or f"{mutant.function}.".startswith(f"{self.function}.")


def chosen(targets: Iterable[Target]) -> list[Mutant]:
    """Raises FileNotFoundError."""
    found: dict[str, Mutant] = {}
    for target in targets:
        source = (ROOT / target.path).read_text()
        found |= {mutant.name: mutant for mutant in mutants(target.path, source) if target.matches(mutant)}
    return list(found.values())


@dataclass
class Result:
    """What became of the mutants."""

    killed: dict[str, str] = field(default_factory=dict)
    """Mutant -> who has noticed it."""
    survived: dict[str, str] = field(default_factory=dict)
    """Mutant -> why that is no harm; empty: not explained yet."""
    stale: list[str] = field(default_factory=list)
    """Reasons for mutants that are noticed by now, or are gone."""
    lines: dict[str, str] = field(default_factory=dict)
    """Mutant -> PATH:LINE."""
    seconds: float = 0.0

    def add(self, mutant: Mutant, who: str, reasons: Mapping[str, str]) -> None:
        self.lines[mutant.name] = f"{mutant.path}:{mutant.line}"
        if who != SURVIVED:
            self.killed[mutant.name] = who
            return
        reason = self.survived[mutant.name] = reasons.get(mutant.name, "")
        if not reason:
            sys.stderr.write("\r" + " " * 78)
            print(f"\rSURVIVES {mutant.path}:{mutant.line} {mutant.name.partition(':')[2]}", flush=True)

    @property
    def open(self) -> list[str]:
        """Survivors without a reason."""
        return [name for name, reason in self.survived.items() if not reason]

    @property
    def fails(self) -> bool:
        return bool(self.open or self.stale)

    def to_json(self) -> dict[str, Any]:
        return {
            "killed": self.killed,
            "survived": self.survived,
            "stale": self.stale,
            "seconds": round(self.seconds, 1),
        }


def known(path: Path = KNOWN) -> dict[str, str]:
    """Reasons by mutant, as PATH:FUNCTION: WHAT."""
    if not path.exists():
        return {}
    value: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(path.read_text()) or {}
    return {
        f"{file}:{function}: {what}": reason
        for file, functions in value.items()
        for function, whats in functions.items()
        for what, reason in whats.items()
    }


def campaign(
    work: Sequence[Mutant],
    plan: Plan,
    calls: Calls,
    jobs: int,
    reasons: Mapping[str, str],
    whole: Iterable[str] = (),
    verdicts: Verdicts | None = None,
) -> Result:
    """`whole`: files of which every mutant is among the `work`, so that a reason for any other is stale.
    `verdicts`: of earlier campaigns; what is in them is not tried again."""
    result, began = Result(), time.monotonic()
    before = {mutant: who for mutant in work if verdicts and (who := verdicts.of(mutant)) is not None}
    for mutant, who in before.items():
        result.add(mutant, who, reasons)
    for mutant, who in _judged([mutant for mutant in work if mutant not in before], plan, calls, jobs):
        result.add(mutant, who, reasons)
        if verdicts:
            verdicts.keep(mutant, who)
        _progress(result, len(before), len(work), time.monotonic() - began)
    sys.stderr.write("\n")
    names = {mutant.name for mutant in work}
    gone = [name for name in reasons if name.partition(":")[0] in set(whole) and name not in names]
    result.stale = [name for name in reasons if name in result.killed] + gone
    result.seconds = time.monotonic() - began
    return result


def _judged(work: Sequence[Mutant], plan: Plan, calls: Calls, jobs: int) -> Iterator[tuple[Mutant, str]]:
    waiting, running = list(reversed(work)), dict[Child, Mutant]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                running[_start(mutant, plan, calls)] = mutant
            for child in wait(list(running)):
                found = child.result()
                yield running.pop(child), "it takes too long, or crashes" if found is None else found
    finally:
        for child in running:
            child.kill()
            child.result()


def _start(mutant: Mutant, plan: Plan, calls: Calls) -> Child:
    tests = plan.stages or stages(mutant.path, mutant.function, calls)
    seconds = sum(calls[test][0] for stage in tests for test in stage if test in calls)
    seconds += SEED_SECONDS * plan.seeds * len(plan.modes)
    return start(SPARE_SECONDS + 3 * seconds, None, judge, mutant, Plan(tests, plan.seeds, plan.modes))


def _progress(result: Result, before: int, total: int, seconds: float) -> None:
    done = len(result.killed) + len(result.survived)
    rate = (done - before) / max(seconds, 1e-6)
    left = (total - done) / rate
    line = f"{done}/{total} mutants, {len(result.open)} survive, {rate:.2f} a second, "
    sys.stderr.write(f"\r{line}{left:.0f} s left   ")
    sys.stderr.flush()


def write(result: Result, path: Path) -> None:
    path.write_text(json.dumps(result.to_json(), indent=1) + "\n")
