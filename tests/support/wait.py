"""Polling with a deadline: what tests do instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T], timeout: float = 10.0, what: str | Callable[[], str] = "", poll: float = 0.01
) -> T:
    """The first true value of `condition`; `AssertionError` with `what` after `timeout` seconds.

    The condition is looked at once more after the deadline, so that a test process that was starved of processor time
    does not fail what has happened meanwhile.
    """
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
