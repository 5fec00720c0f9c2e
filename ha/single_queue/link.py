"""Replication of single queues in a broker: its followers, the queues it follows, `ha.replicate`.                Shell.

Brokers outside a cluster need `ha-queue-replication` at both ends; a cluster's primary always serves followers, but a
member never follows: its queues belong to the log.

    ha.replicate {broker, queue}        follow; answers when the source admits us, or every address was tried once
    ha.replicate {queue, stop: true}    end it; the messages stay
    ha.replicate {}                     lists the followed queues and their progress
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from ha.dial import Dial
from ha.model.environment import Answer, Json, Link, Reply
from ha.model.protocol import REPLICA, need
from ha.shell.connector import Connector
from ha.shell.consistent import consistently
from ha.shell.core_link import IncomingLink, LinkOwner
from ha.shell.environment import LEVELS
from ha.single_queue.follower import FollowStep, Replica, Source
from ha.single_queue.source import ReplicaSource, Standing
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.config import LinkSettings
from qpidd_py.core import Queue
from qpidd_py.errors import LinkError
from qpidd_py.plugins import PluginHost

log = logging.getLogger("ha")


class LoopPort:
    """The environment of followers and sources (`follower.Port`)."""

    def __init__(self, host: PluginHost) -> None:
        self._loop = host.loop
        self._connector = Connector(host.loop, host.engine, host.reactor, self._run)
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        self._connector.stop()

    def now(self) -> float:
        return time.monotonic()

    def after(self, delay: float, call: Callable[[], None]) -> None:
        self._loop.call_later(delay, self._run, call)

    def connect(
        self,
        owner: LinkOwner,
        address: str,
        dial: Dial,
        properties: Mapping[str, object],
        timeout: float,
        done: Callable[[Link | Answer], None],
    ) -> None:
        self._connector.connect(owner, address, dial, properties, timeout, done)

    def log(self, level: str, text: str) -> None:
        log.log(LEVELS[level], "%s", text)

    def _run(self, call: Callable[[], None]) -> None:
        if not self._stopped:
            consistently(call, "the replication of queues")


class QueueReplication:
    """The queue replication of one broker."""

    def __init__(self, host: PluginHost, dial: Dial, slice_size: int, standing: Callable[[], Standing]) -> None:
        """`dial`: its login is used if a URL has none."""
        self._host, self._dial = host, dial
        self._links: LinkSettings = host.settings[LinkSettings]
        self._port = LoopPort(host)
        heartbeat = self._links.link_heartbeat_interval
        self._source = ReplicaSource(self._port, host.engine, self._find, standing, heartbeat, slice_size)
        self._replicas: dict[str, Replica] = {}

    def stop(self) -> None:
        """The process ends."""
        self._port.stop()

    def opened(self, connection: ClientConnection) -> bool:
        """True if the opened connection is a follower's; then it is handled here."""
        if REPLICA not in connection.client.properties:
            return False
        link = IncomingLink(self._source, connection)
        connection.link = link
        connection.core.switch_to_link(False)
        self._source.accepted(link)
        return True

    def _find(self, name: str) -> Queue | None:
        """A queue that can be followed; a replica cannot, since its ids are not ours."""
        queue = self._host.broker.vhost.queues.get(name)
        return queue.core if queue is not None and not queue.reserved else None

    # ---- ha.replicate ---------------------------------------------------------------------------------------------

    def request(self, arguments: Json, user: str, reply: Reply) -> None:
        """Raises LinkError with the reason of a refusal."""
        if not arguments.get("queue"):
            shown = [replica.shown() for _, replica in sorted(self._replicas.items())]
            reply({"ok": True, "result": {"replicas": shown}})
        elif arguments.get("stop"):
            reply({"ok": True, "result": self._stop(need(arguments, "queue", str))})
        else:
            self._start(need(arguments, "queue", str), need(arguments, "broker", str), reply)

    def _start(self, name: str, url: str, reply: Reply) -> None:
        try:
            source = Source.parse(url, self._dial)
        except ValueError as error:
            raise LinkError(f"broker {url!r}, expected {error}") from error
        known = self._replicas.get(name)
        if known is not None and known.source == source:
            reply({"ok": True, "result": known.shown()})
            return
        queue = self._checked(name)
        links = self._links
        replica = Replica(
            self._port,
            self._host.engine,
            queue.core,
            source,
            self._host.name,
            links.link_heartbeat_interval,
            links.link_maintenance_interval,
            self._ended,
        )
        queue.reserved = f"is a replica of that of {source}"
        self._host.engine.forget_routes()
        self._replicas[name] = replica
        replica.first = lambda: reply(_outcome(replica))
        replica.start()

    def _checked(self, name: str) -> DeclaredQueue:
        """The local queue, if it can become a replica.  Raises LinkError."""
        queue = self._host.broker.vhost.queues.get(name)
        if queue is None:
            raise LinkError(f"no queue {name!r} on {self._host.name}: declare it before it can be a replica")
        if queue.reserved:
            raise LinkError(f"queue {name!r} {queue.reserved}; stop that first")
        if queue.exclusive or queue.auto_delete or queue.expires is not None:
            raise LinkError(f"queue {name!r} is exclusive, auto-delete or expires: it cannot be a replica")
        if queue.core.consumer_count:
            raise LinkError(f"queue {name!r} has {queue.core.consumer_count} consumers: it cannot become a replica")
        count = queue.core.ready + queue.core.unacked
        if count:
            raise LinkError(f"queue {name!r} holds {count} messages, a replica starts empty: purge it first")
        return queue

    def _stop(self, name: str) -> Json:
        replica = self._replicas.get(name)
        if replica is None:
            raise LinkError(f"queue {name!r} is no replica")
        replica.stop()
        return replica.shown()

    def _ended(self, replica: Replica) -> None:
        name = replica.queue.name
        self._replicas.pop(name, None)
        queue = self._host.broker.vhost.queues.get(name)
        if queue is not None and queue.core is replica.queue:
            queue.reserved = ""
            self._host.engine.forget_routes()
        self._port.log("notice", f"queue {name} is a replica no longer: {replica.reason}")


def _outcome(replica: Replica) -> dict[str, Any]:
    if replica.step is FollowStep.ENDED:
        return {"ok": False, "error": replica.reason}
    return {"ok": True, "result": replica.shown()}
