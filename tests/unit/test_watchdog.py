"""Late turns of the event loop are noticed from outside of it, told with the place, and not too often."""

import asyncio
import logging
import time
from collections.abc import Callable

import pytest

from qpidd_py.server.loop import LIMIT
from qpidd_py.server.watchdog import HANGS, QUIET, Late, Watch, run_watched


def where() -> str:
    return "here"


def test_a_late_turn_is_told_with_its_place_when_it_has_ended() -> None:
    watch = Watch()
    assert watch.look(100.0, 100.0 - LIMIT / 2, [], where) == []
    assert watch.look(100.0, 0.0, [], where) == []
    assert watch.look(100.2, 100.0, [], where) == []
    assert watch.look(100.3, 0.0, [(100.0, 0.25)], lambda: "elsewhere") == [Late(False, 0.25, "here")]


def test_one_that_ended_between_two_looks_is_told_without_a_place() -> None:
    found = Watch().look(100.2, 0.0, [(100.0, 0.13)], where)
    assert found == [Late(False, 0.13, "it has ended before the watchdog looked")]


def test_many_are_counted() -> None:
    watch = Watch()
    lines = [line for number in range(60) for line in watch.look(100.0 + number, 0.0, [(99.9 + number, 0.2)], where)]
    assert len(lines) == 60 // QUIET
    assert "9 others before it were late" in lines[-1].where


def test_one_that_does_not_end_is_told_once() -> None:
    watch = Watch()
    lines = [line for tenth in range(200) for line in watch.look(100.0 + tenth / 10, 100.0, [], where)]
    assert len(lines) == 1 and lines[0].hangs and HANGS < lines[0].seconds < HANGS + 1 and lines[0].where == "here"


def _guard(work: Callable[[], None]) -> None:  # as that of the service
    work()


def busy() -> None:
    end = time.monotonic() + 5 * LIMIT
    while time.monotonic() < end:
        sum(range(1000))


def test_the_thread_sees_what_the_loop_does(caplog: pytest.LogCaptureFixture) -> None:
    """On a busy machine another turn may be late first, and the next line is written `QUIET` later."""

    def line() -> str:
        return next((text for text in caplog.messages if "busy (test_watchdog.py:" in text), "")

    async def main() -> int:
        deadline = time.monotonic() + 6 * QUIET
        while not line() and time.monotonic() < deadline:
            asyncio.get_running_loop().call_soon(_guard, busy)
            await asyncio.sleep(LIMIT)
        return 7

    caplog.set_level(logging.WARNING)
    assert run_watched(main()) == 7
    assert line().startswith("a turn of the event loop took ") and "_guard of <function busy" in line()
