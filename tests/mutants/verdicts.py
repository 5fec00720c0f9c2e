"""What earlier campaigns have found, so that one that was interrupted goes on where it was.

A verdict is kept for as long as nothing has changed on which it rests: for a mutant that a unit test has noticed, its
module and that test's file; for one that the simulator has noticed, or that survives, all of `ha` and of its tests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.mutants.finder import ROOT
from tests.mutants.operators import Mutant

FILE = ROOT / "build" / "mutants" / "verdicts.jsonl"
EVERYTHING = ("ha", "tests/unit/ha", "tests/simulator", "tests/mutants")
Verdict = tuple[str, str]
"""Who has noticed the mutant (empty: it survives), and the digest of what the verdict rests on."""


class Verdicts:
    """Of a file of JSON lines; the last one of a mutant counts."""

    def __init__(self, path: Path = FILE, seeds: int = 0) -> None:
        self._path = path
        self._seeds = seeds
        self._kept: dict[str, Verdict] = {}
        if path.exists():
            for name, who, digest in map(json.loads, path.read_text().splitlines()):
                self._kept[name] = who, digest

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
        self._kept = {}

    def of(self, mutant: Mutant) -> str | None:
        """None: it has to be tried."""
        who, digest = self._kept.get(mutant.name, ("", ""))
        return who if digest and digest == self._digest(mutant, who) else None

    def keep(self, mutant: Mutant, who: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps([mutant.name, who, self._digest(mutant, who)]) + "\n")

    def _digest(self, mutant: Mutant, who: str) -> str:
        test = ROOT / who.partition("::")[0]
        if who and test.is_file():
            return _digest((ROOT / mutant.path, test))
        return f"{_everything()} {'' if who else self._seeds}"


@cache
def _everything() -> str:
    return _digest(sorted(path for folder in EVERYTHING for path in (ROOT / folder).rglob("*.py")))


@cache
def _octets(path: Path) -> bytes:
    return path.read_bytes()


def _digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(map(_octets, paths))).hexdigest()
