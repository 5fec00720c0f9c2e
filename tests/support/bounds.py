"""A run of the tests ends and says why, whatever a test meets: no room on the disk, or a test that does not end.

pytest-timeout fails a test after its time, once: what the test then waits for on its way out (the `close` of a client
whose broker holds publishers back) has no limit any more.  After `GRACE` seconds more this ends the process with the
stacks of its threads; pytest-xdist names the test as crashed and goes on with a new worker.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

GRACE: Final = 60.0
"""Seconds for the way out of a test that has used up its time."""
ROOM: Final = 6 * 1024**3
"""Octets on the disk: what all tests need at a time, and 1 GiB below which brokers hold publishers back."""


class Bounds:
    """A plugin of pytest, in each process of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._errors = os.dup(2)
        self._left = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        marker, given = item.get_closest_marker("timeout"), self._config.getoption("timeout", None)
        time = marker.args[0] if marker else self._config.getini("timeout") if given is None else given
        self._left = float(time) + GRACE if float(time) else 0.0  # 0: a test may take as long as it likes
        self._begin()
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """pytest has ended the one timer of the process; what a failed test takes down may not end, either."""
        self._begin()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In CI a failure is named when it happens: a run that is killed prints no summary."""
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if report.failed and terminal and os.environ.get("CI"):
            terminal.ensure_newline()
            terminal.write_line(f"FAILED ({report.when}) {report.nodeid}")

    def _begin(self) -> None:
        if self._left:
            faulthandler.dump_traceback_later(self._left, file=self._errors, exit=True)


def register(config: pytest.Config) -> None:
    """To be called where standard error is not captured."""
    config.pluginmanager.register(Bounds(config), "bounds")


def lacking(folder: Path, room: int = ROOM) -> str:
    """What is wrong with the free space there; empty when there is enough."""
    free = shutil.disk_usage(folder).free
    wanted = f"the tests need {room / 1024**3:.0f} GiB in {folder} (TMPDIR)"
    return f"{free / 1024**3:.1f} GiB are free, {wanted}" if free < room else ""


def main() -> None:
    """Fails when the disk has too little room for all tests."""
    if missing := lacking(Path(tempfile.gettempdir())):
        raise SystemExit(missing)


if __name__ == "__main__":
    main()
