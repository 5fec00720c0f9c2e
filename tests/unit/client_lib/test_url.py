"""The book's and RabbitMQ's grammars, where their errors point, and what brokers tell about themselves."""

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_lib.errors import UrlError
from client_lib.urls.url import (
    DEFAULT_PORT,
    Endpoint,
    learned_addresses,
    parse_url,
    parse_urls,
    primary_in_refusal,
    read_urls,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("node1", Endpoint("node1")),
        (" node1 ", Endpoint("node1")),
        ("node1:5673", Endpoint("node1", 5673)),
        ("10.0.0.1:1", Endpoint("10.0.0.1", 1)),
        ("[::1]:5673", Endpoint("::1", 5673)),
        ("[fe80::1%eth0]", Endpoint("fe80::1%eth0")),
        ("amqp://node1", Endpoint("node1")),
        ("AMQP://u@node1:2", Endpoint("node1", 2, "u")),
        ("amqp://u:p%40ss@node1:2/my%2Fhost", Endpoint("node1", 2, "u", "p@ss", "my/host")),
        ("amqp://u:p@w@node1/", Endpoint("node1", DEFAULT_PORT, "u", "p@w")),
        ("amqp://u:@node1", Endpoint("node1", DEFAULT_PORT, "u", "")),
        ("amqp://node1//", Endpoint("node1", virtual_host="/")),
        ("amqps://node1/a%20b", Endpoint("node1", 5671, virtual_host="a b", transport="ssl")),
        ("amqps://[::1]:1", Endpoint("::1", 1, transport="ssl")),
        ("amqp:node1", Endpoint("node1")),
        ("amqp:tcp:node1:1", Endpoint("node1", 1)),
        ("Amqp:SSL:node1", Endpoint("node1", 5671, transport="ssl")),
        ("ssl:[::1]", Endpoint("::1", 5671, transport="ssl")),
        ("user@node1", Endpoint("node1", DEFAULT_PORT, "user")),
        ("amqp:u/p%40s%2Fs@tcp:node1", Endpoint("node1", DEFAULT_PORT, "u", "p@s/s")),
        ("u/p:w/x@node1:1", Endpoint("node1", 1, "u", "p:w/x")),
        ("amqp:5672", Endpoint("amqp", 5672)),
        ("tcp:5672", Endpoint("tcp", 5672)),
        ("ssl:tcp:1", Endpoint("tcp", 1, transport="ssl")),
    ],
)
def test_one_address(text: str, address: Endpoint) -> None:
    assert parse_url(text) == address


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("a,,b", 2),
        ("a, :1", 3),
        ("node1:", 6),
        ("node1:x", 6),
        ("node1:0", 6),
        ("node1:65536", 6),
        ("node 1", 4),
        ("a,b:99999999", 4),
        ("http://a", 0),
        ("amqp://:p@a", 7),
        ("[::1", 4),
        ("[zz]", 1),
        ("[::1]x", 5),
        ("::1", 0),
        ("fe80::1:5672", 0),
        ("rdma:node1", 5),
        ("amqp:", 5),
        ("a,/p@b", 2),
        ("amqp:u/p%4@b", 8),
        ("a,amqp://u%zz@b", 10),
        ("amqp://u:%ff@b", 9),
        ("amqp://u/p@b", 10),
        ("amqp://b?", 9),
        ("amqp://b?heartbeat", 18),
        ("amqp://b?heartbeat=x", 19),
        ("amqp://b?heartbeat=65536", 19),
        ("amqp://b/v?heartbeat=5&colour=red", 23),
        ("amqp://b?cacertfile=/ca", 9),
        ("amqps://b?verify=maybe", 17),
        ("amqps://b?certfile=", 19),
        ("amqps://b?auth_mechanism=", 25),
        ("a b?heartbeat=5", 1),
    ],
)
def test_errors_point_at_the_character(text: str, position: int) -> None:
    with pytest.raises(UrlError) as error:
        parse_urls(text)
    assert error.value.position == position


def test_lists_and_repetitions() -> None:
    assert parse_urls(["a,b:1", Endpoint("c"), "a"]) == [Endpoint("a"), Endpoint("b", 1), Endpoint("c")]
    with pytest.raises(UrlError):
        parse_urls([])
    with pytest.raises(UrlError):
        parse_url("a,b")


def test_the_books_login_holds_for_all_that_follow() -> None:
    found = parse_urls("amqp:u/p@tcp:a:1,ssl:b,c,v@d,amqp://e,f,amqp:g")
    assert found == [
        Endpoint("a", 1, "u", "p"),
        Endpoint("b", 5671, "u", "p", transport="ssl"),
        Endpoint("c", DEFAULT_PORT, "u", "p"),
        Endpoint("d", DEFAULT_PORT, "v"),
        Endpoint("e"),
        Endpoint("f"),
        Endpoint("g"),
    ]


def test_transport_of_places_that_name_none() -> None:
    found = parse_urls("a,tcp:b,amqp://c,d:1", "ssl")
    assert [(address.port, address.transport) for address in found] == [
        (5671, "ssl"),
        (5672, "tcp"),
        (5671, "ssl"),
        (1, "ssl"),
    ]
    with pytest.raises(ValueError, match="c:5672: the address has no TLS, the option transport is ssl"):
        parse_urls([Endpoint("c")], "ssl")
    with pytest.raises(ValueError, match="transport must be tcp or ssl, not 'udp'"):
        Endpoint("a", transport="udp")


def test_parameters_of_a_uri_are_options_of_its_address() -> None:
    tls = "cacertfile=%2Fca.pem&certfile=/c.pem&keyfile=/k.pem&password=p%26w&verify=verify_none&depth=2"
    text = f"amqps://a/?heartbeat=5&connection_timeout=1500&channel_max=9&{tls}&server_name_indication=b"
    (address, other) = parse_urls(f"{text}&auth_mechanism=external&auth_mechanism=plain&fail_if_no_peer_cert=true,c")
    assert address.options == {
        "heartbeat": 5,
        "connect_timeout": 1.5,
        "channel_max": 9,
        "ssl_trustfile": "/ca.pem",
        "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/k.pem",
        "ssl_key_password": "p&w",
        "ssl_verify": False,
        "ssl_server_name": "b",
        "sasl_mechanisms": "EXTERNAL PLAIN",
    }
    assert address.virtual_host is None and not other.options
    assert parse_url("amqps://a?server_name_indication=disable").options == {"ssl_skip_hostname_check": True}


def test_one_uri_with_many_hosts() -> None:
    """As in a kafka or mongodb URI: login, virtual host and parameters hold for all of them."""
    found = parse_urls("amqps://u:p%40@n1,n2:1,[::1]/v?heartbeat=5")
    assert [(a.host, a.port) for a in found] == [("n1", 5671), ("n2", 1), ("::1", 5671)]
    assert {(a.username, a.password, a.virtual_host, a.tls) for a in found} == {("u", "p@", "v", True)}
    assert all(a.options == {"heartbeat": 5} for a in found)
    assert parse_urls("amqp://n1,n2,n3/vhost")[1] == Endpoint("n2", virtual_host="vhost")
    assert [a.virtual_host for a in parse_urls("amqp://n1/a,amqp://n2/b")] == ["a", "b"]
    with pytest.raises(UrlError, match="port"):
        parse_urls("amqp://n1,n2:x/v")


@pytest.mark.parametrize(
    "text",
    [
        "failover:(amqp://n1:1,tcp://n2:2)",
        "failover:(n1:1,n2:2)",
        "failover:amqp://n1:1,tcp://n2:2",
        "failover://(amqp://n1:1,amqp://n2:2)?randomize=false",
    ],
)
def test_failover_of_activemq(text: str) -> None:
    assert parse_urls(text) == [Endpoint("n1", 1), Endpoint("n2", 2)]


def test_settings_of_failover() -> None:
    found = read_urls(
        "failover:(ssl://n1,amqps://n2)?initialReconnectDelay=20&failover.maxReconnectDelay=1500"
        "&maxReconnectAttempts=7&jms.username=u&jms.password=p%26q"
    )
    assert found.addresses == [Endpoint("n1", 5671, transport="ssl"), Endpoint("n2", 5671, transport="ssl")]
    assert found.options == {
        "reconnect_interval_min": 0.02,
        "reconnect_interval_max": 1.5,
        "reconnect_limit": 7,
        "username": "u",
        "password": "p&q",
    }
    assert read_urls("failover:(n1)?maxReconnectAttempts=-1").options == {}
    assert read_urls("failover:(n1)?maxReconnectAttempts=0").options == {"reconnect": False}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("failover:(n1,n2", r"expected \) at character 15"),
        ("failover:(n1)?colour=red", "unknown setting 'colour'; expected maxReconnectAttempts"),
        ("failover:(n1)?maxReconnectDelay=soon", "milliseconds"),
        ("failover:()", "expected a host name"),
        ("failover:(n1)x", r"expected \?"),
    ],
)
def test_errors_of_failover(text: str, why: str) -> None:
    with pytest.raises(UrlError, match=why):
        parse_urls(text)


def test_a_host_may_be_named_failover() -> None:
    assert parse_urls("failover:5672") == [Endpoint("failover", 5672)]


@pytest.mark.parametrize(
    "text",
    [
        "failover:(amqp://u:geheim@n1,amqp://u:geheim@n2:x)",
        "failover:(n1)?jms.password=geheim&x=1",
        "amqp://u:geheim@n1,n2:x/v",
    ],
)
def test_errors_of_lists_do_not_show_passwords(text: str) -> None:
    with pytest.raises(UrlError) as error:
        parse_urls(text)
    assert "geheim" not in str(error.value) + repr(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "amqp://u:geheim@b:x",
        "amqp://u:geheim@b?password=geheim",
        "amqps://b?password=geheim&heartbeat=x",
        "amqp://a,amqp://u:geheim@b:x",
        "u/geheim@b:x",
        "a:1,u/geheim@b:x",
        "amqp:u/geheim@b:x",
        "amqp://u/geheim@b",
        "amqp://u:geh,geheim@b",
        "amqp://u:g%geheim@b",
        "amqp://u:geheim@c/v?brokerlist='h:x'",
        "brokerlist='h?trust_store_password='geheim''",
    ],
)
def test_errors_do_not_show_passwords(text: str) -> None:
    with pytest.raises(UrlError) as error:
        parse_urls(text)
    assert "geheim" not in str(error.value) + repr(error.value)
    assert len(error.value.text) == len(text), "positions must still fit"


def test_nor_do_addresses() -> None:
    address = parse_url("amqps://u:geheim@b?password=geheim2")
    assert "geheim" not in repr(address) + str(address) and hash(address)


hosts = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z]{1,5})?", fullmatch=True)
texts = st.text(min_size=1, max_size=8)


@given(hosts, st.integers(1, 65535), st.none() | texts, st.none() | texts)
def test_what_was_written_is_read(host: str, port: int, username: str | None, password: str | None) -> None:
    from urllib.parse import quote

    credentials = ""
    if username is not None:
        credentials = quote(username, safe="") + ("" if password is None else ":" + quote(password, safe="")) + "@"
    wanted = Endpoint(host, port, username, password if username is not None else None)
    assert parse_url(f"amqp://{credentials}{host}:{port}") == wanted
    assert parse_url(str(wanted)).same_place(wanted)


@given(st.text(max_size=30))
def test_anything_else_is_a_url_error(text: str) -> None:
    try:
        parse_urls(text)
    except UrlError as error:
        assert 0 <= error.position <= len(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("CONNECTION_FORCED - n2 is a backup (ready); the primary is 10.0.0.1:5680", Endpoint("10.0.0.1", 5680)),
        ("CONNECTION_FORCED - n2 is a backup (ready); the primary is [::1]:5680.", Endpoint("::1", 5680)),
        ("CONNECTION_FORCED - n2 is a backup (ready); the primary is not known", None),
        ("CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", None),
        ("the primary is :::", None),
    ],
)
def test_refusals(text: str, address: Endpoint | None) -> None:
    assert primary_in_refusal(text) == address


KNOWN = [Endpoint("n2", 5671, "u", "p", transport="ssl"), Endpoint("n3", 1)]


@pytest.mark.parametrize(
    ("named", "via", "address"),
    [
        ("n2:5672", Endpoint("n1", 1, "me", "pw", "v"), Endpoint("n2", 5672, "me", "pw", "v")),
        ("n3:1", Endpoint("n1"), KNOWN[1]),
        ("n2:5672", Endpoint("n1", 5679, transport="ssl"), KNOWN[0]),
        ("n9:5672", Endpoint("n1", 5679, "me", transport="ssl"), Endpoint("n9", 5679, "me", transport="ssl")),
        ("n1:5672", Endpoint("n1", 5679, transport="ssl"), None),
        ("n3:1", Endpoint("n1", 5679, transport="ssl"), Endpoint("n3", 5679, transport="ssl")),
        ("ssl:n9:5", Endpoint("n1"), Endpoint("n9", 5, transport="ssl")),
        ("ssl:n9:5", Endpoint("n1", transport="ssl"), Endpoint("n9", 5, transport="ssl")),
    ],
)
def test_who_came_over_tls_is_not_led_to_a_port_without(named: str, via: Endpoint, address: Endpoint | None) -> None:
    assert primary_in_refusal(f"a backup; the primary is {named}", via, KNOWN) == address


def test_learned_addresses(caplog: pytest.LogCaptureFixture) -> None:
    name = "qpid.ha-public-url"
    via = Endpoint("n1", 1, "me", "pw", "v", "ssl", {"heartbeat": 5})
    assert learned_addresses(None) == learned_addresses({}) == learned_addresses({name: ""}) == []
    assert learned_addresses({name: "amqp:a,b:1"}) == [Endpoint("a"), Endpoint("b", 1)]
    assert learned_addresses({name: b"x/y@a"}) == [Endpoint("a", 5672, "x", "y")]
    assert learned_addresses({name: "a,amqp:x/y@ssl:b:1"}, via) == [
        Endpoint("a", 5671, "me", "pw", "v", "ssl", {"heartbeat": 5}),
        Endpoint("b", 1, "x", "y", "v", "ssl", {"heartbeat": 5}),
    ]
    assert not [record for record in caplog.records if record.thread == threading.get_ident()]
    assert learned_addresses({name: "tcp:a,ssl:b"}, via) == [Endpoint("b", 5671, "me", "pw", "v", "ssl", via.options)]
    assert "names addresses without TLS" in caplog.text
    with caplog.at_level(logging.WARNING, "client_lib"):
        assert learned_addresses({name: "a:x"}, via) == []
    assert "is not usable: port must be a number" in caplog.text
