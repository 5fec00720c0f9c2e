"""`qpid-route`: words, what routes are as shovels, and errors; against real connections behind a socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from qpidd_py.broker.settings import Key
from qpidd_py.cli import route_map
from qpidd_py.cli.qpid_route import PREFIX, main
from tests.support.socket_broker import SocketBroker

Route = Callable[..., tuple[int, str]]
FAR = "anna/pa:ss@far1:5673,far2"
URIS = ["amqp://anna:pa%3Ass@far1:5673", "amqp://anna:pa%3Ass@far2:5672"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SocketBroker]:
    for name in ("QPID_CONFIG", "QPID_PORT", "QPID_INTERFACE"):
        monkeypatch.delenv(name, raising=False)
    with served() as found:
        yield found


@contextmanager
def served(*hosts: str, **options: Any) -> Iterator[SocketBroker]:
    """With the exchanges `x` and `y`, and these virtual hosts with them."""
    with SocketBroker(**options) as found:
        for host in hosts:
            found.broker.vhosts.add(host)
        for vhost in found.broker.vhosts:
            for name in "xy":
                vhost.declare_exchange(name, "topic", True, False, False, {})
        yield found


@pytest.fixture
def route(server: SocketBroker, capsys: pytest.CaptureFixture[str]) -> Route:
    def run(*words: str) -> tuple[int, str]:
        code = main([word.replace("HERE", server.address) for word in words])
        return code, capsys.readouterr().out

    return run


def values(server: SocketBroker) -> dict[str, Any]:
    return {key.name: value for key, value in server.broker.vhost.configuration.settings.of("shovel")}


def test_a_route_from_beginning_to_end(route: Route, server: SocketBroker) -> None:
    words = ("HERE", FAR, "amq.topic", "a b.#")
    assert route("route", "add", *words) == (0, "")
    name = f"{PREFIX}pull route far1:5673,far2:5672 amq.topic a b.#"
    ends = {"src-exchange": "amq.topic", "src-exchange-key": "a b.#", "dest-exchange": "amq.topic"}
    assert values(server) == {name: {"src-uri": URIS, "dest-uri": "amqp://", **ends, "ack-mode": "on-confirm"}}
    assert "there is a route" in route("route", "add", *words)[1]
    assert route("-q", "route", "add", *words) == (0, "")
    assert route("route", "list", "HERE") == (0, f"{server.address} far1:5673,far2:5672 amq.topic a b.#\n")
    code, text = route("link", "list", "HERE", "--json")
    (link,) = json.loads(text)
    assert (code, link["Broker"], link["Durable"], link["State"]) == (0, "far1:5673,far2:5672", "N", "Waiting")
    assert "no qpid-shovel has reported" in link["Last Error"] and "pa:ss" not in text
    assert route("route", "del", "HERE", "far1:5673,far2", "amq.topic", "a b.#") == (0, "")
    assert values(server) == {} and "there is no route" in route("route", "del", *words)[1]
    assert route("-q", "route", "del", *words) == (0, "")


def test_queues_pushes_and_options(route: Route, server: SocketBroker) -> None:
    assert route("-s", "--ack", "0", "--credit", "5", "-t", "ssl", "queue", "add", "[::1]", "HERE", "x", "q") == (0, "")
    ((name, value),) = values(server).items()
    assert name == f"{PREFIX}push queue ssl:[::1]:5671 x q"
    known = {"dest-uri": ["amqps://[::1]:5671"], "src-uri": "amqp://", "dest-exchange": "x", "src-queue": "q"}
    assert value == {**known, "ack-mode": "no-ack", "src-prefetch-count": 5}
    assert route("list", "HERE") == (0, f"ssl:[::1]:5671 {server.address} x (queue) q\n")
    route("-d", "route", "add", "HERE", "far", "x", "k")
    assert values(server)[f"{PREFIX}pull route far:5672 x k"]["src-exchange-queue"].startswith("bridge_queue_")
    route("route", "add", "HERE", "far", "x", "l", "here", "there,far")
    traced = values(server)[f"{PREFIX}pull route far:5672 x l"]
    assert (traced["dest-add-trace"], traced["src-exclude-traces"]) == ("here", ["there", "far"])
    assert "Y" in route("list", "connections", "HERE")[1]
    server.broker.vhost.configuration.settings.put(Key("shovel", "/", "other"), known)
    assert route("route", "flush", "HERE") == (0, "") and list(values(server)) == ["other"]


def test_a_dynamic_route(route: Route, server: SocketBroker) -> None:
    assert route("dynamic", "add", "HERE", FAR, "amq.topic") == (0, "")
    ((name, value),) = values(server).items()
    assert name == f"{PREFIX}pull dynamic far1:5673,far2:5672 amq.topic"
    assert value.pop("src-exchange-queue").startswith("bridge_queue_")
    ends = {"src-uri": URIS, "dest-uri": "amqp://", "src-exchange": "amq.topic", "dest-exchange": "amq.topic"}
    assert value == {**ends, "src-follow-bindings": True, "ack-mode": "on-confirm"}
    assert "there is a route" in route("dynamic", "add", "HERE", FAR, "amq.topic")[1]
    assert route("route", "list", "HERE")[1] == f"{server.address} far1:5673,far2:5672 amq.topic <dynamic>\n"
    assert route("dynamic", "add", "HERE", "far3", "x", "tag", "a,b") == (0, "")
    traced = values(server)[f"{PREFIX}pull dynamic far3:5672 x"]
    assert (traced["dest-add-trace"], traced["src-exclude-traces"]) == ("tag", ["a", "b"])
    assert route("dynamic", "del", "HERE", "far1:5673,far2", "amq.topic") == (0, "") and len(values(server)) == 1
    assert "there is no route" in route("dynamic", "del", "HERE", FAR, "amq.topic")[1]
    with served() as far:
        route("dynamic", "add", "HERE", f"guest/guest@{far.address}", "x")
        route("dynamic", "add", far.address, f"guest/guest@{server.address}", "x")
        text = route("route", "map", "HERE")[1]
    first, second = sorted((server.address, far.address))
    assert "Dynamic Routes:\n\n  Exchange x:\n" in text and f"    {first} <=> {second}\n" in text
    assert f"    far3:5672 => {server.address}\n" in text


def test_a_map_of_brokers_that_lead_to_each_other(route: Route, server: SocketBroker) -> None:
    assert route("route", "map", "HERE")[1].split() == [
        *("Finding", "Linked", "Brokers:", f"{server.address}...", "Ok"),
        *(word for kind in ("Dynamic", "Static") for word in (kind, "Routes:", "none", "found")),
    ]
    with served() as far:
        address = f"guest/guest@{far.address}"
        assert route("route", "add", "HERE", address, "amq.topic", "a.#") == (0, "")
        assert route("-s", "queue", "add", "[::1]:1", far.address, "x", "q")[0] == 0
        assert route("route", "add", far.address, server.address, "amq.topic", "a.#")[0] == 0
        code, text = route("route", "map", "HERE")
        assert code == 0 and text.count(f"    {far.address}... Ok\n") == text.count(f"{server.address}... Ok\n") == 1
        assert "    [::1]:1... " in text and "Errno" not in text and "refused" in text.lower()
        for line in (
            f"    {server.address}(ex=amq.topic) <= {far.address}(ex=amq.topic) key=a.#\n",
            f"    {far.address}(ex=amq.topic) <= {server.address}(ex=amq.topic) key=a.#\n",
            f"    [::1]:1(ex=x) <= {far.address}(queue=q)\n",
        ):
            assert line in text
        found = json.loads(route("map", "HERE", "--json")[1])
        assert len(found["routes"]) == 3 and found["brokers"][far.address] == "" and found["not_asked"] == 0


def test_a_map_sends_the_login_of_the_caller_to_nobody_else(route: Route, server: SocketBroker) -> None:
    """A route may name any host, as one that only wants to learn passwords."""
    logins: list[Any] = []

    def learn(attempt: Any, decided: Callable[[Any], None]) -> None:
        logins.append(attempt.response)
        decided(None)

    with SocketBroker(authenticate=learn) as thief:
        route("route", "add", "HERE", f"eve/known@{thief.address}", "x", "k")
        route("route", "add", "HERE", thief.address, "y", "k")
        code, text = route("route", "map", f"guest/guest@{server.address}")
        assert code == 0 and "AuthenticationFailure" in text and "known" not in text
    assert logins == [b"\0eve\0known"]


@pytest.mark.parametrize("uri", ["amqp://h:99999", "amqp://[", "amqp://u:p%ff@h:x"])
def test_a_map_with_an_address_that_is_none(route: Route, server: SocketBroker, uri: str) -> None:
    value = {"src-uri": uri, "dest-uri": "amqp://", "dest-exchange": "x", "src-queue": "q"}
    server.broker.vhost.configuration.settings.put(Key("shovel", "/", f"{PREFIX}pull queue h:1 x q"), value)
    code, text = route("route", "map", "HERE")
    assert code == 0 and "    h:1... ValueError: " in text and "Static Routes:" in text


def test_a_map_is_bounded(route: Route, server: SocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_map, "BROKERS", 3)
    for port in range(1, 6):
        route("route", "add", "HERE", f"127.0.0.1:{port}", "x", "k")
    code, text = route("route", "map", "HERE")
    assert code == 0 and text.count("...") == 3 and "    3 more were not asked\n" in text


def test_parameters_that_are_no_routes_of_this_tool(route: Route, server: SocketBroker) -> None:
    """Whoever may set parameters may give them any name; one of them must not hide the routes from the others."""
    ends = {"src-uri": "amqp://far", "dest-uri": "amqp://"}
    queue = {**ends, "src-queue": "q", "dest-queue": "q"}
    put = server.broker.vhost.configuration.settings.put
    for name in ("", "x", "pull", "pull route far", "pull route far x k", "up queue far x q", "pull link far x q"):
        put(Key("shovel", "/", f"{PREFIX}{name}"), queue)
    route("queue", "add", "HERE", "far", "x", "q")
    assert route("route", "list", "HERE") == (0, f"{server.address} far:5672 x (queue) q\n")
    code, text = route("link", "list", "HERE")
    assert code == 0 and text.count("far:5672") == 1
    assert route("route", "flush", "HERE") == (0, "") and len(values(server)) == 7, "it deletes what it has made"


def test_routes_of_a_virtual_host(route: Route) -> None:
    with served("shop", "a/b") as near, served("shop", "a/b") as far:
        login, words = f"guest/guest@{far.address}", (near.address, "x")
        assert route("-p", "shop", "dynamic", "add", near.address, login, "x") == (0, "")
        assert route("-p", "shop", "route", "add", near.address, f"{login}/a%2Fb", "x", "k") == (0, "")
        assert route("queue", "add", f"{near.address}/a%2Fb", f"{login}//", "x", "q") == (0, "")
        assert route("-p", "shop", "-s", "route", "add", near.address, far.address, "x", "k") == (0, "")
        found = {(key.host, key.name): value for key, value in near.broker.settings.of("shovel")}
        ends = {key: (value["src-uri"], value["dest-uri"]) for key, value in found.items()}
        place, there = far.address, f"amqp://guest:guest@{far.address}"
        assert ends == {
            ("shop", f"{PREFIX}pull dynamic {place}/shop x"): ([f"{there}/shop"], "amqp:///shop"),
            ("shop", f"{PREFIX}pull route {place}/a%2Fb x k"): ([f"{there}/a%2Fb"], "amqp:///shop"),
            ("a/b", f"{PREFIX}pull queue {place} x q"): ([there], "amqp:///a%2Fb"),
        }
        assert [key.host for key, _ in far.broker.settings.of("shovel")] == ["shop"]
        assert route("list", words[0])[1].strip() == "" and route("map", words[0])[1].count("none found") == 2
        for name in (
            ("-p", "shop", "list", words[0]),
            ("list", f"{words[0]}/shop"),
            ("-b", f"{words[0]}/shop", "list"),
        ):
            assert route(*name)[1].splitlines() == [
                f"{words[0]}/shop {place}/shop x <dynamic>",
                f"{words[0]}/shop {place}/a%2Fb x k",
            ]
        assert route("-p", "shop", "link", "list", words[0])[1].count(place) == 2
        text = route("-p", "shop", "map", words[0])[1]
        assert f"    {place}/shop... Ok\n    {place}/a%2Fb... " in text, "each virtual host is a broker of its own"
        assert f"    {place}/shop => {words[0]}/shop\n" in text
        assert f"    {words[0]}/shop(ex=x) <= {place}/a%2Fb(ex=x) key=k\n" in text
        assert "there is no route" in route("dynamic", "del", words[0], place, "x")[1]
        assert route("-p", "shop", "dynamic", "del", words[0], place, "x") == (0, "")
        assert route("flush", words[0]) == (0, "") and len(values(near)) == 2, "of / only"
        assert route("-p", "shop", "flush", words[0]) == (0, "") and len(values(near)) == 1
        assert route("queue", "del", f"{words[0]}/a%2Fb", f"{place}//", "x", "q") == (0, "") and not values(near)
        code, text = route("-p", "nowhere", "list", words[0])
        assert code == 1 and "nowhere" in text and text.count("\n") == 1


def test_a_route_to_itself(route: Route) -> None:
    """As far as the addresses tell."""
    with served("shop") as server:
        port = server.port
        for other in (server.address, f"LOCALHOST:{port}", f"far,anna:1,[::1]:{port}", f"u/p@127.0.0.1:{port}//"):
            for kind, *key in (("route", "k"), ("dynamic",)):
                code, text = route(kind, "add", server.address, other, "x", *key)
                assert code == 1 and "is source and destination: exchange 'x' would feed itself" in text, other
        assert values(server) == {} and server.broker.vhosts.get("shop")
        assert route("queue", "add", server.address, server.address, "x", "q") == (0, "")
        assert route("route", "add", server.address, f"{server.address}/shop", "x", "k") == (0, "")
        assert route("route", "add", server.address, f"127.0.0.1:{port + 1}", "x", "k") == (0, "")


def test_an_exchange_that_is_not_there(route: Route) -> None:
    with served("shop") as server:
        for words in (
            ("route", "add", server.address, "far", "none", "k"),
            ("dynamic", "add", server.address, "far", "none"),
            ("queue", "add", server.address, "far", "none", "q"),
        ):
            code, text = route(*words)
            assert code == 1 and "dest-exchange: no exchange 'none' in virtual host '/'" in text
            assert "in virtual host 'shop'" in route("-p", "shop", *words)[1]
        assert "src-exchange: no exchange 'none'" in route("-s", "route", "add", "far", server.address, "none", "k")[1]
        assert values(server) == {}


def test_names_control_no_terminal(route: Route, server: SocketBroker) -> None:
    hostile = "\x1b]0;x\x07\u202e"
    assert route("route", "add", "HERE", "far", "x", "k")[0] == 0
    ((name, value),) = values(server).items()
    server.broker.vhost.configuration.settings.put(
        Key("shovel", "/", name), {**value, "dest-exchange": hostile, "src-exchange-key": hostile}
    )
    code, text = route("route", "list", "HERE")
    assert code == 0 and text.strip().isprintable() and "\\x1b]0;x\\x07\\u202e" in text


WRONG = [
    (("-s", "dynamic", "add", "HERE", "far", "x"), "and is pulled: no --src-local"),
    (("-s", "dynamic", "del", "HERE", "far", "x"), "and is pulled: no --src-local"),
    (("dynamic", "add", "HERE", "far"), "a dynamic route is DEST-BROKER SRC-BROKER EXCHANGE"),
    (("dynamic", "add", "HERE", "far", "x", "tag", "a,b", "c"), "a dynamic route is DEST-BROKER SRC-BROKER EXCHANGE"),
    (("dynamic", "add", "HERE", "far", "x", "a tag"), "dest-add-trace: 'a tag', expected a name"),
    (("dynamic", "add", "HERE", "far", ""), "dest-exchange: '', expected a name"),
    (("link", "add", "HERE", "far"), "a link is there as long as a route needs it"),
    (("route", "add", "HERE", "far", "x"), "unexpected arguments: route add"),
    (("route", "add", "HERE", "far", "x", "k", "tag", "a,b", "c"), "unexpected arguments: route add"),
    (("queue", "add", "HERE", "far", "x", "q", "tag"), "unexpected arguments: queue add"),
    (("route", "add", "HERE", "far", "x", "k", "a tag"), "dest-add-trace: 'a tag', expected a name"),
    (("route", "add", "HERE", "far", "x", "k", "tag", "a,,b"), "src-exclude-traces: ['a', '', 'b'], expected a list"),
    ((), "unexpected arguments"),
    (("route", "add", "HERE", "far:x", "x", "k"), "address 'far:x', wanted host[:port]"),
    (("route", "add", "HERE", "far,", "x", "k"), "address '', wanted host[:port]"),
    (("route", "add", "HERE", "far/", "x", "k"), "virtual host '' of far/, wanted one name behind the last host"),
    (("route", "add", "HERE", "far/a,far2/b", "x", "k"), "virtual host 'a,far2/b' of far/a,far2/b"),
    (("list", "HERE/a/b"), "virtual host 'a/b' of 127.0.0.1"),
    (("route", "add", "HERE", "far", "x", "k" * 256), "octets, wanted 1 to 255"),
    (("route", "add", "HERE", "far", "", "k"), "dest-exchange: '', expected a name"),
    (("--credit", "0", "queue", "add", "HERE", "far", "x", "q"), "src-prefetch-count: 0, expected a whole number"),
    (("--ack", "-1", "queue", "add", "HERE", "far", "x", "q"), "--ack: found -1, wanted 0 or more"),
]


@pytest.mark.parametrize(("words", "text"), WRONG)
def test_what_is_wrong_is_one_line(route: Route, server: SocketBroker, words: tuple[str, ...], text: str) -> None:
    code, said = route(*words)
    assert code == 1 and said.startswith("Failed: ") and text in said and said.count("\n") == 1
    assert values(server) == {}
