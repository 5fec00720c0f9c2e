"""The three APIs understand addresses and options alike, and none connects in plain text where TLS is asked for."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pika
import pytest

from client_lib import Connection, FailoverConnection, MessagingError, UrlError, aio
from client_lib.options import Options
from client_lib.urls.url import Endpoint

VALUES: dict[str, Any] = {
    "reconnect": False,
    "reconnect_urls": "node3",
    "reconnect_urls_replace": True,
    "reconnect_timeout": 9.0,
    "reconnect_limit": 3,
    "reconnect_interval": 0.5,
    "reconnect_interval_min": 0.25,
    "reconnect_interval_max": 8.0,
    "connect_overlap": 0.2,
    "heartbeat": 11,
    "connect_timeout": 4.0,
    "restore_timeout": 6.0,
    "username": "bob",
    "password": "other",
    "virtual_host": "v",
    "sasl_mechanisms": "AMQPLAIN",
    "transport": "ssl",
    "tcp_nodelay": False,
    "ssl_trustfile": "authority.pem",
    "ssl_certfile": "certificate.pem",
    "ssl_keyfile": "key.pem",
    "ssl_key_password": "open",
    "ssl_skip_hostname_check": True,
    "ssl_verify": False,
    "ssl_server_name": "name",
    "ssl_context": ssl.create_default_context(),
    "client_id": "me",
    "client_properties": {"a": 1},
    "frame_max": 8192,
    "channel_max": 9,
    "max_buffered": 1000,
    "event_log": "events",
    "on_event": lambda _event: None,
    "cluster": "c",
}
URLS = [
    "node1,node2:5673",
    "amqp://ann:secret@node1/stage?heartbeat=7",
    "amqps://node1,ssl:node2",
    "brokerlist='node1;node2'&failover='nofailover'",
    "amqp://u:p@id/?brokerlist='node1?connecttimeout='900'&retries='2''&failover='singlebroker'",
]


def threaded(where: Any, options: dict[str, Any]) -> Any:
    connection = Connection(where, **options)
    return connection.options, connection._addresses


def asynchronous(where: Any, options: dict[str, Any]) -> Any:
    async def make() -> Any:
        connection = aio.Connection(where, **options)
        return connection.options, connection.link._dialer._planner.places.addresses

    return asyncio.run(make())


def pika_style(where: Any, options: dict[str, Any]) -> Any:
    connection = FailoverConnection(where, **options)._connection
    return connection.options, connection._addresses


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(FailoverConnection, "_open", lambda _connection, _timeout: None)
    monkeypatch.chdir(tmp_path)


def test_every_option_has_a_value_here() -> None:
    assert set(VALUES) == {option.name for option in fields(Options)}
    assert all(getattr(Options(), name) != value for name, value in VALUES.items())


@pytest.mark.parametrize("name", VALUES)
def test_an_option_means_the_same_in_each_api(name: str, unopened: None) -> None:
    given = {name: VALUES[name], **({"ssl_certfile": "certificate.pem"} if name == "ssl_keyfile" else {})}
    made = [make("node1,node2", given) for make in (threaded, asynchronous, pika_style)]
    assert getattr(made[0][0], name) == VALUES[name]
    assert made[1] == made[0]
    assert made[2] == made[0]


@pytest.mark.parametrize("urls", URLS)
@pytest.mark.parametrize("given", [{}, {"transport": "ssl"}, {"reconnect": True, "reconnect_urls": "amqp://node9"}])
def test_a_url_means_the_same_in_each_api(urls: str, given: dict[str, Any], unopened: None) -> None:
    made = [make(urls, given) for make in (threaded, asynchronous, pika_style)]
    assert made[1:] == made[:1] * 2


@pytest.mark.parametrize("make", [threaded, asynchronous, pika_style])
def test_an_unusable_address(make: Callable[..., Any], unopened: None) -> None:
    for where in ("node1:none", []):
        with pytest.raises(UrlError):
            make(where, {})


# -- plain text


def open_threaded(where: Any, options: dict[str, Any]) -> None:
    connection = Connection(where, **options)
    try:
        connection.open(5)
    finally:
        connection.close(0)


def open_asynchronous(where: Any, options: dict[str, Any]) -> None:
    async def run() -> None:
        async with aio.Connection(where, **options):
            pass

    asyncio.run(run())


def open_pika_style(where: Any, options: dict[str, Any]) -> None:
    FailoverConnection(where, open_timeout=5, **options)


class Ear:
    """Keeps the first octets of each connection, and ends it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(5)
                first = connection.recv(8)
                if not first:
                    return
                self.heard.append(first)

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()


PLACES: list[Callable[[int], Any]] = [
    lambda port: f"127.0.0.1:{port}",
    lambda port: f"amqp:guest/guest@127.0.0.1:{port}",
    lambda port: f"amqp://guest:guest@127.0.0.1:{port}",
    lambda port: f"brokerlist='127.0.0.1:{port}'",
    lambda port: Endpoint("127.0.0.1", port),
    lambda port: [Endpoint("127.0.0.1", port)],
    lambda port: pika.ConnectionParameters("127.0.0.1", port),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("connect", [open_threaded, open_asynchronous, open_pika_style])
def test_nothing_goes_out_in_plain_text_with_transport_ssl(connect: Any, place: Callable[[int], Any]) -> None:
    ear = Ear()
    where = place(ear.port)
    with pytest.raises((MessagingError, ValueError, TypeError)):
        connect(where, {"transport": "ssl", "reconnect": False})
    with pytest.raises((MessagingError, ValueError, TypeError)):
        connect("127.0.0.1:9", {"transport": "ssl", "reconnect": False, "reconnect_urls": where})
    ear.close()
    assert {first[:1] for first in ear.heard} <= {b"\x16"}, ear.heard  # a TLS handshake
    assert ear.heard or not isinstance(where, str)
