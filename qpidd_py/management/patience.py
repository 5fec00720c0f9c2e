"""Requests that read messages wait for those that have left memory, step by step; others go on.               Pure."""

from __future__ import annotations

from collections.abc import Iterator

from qpidd_py.core import Queue, soon


def in_memory(queue: Queue, after: int, limit: int = 1) -> Iterator[bool]:
    """Steps, each of them True, until the next `limit` messages behind the id `after` can be read at once."""
    come: list[None] = [None]
    while not soon(queue, after, lambda: come.append(None), limit):
        come.clear()
        while not come:
            yield True
