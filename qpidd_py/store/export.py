"""The content of a journal at rest as an archive: what a broker with this journal would hold.                 Shell."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final

from qpidd_py.amqp.json_object import read_object
from qpidd_py.broker.configuration import Cancelled
from qpidd_py.broker.configurations import Configurations
from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core import Engine
from qpidd_py.store.archive import Header, position_text
from qpidd_py.store.archive_file import ArchiveWriter
from qpidd_py.store.content import Objects, kept_queues, messages
from qpidd_py.store.disk import Disk
from qpidd_py.store.recovery import Found, frames
from qpidd_py.store.replay import Replay

TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class _Unobserved:
    def queue_created(self, queue: DeclaredQueue) -> None:
        """No process uses it."""

    def queue_limited(self, queue: DeclaredQueue) -> None:
        """The same."""

    def delays(self, exchange: Exchange, queue: DeclaredQueue) -> None:
        """Nothing becomes due."""

    def queue_dropped(self, queue: DeclaredQueue, cancelled: Cancelled) -> None:
        """No process used it."""


def export(disk: Disk, found: Found, damage: str, stream: IO[bytes]) -> ArchiveWriter:
    """`found`, `damage`: what can be read, and what cannot.  The whole content is in memory meanwhile, as in a broker.

    Raises LinkError and OSError."""
    engine = Engine()
    configurations = Configurations(engine, lambda configuration: _Unobserved())
    engine.on_config = configurations.apply
    replay = Replay(engine, configurations, found)
    replay.apply(frames(disk, found))
    position = engine.position
    engine.begin_epoch(engine.epoch + 1)  # so that what was handed out says that it may come again
    now, hosts = time.strftime(TIME, time.gmtime()), len(configurations.hosts) > 1
    header = Header(now, "", position_text(position), True, damage, hosts)
    writer = ArchiveWriter(stream, header)
    for payload in Objects(configurations):
        writer.object(payload)
    leaders = _leaders(replay.note)
    for queue in kept_queues(configurations):
        for message in messages(queue):
            writer.message(message._replace(leader=leaders.get(message.id >> 48, "")))
    writer.finish()
    return writer


def _leaders(note: bytes) -> Mapping[int, str]:
    """Epoch -> id of the broker that assigned its ids, if a member of a cluster wrote the journal."""
    with suppress(ValueError, TypeError, KeyError):
        return {epoch: leader for epoch, leader, *_ in read_object(note)["lineage"] if isinstance(epoch, int)}
    return {}
