"""`qpidctl ping`, `authenticate_user`, `cluster_status`, `report`: what support has to know.               Shell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.asking import Ask
from qpidd_py.cli.client_socket import BrokerError, ConnectionClosed, Deadline, ManagementSocket, RequestRefused
from qpidd_py.cli.config_listing import shown_octets
from qpidd_py.cli.members import of_each
from qpidd_py.cli.output import describe, installed_version, plain
from qpidd_py.cli.qpid_passwd import ask_password
from qpidd_py.cli.target import Options, brokers_of
from qpidd_py.errors import ReplyCode

Json = dict[str, Any]
MOST: Final = 100
"""Rows of a table in a report."""
_BROKER: Final = ("address", "status", "name", "version", "alarms")
_QUEUE: Final = ("vhost", "name", "durable", "replicate", "ready", "unacked", "bytes", "consumers", "policy")
_CONNECTION: Final = ("number", "peer", "user", "vhost", "state", "channels", "received", "sent", "backlog")
_POLICY: Final = ("vhost", "name", "operator", "pattern", "apply-to", "priority", "definition")
_SHOVEL: Final = ("vhost", "name", "state", "moved", "pending")
"""Not the addresses, nor the reason, in which one may be: people put passwords there."""


def ping(options: Options, ask: Ask) -> Json:
    """It has logged in already; this request needs no right."""
    ask("user.self")
    return {"result": "ok", "address": ask.target.address}


def authenticate_user(options: Options, ask: Ask) -> Json:
    """Another login.  One that may not enter the virtual host has been authenticated all the same."""
    password = ask_password() if options.password is None else options.password
    target = ask.target._replace(login=Login(options.user, password, _mechanism(options)), vhost=options.vhost)
    found = {"user": options.user, "result": "ok"}
    try:
        with ManagementSocket(target, ask.deadline, manage=False):
            return found
    except ConnectionClosed as error:
        if error.code != ReplyCode.NOT_ALLOWED:
            raise
        return {**found, "but": describe(error)}


def _mechanism(options: Options) -> str:
    """One with a password."""
    name = (options.sasl_mechanism or "").upper()
    return name if name in ("PLAIN", "AMQPLAIN", "SCRAM-SHA-256") else ""


def cluster_status(options: Options, ask: Ask) -> Any:
    found = _cluster(ask)
    return found if options.json else _lines(found)


def _cluster(ask: Ask) -> Json:
    """The view of the broker that is asked, and what each member says of itself."""
    try:
        query = ask("ha.query")
    except RequestRefused:  # it has no cluster
        query = {}
    addresses = brokers_of(query.get("brokers_url")) or [ask.target.address]
    answers = of_each(addresses, partial(_member, ask), ask.deadline.seconds)
    return {
        "primary": query.get("primary") or "",
        "safety": query.get("safety") or "",
        "stalled": query.get("stalled") or "",
        "brokers": [
            {"address": address, **(answer if isinstance(answer, dict) else _silent(answer))}
            for address, answer in answers
        ],
    }


def _silent(error: Exception) -> Json:
    if not isinstance(error, OSError | BrokerError):
        raise error
    return {"status": "", "name": "", "version": "", "alarms": {}, "error": describe(error)}


def _member(ask: Ask, address: str) -> Json:
    with ManagementSocket(ask.target.at(address), Deadline(ask.deadline.seconds)) as broker:
        info = broker.request("broker.info")
        try:
            status = str(broker.request("ha.status").get("state") or "")
        except RequestRefused:
            status = ""
    return {"status": status or "standalone", **{name: info[name] for name in _BROKER[2:]}}


def report(options: Options, ask: Ask) -> Any:
    """What support has to know, no more than some hundred lines; a part that is refused says so."""
    found: Json = {"made": {"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "by": installed_version()}}
    for name, part in _PARTS.items():
        try:
            found[name] = part(ask)
        except RequestRefused as error:
            found[name] = {"not shown": str(error)}
    if options.json:
        return found
    return [line for name, part in found.items() for line in ("", f"== {name} ==", *_lines(part))][1:]


def _table(columns: Sequence[str], items: Iterable[Mapping[str, Any]], total: int | None = None) -> Json:
    """At most MOST rows."""
    rows = [{name: item[name] for name in columns} for item in items]
    return {"rows": rows[:MOST], "total": len(rows) if total is None else total}


def _queues(ask: Ask) -> Json:
    """The fullest ones."""
    page = ask("queue.page", limit=MOST, sort="messages", reverse=True, vhost=None)
    return _table(_QUEUE, page["queues"], page["total"])


def _connections(ask: Ask) -> Json:
    page = ask("session.page", limit=MOST)
    return _table(_CONNECTION, page["sessions"], page["total"])


def _of(method: str, *columns: str) -> Callable[[Ask], Json]:
    return lambda ask: _table(columns, ask(method))


_PARTS: Final[Mapping[str, Callable[[Ask], Json]]] = {
    "status": lambda ask: ask("broker.info"),
    "cluster_status": _cluster,
    "environment": lambda ask: ask("broker.options"),
    "totals": lambda ask: ask("queue.totals"),
    "queues": _queues,
    "connections": _connections,
    "vhosts": _of("vhost.list", "name", "queues", "messages", "limits"),
    "policies": _of("policy.list", *_POLICY),
    "shovels": _of("shovel.list", *_SHOVEL),
    "acl": lambda ask: ask("acl.show"),
}


def _lines(part: Mapping[str, Any]) -> list[str]:
    """Name and value, and tables with tabs."""
    lines = []
    for name, value in part.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += ["\t".join(value[0]), *("\t".join(_text(each) for each in row.values()) for row in value)]
        elif name == "rows":
            lines.append("none")
        else:
            lines.append(f"{name}\t{_text(value)}")
    return lines


def _text(value: Any) -> str:
    return plain("yes" if value is True else "no" if value is False else str(shown_octets(value)))
