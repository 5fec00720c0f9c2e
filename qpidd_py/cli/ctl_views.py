"""The lists of `qpidctl`: columns under the names that rabbitmqctl gives them.                                Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from qpidd_py.cli.config_listing import shown_octets
from qpidd_py.cli.output import plain
from qpidd_py.cli.target import UsageError

Json = Mapping[str, Any]
Column = Callable[[Json], Any]


@dataclass(frozen=True)
class View:
    """`method`: the request that it shows; `filters`: field -> argument of the verb that it has to equal."""

    method: str
    columns: Mapping[str, Column]
    standard: tuple[str, ...]
    """The columns that are shown unless others are asked for."""
    filters: Mapping[str, str] = field(default_factory=dict)
    having: str = ""
    """Only items with this field."""

    def rows(self, items: Iterable[Json], wanted: Sequence[str]) -> list[dict[str, Any]]:
        """Column -> value, for each item.  Raises UsageError."""
        for name in wanted:
            if name not in self.columns:
                raise UsageError(f"column {name!r}, wanted some of {' '.join(self.columns)}")
        names = wanted or self.standard
        return [{name: self.columns[name](item) for name in names} for item in items]

    def lines(self, rows: Sequence[Mapping[str, Any]], wanted: Sequence[str], heads: bool) -> list[str]:
        """Separated by tabs, as programs read those of rabbitmqctl."""
        first = ["\t".join(wanted or self.standard)] if heads else []
        return first + ["\t".join(_shown(value) for value in row.values()) for row in rows]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Mapping) and "base64" not in value:
        return f"[{', '.join(f'{name}={_shown(each)}' for name, each in value.items())}]"
    return plain(shown_octets(value))


def _of(name: str) -> Column:
    return lambda item: item[name]


def _peer(part: int) -> Column:
    return lambda item: str(item["peer"]).rpartition(":")[part].strip("[]")


_POLICY: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
_EFFECT: Final = {name: _of(name) for name in ("policy", "operator_policy", "effective", "not_in_force")}
_SHOVEL: Final = ("vhost", "name", "state", "source", "destination", "moved", "pending", "reason")
_IN_HOST: Final = {"vhost": "vhost"}
_PATTERNS: Final = {name: _of(name) for name in ("configure", "write", "read")}
_TOPIC: Final = ("exchange", "write", "read")
_USER: Final = {"user": _of("user"), "vhost": _of("vhost")}
LISTS: Final[Mapping[str, View]] = {
    "list_users": View("user.list", {"user": _of("name"), "tags": _of("tags")}, ("user", "tags")),
    "list_permissions": View(
        "permission.list", {**_USER, **_PATTERNS}, ("user", "configure", "write", "read"), {"vhost": "vhost"}
    ),
    "list_user_permissions": View(
        "permission.list", {**_USER, **_PATTERNS}, ("vhost", "configure", "write", "read"), {"user": "user"}
    ),
    **{
        verb: View("topic.list", {**_USER, **{name: _of(name) for name in _TOPIC}}, (first, *_TOPIC), {chosen: chosen})
        for verb, first, chosen in (
            ("list_topic_permissions", "user", "vhost"),
            ("list_user_topic_permissions", "vhost", "user"),
        )
    },
    "list_policies": View(
        "policy.list",
        {name: _of(name) for name in _POLICY} | {"definition": lambda item: json.dumps(item["definition"])},
        _POLICY,
        {"vhost": "vhost", "operator": "operator"},
    ),
    "list_vhosts": View("vhost.list", {name: _of(name) for name in ("name", "queues", "messages")}, ("name",)),
    **{
        f"list_{whose}_limits": View(
            "limit.list",
            {whose: _of(whose), "limits": lambda item: json.dumps(item["limits"], sort_keys=True)},
            (whose, "limits"),
            having=whose,
        )
        for whose in ("user", "vhost")
    },
    "list_parameters": View(
        "parameter.list",
        {**{name: _of(name) for name in ("component", "name")}, "value": lambda item: json.dumps(item["value"])},
        ("component", "name", "value"),
        {"vhost": "vhost"},
    ),
    "shovel_status": View("shovel.list", {name: _of(name) for name in _SHOVEL}, _SHOVEL),
    "list_queues": View(
        "queue.list",
        {
            "name": _of("name"),
            "messages": _of("messages"),
            "messages_ready": _of("ready"),
            "messages_unacknowledged": _of("unacked"),
            "consumers": _of("consumers"),
            "message_bytes": _of("bytes"),
            "message_bytes_ready": _of("ready_bytes"),
            "durable": _of("durable"),
            "auto_delete": _of("auto_delete"),
            "exclusive": _of("exclusive"),
            "arguments": _of("arguments"),
            **_EFFECT,
        },
        ("name", "messages"),
        _IN_HOST,
    ),
    "list_exchanges": View(
        "exchange.list",
        {name: _of(name) for name in ("name", "type", "durable", "auto_delete", "internal", "arguments")} | _EFFECT,
        ("name", "type"),
        _IN_HOST,
    ),
    "list_bindings": View(
        "binding.list",
        {
            "source_name": _of("source"),
            "source_kind": lambda item: "exchange",
            "destination_name": _of("destination"),
            "destination_kind": _of("destination_type"),
            "routing_key": _of("routing_key"),
            "arguments": _of("arguments"),
        },
        ("source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments"),
        _IN_HOST,
    ),
    "list_connections": View(
        "session.list",
        {
            "number": _of("number"),
            "user": _of("user"),
            "vhost": _of("vhost"),
            "peer_host": _peer(0),
            "peer_port": _peer(2),
            "state": _of("state"),
            "channels": _of("channels"),
            "recv_oct": _of("received"),
            "send_oct": _of("sent"),
            "client_properties": _of("client_properties"),
        },
        ("number", "user", "peer_host", "peer_port", "state"),
    ),
    "list_channels": View(
        "channel.list",
        {
            "connection": _of("connection"),
            "number": _of("number"),
            "user": _of("user"),
            "vhost": _of("vhost"),
            "transactional": _of("transactional"),
            "confirm": _of("confirm"),
            "consumer_count": _of("consumers"),
            "messages_unacknowledged": _of("unacked"),
            "messages_unconfirmed": _of("unconfirmed"),
            "prefetch_count": _of("prefetch"),
            "global_prefetch_count": _of("global_prefetch"),
        },
        ("connection", "number", "user", "consumer_count", "messages_unacknowledged"),
    ),
    "list_consumers": View(
        "subscription.list",
        {
            "queue_name": _of("queue"),
            "connection": _of("connection"),
            "consumer_tag": _of("tag"),
            "ack_required": _of("acknowledges"),
            "prefetch_count": _of("prefetch"),
            "active": _of("active"),
        },
        ("queue_name", "connection", "consumer_tag", "ack_required", "prefetch_count", "active"),
        _IN_HOST,
    ),
}
