"""What a broker answers, as the objects of RabbitMQ's management API 3.10.                                     Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from qpidd_py.broker.exchange import EXCHANGE_TYPES
from qpidd_py.cli.definitions import API

Json = dict[str, Any]


def queue(item: Mapping[str, Any], node: str) -> Json:
    arguments = item["arguments"]
    return {
        "name": item["name"],
        "vhost": item["vhost"],
        "durable": item["durable"],
        "auto_delete": item["auto_delete"],
        "exclusive": item["exclusive"],
        "arguments": arguments,
        "type": arguments.get("x-queue-type", "classic"),
        "node": node,
        "state": "flow" if item["flow_stopped"] else "running",
        **_policies(item),
        "messages": item["messages"],
        "messages_ready": item["ready"],
        "messages_unacknowledged": item["unacked"],
        "message_bytes": item["bytes"],
        "message_bytes_ready": item["ready_bytes"],
        "consumers": item["consumers"],
        "message_stats": {"publish": item["enqueued"], "deliver_get": item["dequeued"]},
    }


def exchange(item: Mapping[str, Any]) -> Json:
    names = ("name", "type", "durable", "auto_delete", "internal", "arguments")
    return {**{name: item[name] for name in names}, "vhost": item["vhost"], **_policies(item)}


def _policies(item: Mapping[str, Any]) -> Json:
    """`policy_not_in_force` is ours: key -> why."""
    return {
        "policy": item["policy"] or None,
        "operator_policy": item["operator_policy"] or None,
        "effective_policy_definition": _keys(item["effective"]),
        **({"policy_not_in_force": _keys(item["not_in_force"])} if item["not_in_force"] else {}),
    }


def _keys(arguments: Mapping[str, Any]) -> Json:
    """Of a policy's definition."""
    return {name.removeprefix("x-"): value for name, value in arguments.items()}


def binding(item: Mapping[str, Any]) -> Json:
    key = item["routing_key"]
    return {
        "source": item["source"],
        "vhost": item["vhost"],
        "destination": item["destination"],
        "destination_type": item["destination_type"],
        "routing_key": key if isinstance(key, str) else base64.b64decode(key["base64"]).decode("latin-1"),
        "arguments": item["arguments"],
        "properties_key": properties_key(key, item["arguments"]),
    }


def properties_key(key: Any, arguments: Mapping[str, Any]) -> str:
    """Names a binding between two ends; `~` for one with an empty key."""
    octets = key if isinstance(key, str) else base64.b64decode(key["base64"])
    text = quote(octets, safe="").replace("~", "%7E")
    if not arguments:
        return text or "~"
    told = json.dumps(arguments, sort_keys=True).encode()
    return f"{text}~{hashlib.sha256(told).hexdigest()[:16]}"


def default_binding(name: str, host: str) -> Json:
    """Of each queue to the default exchange."""
    ends = {"source": "", "destination": name, "destination_type": "queue", "routing_key": name}
    return binding({**ends, "vhost": host, "arguments": {}})


def connection(item: Mapping[str, Any], node: str) -> Json:
    return {
        "name": _connection_name(item["peer"], item["number"]),
        "number": item["number"],
        "user": item["user"],
        "vhost": item["vhost"],
        **_peer(item),
        "state": "running" if item["state"] == "opened" else item["state"],
        "channels": item["channels"],
        "recv_oct": item["received"],
        "send_oct": item["sent"],
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "node": node,
        "client_properties": item["client_properties"],
    }


def _connection_name(peer: str, number: int) -> str:
    return f"{peer} -> {number}"


def _peer(item: Mapping[str, Any]) -> Json:
    """Where a client is."""
    host, _, port = str(item["peer"]).rpartition(":")
    return {"peer_host": host.strip("[]"), "peer_port": int(port) if port.isdecimal() else 0}


def channel(item: Mapping[str, Any], node: str) -> Json:
    name = _connection_name(item["peer"], item["connection"])
    return {
        "name": f"{name} ({item['number']})",
        "number": item["number"],
        "user": item["user"],
        "vhost": item["vhost"],
        "node": node,
        "state": "running" if item["active"] else "flow",
        "confirm": item["confirm"],
        "transactional": item["transactional"],
        "prefetch_count": item["prefetch"],
        "global_prefetch_count": item["global_prefetch"],
        "consumer_count": item["consumers"],
        "messages_unacknowledged": item["unacked"],
        "messages_unconfirmed": item["unconfirmed"],
        "connection_details": {"name": name, **_peer(item)},
    }


def consumer(item: Mapping[str, Any]) -> Json:
    details = {"connection_name": _connection_name(item["peer"], item["connection"]), "number": item["channel"]}
    return {
        "queue": {"name": item["queue"], "vhost": item["vhost"]},
        "consumer_tag": item["tag"],
        "channel_details": {**details, "user": item["user"], **_peer(item)},
        "ack_required": item["acknowledges"],
        "prefetch_count": item["prefetch"],
        "active": item["active"],
        "arguments": {"x-priority": item["priority"]} if item["priority"] else {},
    }


def overview(info: Mapping[str, Any], sums: Mapping[str, Any]) -> Json:
    """Of `broker.overview` and `queue.totals`.  The former counts no messages for who sees a part only."""
    totals = {"messages": "messages", "messages_ready": "ready", "messages_unacknowledged": "unacked"}
    return {
        "management_version": API,
        "rabbitmq_version": API,
        "product_name": info["product"],
        "product_version": info["version"],
        "cluster_name": info["name"],
        "node": info["name"],
        "rates_mode": "basic",
        "exchange_types": [{"name": kind, "enabled": True} for kind in sorted(EXCHANGE_TYPES)],
        "object_totals": {
            "connections": info["sessions"],
            "channels": info["channels"],
            "exchanges": info["exchanges"],
            "queues": info["queues"],
            "consumers": sums["consumers"],
        },
        "queue_totals": {name: sums[field] for name, field in totals.items()},
        "message_stats": {
            "publish": info.get("published", sums["enqueued"]),
            "deliver_get": info.get("delivered", sums["dequeued"]),
        },
    }


def node(info: Mapping[str, Any]) -> Json:
    memory = info["memory"]
    return {
        "name": info["name"],
        "type": "disc",
        "running": True,
        "os_pid": str(info["pid"]),
        "mem_used": memory.get("resident", 0),
        "mem_limit": memory.get("limit", 0),
        "mem_alarm": "memory" in info["alarms"],
        "disk_free_alarm": any("disk" in name for name in info["alarms"]),
        "alarms": info["alarms"],
        "backup": info["backup"],
    }


def memory(info: Mapping[str, Any]) -> Json:
    """Octets; `total` as RabbitMQ has it, the others are ours."""
    found = info["memory"]
    resident, segments = found.get("resident", 0), found.get("segments", 0)
    total = {"rss": resident, "allocated": resident, "erlang": 0}
    return {"segments": segments, "other": max(0, resident - segments), "total": total}


def vhost(item: Mapping[str, Any]) -> Json:
    return {"name": item["name"], "messages": item["messages"], "limits": item["limits"]}


def user(item: Mapping[str, Any]) -> Json:
    return {"name": item["name"], "tags": item["tags"], "cluster": item["cluster"], "limits": item["limits"]}


def shovel(item: Mapping[str, Any], node: str) -> Json:
    """What RabbitMQ shows, with what it has no name for behind."""
    known = {name: item[name] for name in ("name", "vhost", "state", "reason", "moved", "pending")}
    return {"node": node, "type": "dynamic", **known, "src_uri": item["source"], "dest_uri": item["destination"]}
