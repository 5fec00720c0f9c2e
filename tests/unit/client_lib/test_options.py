"""What a user may write as an option, what becomes of it, and what the errors say."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from client_lib.errors import UrlError
from client_lib.options import Options, connection_options, connection_settings, effective
from client_lib.urls.option_map import parse_option_map
from client_lib.urls.url import Endpoint


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {}),
        ({"reconnect": "false"}, {"reconnect": False}),
        ({"reconnect": 1, "tcp-nodelay": "no"}, {"reconnect": True, "tcp_nodelay": False}),
        ({"heartbeat": "5"}, {"heartbeat": 5}),
        ({"heartbeat": 5.0, "connect-timeout": "0.5"}, {"heartbeat": 5, "connect_timeout": 0.5}),
        ({"reconnect-limit": "3", "reconnect_timeout": 7}, {"reconnect_limit": 3, "reconnect_timeout": 7.0}),
        ({"reconnect_limit": None, "username": "u"}, {"username": "u"}),
        ({"password": 1234}, {"password": "1234"}),
        ({"sasl-mechanisms": "plain EXTERNAL"}, {"sasl_mechanisms": "plain EXTERNAL"}),
        ({"sasl_mechanism": ["PLAIN", "EXTERNAL"]}, {"sasl_mechanisms": "PLAIN EXTERNAL"}),
        ({"transport": "SSL"}, {"transport": "ssl"}),
        ({"transport": "tcp+tls"}, {"transport": "ssl"}),
        ({"ssl_ignore_hostname_verification_failure": "true"}, {"ssl_skip_hostname_check": True}),
        ({"container-id": "me", "max-channels": 5}, {"client_id": "me", "channel_max": 5}),
        ({"ssl_trustfile": Path("/ca")}, {"ssl_trustfile": Path("/ca")}),
        ({"client-properties": {"a": 1}}, {"client_properties": {"a": 1}}),
        ({"reconnect-urls": ["a", "b"]}, {"reconnect_urls": ["a", "b"]}),
    ],
)
def test_what_a_user_writes(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    defaults = vars(Options())
    assert {key: value for key, value in vars(connection_options(given)).items() if value != defaults[key]} == {
        key: value for key, value in wanted.items() if value != defaults[key]
    }


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"hearbeat": 5}, TypeError, "unknown option 'hearbeat'; did you mean heartbeat?"),
        ({"reconnect-url": "a"}, TypeError, "unknown option 'reconnect-url'; did you mean reconnect_urls"),
        ({"zzz": 5}, TypeError, "unknown option 'zzz'$"),
        ({"sasl_min_ssf": 5}, TypeError, "'sasl_min_ssf' is not possible here: .*transport=ssl"),
        ({"protocol": "amqp1.0"}, TypeError, "AMQP 0-9-1"),
        ({"ssl-cert-name": "x"}, TypeError, "ssl_certfile"),
        ({"heart-beat": 5, "user": "a", "username": "b"}, TypeError, "'heart-beat'"),
        ({"user": "a", "username": "b"}, TypeError, "'username' is given twice"),
        ({"reconnect": "perhaps"}, ValueError, "option 'reconnect': expected true or false, not 'perhaps'"),
        ({"heartbeat": "soon"}, ValueError, "option 'heartbeat': expected a whole number, not 'soon'"),
        ({"heartbeat": 1.5}, ValueError, "expected a whole number, not 1.5"),
        ({"heartbeat": True}, ValueError, "expected a whole number, not True"),
        ({"heartbeat": float("inf")}, ValueError, "expected a whole number, not inf"),
        ({"heartbeat": None}, ValueError, "expected a whole number, not None"),
        ({"heartbeat": 70000}, ValueError, "heartbeat must be whole seconds from 0 to 65535, not 70000"),
        ({"connect_timeout": 0}, ValueError, "connect_timeout must be more than 0 seconds, not 0"),
        ({"connect_overlap": 0}, ValueError, "connect_overlap must be more than 0 seconds"),
        ({"restore_timeout": "nan"}, ValueError, "restore_timeout must be 0 or more seconds, not nan"),
        ({"reconnect_interval_min": -1}, ValueError, "reconnect"),
        ({"reconnect_interval_min": 5}, ValueError, "5.0..2.0"),
        ({"reconnect_limit": -1}, ValueError, "reconnect_limit"),
        ({"transport": "rdma"}, ValueError, "option 'transport': expected tcp or ssl, not 'rdma'"),
        ({"sasl_mechanisms": "GSSAPI PLAIN"}, ValueError, "'GSSAPI' cannot be used here, expected some of PLAIN AMQPL"),
        ({"sasl_mechanisms": ""}, ValueError, "'' cannot be used"),
        ({"ssl_keyfile": "/k"}, ValueError, "'/k' is of no use without ssl_certfile"),
        ({"client_properties": 5}, ValueError, "expected a map, not 5"),
        ({"reconnect_urls": 5}, ValueError, "expected a URL or a list of URLs, not 5"),
        ({"frame_max": 100}, ValueError, "frame_max must be whole octets from 4096"),
        ({"password": 1.5}, ValueError, "option 'password': expected a text .in quotes., not what was given"),
    ],
)
def test_what_the_errors_say(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        connection_options(given)


def test_options_do_not_show_secrets() -> None:
    options = Options(password="geheim", ssl_key_password="geheim", reconnect_urls="amqp://u:geheim@h")
    assert "geheim" not in repr(options) + str(options)


def test_intervals() -> None:
    policy = connection_options({"reconnect_interval": "0.5", "reconnect": False}).retry_policy()
    assert (policy.reconnect, policy.interval_min, policy.interval_max) == (False, 0.5, 0.5)


# -- with the URLs


@pytest.mark.parametrize(
    ("urls", "given", "places"),
    [
        ("a,b", {}, ["tcp a:5672", "tcp b:5672"]),
        (["a", Endpoint("b", 1)], {}, ["tcp a:5672", "tcp b:1"]),
        ("a", {"reconnect_urls": "b,a,amqps://c"}, ["tcp a:5672", "tcp b:5672", "ssl c:5671"]),
        ("a", {"reconnect-urls": ["b", "tcp:c"], "transport": "ssl"}, ["ssl a:5671", "ssl b:5671", "tcp c:5672"]),
        ("a", {"reconnect_urls": "b", "reconnect_urls_replace": "true"}, ["tcp b:5672"]),
        ("a", {"reconnect_urls": [], "reconnect_urls_replace": True}, ["tcp a:5672"]),
        ("brokerlist='a;ssl://b'", {}, ["tcp a:5672", "ssl b:5671"]),
    ],
)
def test_addresses(urls: Any, given: dict[str, Any], places: list[str]) -> None:
    addresses, _ = connection_settings(urls, given)
    assert [f"{address.transport} {address}" for address in addresses] == places


def test_what_the_program_says_counts_more_than_the_url() -> None:
    url = "amqp://me/v?brokerlist='a?retries='1'&connectdelay='500'&heartbeat='7'';failover='roundrobin?cyclecount='2''"
    url = url.replace("';failover", "'&failover")
    (address,), options = connection_settings(url, {})
    assert (options.client_id, options.reconnect_limit, options.reconnect_interval) == ("me", 4, 0.5)
    assert effective(options, address).heartbeat == 7 and options.heartbeat == 2
    _, options = connection_settings(url, {"client_id": "you", "reconnect_interval_max": 3, "reconnect-limit": 9})
    assert (options.client_id, options.reconnect_limit, options.reconnect_interval) == ("you", 9, None)
    assert options.retry_policy().interval_max == 3
    _, options = connection_settings("brokerlist='a'&failover='nofailover'", {"heartbeat": 1})
    assert not options.reconnect and options.heartbeat == 1


def test_a_heartbeat_of_a_jms_url_is_that_of_all_brokers_that_name_none() -> None:
    url = "amqp://guest:guest@me/v?brokerlist='tcp://a:5672;tcp://b?heartbeat='7''&heartbeat='3'"
    addresses, options = connection_settings(url, {})
    assert [effective(options, address).heartbeat for address in addresses] == [3, 7]
    assert {address.virtual_host for address in addresses} == {"v"}


def test_what_a_uri_says_holds_for_its_address_only() -> None:
    (first, second), options = connection_settings("amqp://a?heartbeat=7&connection_timeout=100,b", {"heartbeat": 3})
    assert effective(options, second) is options
    assert (effective(options, first).heartbeat, effective(options, first).connect_timeout) == (7, 0.1)
    assert options.connect_timeout == 0.1, "the planner has one for all"
    _, options = connection_settings("amqp://a?connection_timeout=100", {"connect_timeout": 4})
    assert options.connect_timeout == 4
    with pytest.raises(ValueError, match=r"a:5671: ssl_keyfile .* without ssl_certfile"):
        connection_settings("amqps://a?keyfile=/k", {})


def test_an_ssl_context_of_the_program() -> None:
    context = ssl.create_default_context()
    assert connection_options({"ssl_context": context}).ssl_context is context


# -- maps on the command line


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}", {}),
        (" { reconnect : true , heartbeat:5,} ", {"reconnect": True, "heartbeat": 5}),
        (
            "{a=1.5,b:-2,c:1e3,d:none,e:NULL,f:False}",
            {"a": 1.5, "b": -2, "c": 1000.0, "d": None, "e": None, "f": False},
        ),
        ("{password:0123,user:a.b-c}", {"password": "0123", "user": "a.b-c"}),
        ("{reconnect-urls:[node1:5673, 'n 2', \"n'3\"]}", {"reconnect-urls": ["node1:5673", "n 2", "n'3"]}),
        (r"{'a\'b': 'c\\d'}", {"a'b": "c\\d"}),
        ("{a:{b:[{}]},c:[]}", {"a": {"b": [{}]}, "c": []}),
        ("{url:amqp:u/p@h:1}", {"url": "amqp:u/p@h:1"}),
    ],
)
def test_option_maps(text: str, wanted: dict[str, Any]) -> None:
    found = parse_option_map(text)
    assert found == wanted
    assert list(map(type, found.values())) == list(map(type, wanted.values()))


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected {"),
        ("heartbeat:5", 0, "expected {"),
        ("{heartbeat:5", 12, "expected , or }"),
        ("{heartbeat}", 10, "expected :"),
        ("{heartbeat 5}", 11, "expected :"),
        ("{heartbeat:}", 11, "expected a value"),
        ("{heartbeat:", 11, "expected a value"),
        ("{a:1 b:2}", 5, "expected , or }"),
        ("{a:1,a:2}", 5, "'a' stands here twice"),
        ("{a:[1,2}", 7, "expected , or ]"),
        ("{a:'x}", 3, "this quote is never closed"),
        ("{,}", 1, "expected a name or }"),
        ("{5:1}", 1, "expected a name or }"),
        ("{} x", 3, "expected the end"),
        ("{a:" + "[" * 30, 23, "nested too deeply"),
    ],
)
def test_option_maps_point_at_the_character(text: str, position: int, reason: str) -> None:
    with pytest.raises(UrlError) as error:
        parse_option_map(text)
    assert (error.value.position, reason in error.value.reason) == (position, True), error.value
