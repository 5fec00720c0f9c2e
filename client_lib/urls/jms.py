"""The connection URL of Qpid's JMS client for AMQP 0-9-1 (pure; book "JMS Client 0-8", chapter "Connection URLs").

    url        = "amqp://" [ user [ ":" password ] "@" ] [ clientid ] [ "/" [ vhost ] ] "?" settings
    settings   = setting *( "&" setting )                           (alone, too: what stands in a properties file)
    setting    = "brokerlist='" broker *( ";" broker ) "'" / "failover='" method [ "?" count ] "'"
               / "heartbeat='" seconds "'"              (of all brokers that name none)
    count      = "cyclecount='" number "'"  / "retries='" number "'"   (retries: of singlebroker)
    method     = "roundrobin" / "singlebroker" / "failover_exchange" / "nofailover"
    broker     = [ ( "tcp" / "ssl" ) "://" ] hostport [ "?" option *( "&" option ) ]
    option     = name "='" value "'"

The inner quotes need no escape, since a value holds none.  What it means for us:

* `nofailover`: `reconnect` off.  `singlebroker`: the first broker only.  The other two: all of them; addresses that a
  broker announces for its cluster are always used.
* A round tries each broker once, so `reconnect_limit` is the cycles times the tries, and `connectdelay` the
  `reconnect_interval` between rounds.  Without `cyclecount` the original gives up after one cycle; this client does
  not, since an election takes longer than a cycle.  `retries` alone limits `singlebroker` only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from client_lib.urls.parts import DEFAULT_PORTS, MECHANISMS, Endpoint, Scanner

_MARK = re.compile(r"(^|[?&])\s*(brokerlist|failover)\s*=\s*'", re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}
_MECHANISMS = {name.lower(): name for name in MECHANISMS}
METHODS = ("roundrobin", "singlebroker", "failover_exchange", "nofailover")
MOST_SECONDS = 86_400
HEARTBEAT_MAX = 65_535
"""Seconds."""


@dataclass(frozen=True)
class Broker:
    """An entry of the brokerlist.  `retries`: further tries of this broker; `connectdelay`: seconds before each."""

    address: Endpoint
    retries: int | None = None
    connectdelay: float | None = None


@dataclass(frozen=True)
class ConnectionUrl:
    """The content of a connection URL; `cyclecount`: how often the brokerlist is tried."""

    brokers: tuple[Broker, ...]
    failover: str
    cyclecount: int | None = None
    client_id: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    virtual_host: str | None = None

    @property
    def addresses(self) -> list[Endpoint]:
        """The brokers to connect to, in order."""
        brokers = self.brokers[:1] if self.failover == "singlebroker" else self.brokers
        return [
            replace(broker.address, username=self.username, password=self.password, virtual_host=self.virtual_host)
            for broker in brokers
        ]

    @property
    def options(self) -> dict[str, Any]:
        """The options for the whole connection, by the names of `client_lib.options.Options`."""
        options: dict[str, Any] = {}
        if self.client_id is not None:
            options["client_id"] = self.client_id
        if self.failover == "nofailover":
            return options | {"reconnect": False}
        tries = 1 + max((broker.retries or 0 for broker in self.brokers), default=0)
        if self.cyclecount is not None:
            options["reconnect_limit"] = max(1, self.cyclecount) * tries
        elif self.failover == "singlebroker" and self.brokers[0].retries is not None:
            options["reconnect_limit"] = 1 + self.brokers[0].retries
        delays = [broker.connectdelay for broker in self.brokers if broker.connectdelay is not None]
        if delays:
            options["reconnect_interval"] = max(delays)
        return options


def is_jms(text: str) -> bool:
    """True if the text is in this grammar and not in one of the others."""
    return _MARK.search(text) is not None


def parse_jms(text: str, transport: str = "tcp") -> ConnectionUrl:
    """`transport` is that of brokers that name none.  Raises UrlError."""
    scan = Scanner(text)
    scan.skip_spaces()
    who = _who(scan) if scan.accept("amqp://") else {}
    found: dict[str, Any] = {}
    while True:
        _setting(scan, found, transport)
        if scan.done:
            break
        scan.expect("&", "& or the end")
    if "brokerlist" not in found:
        raise scan.error("expected brokerlist='...'")
    brokers = _with_heartbeat(found["brokerlist"], found.get("heartbeat"))
    method, count = found.get("failover", ("roundrobin" if len(brokers) > 1 else "singlebroker", None))
    if method == "singlebroker" and count is not None:
        return ConnectionUrl((replace(brokers[0], retries=count), *brokers[1:]), method, None, **who)
    return ConnectionUrl(brokers, method, count, **who)


def _who(scan: Scanner) -> dict[str, Any]:
    """Everything before the ?."""
    question = scan.find("?")
    slash = min(scan.find("/"), question)
    at = scan.text.rfind("@", scan.position, slash)
    who: dict[str, Any] = {}
    if at >= 0:
        colon = min(scan.find(":"), at)
        if colon == scan.position:
            raise scan.error("expected a user name")
        who["username"] = scan.take_escaped(colon, "user name")
        if scan.accept(":"):
            who["password"] = scan.take_escaped(at, "password")
        scan.expect("@")
    who["client_id"] = scan.take_escaped(slash, "client id") or None
    if scan.accept("/"):
        who["virtual_host"] = scan.take_escaped(question, "virtual host") or None
    scan.expect("?")
    return who


def _setting(scan: Scanner, found: dict[str, Any], transport: str) -> None:
    start = scan.position
    name = scan.take(min(scan.find("='&;"), scan.end)).strip().lower()
    reader = _SETTINGS.get(name)
    if reader is None:
        advice = _ELSEWHERE.get(name, "expected brokerlist, failover or heartbeat")
        raise scan.error(f"unknown option {name!r}; {advice}", start)
    if name in found:
        raise scan.error(f"{name} stands here twice", start)
    _open(scan)
    found[name] = reader(scan, transport)
    scan.expect("'", "' at the end of the value")


def _brokerlist(scan: Scanner, transport: str) -> tuple[Broker, ...]:
    brokers = [_broker(scan, transport)]
    while scan.accept(";"):
        brokers.append(_broker(scan, transport))
    return tuple(brokers)


def _broker(scan: Scanner, transport: str) -> Broker:
    start, whole = scan.position, scan.end
    scan.end = scan.find("?;'")
    mark = scan.text.find("://", start, scan.end)
    if mark >= 0:
        transport = scan.word(mark, {"tcp": "tcp", "ssl": "ssl"}, "transport")
        scan.expect("://")
    host, port = scan.host_port(0)
    scan.end = whole
    found = _broker_options(scan) if scan.accept("?") else {}
    transport = "ssl" if found.pop("ssl", False) else transport
    retries, delay = found.pop("retries", None), found.pop("connectdelay", None)
    return Broker(Endpoint(host, port or DEFAULT_PORTS[transport], transport=transport, options=found), retries, delay)


def _broker_options(scan: Scanner) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while True:
        start = scan.position
        name = scan.take(scan.find("='&;")).strip().lower()
        if name not in _BROKER_OPTIONS:
            advice = _ELSEWHERE.get(name, f"expected {', '.join(_BROKER_OPTIONS)}")
            raise scan.error(f"unknown option {name!r}; {advice}", start)
        _open(scan)
        option, read = _BROKER_OPTIONS[name]
        end = scan.find("'")
        if end == scan.end:
            raise scan.error("expected ' at the end of the value", end)
        found[option] = read(scan, end)
        scan.expect("'")
        if not scan.accept("&"):
            return found


def _heartbeat(scan: Scanner, _: str) -> int:
    return scan.number(scan.find("'"), 0, HEARTBEAT_MAX, "heartbeat")


def _with_heartbeat(brokers: tuple[Broker, ...], seconds: int | None) -> tuple[Broker, ...]:
    if seconds is None:
        return brokers
    every = {"heartbeat": seconds}
    return tuple(replace(it, address=replace(it.address, options=every | dict(it.address.options))) for it in brokers)


def _failover(scan: Scanner, _: str) -> tuple[str, int | None]:
    """The method and its count: `retries` of a single broker, else `cyclecount`."""
    method: str = scan.word(scan.find("?'"), dict(zip(METHODS, METHODS, strict=True)), "failover")
    if not scan.accept("?"):
        return method, None
    what = "retries" if method == "singlebroker" else "cyclecount"
    scan.expect(what)
    _open(scan)
    count = scan.number(scan.find("'"), 0, 1_000_000, what)
    scan.expect("'")
    return method, count


# -- values


def _open(scan: Scanner) -> None:
    scan.expect("=")
    scan.expect("'")


def _number(what: str, most: int) -> Callable[[Scanner, int], int]:
    return lambda scan, end: scan.number(end, 0, most, what)


def _seconds(what: str, least: int = 0) -> Callable[[Scanner, int], float]:
    return lambda scan, end: scan.number(end, least, 1000 * MOST_SECONDS, f"{what} in milliseconds") / 1000


def _whole_seconds(scan: Scanner, end: int) -> int:
    """Milliseconds as whole seconds, rounded up, since AMQP has no heartbeat of a fraction of a second."""
    return -(-scan.number(end, 0, 65_535_000, "idle_timeout in milliseconds") // 1000)


def _truth(what: str, turn: bool = False) -> Callable[[Scanner, int], bool]:
    return lambda scan, end: scan.word(end, _BOOLEANS, what) is not turn


def _mechanisms(scan: Scanner, end: int) -> str:
    """Names with spaces between."""
    names: list[str] = []
    for match in re.finditer(r"\S+|$", scan.text[scan.position : end]):
        begin = scan.position
        if match.group() or not names:
            word = Scanner(scan.text, begin + match.start(), begin + match.end())
            names.append(word.word(word.end, _MECHANISMS, "sasl_mechs"))
    scan.position = end
    return " ".join(names)


_SETTINGS: Mapping[str, Callable[[Scanner, str], Any]] = {
    "brokerlist": _brokerlist,
    "failover": _failover,
    "heartbeat": _heartbeat,
}
_BROKER_OPTIONS: Mapping[str, tuple[str, Callable[[Scanner, int], Any]]] = {
    "retries": ("retries", _number("retries", 1_000_000)),
    "connectdelay": ("connectdelay", _seconds("connectdelay")),
    "connecttimeout": ("connect_timeout", _seconds("connecttimeout", 1)),
    "heartbeat": ("heartbeat", _number("heartbeat", HEARTBEAT_MAX)),
    "idle_timeout": ("heartbeat", _whole_seconds),
    "tcp_nodelay": ("tcp_nodelay", _truth("tcp_nodelay")),
    "sasl_mechs": ("sasl_mechanisms", _mechanisms),
    "ssl": ("ssl", _truth("ssl")),
    "ssl_verify_hostname": ("ssl_skip_hostname_check", _truth("ssl_verify_hostname", turn=True)),
}
_STORE = "a Java key store cannot be read here: ssl_trustfile, ssl_certfile and ssl_keyfile are PEM files"
_ELSEWHERE: Mapping[str, str] = {
    "maxprefetch": "give a capacity to session.receiver() instead",
    "max_prefetch": "give a capacity to session.receiver() instead",
    "sync_publish": "give sync to sender.send() instead",
    "sync_persistence": "give sync to sender.send() instead",
    "sync_ack": "give sync to session.acknowledge() instead",
    "trust_store": _STORE,
    "trust_store_password": _STORE,
    "key_store": _STORE,
    "key_store_password": _STORE,
    "ssl_cert_alias": _STORE,
}
