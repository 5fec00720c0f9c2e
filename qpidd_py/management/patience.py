"""Requests that read messages wait for those that have left memory, step by step; others go on.               Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qpidd_py.core import Queue, soon
from qpidd_py.errors import RotError
from qpidd_py.management.request import RequestError


def in_memory(queue: Queue, after: int, limit: int = 1) -> Iterator[bool]:
    """Steps, each of them True, until the next `limit` messages behind the id `after` can be read at once.  Raises
    RequestError when one never can."""
    come: list[None] = [None]
    while not _at_hand(queue, after, lambda: come.append(None), limit):
        come.clear()
        while not come:
            yield True


def _at_hand(queue: Queue, after: int, call: Callable[[], None], limit: int) -> bool:
    try:
        return soon(queue, after, call, limit)
    except RotError as error:
        raise RequestError(str(error)) from error
