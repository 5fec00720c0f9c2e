"""Access control for connections: decides about an AMQP connection as soon as it is open.

own id and instance        refused by every broker: a broker has connected to itself
qpid.ha-admin              admitted by every broker
any client                 admitted by a primary unless it is isolated or an archive is being restored; a backup
                           refuses it and names the primary by its public address (`public_url.py`)
qpid.ha-replica            as any client: it follows a queue, see `single_queue/follower.py`
qpid.ha-backup             admitted by a primary, for the user of ha-username
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ha.model.protocol import ADMIN, BACKUP, REPLICA
from ha.node import Node
from qpidd_py.errors import ReplyCode


@dataclass(frozen=True)
class Rejection:
    """Code and text for `connection.close`."""

    code: int
    text: str


def admit(node: Node, properties: Mapping[str, Any], user: str = "") -> Rejection | None:
    """None admits the connection."""
    backup = properties.get(BACKUP)
    said = backup if isinstance(backup, Mapping) else {}
    if said.get("id") == node.local.id and said.get("instance", "") in ("", node.local.instance):
        return Rejection(
            ReplyCode.CONNECTION_FORCED, f"CONNECTION_FORCED - {node.local.member} has connected to itself"
        )
    if properties.get(ADMIN):
        return None
    if not node.local.state.is_primary:
        client = backup is None and REPLICA not in properties
        return Rejection(ReplyCode.CONNECTION_FORCED, node.role.refusal_text(client))
    if backup is None and (closed := node.role.isolation_text() or node.local.closed()):
        return Rejection(ReplyCode.CONNECTION_FORCED, closed)
    username = node.local.settings.username
    if backup is not None and username and user and user != username:
        text = f"ACCESS_REFUSED - {user} is not the user of ha-username"
        return Rejection(ReplyCode.ACCESS_REFUSED, text)
    return None
