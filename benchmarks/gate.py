"""Does a message cost more than it did at another commit?  `make bench-gate BASE=COMMIT`.

The base is built next to this tree, in build/gate, once.  Both run the loads of `gate_load.py`.  What is counted is the
first of these that the machine can do: instructions by `perf stat`, instructions by valgrind's callgrind, CPU time
(medians of alternating runs, which say little on a busy machine).  Allocations are counted by valgrind's memcheck.

Exit status: 0, 1 when a load costs more than LIMIT allows, 2 when nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.gate_load import LOADS
from benchmarks.processes import BenchmarkError

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAM: Final = ROOT / "benchmarks" / "gate_load.py"
FEW, MANY = 2000, 6000
"""Messages of the two runs; of each message the difference is counted."""
LIMIT: Final = 0.02
"""Instructions, processor time or allocations may grow by this much."""
TIMED: Final = 9
"""Runs whose processor time is compared; of those that are counted one is enough."""

Count = Callable[[Sequence[str], dict[str, str]], float]


@dataclass(frozen=True)
class Row:
    load: str
    counted: str
    base: float
    now: float

    @property
    def growth(self) -> float:
        return self.now / self.base - 1 if self.base else float(self.now > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        rows = compare(built(options.base), ROOT, options.load or list(LOADS))
    except BenchmarkError as error:
        print(f"bench-gate: {error}", file=sys.stderr)
        return 2
    print(json.dumps([asdict(row) | {"growth": row.growth} for row in rows]) if options.json else table(rows))
    return int(any(row.growth > LIMIT for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench-gate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", metavar="COMMIT", help="compare with this one")
    parser.add_argument("--load", action="append", choices=LOADS, help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="the rows, for programs")
    return parser


def built(commit: str) -> Path:
    """The tree of a commit, with its core.  Raises BenchmarkError."""
    name = _git("rev-parse", "--short=12", "--verify", f"{commit}^{{commit}}").stdout.decode().strip()
    folder = ROOT / "build" / "gate" / name
    done = folder / "built"
    if not done.exists():
        print(f"bench-gate: building {name}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run(["tar", "-x", "-C", str(folder)], input=_git("archive", name).stdout)
        _run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder)
        done.touch()
    return folder


def compare(base: Path, now: Path, loads: Sequence[str]) -> list[Row]:
    """What a message of each load costs in two trees.  Raises BenchmarkError."""
    rows = []
    for counted, count, times in counters():
        for load in loads:
            found = [(each(base, load, count), each(now, load, count)) for _ in range(times)]
            before, after = (median(each[tree] for each in found) for tree in (0, 1))
            rows.append(Row(load, counted, before, after))
            print(f"bench-gate: {load}: {counted} {before:,.2f} -> {after:,.2f}", file=sys.stderr)
    return rows


def counters() -> list[tuple[str, Count, int]]:
    """What this machine can count: its name, how, and how many times."""
    found: list[tuple[str, Count, int]] = []
    if _perf_counts():
        found.append(("instructions", _by_perf, 1))
    elif shutil.which("valgrind"):
        found.append(("instructions", by_callgrind, 1))
    else:
        found.append(("CPU ns", _cpu, TIMED))
    if shutil.which("valgrind"):
        found.append(("allocations", _allocations, 1))
    return found


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'a message of':36}{'counted':>14}{'base':>10}{'now':>10}{'change':>9}"]
    for row in rows:
        worse = " !" if row.growth > LIMIT else ""
        lines.append(f"{row.load:36}{row.counted:>14}{row.base:>10,.1f}{row.now:>10,.1f}{row.growth:>+8.1%}{worse}")
    return "\n".join(lines)


# ---- one tree -------------------------------------------------------------------------------------------------------


def each(tree: Path, load: str, count: Count) -> float:
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONHASHSEED": "0", "LC_ALL": "C"}
    few, many = (count([sys.executable, str(PROGRAM), load, str(messages)], environment) for messages in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _by_perf(command: Sequence[str], environment: dict[str, str]) -> float:
    return _number(r"^(\d+),", _run(["perf", "stat", "-x,", "-e", "instructions:u", *command], env=environment))


def by_callgrind(command: Sequence[str], environment: dict[str, str]) -> float:
    options = ["--tool=callgrind", "--callgrind-out-file=/dev/null"]
    return _number(r"Collected : (\d+)", _run(["valgrind", *options, *command], env=environment))


def _allocations(command: Sequence[str], environment: dict[str, str]) -> float:
    """Of Python's objects, too: they come from malloc here."""
    environment = environment | {"PYTHONMALLOC": "malloc"}
    found = _run(
        ["valgrind", "--tool=memcheck", "--leak-check=no", "--undef-value-errors=no", *command], env=environment
    )
    return _number(r"total heap usage: ([\d,]+) allocs", found)


def _cpu(command: Sequence[str], environment: dict[str, str]) -> float:
    """Nanoseconds of the program and of the kernel for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(command, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e9 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def _perf_counts() -> bool:
    if not shutil.which("perf"):
        return False
    found = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, check=False)
    return bool(re.search(rb"^\d+,", found.stderr, re.MULTILINE))


def _number(pattern: str, found: subprocess.CompletedProcess[bytes]) -> float:
    text = found.stderr.decode(errors="replace")
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise BenchmarkError(f"found no {pattern!r} in {text[-300:]!r}")
    return float(match[1].replace(",", ""))


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return _run(["git", "-C", str(ROOT), *arguments])


def _run(
    command: Sequence[str], cwd: Path | None = None, env: dict[str, str] | None = None, input: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    found = subprocess.run(command, cwd=cwd, env=env, input=input, capture_output=True, check=False)
    if found.returncode:
        raise BenchmarkError(f"{' '.join(command)}: {found.stderr.decode(errors='replace').strip()[-400:]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
