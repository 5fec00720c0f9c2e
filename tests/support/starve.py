"""Stalls the threads of tests at random lines, as a machine does that has too much to do: shows races of the tests.

    STARVE=17 .venv/bin/python -m pytest -p tests.support.starve tests/faults

Theory.  Most tests that fail now and then have a race: what a test looks at has happened already, or not yet, when its
thread was not run for some tenths of a second.  Here threads sleep before lines of the project's tests.  A line that
runs often in one test is taken less and less often, so a loop gets few stalls and most go to lines that run once.  The
seed, the test and the name of the thread decide; a test that fails tells its stalls.  Without STARVE nothing is traced.
"""

from __future__ import annotations

import inspect
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import sleep  # ours: tests replace `time.sleep`
from types import CodeType, FrameType
from typing import Any, Final

import pytest

VARIABLE: Final = "STARVE"
FOLDERS: Final = ("tests", "testkit", "demo")
OWN, OTHERS, POLLING = 0.15, 0.05, 0.005
"""How probable a stall is before a line's first run: in the file of the test, in other files, in `wait_for`."""
SHORTEST, LONGEST = 0.05, 0.6
"""Seconds.  Half of the stalls take less than twice the shortest."""
IN_FIXTURES, IN_TEST = 1.0, 3.0
"""Seconds in one test, so that what prepares it does not use up all."""


class Starving:
    """Traces functions of the project's tests while a test runs."""

    def __init__(self, seed: str, root: Path) -> None:
        self._seed = seed
        self._folders = tuple(f"{root / folder}{os.sep}" for folder in FOLDERS)
        self._probable: dict[CodeType, float] = {}
        self._begin("", "")
        self._on = False

    def _begin(self, test: str, file: str) -> None:
        self._test, self._file, self._left = test, file, IN_FIXTURES
        self._runs: Counter[tuple[CodeType, int]] = Counter()
        self._chances: dict[str, random.Random] = {}
        self._probable.clear()
        self.stalls: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._begin(item.nodeid, str(item.path))
        self._on = True
        threading.settrace(self._called)
        sys.settrace(self._called)
        yield
        sys.settrace(None)
        threading.settrace(None)
        self._on = False

    def pytest_runtest_call(self) -> None:
        self._left += IN_TEST

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        if call.excinfo is not None:
            item.add_report_section(call.when, "stalls", "\n".join(self.stalls))
        yield

    def _called(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """Python asks for each function that is called, whether its lines are traced."""
        if not self._on:
            return None
        probable = self._probable.get(frame.f_code)
        if probable is None:
            probable = self._probable[frame.f_code] = self._probability(frame.f_code)
        return self._line if probable else None

    def _probability(self, code: CodeType) -> float:
        """Modules and classes are none of ours: they are imported."""
        if not code.co_flags & inspect.CO_OPTIMIZED or not code.co_filename.startswith(self._folders):
            return 0.0
        if code.co_filename == __file__:
            return 0.0
        if code.co_filename.endswith("support/wait.py"):
            return POLLING
        return OWN if code.co_filename == self._file else OTHERS

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line" and self._on and self._left > 0:
            line = frame.f_code, frame.f_lineno
            self._runs[line] += 1
            chance = self._chance()
            if chance.random() * self._runs[line] < self._probable.get(frame.f_code, 0.0):
                self._stall(frame, min(SHORTEST * chance.paretovariate(1.0), LONGEST, self._left))
        return self._line

    def _chance(self) -> random.Random:
        name = threading.current_thread().name
        if name not in self._chances:
            self._chances[name] = random.Random(f"{self._seed} {self._test} {name}")
        return self._chances[name]

    def _stall(self, frame: FrameType, seconds: float) -> None:
        self._left -= seconds
        thread = threading.current_thread().name
        self.stalls.append(f"{seconds:.2f} s before {frame.f_code.co_filename}:{frame.f_lineno} in {thread}")
        sleep(seconds)


def pytest_configure(config: pytest.Config) -> None:
    seed = os.environ.get(VARIABLE, "")
    if seed:
        config.pluginmanager.register(Starving(seed, config.rootpath), "starving")
