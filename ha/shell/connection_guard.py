"""Who may connect to whom, decided when an AMQP connection has just become open.

own id and instance        refused, by everyone: a broker has connected to itself
qpid.ha-admin              let in, by everyone
any client                 let in by a primary unless that is isolated; a backup refuses it and names the primary, as
                           clients reach it (`public_url.py`)
qpid.ha-replica            as any client: it follows a queue, see `single_queue/follower.py`
qpid.ha-backup             let in by a primary, as the user of ha-username
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
    """What `connection.close` says."""

    code: int
    text: str


def admit(node: Node, properties: Mapping[str, Any], user: str = "") -> Rejection | None:
    """None lets the connection in."""
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
    if backup is None and (isolated := node.role.isolation_text()):
        return Rejection(ReplyCode.CONNECTION_FORCED, isolated)
    username = node.local.settings.username
    if backup is not None and username and user and user != username:
        text = f"ACCESS_REFUSED - {user} is not the user of ha-username"
        return Rejection(ReplyCode.ACCESS_REFUSED, text)
    return None
