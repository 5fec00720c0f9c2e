"""The open senders of a session, for both APIs; nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from client_lib.addresses.address import Address
from client_lib.addresses.nodes import Node
from client_lib.addresses.once import Once, demand_once, once_of
from client_lib.addresses.operations import Resolution
from client_lib.addresses.scratch import start_resolution
from client_lib.core.channel_worker import ChannelWorker
from client_lib.core.window import Window
from client_lib.steps import Steps

W = TypeVar("W", bound=Window)


class Senders:
    """All methods may be called from any thread."""

    def __init__(self, worker: ChannelWorker) -> None:
        self._worker = worker
        self._open: dict[Window, None] = {}

    def all(self) -> list[Any]:
        with self._worker.monitor:
            return list(self._open)

    def add(self, window: W) -> W:
        """Registers an open sender."""
        with self._worker.monitor:
            self._worker.check()
            self._open[window] = None
        return window

    def opening(
        self, address: str | Address, make: Callable[[str, str, bool], W], exactly_once: bool | str = False
    ) -> Steps[W]:
        """`make(routing_key, exchange, mandatory)`; raises AddressError and its subclasses."""
        once = once_of(exactly_once)
        node = Node(self._worker.requests, address)
        plan = yield from node.sending(once)
        try:
            window = make(plan.routing_key or "", plan.exchange, plan.mandatory)
            window.subject, window.target, window.node, window.once = plan.subject, plan.target, node, plan.once
            return self.add(window)
        except BaseException:
            undo(self._worker, node)
            raise

    def demanding(self, name: str, once: Once, is_queue: bool) -> Steps[None]:
        """Asks the queue or exchange for what `once` promises, now and after fail-overs.  Raises as `demand_once`."""

        def asking() -> Resolution[None]:
            check = yield from demand_once(name, once, is_queue)
            self._worker.requests.restores[name, is_queue, once] = (check,)

        yield start_resolution(self._worker.requests, asking, f"exactly_once of {name!r}")

    def closing(self, window: Window) -> Steps[None]:
        """Called when its messages are settled, or are no longer waited for."""
        with self._worker.monitor:
            if not window.end():
                return
            self._open.pop(window, None)
        if window.node is not None and self._worker.ending.error is None:
            yield from window.node.closing()


def undo(worker: ChannelWorker, node: Node) -> None:
    """Undoes what the address asks to undo at close.  Not waited for."""
    if worker.ending.error is None:
        for _ in node.closing():
            pass
