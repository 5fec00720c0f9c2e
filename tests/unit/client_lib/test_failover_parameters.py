"""pika's connection parameters, read as addresses and options."""

import ssl

import pika
import pika.credentials
import pytest

from client_lib.failover.parameters import read_parameters
from client_lib.options import connection_settings
from client_lib.urls.url import Endpoint


def test_nothing_is_localhost() -> None:
    assert read_parameters(None) == (["localhost"], {})


def test_text_addresses_and_parameters_mixed() -> None:
    where = ["node1,node2:5673", Endpoint("node3"), pika.ConnectionParameters("node4", 5674), "node1"]
    addresses, options = read_parameters(where)
    assert options == {}
    found, _ = connection_settings(addresses, options)
    assert [str(address) for address in found] == ["node1:5672", "node2:5673", "node3:5672", "node4:5674"]


def test_what_parameters_say() -> None:
    login = pika.PlainCredentials("ann", "secret")
    given = pika.ConnectionParameters(
        "node1", 5673, "stage", login, heartbeat=600, socket_timeout=3, blocked_connection_timeout=20,
        client_properties={"connection_name": "billing"}, frame_max=4096, connection_attempts=5, retry_delay=1,
    )  # fmt: skip
    addresses, options = read_parameters(given)
    assert addresses == [Endpoint("node1", 5673, username="ann", password="secret", virtual_host="stage")]
    assert options == {
        "heartbeat": 600,
        "connect_timeout": 3,
        "publish_timeout": 20,
        "client_properties": {"connection_name": "billing"},
        "frame_max": 4096,
    }


def test_url_parameters() -> None:
    addresses, options = read_parameters(pika.URLParameters("amqp://ann:secret@node1:5673/stage?heartbeat=7"))
    assert addresses == [Endpoint("node1", 5673, username="ann", password="secret", virtual_host="stage")]
    assert options == {"heartbeat": 7}


def test_the_first_that_says_something_counts() -> None:
    several = [pika.ConnectionParameters("a"), pika.ConnectionParameters("b", heartbeat=5),
               pika.ConnectionParameters("c", heartbeat=9)]  # fmt: skip
    addresses, options = read_parameters(several)
    assert [address.host for address in addresses if isinstance(address, Endpoint)] == ["a", "b", "c"]
    assert options == {"heartbeat": 5}


def test_tls() -> None:
    context = ssl.create_default_context()
    given = pika.ConnectionParameters("node1", ssl_options=pika.SSLOptions(context, "amqp.example.org"))
    (address,), options = read_parameters(given)
    assert isinstance(address, Endpoint) and (address.transport, address.port) == ("ssl", 5671)
    assert (options["ssl_context"], options["ssl_server_name"]) == (context, "amqp.example.org")


def test_external_login() -> None:
    given = pika.ConnectionParameters("node1", credentials=pika.credentials.ExternalCredentials())
    (address,), options = read_parameters(given)
    assert isinstance(address, Endpoint) and address.username is None
    assert options == {"sasl_mechanisms": "EXTERNAL"}


def test_what_cannot_be_had() -> None:
    class Token:
        TYPE = "TOKEN"

    given = pika.ConnectionParameters("node1", heartbeat=lambda _connection, proposed: proposed)
    with pytest.raises(NotImplementedError, match="heartbeat"):
        read_parameters(given)
    given = pika.ConnectionParameters("node1")
    given._credentials = Token()
    with pytest.raises(NotImplementedError, match="Token"):
        read_parameters(given)
    with pytest.raises(TypeError, match="42"):
        read_parameters([42])
