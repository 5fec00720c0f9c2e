"""The hooks that the broker calls in a member of a cluster.                                                   Shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ha.model.environment import Json, Reply
from ha.model.protocol import BACKUP, REPLICA
from ha.node import Node
from ha.requests import FileRequests, LaterHandler, NodeRequests
from ha.shell.client_rows import ClientRows, carried, described
from ha.shell.connection_guard import admit
from ha.shell.core_link import IncomingLink
from ha.shell.failover_updates import FailoverUpdates
from ha.shell.waiting_clients import WaitingClients
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.ports import Later, Refusal


class Replication(Protocol):
    """The replication of single queues."""

    def opened(self, connection: ClientConnection) -> bool:
        """True for a follower's connection, which the replication then handles."""
        ...


class ClusterHooks:
    """What a member of a cluster does for the broker (`qpidd_py.broker.hooks.HaHooks`)."""

    cluster = True

    def __init__(
        self,
        node: Node,
        replication: Replication | None = None,
        files: FileRequests | None = None,
        archive: Mapping[str, LaterHandler] | None = None,
    ) -> None:
        """As in `NodeRequests`."""
        self._node = node
        self.clients = ClientRows(node.local.env.event)
        self._replication = replication
        self.requests = NodeRequests(node, files, archive)
        self.failover: FailoverUpdates | None = None
        self.waiting = WaitingClients(node)

    def admit(self, connection: ClientConnection, properties: Mapping[str, Any]) -> Refusal | Later | None:
        refusal = admit(self._node, properties, connection.user, not connection.client.everything)
        waits = refusal is not None and _is_client(connection) and self.waiting.keeps(connection)
        return Later() if waits else refusal

    def opened(self, connection: ClientConnection) -> bool:
        if BACKUP not in connection.client.properties:
            if _is_client(connection):
                self._note_opened(connection)
            return self._replication is not None and self._replication.opened(connection)
        link = IncomingLink(self._node, connection)
        connection.link = link
        connection.core.switch_to_link(False)
        self._node.link_accepted(link, dict(connection.client.properties))
        return True

    def _note_opened(self, connection: ClientConnection) -> None:
        properties = connection.client.properties
        fields, attrs = described(connection.peer, connection.user, properties)
        reading = carried(properties, connection.broker.clocks()[1] - connection.opening.started)
        if reading is not None:
            attrs["peer_wall"] = reading
        self.clients.opened(connection.number, fields, attrs, self._node.local.env.now())

    def connection_closed(self, connection: ClientConnection) -> None:
        if _is_client(connection):
            self.clients.closed(connection.number, connection.end_reason)

    def request(self, method: str, arguments: Json, reply: Reply, user: str) -> bool:
        return self.requests.request(method, arguments, reply, user)

    def limited(self, reason: str) -> None:
        self._node.limited(reason)

    def alarm(self, name: str, reason: str) -> None:
        self._node.alarm(name, reason)

    def damaged(self, reason: str) -> None:
        self._node.damaged(reason)

    def paging(self, result: str, reason: str) -> None:
        self._node.local.env.event("paging", result=result, reason=reason, last_pos=self._node.role.position)

    def tick(self, now: float) -> None:
        """The node has timers of its own."""
        self.clients.tick(now)
        if self.failover is not None:
            self.failover.look()


def _is_client(connection: ClientConnection) -> bool:
    """True for a client, not an admin connection or a link."""
    properties = connection.client.properties
    return not connection.client.admin and BACKUP not in properties and REPLICA not in properties
