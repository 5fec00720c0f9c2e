"""The screens of `qpid-stat`: what to ask a broker, and its answers as a table.  Pure.

Rates are differences of counters between two answers; an object that was not there before, or that has begun to count
anew, has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from qpidd_py.cli.config_listing import rate_since, shown_octets, shown_rate
from qpidd_py.store.archive import position_text

Json = Mapping[str, Any]

MIB: Final = 1 << 20


@dataclass(frozen=True)
class Column:
    """`show` makes the cell of `value`, by which the column sorts."""

    head: str
    value: Callable[[Json], Any]
    show: Callable[[Any], str] = str
    counter: str = ""
    """The field that it shows.  Where rates are wanted, it shows the counter's growth per second."""
    rate: str = ""
    """The head then."""


@dataclass(frozen=True)
class View:
    """One table: the request that brings its rows, and the field that names a row."""

    method: str
    name: str
    columns: tuple[Column, ...]

    @property
    def has_rates(self) -> bool:
        return any(column.rate for column in self.columns)

    def has(self, item: Json, text: str) -> bool:
        """A field that names the row, or what it belongs to, has `text` in it."""
        return any(text in shown_octets(item[name]) for name in ("name", "queue", "tag", "peer") if name in item)

    def heads(self, rates: bool) -> list[str]:
        return [column.rate if rates and column.rate else column.head for column in self.columns]

    def rows(self, items: Sequence[Json], before: Sequence[Json] | None, seconds: float) -> list[list[Any]]:
        """The values of each row, in the order of `heads`; with rates if there is a `before`."""
        if before is None:
            return [[column.value(item) for column in self.columns] for item in items]
        known = {item[self.name]: item for item in before}
        return [
            [_since(column, known.get(item[self.name]), item, seconds) for column in self.columns] for item in items
        ]

    def cells(self, row: Sequence[Any], rates: bool) -> list[str]:
        return [
            shown_rate(value) if rates and column.rate else column.show(value)
            for column, value in zip(self.columns, row, strict=True)
        ]


def _since(column: Column, before: Json | None, after: Json, seconds: float) -> Any:
    return rate_since(before, after, column.counter, seconds) if column.rate else column.value(after)


def _field(head: str, name: str) -> Column:
    return Column(head, lambda item: item[name])


def _counter(head: str, name: str, rate: str) -> Column:
    return Column(head, lambda item: item[name], counter=name, rate=rate)


def _mib(head: str, name: str, rate: str = "") -> Column:
    return Column(head, lambda item: item[name], lambda octets: f"{octets / MIB:.1f}", name if rate else "", rate)


def _text(head: str, name: str) -> Column:
    return Column(head, lambda item: shown_octets(item[name]))


def _yes(head: str, name: str) -> Column:
    return Column(head, lambda item: bool(item[name]), lambda value: "Y" if value else "")


def _client(item: Json) -> str:
    properties = item["client_properties"]
    return shown_octets(properties.get("qpid.client_process") or properties.get("product") or "")


CONNECTIONS: Final = View(
    "session.list",
    "number",
    (
        _field("no", "number"),
        _text("peer", "peer"),
        _text("user", "user"),
        Column("client", _client),
        Column("kind", lambda item: "link" if item["link"] else "admin" if item["admin"] else "client"),
        _field("ch", "channels"),
        _mib("MiB in", "received", "B/s in"),
        _mib("MiB out", "sent", "B/s out"),
        _field("waits", "backlog"),
    ),
)
EXCHANGES: Final = View(
    "exchange.list",
    "name",
    (
        Column("exchange", lambda item: shown_octets(item["name"]) or "''"),
        _text("type", "type"),
        _yes("dur", "durable"),
        _yes("auto-del", "auto_delete"),
        _yes("internal", "internal"),
        _text("replicate", "replicate"),
        _field("bind", "bindings"),
    ),
)
QUEUES: Final = View(
    "queue.list",
    "name",
    (
        _text("queue", "name"),
        _yes("dur", "durable"),
        _yes("auto-del", "auto_delete"),
        _yes("excl", "exclusive"),
        _field("msg", "messages"),
        _field("unacked", "unacked"),
        _counter("in", "enqueued", "in/s"),
        _counter("out", "dequeued", "out/s"),
        _mib("MiB", "bytes"),
        _field("cons", "consumers"),
    ),
)
SUBSCRIPTIONS: Final = View(
    "subscription.list",
    "tag",
    (
        _text("queue", "queue"),
        _text("tag", "tag"),
        _field("conn", "connection"),
        _text("peer", "peer"),
        _text("user", "user"),
        _yes("ack", "acknowledges"),
        _field("prefetch", "prefetch"),
        _field("unacked", "unacked"),
    ),
)
VIEWS: Final[Mapping[str, View]] = {
    "connections": CONNECTIONS,
    "exchanges": EXCHANGES,
    "queues": QUEUES,
    "subscriptions": SUBSCRIPTIONS,
}


def general(info: Json) -> list[tuple[str, str]]:
    """Name and value of what the broker says of itself."""
    alone = not info["ha"] or not info.get("clustered", True)
    role = "stand-alone" if alone else "backup" if info["backup"] else "primary"
    lines = [
        ("name", str(info["name"])),
        ("version", f"{info['product']} {info['version']}"),
        ("process", str(info["pid"])),
        ("role", role),
        ("position", position_text(info["position"])),
        ("safe", "the primary knows" if info["backup"] else position_text(info["safe"])),
        ("queues", str(info["queues"])),
        ("exchanges", str(info["exchanges"])),
        ("connections", str(info["sessions"])),
        ("messages in", str(info["published"])),
        ("messages out", str(info["delivered"])),
        ("confirms that wait", str(info["waiting_confirms"])),
        ("publishers", f"blocked: {info['blocked']}" if info["blocked"] else "go on"),
    ]
    return lines + [("alarm", f"{name}: {reason}") for name, reason in sorted(info["alarms"].items())]


def memory(info: Json) -> list[tuple[str, str]]:
    """What holds or limits the broker's memory, in MiB; what is in the page file."""
    found = {f"memory, {name}": octets for name, octets in info["memory"].items()}
    paged = {f"page file, {name}": value for name, value in (info["paged"] or {}).items()}
    return [(name, f"{octets / MIB:.1f} MiB") for name, octets in found.items()] + [
        (name, str(value)) for name, value in paged.items()
    ]


def acl(found: Json) -> list[tuple[str, str]]:
    """The ACL file in force; quotas are counted for each name."""
    if not found["enforcing"]:
        return [("ACL file", "none"), ("denials", str(found["denials"]))]
    lines = [
        ("ACL file", str(found["file"])),
        ("loaded", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["loaded"]))),
        ("rules", str(found["rules"])),
        ("groups", str(found["groups"])),
        ("default", str(found["default"])),
        ("publishes are judged", "Y" if found["judges_publishes"] else "N"),
        ("denials", str(found["denials"])),
    ]
    quotas = ((kind, name, most) for kind, known in found["quotas"].items() for name, most in sorted(known.items()))
    return lines + [(f"quota {kind}", f"{most} for {shown_octets(name)}") for kind, name, most in quotas]
