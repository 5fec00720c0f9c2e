"""Mistakes in the replication of a single queue."""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import inf

from ha.model.protocol import Kind
from ha.single_queue.follower import Replica
from ha.single_queue.source import Feed, ReplicaSource
from tests.simulator.mistakes_safety import patched


def ignoring(frame: Kind) -> AbstractContextManager[None]:
    def apply(self: Replica, kind: int, body: bytes) -> None:
        if kind != frame:
            old(self, kind, body)
        elif kind == Kind.SLICE:
            self._send(Kind.CREDIT, b"")

    old = Replica._apply
    return patched(Replica, _apply=apply)


def copies_kept() -> AbstractContextManager[None]:
    """A follower keeps what has left the queue that it follows."""
    return ignoring(Kind.DROP)


def copies_lost() -> AbstractContextManager[None]:
    """A follower throws away what it is sent."""
    return ignoring(Kind.SLICE)


def one_pass() -> AbstractContextManager[None]:
    """The source compares once, and never again."""

    def finish(self: ReplicaSource, feed: Feed) -> None:
        old(self, feed)
        feed.rest_until = inf

    old = ReplicaSource._finish
    return patched(ReplicaSource, _finish=finish)
