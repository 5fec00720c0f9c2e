"""The hooks that the broker calls in a member of a cluster.                                                   Shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ha.environment import Json, Reply
from ha.model.protocol import BACKUP, REPLICA
from ha.node import Node
from ha.requests import NodeRequests
from ha.shell.client_rows import ClientRows, carried, described
from ha.shell.connection_guard import admit
from ha.shell.core_link import IncomingLink
from qpidd_py.errors import LinkError
from qpidd_py.hooks import Refusal

if TYPE_CHECKING:
    from qpidd_py.broker.session import Session


class Replication(Protocol):
    """The replication of single queues."""

    def opened(self, session: Session) -> bool:
        """True for a follower's connection, which the replication then handles."""
        ...


class ClusterHooks:
    """What a member of a cluster does for the broker (`qpidd_py.hooks.HaHooks`)."""

    def __init__(self, node: Node, replication: Replication | None = None) -> None:
        self._node = node
        self.clients = ClientRows(node.local.env.event)
        self._replication = replication
        self.requests = NodeRequests(node)
        self.requests.add("ha.replicate", self._no_replica)

    @staticmethod
    def _no_replica(arguments: Json, user: str) -> Json:
        raise LinkError("a member of a cluster follows its primary only; single queues are for brokers outside")

    def admit(self, session: Session, properties: Mapping[str, Any]) -> Refusal | None:
        rejection = admit(self._node, properties, session.user)
        return None if rejection is None else Refusal(rejection.code, rejection.text)

    def opened(self, session: Session) -> bool:
        if BACKUP not in session.client_properties:
            if _is_client(session):
                self._note_opened(session)
            return self._replication is not None and self._replication.opened(session)
        link = IncomingLink(self._node, session)
        session.link = link
        session.connection.switch_to_link(False)
        self._node.link_accepted(link, dict(session.client_properties))
        return True

    def _note_opened(self, session: Session) -> None:
        properties = session.client_properties
        fields, attrs = described(session.peer, session.user, properties)
        reading = carried(properties, session.broker.clocks()[1] - session.started)
        if reading is not None:
            attrs["peer_wall"] = reading
        self.clients.opened(session.number, fields, attrs, self._node.local.env.now())

    def session_closed(self, session: Session) -> None:
        if _is_client(session):
            self.clients.closed(session.number, session.end_reason)

    def request(self, method: str, arguments: Json, reply: Reply, user: str) -> bool:
        return self.requests.request(method, arguments, reply, user)

    def tick(self, now: float) -> None:
        """The node has timers of its own."""
        self.clients.tick(now)


def _is_client(session: Session) -> bool:
    """True for a client, not an admin connection or a link."""
    return not session.admin and BACKUP not in session.client_properties and REPLICA not in session.client_properties
