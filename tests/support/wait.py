"""Polling with a deadline: what tests do instead of sleeping.

Theory.  A test that waits for A and then asserts B fails on a loaded machine: B comes a moment later than usual.  So it
waits for B.  What a program has logged is waited for with `wait_logged`; `tests/unit/test_waits.py` finds tests that
assert it.  A deadline only ends a test that hangs: it costs nothing when it is long, and a race when it is short.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")
SHORTEST = 10.0
"""Seconds: a machine may stand still for some."""


class Logs(Protocol):
    """A program that a test runs."""

    @property
    def log(self) -> str: ...


def wait_for(
    condition: Callable[[], T], timeout: float = 60.0, what: str | Callable[[], str] = "", poll: float = 0.01
) -> T:
    """The first true value of `condition`; `AssertionError` with `what` after `timeout` seconds.

    The condition is looked at once more after the deadline, so that a test process that was starved of processor time
    does not fail what has happened meanwhile.  `ValueError` for a deadline that a loaded machine misses.
    """
    if timeout < SHORTEST:
        raise ValueError(f"found a deadline of {timeout:g} s, expected {SHORTEST:g} s or more")
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() >= deadline
        value = condition()
        if value:
            return value
        if late:
            text = what() if callable(what) else what
            raise AssertionError(f"not within {timeout:g} s: {text or getattr(condition, '__name__', 'condition')}")
        time.sleep(poll)


def wait_logged(program: Logs, *texts: str, timeout: float = 60.0) -> None:
    """Until the program has logged all of `texts`; `AssertionError` with the log when it has not, or has ended."""

    def missing() -> list[str]:
        return [text for text in texts if text not in program.log]

    def settled() -> bool:
        ended = not getattr(program, "running", True)
        return not missing() or ended

    wait_for(settled, timeout, lambda: f"{missing()}\n{program.log}")
    assert not missing(), f"{missing()}\n{program.log}"


def stays(condition: Callable[[], object], seconds: float, poll: float = 0.01) -> bool:
    """The condition is true now and for so long: for what must not happen."""
    deadline = time.monotonic() + seconds
    while condition():
        if time.monotonic() >= deadline:
            return True
        time.sleep(poll)
    return False
