"""Puts what a journal holds into an engine and a configuration.                                               Pure."""

from __future__ import annotations

from collections.abc import Iterable

from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.configurations import Configurations
from qpidd_py.broker.snapshot import decode_snapshot
from qpidd_py.core import Engine
from qpidd_py.store.layout import Kind
from qpidd_py.store.recovery import CARRY, QUEUE, Found, Frame


class Replay:
    """Applies frames from the head of the journal on.

    The journal begins with a snapshot of the configuration.  Messages that were waiting then come in `CARRIED` frames,
    between the batches that were written meanwhile, and are merged into their queues when the carry was complete.
    It ends before a base whose carry was not: what follows continues other content than what came before.
    A difference that was not completed is left out."""

    def __init__(self, engine: Engine, configurations: Configurations, found: Found) -> None:
        self._engine = engine
        self._configurations = configurations
        self._carry = found.carry
        self._taken = found.taken
        self._begun = False
        self.frames = 0
        self.note = b""
        """The last note; empty if there is none."""
        self.ended = False
        """Frames follow that continue other content."""
        self.open = False
        """The last frames belong to a difference that was not completed."""

    def apply(self, frames: Iterable[Frame]) -> None:
        """Raises LinkError for a frame that does not fit what came before it."""
        for frame in frames:
            self.ended = frame.kind == Kind.BASE and frame.carry > self._carry
            if self.ended:
                return
            if frame.kind in (Kind.DIFFERENCE, Kind.GIVEN_UP):
                self.open = frame.kind == Kind.DIFFERENCE and frame.number not in self._taken
                self._merge_all()  # places of removed messages must not block those that come again
            elif not self.open:
                self._apply(frame)
            self.frames += 1

    def _apply(self, frame: Frame) -> None:
        if frame.kind == Kind.BATCH:
            self._engine.apply(frame.octets)
        elif frame.kind == Kind.SNAPSHOT and not self._begun:
            self._begun = True
            self._engine.set_position(frame.position)
            adopt(self._configurations, decode_snapshot(frame.body))
        elif frame.kind == Kind.CARRIED and frame.carry == self._carry:
            self._engine.apply_slice(frame.body[CARRY.size :])
        elif frame.kind == Kind.HEAD and frame.head[0] == self._carry:
            self._merge_all()
        elif frame.kind == Kind.NOTE:
            self.note = frame.body
        else:
            self._change(frame)

    def _change(self, frame: Frame) -> None:
        """A part of a difference."""
        if frame.kind == Kind.ADOPTED:
            self._engine.set_position(frame.position)
            adopt(self._configurations, decode_snapshot(frame.body))
        elif frame.kind == Kind.DROP:
            self._engine.drop(frame.first(QUEUE), frame.body[QUEUE.size :])
        elif frame.kind == Kind.SLICE:
            self._engine.apply_slice(frame.body)
        elif frame.kind == Kind.MERGE:
            self._engine.merge(frame.first(QUEUE))
        elif frame.kind == Kind.TAKEN:
            self._merge_all()
            self._engine.set_position(frame.position)

    def _merge_all(self) -> None:
        for number in self._engine.queues:
            self._engine.merge(number)


def continue_alone(broker: Broker) -> None:
    """What was read counts as safe, since it is on disk, and the log continues in a new epoch."""
    engine = broker.engine
    broker.vhosts.rules.default_replicate = "all"  # what is in the log is in the journal
    engine.begin_epoch(engine.epoch + 1)
    engine.advance_safe(engine.position)
