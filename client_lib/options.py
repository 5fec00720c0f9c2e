"""The options of a connection, under Qpid's names (pure).

`Options(...)` takes Python values.  `connection_options` takes what a user wrote: names with - or _, the names that
Qpid's C++ client has for the same thing, texts in place of numbers; `connection_settings` joins that with the URLs.
"""

from __future__ import annotations

import difflib
import math
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from client_lib.retry_policy import RetryPolicy
from client_lib.urls.parts import MECHANISMS
from client_lib.urls.url import Endpoint, Given, read_urls

EventCallback = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Times in seconds.  Raises ValueError for a value that makes no sense.

    reconnect       False: every address is tried once at open(), and a connection that is lost stays lost
    reconnect_urls  further addresses, after the one given to the connection
    reconnect_urls_replace  reconnect_urls replace the address given to the connection
    reconnect_timeout       gives up after so long without a connection; None = never
    reconnect_limit         gives up after so many rounds through all addresses; None = never
    reconnect_interval_min, reconnect_interval_max  pause after a round without success, growing
    reconnect_interval      sets both of them
    connect_overlap the next address is tried in parallel when the one before has not answered for so long
    heartbeat       whole seconds, 0 = none; a silent broker is given up before two of them have passed
    connect_timeout one attempt, from the SYN to connection.open-ok; keep it short: a paused broker uses all of it
    restore_timeout how long a session retries after a fail-over while its queues do not exist (yet)
    username, password, virtual_host  for addresses that do not say
    sasl_mechanisms names with spaces between, the first that the broker offers is taken; see MECHANISMS.
                    None = PLAIN AMQPLAIN.  SCRAM-SHA-256 alone: the password is never sent
    transport       tcp or ssl, for addresses that do not say; with ssl amqp:// does not, and an `Endpoint` without TLS
                    is refused
    tcp_nodelay     False lets the system gather small packets, which costs latency
    ssl_trustfile   PEM file of the authorities that may sign brokers' certificates; None = the system's
    ssl_certfile, ssl_keyfile, ssl_key_password  our certificate (PEM), its key if that is in another file
    ssl_skip_hostname_check  accept a certificate issued to another host
    ssl_verify      False accepts any certificate: the server at the address is not authenticated
    ssl_server_name the name sent in SNI, which must be in the certificate; None = the host of the address
    ssl_context     used as it is, instead of the six above
    client_id       in events, logs and the broker's list of connections
    client_properties  added to those of connection.start-ok
    frame_max, channel_max  what we propose: octets, number of channels
    max_buffered    octets of messages that a receiver without a limit (capacity None, no_ack) keeps here; above that
                    nothing is read from the connection, except while something else waits for an answer
    event_log       directory, or one file, for the JSON lines of `client_lib.events`; None = none
    on_event        called with each event, in the thread of the event; must be quick and must not raise
    cluster         name of the cluster in events
    """

    reconnect: bool = True
    reconnect_urls: Given | None = field(default=None, repr=False)
    reconnect_urls_replace: bool = False
    reconnect_timeout: float | None = None
    reconnect_limit: int | None = None
    reconnect_interval: float | None = None
    reconnect_interval_min: float = 0.01
    reconnect_interval_max: float = 2.0
    connect_overlap: float = 0.15
    heartbeat: int = 2
    connect_timeout: float = 2.0
    restore_timeout: float = 5.0
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    sasl_mechanisms: str | None = None
    transport: str = "tcp"
    tcp_nodelay: bool = True
    ssl_trustfile: str | Path | None = None
    ssl_certfile: str | Path | None = None
    ssl_keyfile: str | Path | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_skip_hostname_check: bool = False
    ssl_verify: bool = True
    ssl_server_name: str | None = None
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    client_id: str | None = None
    client_properties: Mapping[str, Any] = field(default_factory=dict)
    frame_max: int = 131072
    channel_max: int = 65535
    max_buffered: int = 16 << 20
    event_log: str | Path | None = None
    cluster: str = ""
    on_event: EventCallback | None = None

    def __post_init__(self) -> None:
        _whole("heartbeat", self.heartbeat, 0, 65535, " seconds")
        _whole("frame_max", self.frame_max, 4096, 131072, " octets")
        _whole("channel_max", self.channel_max, 1, 65535)
        _whole("max_buffered", self.max_buffered, 1, 1 << 40, " octets")
        if self.reconnect_limit is not None:
            _whole("reconnect_limit", self.reconnect_limit, 0, 1 << 31)
        for name in ("connect_timeout", "connect_overlap"):
            _seconds(name, getattr(self, name), positive=True)
        for name in ("restore_timeout", "reconnect_timeout", "reconnect_interval"):
            _seconds(name, getattr(self, name))
        if self.transport not in ("tcp", "ssl"):
            raise ValueError(f"transport must be tcp or ssl, not {self.transport!r}")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ValueError(f"ssl_keyfile {str(self.ssl_keyfile)!r} is of no use without ssl_certfile")
        self.mechanisms()
        self.retry_policy()

    def mechanisms(self) -> Sequence[str]:
        """In the order of our preference."""
        if self.sasl_mechanisms is None:
            return ("PLAIN", "AMQPLAIN")
        wanted = self.sasl_mechanisms.upper().split()
        wrong = next((name for name in wanted if name not in MECHANISMS), None)
        if wrong is not None or not wanted:
            found = repr(wrong if wrong is not None else self.sasl_mechanisms)
            raise ValueError(f"sasl_mechanisms: {found} cannot be used here, expected some of {' '.join(MECHANISMS)}")
        return tuple(wanted)

    def retry_policy(self) -> RetryPolicy:
        shortest, longest = self.reconnect_interval_min, self.reconnect_interval_max
        if self.reconnect_interval is not None:
            shortest = longest = self.reconnect_interval
        return RetryPolicy(
            self.reconnect,
            self.reconnect_timeout,
            self.reconnect_limit,
            shortest,
            longest,
            self.connect_timeout,
            min(self.connect_overlap, self.connect_timeout),
        )


def _whole(name: str, value: int, least: int, most: int, unit: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} must be whole{unit} from {least} to {most}, not {value!r}")


def _seconds(name: str, value: float | None, positive: bool = False) -> None:
    if value is not None and (not math.isfinite(value) or value < 0 or (positive and value == 0)):
        raise ValueError(f"{name} must be {'more than 0' if positive else '0 or more'} seconds, not {value!r}")


# -- options as users write them


_INTERVALS = ("reconnect_interval", "reconnect_interval_min", "reconnect_interval_max")


def connection_settings(urls: Given, given: Mapping[str, Any]) -> tuple[list[Endpoint], Options]:
    """All addresses in order, and the options; `given` overrides what URLs say about the whole connection. Raises
    UrlError, TypeError for an unknown option, ValueError for a wrong value."""
    mine = _converted(given)
    transport = mine.get("transport", "tcp")
    own, more = read_urls(urls, transport), mine.get("reconnect_urls")
    addresses = own.addresses
    if more:
        further = read_urls(more, transport).addresses
        addresses = further if mine.get("reconnect_urls_replace") else list(dict.fromkeys([*addresses, *further]))
    options = Options(**{**_said(own.options, addresses, mine), **mine})
    for address in addresses:
        effective(options, address)
    return addresses, options


def _said(said: Mapping[str, Any], addresses: Iterable[Endpoint], mine: Mapping[str, Any]) -> dict[str, Any]:
    """The options in URLs that hold for the whole connection.  That includes the longest connect_timeout of the
    addresses, since the planner has only one, but no interval if the program has set one of the three."""
    options = dict(said)
    if any(name in mine for name in _INTERVALS):
        options.pop("reconnect_interval", None)
    timeouts = [address.options["connect_timeout"] for address in addresses if "connect_timeout" in address.options]
    return options | ({"connect_timeout": max(timeouts)} if timeouts else {})


def connection_options(given: Mapping[str, Any]) -> Options:
    """Raises TypeError for an unknown option, ValueError for a wrong value."""
    return Options(**_converted(given))


def effective(options: Options, address: Endpoint) -> Options:
    """The options with those of this address's URL.  Raises ValueError."""
    try:
        return replace(options, **address.options) if address.options else options
    except ValueError as error:
        raise ValueError(f"{address}: {error}") from None


def _converted(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for written, value in given.items():
        name = written.replace("-", "_")
        name = _ALIASES.get(name, name)
        if name not in _CONVERTERS:
            raise TypeError(_unknown(written, name))
        if name in found:
            raise TypeError(f"option {written!r} is given twice")
        found[name] = _convert(written, name, value)
    return found


def _convert(written: str, name: str, value: Any) -> Any:
    convert = _CONVERTERS[name]
    if convert is None or (value is None and _DEFAULTS[name] is None):
        return value
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        shown = "what was given" if "password" in name else repr(value)
        raise ValueError(f"option {written!r}: {error}, not {shown}") from None


def _unknown(written: str, name: str) -> str:
    if name in _ELSEWHERE:
        return f"option {written!r} is not possible here: {_ELSEWHERE[name]}"
    near = difflib.get_close_matches(name, _CONVERTERS, 3, 0.6)
    return f"unknown option {written!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _boolean(value: Any) -> bool:
    text = str(value).lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError("expected true or false")


def _integer(value: Any) -> int:
    try:
        number = _number(value)
        if number == int(number):
            return int(value if isinstance(value, int) else number)
    except (ValueError, OverflowError):
        pass
    raise ValueError("expected a whole number")


def _number(value: Any) -> float:
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError("expected a number")


def _text(value: Any) -> str:
    """Turns a number that a parser made of an unquoted text back into that text, if nothing was lost."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("expected a text (in quotes)")
    return value


def _words(value: Any) -> str:
    return _text(value) if isinstance(value, (str, int)) else " ".join(map(_text, value))


def _transport(value: Any) -> str:
    text = _text(value).lower()
    text = {"tcp+tls": "ssl", "tls": "ssl"}.get(text, text)
    if text not in ("tcp", "ssl"):
        raise ValueError("expected tcp or ssl")
    return text


def _file(value: Any) -> str | Path:
    return value if isinstance(value, Path) else _text(value)


def _map(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a map")
    return value


def _urls(value: Any) -> Any:
    if not isinstance(value, (str, Endpoint, Iterable)):
        raise ValueError("expected a URL or a list of URLs")
    return value


_BY_TYPE: Mapping[str, Callable[[Any], Any] | None] = {
    "bool": _boolean,
    "int": _integer,
    "int | None": _integer,
    "float": _number,
    "float | None": _number,
    "str": _text,
    "str | None": _text,
    "str | Path | None": _file,
    "Mapping[str, Any]": _map,
    "Given | None": _urls,
    "EventCallback | None": None,
    "ssl.SSLContext | None": None,
}
_CONVERTERS: Mapping[str, Callable[[Any], Any] | None] = {
    **{option.name: _BY_TYPE[str(option.type)] for option in fields(Options)},
    "sasl_mechanisms": _words,
    "transport": _transport,
}
_DEFAULTS: Mapping[str, Any] = {option.name: option.default for option in fields(Options)}
_ALIASES: Mapping[str, str] = {
    "user": "username",
    "sasl_mechanism": "sasl_mechanisms",
    "mechanisms": "sasl_mechanisms",
    "container_id": "client_id",
    "properties": "client_properties",
    "max_channels": "channel_max",
    "max_frame_size": "frame_max",
    "ssl_ignore_hostname_verification_failure": "ssl_skip_hostname_check",
}
_SSF = "mechanisms with a security layer are not to be had with AMQP 0-9-1; transport=ssl encrypts"
_NSS = "it belongs to an NSS database; give ssl_certfile, ssl_keyfile and ssl_trustfile (PEM)"
_ELSEWHERE: Mapping[str, str] = {
    "sasl_min_ssf": _SSF,
    "sasl_max_ssf": _SSF,
    "sasl_service": "no mechanism of ours uses it",
    "protocol": "this client speaks AMQP 0-9-1 and nothing else",
    "ssl_cert_name": _NSS,
    "ssl_cert_db": _NSS,
    "ssl_cert_password_file": _NSS,
    "address_ttl": "an address is looked up whenever a sender or receiver is made",
    "host": "write it into the URL",
    "port": "write it into the URL",
    "failover_updates": "addresses that the broker announces for its cluster are always used",
}
