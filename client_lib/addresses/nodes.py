"""Opening and closing the addresses of senders and receivers, for both APIs; nothing here waits.

What an address declared is restored after a fail-over as soon as the broker has confirmed the declaration: the I/O
thread adds the entry to `restores` before it handles any other event of the connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from client_lib.addresses.address import Address, parse
from client_lib.addresses.once import Once
from client_lib.addresses.operations import Operation, Resolution
from client_lib.addresses.resolve import ReceiverPlan, SenderPlan, resolve_receiver, resolve_sender
from client_lib.addresses.scratch import start_resolution, start_undo
from client_lib.steps import Steps

P = TypeVar("P", SenderPlan, ReceiverPlan)


class Declaring(Protocol):
    """The part of a session that this module uses."""

    restores: dict[object, tuple[Operation, ...]]
    """What is declared again after a fail-over, by owner (I/O thread, or lock held)."""

    def start_command(self, run: Callable[[Any, Callable[[Any], None]], None], what: str) -> Future[Any]: ...


class Node:
    """An address in use by one sender or receiver."""

    def __init__(self, session: Declaring, address: str | Address) -> None:
        """Raises MalformedAddress, InvalidOption."""
        self._session = session
        self._address = parse(address) if isinstance(address, str) else address
        self._unique = uuid.uuid4().hex
        self._undo: tuple[Operation, ...] = ()
        self._vanishes: tuple[Operation, ...] = ()
        self._wanted = True

    def sending(self, once: Once | None = None) -> Steps[SenderPlan]:
        """Raises the errors of `client_lib.addresses.resolve` and the error that ended the session."""
        return self._opening(partial(resolve_sender, once=once))

    def receiving(self) -> Steps[ReceiverPlan]:
        return self._opening(resolve_receiver)

    def closing(self) -> Steps[None]:
        """Undoes what the address asks to undo at close; safe to repeat."""
        undo = self._end()
        if undo:
            yield start_undo(self._session, undo)

    def outliving(self) -> list[Operation]:
        """Returns what must be undone and does not vanish with the session; `closing` then does nothing."""
        return [operation for operation in self._end() if operation not in self._vanishes]

    def _end(self) -> tuple[Operation, ...]:
        undo, self._undo = self._undo, ()
        self._forget()
        return undo

    def _opening(self, resolve: Callable[[Address, str], Resolution[P]]) -> Steps[P]:
        def resolution() -> Resolution[P]:
            plan = yield from resolve(self._address, self._unique)
            if self._wanted:
                self._session.restores[self] = plan.restore
            return plan

        try:
            plan: P = yield start_resolution(
                self._session, resolution, f"what the address {str(self._address)!r} asks for"
            )
        except BaseException:  # also after a timeout: the resolution may still complete
            self._forget()
            raise
        self._undo, self._vanishes = plan.undo, plan.vanishes
        return plan

    def _forget(self) -> None:
        self._wanted = False
        self._session.restores.pop(self, None)


def ending(session: Declaring, nodes: Iterable[Node | None]) -> Steps[None]:
    """At the end of a session: undoes everything that would outlive it."""
    undo = [operation for node in nodes if node is not None for operation in node.outliving()]
    if undo:
        yield start_undo(session, undo)
