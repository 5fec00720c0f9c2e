"""The rule `ha-promote-on-shutdown`: whether this broker may be stopped in a controlled way.

when-synced   a primary that no backup can replace without a loss refuses to stop, and says what is missing
always        it stops, with a warning

A broker without replicated queues, without other brokers in its cluster, or with a journal, may always stop.
"""

from __future__ import annotations

from ha.node import Node
from ha.primary.primary import Primary


def may_stop(node: Node, rule: str) -> str:
    """Why the broker must not stop; empty if it may.  Writes an event if messages would be lost, under both rules."""
    loss = would_lose(node)
    if not loss:
        return ""
    refused = rule != "always"
    if not refused:
        node.local.env.log("warning", f"stopping although {loss}")
    node.local.env.event("stop_request", result="refused" if refused else "warned", reason=loss)
    return loss if refused else ""


def is_last(node: Node) -> bool:
    """True for a primary whose queues no backup in sync can take over."""
    role = node.role
    if not isinstance(role, Primary) or role.ready() or not node.local.cluster.others() or node.local.keeps:
        return False
    return any(True for _ in node.local.configuration.replicated())


def would_lose(node: Node) -> str:
    """What a stop of this broker would lose; empty if a backup in sync can take over."""
    role = node.role
    if not isinstance(role, Primary) or not is_last(node):
        return ""
    queues = [queue for queue, _ in node.local.configuration.replicated()]
    messages = sum(queue.ready + queue.unacked for queue in queues)
    return (
        f"{node.local.member} is primary, and no backup is in sync: {len(queues)} queues with {messages} messages "
        f"would be lost ({_missing(node, role)})"
    )


def _missing(node: Node, role: Primary) -> str:
    shown = {member["address"]: f"{member['name']} is {member['state']}" for member in role.members()}
    return ", ".join(shown.get(address, f"{address} is not connected") for address in node.local.cluster.others())
