"""Access control for connections: decides about an AMQP connection as soon as it is open.

own id and instance        refused by every broker: a broker has connected to itself
qpid.ha-admin              admitted by every broker, unless it is one of the links below as well
any client                 admitted by a primary unless it is isolated or an archive is being restored; a backup
                           refuses it and names the primary by its public address (`public_url.py`)
qpid.ha-replica            as any client: it follows a queue, see `single_queue/follower.py`
qpid.ha-backup             admitted by a primary, for the user of ha-username

A link shows messages whatever the rights of its user, so a user whose rights are limited gets none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ha.model.protocol import ADMIN, BACKUP, REPLICA
from ha.node import Node
from qpidd_py.broker.ports import Refusal
from qpidd_py.errors import ReplyCode


def limited_link(properties: Mapping[str, Any], user: str) -> Refusal | None:
    """For a user with limited rights; None if it is no link."""
    if BACKUP not in properties and REPLICA not in properties:
        return None
    text = f"ACCESS_REFUSED - user {user!r} has limited rights, and a link shows all messages"
    return Refusal(ReplyCode.ACCESS_REFUSED, text)


def admit(node: Node, properties: Mapping[str, Any], user: str = "", limited: bool = False) -> Refusal | None:
    """None admits the connection.  `limited`: the user's rights are."""
    if limited and (refusal := limited_link(properties, user)):
        return refusal
    backup, client = properties.get(BACKUP), BACKUP not in properties and REPLICA not in properties
    said = backup if isinstance(backup, Mapping) else {}
    if said.get("id") == node.local.id and said.get("instance", "") in ("", node.local.instance):
        return Refusal(ReplyCode.CONNECTION_FORCED, f"CONNECTION_FORCED - {node.local.member} has connected to itself")
    if properties.get(ADMIN) and client:
        return None
    if not node.local.state.is_primary:
        return Refusal(ReplyCode.CONNECTION_FORCED, node.role.refusal_text(client))
    if BACKUP not in properties and (closed := node.role.isolation_text() or node.local.closed()):
        return Refusal(ReplyCode.CONNECTION_FORCED, closed)
    username = node.local.settings.username
    if BACKUP in properties and username and user and user != username:
        text = f"ACCESS_REFUSED - {user} is not the user of ha-username"
        return Refusal(ReplyCode.ACCESS_REFUSED, text)
    return None
