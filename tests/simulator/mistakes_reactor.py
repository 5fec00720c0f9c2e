"""Mistakes about the turn and about sockets that take a part: only what `reactor.py` does can show them."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.simulator.mistakes_safety import patched
from tests.simulator.reactor import Reactor, Socket


def settled_with_the_write() -> AbstractContextManager[None]:
    """Deliveries without acknowledgement are settled when they are written, though the socket takes a part only."""

    def left(self: Socket, waiting: int) -> None:
        old(self, 0)

    old = Socket.left
    return patched(Socket, left=left)


def confirm_before_sealing() -> AbstractContextManager[None]:
    """When all that was sent to the backups is safe, so is what the turn has read and not sent yet."""

    def end_turn(self: Reactor) -> None:
        engine, process = self._process.engine, self._process
        if process.is_primary and engine.safe == sealed.get(self, 0):
            engine.advance_safe(engine.position)
        old(self)
        sealed[self] = engine.position

    old = Reactor.end_turn
    sealed: dict[Reactor, int] = {}
    return patched(Reactor, end_turn=end_turn)
