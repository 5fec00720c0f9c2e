"""Mistakes about single messages: what a consumer is told of them, and what must stay together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ha.model.protocol import Kind
from ha.primary.primary import Primary
from ha.promotion import promoter
from ha.shell.core_link import CoreLink, IncomingLink
from qpidd_py.broker.client_channel import ClientChannel
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core import Batch
from qpidd_py.core.batch import HEADER_SIZE, OPERATIONS, records
from tests.simulator import amqp
from tests.simulator.clients import Client
from tests.simulator.environment import SimTransport
from tests.simulator.mistakes_safety import patched

METHOD, BODY = 1, 3
"""Types of frames."""
LATE = 0.02
"""Seconds."""


def inherited_at_once() -> AbstractContextManager[None]:
    """A new primary hands out at once what it has taken over of transactions.  (It was so once.)"""
    return patched(Primary, _hold_inherited=lambda self: None)


def purge_answered_early() -> AbstractContextManager[None]:
    """A purge that takes several slices is answered after the first one, and the others are forgotten."""

    def emptied(self: ClientChannel, queue: DeclaredQueue | None, reason: str) -> int:
        engine = self.vhost.engine
        return engine.purge_some(queue.core, engine.sequence, reason)[0] if queue is not None else 0

    return patched(ClientChannel, emptied=emptied)


@contextmanager
def redelivered_lost() -> Iterator[None]:
    """A new primary does not know what the one before has handed out."""

    def output(self: SimTransport, leaves: bool = True) -> bytes:
        host: Any = self.end.host
        octets = old(self, leaves)
        if not isinstance(self.end.peer_host, Client):
            return octets
        return _unmarked(octets, handed[host, host.life, host.node.local.persisted.ballot])

    old = SimTransport.output
    handed: defaultdict[Any, set[bytes]] = defaultdict(set)
    with patched(SimTransport, output=output):
        yield


def last_turns_assumed() -> AbstractContextManager[None]:
    """A new primary takes the log that it has for the whole log of the primary before.  (It was so once.)"""
    return patched(promoter, has_the_end=lambda *_: True)


def letters_unmarked() -> AbstractContextManager[None]:
    """A dead letter does not say that an earlier primary may have made it."""
    old = SimTransport.output
    unsaid = amqp.RESENT[:-1] + b"\0"
    return patched(SimTransport, output=lambda self, leaves=True: old(self, leaves).replace(amqp.RESENT, unsaid))


def _unmarked(octets: bytes, handed: set[bytes]) -> bytes:
    """What is not among these says that it was not delivered before; then it is."""
    changed, at, flag = bytearray(octets), 0, 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        payload = octets[at + 7 : at + 7 + size]
        if octets[at] == METHOD and int.from_bytes(payload[:4], "big") == amqp.DELIVER:
            flag = at + 7 + 5 + payload[4] + 8
        elif octets[at] == BODY and flag:
            name = payload.partition(b"|")[0]
            if name not in handed:
                changed[flag] = 0
            handed.add(name)
            flag = 0
        at += size + 8
    return bytes(changed)


@contextmanager
def letter_in_two_batches() -> Iterator[None]:
    """The copy of a dead letter goes out, and the removal of the message later."""

    def send_batch(self: CoreLink, batch: Batch) -> None:
        flush(self)
        data = bytes(batch)[HEADER_SIZE:]
        at = _middle(data)
        if not at or not isinstance(self, IncomingLink):
            old_batch(self, batch)
            return
        old_frame(self, Kind.BATCH, records(data[:at])[-1][2], data[:at])
        late[self] = batch.last, data[at:]
        node: Any = self._told
        node.local.env.after(LATE, lambda: flush(self))

    def send_frame(self: CoreLink, kind: int, position: int, body: bytes) -> None:
        flush(self)
        old_frame(self, kind, position, body)

    def flush(link: CoreLink) -> None:
        if link in late:
            position, rest = late.pop(link)
            old_frame(link, Kind.BATCH, position, rest)

    late: dict[CoreLink, tuple[int, bytes]] = {}
    old_batch, old_frame = CoreLink.send_batch, CoreLink.send_frame
    with patched(CoreLink, send_batch=send_batch, send_frame=send_frame):
        yield


def _middle(data: bytes) -> int:
    """Behind the first dead letter, if something follows it; else 0."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if b"x-death" in data[at : at + size]:
            return at + size if at + size < len(data) else 0
        at += size
    return 0


def uncounted_by_backups() -> AbstractContextManager[None]:
    """A backup does not apply how often messages came back."""
    old = CoreLink.send_batch

    def send_batch(self: CoreLink, batch: Batch) -> None:
        data = bytes(batch)[HEADER_SIZE:]
        kept = _without_counts(data)
        if kept == data or not isinstance(self, IncomingLink):
            old(self, batch)
        else:
            self.send_frame(Kind.BATCH, batch.last, kept)

    return patched(CoreLink, send_batch=send_batch)


def uncounted_by_who_joins() -> AbstractContextManager[None]:
    """The difference has messages, and not how often they came back."""
    old = CoreLink.send_frame

    def send_frame(self: CoreLink, kind: int, position: int, body: bytes) -> None:
        old(self, kind, position, _without_counts(body) if kind == Kind.SLICE else body)

    return patched(CoreLink, send_frame=send_frame)


def _without_counts(data: bytes) -> bytes:
    found, at = b"", 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        found += b"" if OPERATIONS[data[at + 4]] == "returned" else data[at : at + size]
        at += size
    return found
