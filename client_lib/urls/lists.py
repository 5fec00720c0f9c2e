"""Lists of brokers as other clients write them (pure).

    amqp://user:password@node1,node2:5673,node3/vhost?heartbeat=5    login, virtual host and parameters hold for all
    failover:(amqp://node1:5672,amqp://node2:5672)?maxReconnectDelay=2000    ActiveMQ and Qpid's JMS client for AMQP 1.0

Settings of `failover:` that have a meaning here, with or without the prefix `failover.`: see _SETTINGS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from client_lib.urls.parts import Scanner

_SHARED = re.compile(r"\s*(amqps?://)([^/?@,]*@)?([^/?@,]+(?:,[^/?@,]+)+)([/?][^,]*)?", re.IGNORECASE)
_BOOK = re.compile(r"(?:^|,)\s*(?:amqp|tcp|ssl):(?!\d+(?:,|$))", re.IGNORECASE)
_FAILOVER = re.compile(r"\s*failover:(?://)?(?:(\()|(?=[a-z+]+://))", re.IGNORECASE)
_TRANSPORT = re.compile(r"(?<![\w.+-])(tcp|ssl|nio|nio\+ssl|amqp\+nio|amqp\+ssl)://", re.IGNORECASE)


def shared(text: str) -> list[str]:
    """One URI for each host of a list in one URI; the text itself if it is none."""
    match = _SHARED.fullmatch(text)
    if match is None or "://" in text[match.start(3) :] or _BOOK.search(match.group(3)):
        return [text]
    scheme, login, hosts, rest = match.groups()
    return [f"{scheme}{login or ''}{host.strip()}{rest or ''}" for host in hosts.split(",")]


def is_failover(text: str) -> bool:
    return _FAILOVER.match(text) is not None


def parse_failover(text: str) -> tuple[str, dict[str, Any]]:
    """The list in other grammars, and the options.  Raises UrlError."""
    match = _FAILOVER.match(text)
    assert match is not None
    end = text.rfind(")") if match.group(1) else len(text)
    if end < 0:
        raise Scanner(text).error("expected )", len(text))
    scan = Scanner(text, end + 1)
    options: dict[str, Any] = {}
    if match.group(1) and not scan.done:
        scan.expect("?")
        _settings(scan, options)
    return _TRANSPORT.sub(_scheme, text[match.end() : end]), options


def _scheme(transport: re.Match[str]) -> str:
    return "amqps://" if "ssl" in transport.group().lower() else "amqp://"


def _settings(scan: Scanner, options: dict[str, Any]) -> None:
    end = scan.end
    while not scan.done:
        start, scan.end = scan.position, scan.find("&")
        name = scan.take(scan.find("=")).removeprefix("failover.")
        if name not in _SETTINGS:
            raise scan.error(f"unknown setting {name!r}; expected {', '.join(_SETTINGS)}", start)
        scan.expect("=")
        _SETTINGS[name](scan, options)
        scan.position, scan.end = scan.end + 1, end


def _milliseconds(option: str) -> Callable[[Scanner, dict[str, Any]], None]:
    def read(scan: Scanner, options: dict[str, Any]) -> None:
        options[option] = scan.number(scan.end, 0, 86_400_000, f"{option} in milliseconds") / 1000

    return read


def _attempts(scan: Scanner, options: dict[str, Any]) -> None:
    """-1: for ever; 0: no reconnecting."""
    if scan.accept("-1"):
        return
    count = scan.number(scan.end, 0, 1 << 31, "maxReconnectAttempts")
    options.update({"reconnect_limit": count} if count else {"reconnect": False})


def _text(option: str) -> Callable[[Scanner, dict[str, Any]], None]:
    def read(scan: Scanner, options: dict[str, Any]) -> None:
        options[option] = scan.take_escaped(scan.end, option)

    return read


def _ignored(scan: Scanner, _options: dict[str, Any]) -> None:
    scan.take(scan.end)


_SETTINGS: dict[str, Callable[[Scanner, dict[str, Any]], None]] = {
    "maxReconnectAttempts": _attempts,
    "initialReconnectDelay": _milliseconds("reconnect_interval_min"),
    "reconnectDelay": _milliseconds("reconnect_interval_min"),
    "maxReconnectDelay": _milliseconds("reconnect_interval_max"),
    "timeout": _ignored,
    "randomize": _ignored,
    "useExponentialBackOff": _ignored,
    "warnAfterReconnectAttempts": _ignored,
    "jms.username": _text("username"),
    "jms.password": _text("password"),
}
