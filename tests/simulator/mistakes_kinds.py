"""Mistakes about queues of special kinds: keys that enter once, delays, groups, last values, letters that are kept,
queues that end with their clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from ha.model.protocol import Kind
from ha.shell.configuration import VHostConfiguration
from ha.shell.core_link import CoreLink
from qpidd_py.broker import configuration, deduplication, qpid_arguments, shadow, vhost
from qpidd_py.broker import queue as queues
from qpidd_py.core import Queue
from qpidd_py.core.values import keep_last_of
from qpidd_py.core.window import Window
from tests.simulator.mistakes_safety import patched

REMEMBERED = 8
"""OP_REMEMBERED of the core."""
FEW = 2
"""Values, somebody has thought."""


def keys_left_out() -> AbstractContextManager[None]:
    """A joining backup gets the messages and not the keys of those that have left."""

    def send_frame(self: CoreLink, kind: int, position: int, body: bytes) -> None:
        old(self, kind, position, _without_keys(body) if kind == Kind.SLICE else body)

    old = CoreLink.send_frame
    return patched(CoreLink, send_frame=send_frame)


def _without_keys(body: bytes) -> bytes:
    kept, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "little")
        kept.append(body[at : at + size] if body[at + 4] != REMEMBERED else b"")
        at += size
    return b"".join(kept)


def secret_of_its_own() -> AbstractContextManager[None]:
    """Each broker hashes keys under a secret of its own, so those that it gets from others are never found."""

    def window_of(arguments: Mapping[str, Any], secret: str) -> Window | None:
        return old(arguments, f"{secret}{next(numbers)}")

    old, numbers = deduplication.window_of, count()
    return patched(queues, window_of=window_of)


def waiting_not_compared() -> AbstractContextManager[None]:
    """A joining backup gets nothing of what waits in exchanges."""

    def replicated(self: VHostConfiguration) -> list[tuple[Queue, int]]:
        return [each for each in old(self) if not each[0].name.startswith(shadow.WAITING)]

    old: Callable[[VHostConfiguration], Any] = VHostConfiguration.replicated
    return patched(VHostConfiguration, replicated=replicated)


def due_when_promoted() -> AbstractContextManager[None]:
    """A new primary sends on at once what waits."""

    def on_promoted(self: VHostConfiguration) -> None:
        old(self)
        vhost = self._broker.vhost
        for waiting in filter(None, (exchange.waiting for exchange in vhost.exchanges.values())):
            letter: Any = waiting.core.dead_letter
            vhost.engine.move(waiting.core, 1 << 30, lambda *content, letter=letter: letter("due", *content, b"")[0])

    old = VHostConfiguration.on_promoted
    return patched(VHostConfiguration, on_promoted=on_promoted)


def groups_ignored() -> AbstractContextManager[None]:
    """A queue with groups is like any other."""
    return patched(qpid_arguments, group_by=lambda queue, key: None)


def values_as_a_ring() -> AbstractContextManager[None]:
    """A last-value queue keeps the newest messages, as many as there are values, as somebody has thought."""

    def keep(queue: Queue, key: str) -> None:
        keep_last_of(queue, key)
        queue.max_count = FEW  # those of the plans have three

    return patched(qpid_arguments, keep_last_of=keep)


def values_kept() -> AbstractContextManager[None]:
    """It keeps all."""
    return patched(qpid_arguments, keep_last_of=lambda queue, key: None)


def kept_letters_dropped() -> AbstractContextManager[None]:
    """A dead letter that no queue takes is dropped, whatever the strategy."""
    return patched(queues, keeps_letters=lambda arguments: False)


def expires_early() -> AbstractContextManager[None]:
    """A message lives for a part of its time."""
    return _limited(lambda core: _set(core, "ttl", core.ttl // 4))


def limit_off_by_one() -> AbstractContextManager[None]:
    """A queue is full with the last message that it may have."""
    return _limited(lambda core: _set(core, "max_count", core.max_count - (core.name == "short")))


def leaves_early() -> AbstractContextManager[None]:
    """A queue waits for its consumer for a part of its time."""

    def delay(self: queues.DeclaredQueue) -> float | None:
        value: float | None = old(self)
        return value and value / 4

    old: Any = queues.DeclaredQueue.delay.fget  # type: ignore[attr-defined]
    return patched(queues.DeclaredQueue, delay=property(delay))


def waits_for_ever() -> AbstractContextManager[None]:
    """A queue waits for its consumer and is never deleted."""
    return patched(queues.DeclaredQueue, delay=property(lambda self: 1e6 if self.auto_delete else None))


def exclusive_replicated() -> AbstractContextManager[None]:
    """An exclusive queue is replicated like any other."""

    def level(arguments: Mapping[str, Any], temporary: bool, default: str) -> str:
        return old(arguments, False, default)

    old = vhost.queue_level  # type: ignore[attr-defined]
    return patched(vhost, queue_level=level)


def _set(core: Queue, name: str, value: int) -> None:
    setattr(core, name, value)


def _limited(change: Callable[[Queue], None]) -> AbstractContextManager[None]:
    def limit(core: Queue, arguments: Mapping[str, Any], secret: str = "") -> None:
        old(core, arguments, secret)
        if core.name in ("brief", "short"):
            change(core)

    old = queues.limit
    return patched(configuration, limit=limit)
