"""Operations of several commands, written once for both APIs.

Steps are a generator that yields futures and gets their results, or their errors thrown in; its return value is the
result.  The threaded API waits for each future, the asyncio API awaits it.  At the caller's timeout `Timeout` is thrown
in; steps that must undo something catch it.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator["Future[Any]", Any, T]


def answer(future: Future[Any], result: Any) -> None:
    """Completes a future that another thread may be cancelling at the same time."""
    try:
        future.set_result(result)
    except InvalidStateError:
        pass  # the caller no longer waits


def refuse(future: Future[Any], error: BaseException) -> None:
    try:
        future.set_exception(error)
    except InvalidStateError:
        pass
