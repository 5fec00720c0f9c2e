"""RabbitMQ's URIs (pure; https://www.rabbitmq.com/docs/uri-spec and .../uri-query-parameters).

    uri    = ( "amqp" / "amqps" ) "://" [ user [ ":" password ] "@" ] hostport [ "/" [ vhost ] ] [ "?" query ]
    query  = parameter "=" value *( "&" parameter "=" value )

User, password, virtual host and values may be percent-encoded.  Parameters become options of that address:

    heartbeat                     heartbeat, seconds
    connection_timeout            connect_timeout; milliseconds in the URI
    channel_max                   channel_max
    auth_mechanism                sasl_mechanisms; may be repeated
    cacertfile, certfile, keyfile ssl_trustfile, ssl_certfile, ssl_keyfile; these and the following for amqps only
    password                      ssl_key_password
    verify                        ssl_verify: verify_peer (our default, not that of RabbitMQ's clients), verify_none
    server_name_indication        ssl_server_name; "disable" checks no name
    fail_if_no_peer_cert, depth   accepted and ignored: a server's setting, and one that Python's TLS lacks
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client_lib.urls.parts import DEFAULT_PORTS, MECHANISMS, Endpoint, Scanner

SCHEMES = {"amqp": "tcp", "amqps": "ssl"}
_BOOLEANS = {"true": True, "false": False}
_MECHANISMS = {name.lower(): name for name in MECHANISMS}
_VERIFY = {"verify_peer": True, "verify_none": False}


def parse_uri(scan: Scanner, transport: str = "tcp") -> Endpoint:
    """Reads one URI from the rest of the text; with the transport ssl amqp:// means amqps://, as in qpid.messaging.
    Raises UrlError."""
    transport = "ssl" if scan.word(scan.find(":"), SCHEMES, "scheme") == "ssl" else transport
    scan.expect("://")
    end, query = scan.end, scan.find("?")
    scan.end = query
    slash = scan.find("/")
    username, password = _login(scan, slash)
    scan.end = slash
    host, port = scan.host_port(DEFAULT_PORTS[transport])
    scan.end = query
    virtual_host = _virtual_host(scan)
    scan.end = end
    options = _query(scan, transport) if scan.accept("?") else {}
    return Endpoint(host, port, username, password, virtual_host, transport, options)


def _login(scan: Scanner, slash: int) -> tuple[str | None, str | None]:
    at = scan.text.rfind("@", scan.position, slash)
    if at < 0:
        return None, None
    colon = min(scan.find(":"), at)
    if colon == scan.position:
        raise scan.error("expected a user name")
    username = scan.take_escaped(colon, "user name")
    password = scan.take_escaped(at, "password") if scan.accept(":") else None
    scan.expect("@")
    return username, password


def _virtual_host(scan: Scanner) -> str | None:
    """None for the default.  For RabbitMQ "amqp://host/" is the virtual host "", a name that is not used in practice.
    The second slash of "amqp://host//", which some libraries write for the virtual host "/", is taken literally."""
    if not scan.accept("/"):
        return None
    name = scan.take_escaped(scan.find("@"), "virtual host")
    if not scan.done:
        raise scan.error("expected %40 for @ in a virtual host, or amqp:user/password@host without //")
    return name or None


def _query(scan: Scanner, transport: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    end = scan.end
    while True:
        scan.end = end
        start, scan.end = scan.position, scan.find("&")
        name = scan.take(scan.find("="))
        reader = _PARAMETERS.get(name)
        if reader is None:
            raise scan.error(f"unknown parameter {name!r}; expected {', '.join(_PARAMETERS)}", start)
        if name in _TLS_ONLY and transport != "ssl":
            raise scan.error(f"{name} is for amqps://, not for amqp://", start)
        scan.expect("=")
        reader(scan, options)
        if scan.end == end:
            return options
        scan.position += 1


# -- one for each parameter: read the value that is left, note the option


def _integer(option: str, most: int) -> Callable[[Scanner, dict[str, Any]], None]:
    def read(scan: Scanner, options: dict[str, Any]) -> None:
        options[option] = scan.number(scan.end, 0, most, option)

    return read


def _text(option: str) -> Callable[[Scanner, dict[str, Any]], None]:
    def read(scan: Scanner, options: dict[str, Any]) -> None:
        if scan.done:
            raise scan.error("expected a value")
        options[option] = scan.take_escaped(scan.end, option)

    return read


def _timeout(scan: Scanner, options: dict[str, Any]) -> None:
    options["connect_timeout"] = scan.number(scan.end, 1, 86_400_000, "connection_timeout in milliseconds") / 1000


def _mechanism(scan: Scanner, options: dict[str, Any]) -> None:
    name: str = scan.word(scan.end, _MECHANISMS, "auth_mechanism")
    options["sasl_mechanisms"] = " ".join(filter(None, (options.get("sasl_mechanisms"), name)))


def _verify(scan: Scanner, options: dict[str, Any]) -> None:
    options["ssl_verify"] = scan.word(scan.end, _VERIFY, "verify")


def _server_name(scan: Scanner, options: dict[str, Any]) -> None:
    _text("ssl_server_name")(scan, options)
    if options["ssl_server_name"] == "disable":
        del options["ssl_server_name"]
        options["ssl_skip_hostname_check"] = True


_PARAMETERS: dict[str, Callable[[Scanner, dict[str, Any]], object]] = {
    "heartbeat": _integer("heartbeat", 65535),
    "connection_timeout": _timeout,
    "channel_max": _integer("channel_max", 65535),
    "auth_mechanism": _mechanism,
    "cacertfile": _text("ssl_trustfile"),
    "certfile": _text("ssl_certfile"),
    "keyfile": _text("ssl_keyfile"),
    "password": _text("ssl_key_password"),
    "verify": _verify,
    "server_name_indication": _server_name,
    "fail_if_no_peer_cert": lambda scan, _: scan.word(scan.end, _BOOLEANS, "fail_if_no_peer_cert"),
    "depth": lambda scan, _: scan.number(scan.end, 0, 255, "depth"),
}
_TLS_ONLY = set(list(_PARAMETERS)[4:])
