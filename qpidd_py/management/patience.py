"""Requests that read messages wait for those that have left memory, step by step; others go on.               Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qpidd_py.core import Queue, ready_soon, soon
from qpidd_py.errors import RotError
from qpidd_py.management.request import RequestError


class Reading:
    """What a request waits for.  When it is called, what has come is there, and the next step has to take it in that
    call: at the limit of the memory it has left again after that."""

    def __init__(self) -> None:
        self.come = False
        self.on_come: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self.come = True
        self.on_come()


def in_memory(queue: Queue, after: int) -> Iterator[Reading]:
    """Until the next message behind the id `after` can be read.  Raises RequestError when it never can."""
    return _until(lambda reading: soon(queue, after, reading))


def ready_in_memory(queue: Queue) -> Iterator[Reading]:
    """Until the next message that is ready can be read.  Raises RequestError when it never can."""
    return _until(lambda reading: ready_soon(queue, reading))


def _until(there: Callable[[Reading], bool]) -> Iterator[Reading]:
    while not _said(there, reading := Reading()):
        while not reading.come:
            yield reading


def _said(there: Callable[[Reading], bool], reading: Reading) -> bool:
    try:
        return there(reading)
    except RotError as error:
        raise RequestError(str(error)) from error
