"""The JMS connection URL: what it says, what that means for us, and where its errors point."""

from typing import Any

import pytest

from client_lib.errors import UrlError
from client_lib.urls.jms import Broker, ConnectionUrl, is_jms, parse_jms
from client_lib.urls.url import Endpoint, parse_urls, read_urls

BOOK = (
    "amqp://user:pass@clientid/vhost?brokerlist='tcp://h1:5672?retries='3'&connectdelay='500'&ssl='true';tcp://h2'"
    "&failover='roundrobin?cyclecount='2''"
)


def test_all_of_it() -> None:
    assert parse_jms(BOOK) == ConnectionUrl(
        brokers=(
            Broker(Endpoint("h1", 5672, transport="ssl"), retries=3, connectdelay=0.5),
            Broker(Endpoint("h2")),
        ),
        failover="roundrobin",
        cyclecount=2,
        client_id="clientid",
        username="user",
        password="pass",
        virtual_host="vhost",
    )
    found = read_urls(BOOK)
    assert found.addresses == [
        Endpoint("h1", 5672, "user", "pass", "vhost", "ssl"),
        Endpoint("h2", 5672, "user", "pass", "vhost"),
    ]
    assert found.options == {"client_id": "clientid", "reconnect_limit": 8, "reconnect_interval": 0.5}
    assert "pass" not in repr(parse_jms(BOOK))


@pytest.mark.parametrize(
    ("text", "places", "options"),
    [
        ("brokerlist='h'", ["h:5672"], {}),
        ("brokerlist='tcp://h:1;ssl://h;[::1]'", ["h:1", "h:5671", "[::1]:5672"], {}),
        ("brokerlist='h?ssl='true''", ["h:5671"], {}),
        ("brokerlist='ssl://h?ssl='false''", ["h:5671"], {}),  # who asks for TLS anywhere gets it
        ("failover='singlebroker'&brokerlist='a;b'", ["a:5672"], {}),
        ("failover='singlebroker?retries='4''&brokerlist='a;b'", ["a:5672"], {"reconnect_limit": 5}),
        ("brokerlist='a?retries='4''&failover='singlebroker?retries='0''", ["a:5672"], {"reconnect_limit": 1}),
        ("brokerlist='a?retries='4''", ["a:5672"], {"reconnect_limit": 5}),
        ("brokerlist='a?retries='4';b'", ["a:5672", "b:5672"], {}),
        ("brokerlist='a;b'&failover='nofailover'", ["a:5672", "b:5672"], {"reconnect": False}),
        ("brokerlist='a;b'&failover='failover_exchange?cyclecount='3''", ["a:5672", "b:5672"], {"reconnect_limit": 3}),
        ("amqp:///test?brokerlist='a'", ["a:5672"], {}),
        ("amqp://c/?brokerlist='a'", ["a:5672"], {"client_id": "c"}),
        ("amqp://u:p@?brokerlist='a'", ["a:5672"], {}),
    ],
)
def test_what_it_means_for_us(text: str, places: list[str], options: dict[str, Any]) -> None:
    found = read_urls(text)
    assert ([str(address) for address in found.addresses], found.options) == (places, options)


def test_transport_of_brokers_that_name_none() -> None:
    found = parse_urls("brokerlist='a;tcp://b;ssl://c'", "ssl")
    assert [address.transport for address in found] == ["ssl", "tcp", "ssl"]


def test_options_of_a_broker() -> None:
    settings = "connecttimeout='1500'&idle_timeout='2500'&tcp_nodelay='false'&sasl_mechs='PLAIN external'"
    (address,) = parse_urls(f"brokerlist='ssl://h?{settings}&ssl_verify_hostname='false''")
    assert address.options == {
        "connect_timeout": 1.5,
        "heartbeat": 3,
        "tcp_nodelay": False,
        "sasl_mechanisms": "PLAIN EXTERNAL",
        "ssl_skip_hostname_check": True,
    }


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("brokerlist=''", 12, "host name"),
        ("brokerlist='h", 13, "' at the end"),
        ("brokerlist='h'x", 14, "& or the end"),
        ("brokerlist='h:x'", 14, "port"),
        ("brokerlist='vm://:1'", 12, "transport must be tcp or ssl"),
        ("brokerlist='h;'", 14, "host name"),
        ("brokerlist='h?retries='x''", 23, "retries must be a number"),
        ("brokerlist='h?retries='1'", 25, "' at the end"),
        ("brokerlist='h?retries='1", 24, "' at the end"),
        ("brokerlist='h?colour='1''", 14, "unknown option 'colour'"),
        ("brokerlist='h?key_store='1''", 14, "PEM"),
        ("brokerlist='h?ssl='maybe''", 19, "ssl must be true or false"),
        ("failover='roundrobin'", 21, "brokerlist"),
        ("brokerlist='h'&brokerlist='h'", 15, "twice"),
        ("brokerlist='h'&failover='random'", 25, "failover must be roundrobin or singlebroker"),
        ("brokerlist='h'&failover='roundrobin?cycles='1''", 36, "cyclecount"),
        ("brokerlist='h'&failover='roundrobin?retries='1''", 36, "cyclecount"),
        ("brokerlist='h'&failover='singlebroker?cyclecount='1''", 38, "retries"),
        ("brokerlist='h'&maxprefetch='5'", 15, "capacity"),
        ("amqp://:p@/v?brokerlist='h'", 7, "user name"),
        ("amqp://c/v?colour='x'&brokerlist='h'", 11, "unknown option 'colour'"),
    ],
)
def test_errors_point_at_the_character(text: str, position: int, reason: str) -> None:
    assert is_jms(text)
    with pytest.raises(UrlError) as error:
        parse_urls(text)
    assert (error.value.position, reason in error.value.reason) == (position, True), error.value


def test_the_other_grammars_are_left_alone() -> None:
    assert not any(map(is_jms, ("brokerlist", "amqp://h/failover", "amqp://h?heartbeat=5", "brokerlist='h'"[:11])))
