"""Which unit test executes which function, and how long it takes: measured once for each file of tests, and again when
it or its helpers have changed.  (When the code has changed: `--again`.)"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutants.finder import ROOT
from tests.mutants.processes import call

CODE = "ha"
TESTS = "tests/unit/ha"
CACHE = ROOT / "build" / "mutants" / "calls.json"
Calls = dict[str, tuple[float, list[str]]]
"""Test -> (seconds of processor time, functions as PATH:NAME)."""


class Recorder:
    """A plug-in of pytest."""

    def __init__(self) -> None:
        self.calls: Calls = {}
        self._codes: set[CodeType] = set()

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self._codes.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self._codes, began = set(), time.process_time()
        sys.setprofile(self._profile)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.calls[item.nodeid] = (time.process_time() - began, sorted(_functions(self._codes)))


def _functions(codes: Iterable[CodeType]) -> Iterator[str]:
    root = f"{ROOT}/"
    for code in codes:
        path = code.co_filename.removeprefix(root)
        if path.startswith(f"{CODE}/"):
            yield f"{path}:{code.co_qualname.partition('.<locals>')[0]}"


def record(path: str) -> Calls:
    """Runs a file of tests in this process."""
    recorder = Recorder()
    if pytest.main(["-q", "-p", "no:cacheprovider", path], [recorder]) not in (0, 5):
        raise RuntimeError(f"{path} fails without a mutant")
    return recorder.calls


def calls(again: bool = False, say: Any = print) -> Calls:
    """Of all files of tests, from the cache where that is fresh; `again`: never from there."""
    cached: dict[str, Any] = json.loads(CACHE.read_text()) if CACHE.exists() and not again else {}
    fresh: dict[str, Any] = {}
    for path in sorted((ROOT / TESTS).glob("test_*.py")):
        name = str(path.relative_to(ROOT))
        fresh[name] = cached.get(name)
        if not fresh[name] or fresh[name]["digest"] != (digest := _digest(path)):
            say(f"which functions {name} executes ...")
            fresh[name] = {"digest": digest if fresh[name] else _digest(path), "calls": call(record, name)}
            CACHE.parent.mkdir(parents=True, exist_ok=True)
            CACHE.write_text(json.dumps({**cached, **fresh}))
    return {test: (seconds, names) for each in fresh.values() for test, (seconds, names) in each["calls"].items()}


def _digest(path: Path) -> str:
    helpers = [each for each in path.parent.glob("*.py") if not each.name.startswith("test_")]
    return hashlib.sha256(b"".join(each.read_bytes() for each in [path, *sorted(helpers)])).hexdigest()


def stages(path: str, function: str, known: Calls, seconds: float = 12.0) -> list[list[str]]:
    """The tests that execute this function (or, for a default of a class, anything of that class): first those of the
    two files that execute little else, then others, the quickest first, as many as fit into the `seconds`.

    What a dataclass generates is not seen to be executed: for a default all tests of the two files are taken."""
    wanted = f"{path}:{function}"
    found = {test: each for test, each in known.items() if _executes(each[1], wanted)}
    if not found:  # a class without functions of its own
        found = {test: each for test, each in known.items() if any(name.startswith(f"{path}:") for name in each[1])}
    files = {_file(test): len(names) for test, (_, names) in sorted(found.items(), key=lambda item: -len(item[1][1]))}
    near = sorted(files, key=lambda file: files[file])[:2]
    if not any(wanted in names for _, names in found.values()):
        found |= {test: each for test, each in known.items() if _file(test) in near}
    ordered = sorted(found, key=lambda test: found[test][0])
    totals = dict(zip(ordered, accumulate(found[test][0] for test in ordered), strict=True))
    close = [test for test in ordered if _file(test) in near]
    far = [test for test in ordered if _file(test) not in near and totals[test] <= seconds]
    return [stage for stage in (close, far) if stage]


def _file(test: str) -> str:
    return test.partition("::")[0]


def _executes(names: Iterable[str], wanted: str) -> bool:
    return any(name == wanted or name.startswith(f"{wanted}.") for name in names)
