"""`qpid-ha` commands that change a cluster, and the tables; against real connections behind a socket."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ha.qpid_ha import main as cli
from qpidd_py.cli.client_socket import Deadline
from tests.support.socket_broker import SocketBroker, closed_port
from tests.unit.test_qpid_ha_cli import Reply, Run, no_environment, run

__all__ = ["no_environment", "run"]  # fixtures


class FakeMember:
    """Answers with what the test says; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.results: dict[str, Any] = {"ha.query": {"status": "active", "name": "me", "broker_id": "aa"}}
        self.refuse: Callable[[str, dict[str, Any]], str] = lambda method, arguments: ""

    def admit(self, connection: Any, properties: Any) -> None:
        return None

    def opened(self, connection: Any) -> bool:
        return False

    def connection_closed(self, connection: Any) -> None:
        pass

    def tick(self, now: float) -> None:
        pass

    def request(self, method: str, arguments: dict[str, Any], reply: Reply, user: str) -> bool:
        self.asked.append((method, arguments))
        refusal = self.refuse(method, arguments)
        reply({"ok": False, "error": refusal} if refusal else {"ok": True, "result": self.results.get(method, {})})
        return True


@pytest.fixture
def member() -> FakeMember:
    return FakeMember()


@pytest.fixture
def server(member: FakeMember) -> Iterator[SocketBroker]:
    with SocketBroker(member) as server:
        yield server


@pytest.fixture
def backup(server: SocketBroker) -> Iterator[SocketBroker]:
    """Another broker, which says that `server` is the primary."""
    found = FakeMember()
    found.results["ha.query"] = {"status": "ready", "primary": server.address}
    with SocketBroker(found) as server:
        yield server


def test_relocate_goes_to_the_primary(run: Run, backup: SocketBroker, member: FakeMember) -> None:
    member.results["ha.relocate"] = {"primary": "node2", "address": "10.0.0.2:5672", "without_primary": 0.0314}
    assert run("relocate", "--to", "node2", "-b", backup.address) == (0, "node2 is primary; none was for 31 ms\n")
    assert member.asked == [("ha.relocate", {"to": "node2"})]


def test_a_manager_may_promote_one_that_is_behind(run: Run, server: SocketBroker, member: FakeMember) -> None:
    assert run("promote", "--cluster-manager", "--behind", "-b", server.address) == (0, "")
    assert run("promote", "--cluster-manager", "--behind", "--takeover", "-b", server.address) == (0, "")
    assert member.asked == [("ha.promote", {"behind": True}), ("ha.promote", {"behind": True, "takeover": True})]


def test_a_promotion_that_loses_messages_says_so(run: Run, server: SocketBroker, member: FakeMember) -> None:
    warning = "promoted after a total failure: what was only in memory is lost"
    member.results["ha.promote"] = {"warning": warning}
    assert run("promote", "--cluster-manager", "-b", server.address) == (0, f"{warning}\n")
    code, said = run("promote", "--cluster-manager", "--json", "-b", server.address)
    assert (code, json.loads(said)["warning"]) == (0, warning)


def test_the_name_may_come_first(run: Run, server: SocketBroker, member: FakeMember) -> None:
    assert run("--to", "b", "relocate", "--json", "-b", server.address)[0] == 0
    assert member.asked == [("ha.query", {}), ("ha.relocate", {"to": "b"})]


def test_without_a_primary_that_is_said(run: Run, server: SocketBroker, member: FakeMember) -> None:
    member.results["ha.query"] = {"status": "joining", "primary": ""}
    text = f"BrokerError: {server.address} is joining and knows no primary; --broker ADDRESS names another member\n"
    assert run("relocate", "-b", server.address) == (1, text)


def test_a_refused_relocation_tells_why(run: Run, server: SocketBroker, member: FakeMember) -> None:
    member.refuse = lambda method, arguments: "no member 'x'; known are b (b:1, ready)" if "relocate" in method else ""
    expected = "RequestRefused: no member 'x'; known are b (b:1, ready)\n"
    assert run("relocate", "--to", "x", "-b", server.address) == (1, expected)


def test_members_are_listed_added_and_removed(run: Run, backup: SocketBroker, member: FakeMember) -> None:
    member.results["ha.member"] = {"brokers": ["a:1", "b:2"]}
    assert run("member", "add", "b:2", "-b", backup.address) == (0, "a:1\nb:2\n")
    assert run("member", "remove", "[::1]:3", "-b", backup.address) == (0, "a:1\nb:2\n")
    asked = [arguments for method, arguments in member.asked if method == "ha.member"]
    assert asked == [{"action": "add", "address": "b:2"}, {"action": "remove", "address": "[::1]:3"}]


def test_a_dump_goes_to_the_primary(run: Run, server: SocketBroker, backup: SocketBroker, member: FakeMember) -> None:
    member.results["ha.dump"] = {"queues": 2, "messages": 7, "unnamed": 0}
    assert run("dump", "-b", backup.address) == (0, "7 messages in 2 queues\n")
    member.results["ha.dump"]["unnamed"] = 3
    assert run("dump", "-b", backup.address) == (0, "7 messages in 2 queues, 3 of them without their ids\n")
    code, text = run("dump", "--json", "-b", backup.address)
    assert (code, json.loads(text)) == (0, {"address": server.address, **member.results["ha.dump"]})
    assert {method for method, _ in member.asked} == {"ha.dump"}


def test_anybody_lists_members(run: Run, server: SocketBroker, member: FakeMember) -> None:
    member.results["ha.member"] = {"brokers": ["a:1", "b:2"]}
    assert run("member", "-b", server.address) == run("member", "list", "-b", server.address) == (0, "a:1\nb:2\n")
    code, out = run("member", "list", "--json", "-b", server.address)
    assert (code, json.loads(out)["brokers"]) == (0, ["a:1", "b:2"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["member", "join"], "argument ACTION: found 'join', wanted list, add or remove"),
        (["member", "add", "host"], "argument HOST:PORT: found 'host', wanted host:port"),
        (["member", "add"], "argument HOST:PORT: address '', wanted host[:port]"),
        (["demote"], "demote is for cluster managers only; --cluster-manager allows it"),
    ],
)
def test_what_makes_no_sense(run: Run, server: SocketBroker, words: list[str], text: str) -> None:
    assert run(*words, "-b", server.address) == (1, f"UsageError: {text}\n")


def test_demote_and_replicate(run: Run, server: SocketBroker, member: FakeMember) -> None:
    assert run("demote", "--cluster-manager", "-b", server.address) == (0, "")
    assert run("replicate", "10.0.0.1,10.0.0.2:5673", "orders", "-b", server.address) == (0, "")
    assert member.asked == [
        ("ha.demote", {}),
        ("ha.replicate", {"broker": "10.0.0.1,10.0.0.2:5673", "queue": "orders"}),
    ]


class TestForce:
    def test_the_refusal_is_printed_and_overridden(self, run: Run, server: SocketBroker, member: FakeMember) -> None:
        member.refuse = lambda method, arguments: "" if arguments.get("force") else "c may hold more"
        words = ["promote", "--force", "--cluster-manager", "-b", server.address]
        assert run(*words) == (0, "by force, confirmed messages may be lost: c may hold more\n")
        assert json.loads(run(*words, "--json")[1])["overridden"] == "c may hold more"

    def test_nothing_is_forced_that_needs_no_force(self, run: Run, server: SocketBroker, member: FakeMember) -> None:
        assert run("promote", "--force", "--cluster-manager", "-b", server.address) == (0, "")
        assert member.asked == [("ha.promote", {})]

    def test_some_rules_stand(self, run: Run, server: SocketBroker, member: FakeMember) -> None:
        member.refuse = lambda method, arguments: "b is primary"
        code, out = run("promote", "--force", "--cluster-manager", "-b", server.address)
        assert (code, out.splitlines()[-1]) == (1, "RequestRefused: b is primary")

    def test_it_is_for_managers_only(self, run: Run, server: SocketBroker, member: FakeMember) -> None:
        assert run("promote", "--force", "-b", server.address)[0] == 1
        assert member.asked == []


STALLED = {"why": "b is lost", "seconds": 1.25, "until": "it is back or removed"}


def test_the_table_of_all_brokers(run: Run, server: SocketBroker, member: FakeMember) -> None:
    dead = f"127.0.0.1:{closed_port()}"
    lag = {"positions": 12, "octets": 5000, "seconds": 0.5}
    member.results["ha.query"] |= {
        "brokers_url": f"{server.address},{dead}",
        "in_sync": {"epoch": 2, "version": 3, "leader": "aa", "members": [{"id": "aa"}]},
        "members": [{"id": "bb", "name": "bee", "address": dead, "lag": lag}],
        "stalled": STALLED,
    }
    code, out = run("status", "--all", "--verbose", "-b", server.address)
    lines = out.splitlines()
    assert code == 0
    assert lines[1].split() == ["Member", "Address", "Status", "In", "sync", "Lag", "Octets", "Seconds"]
    assert lines[3].split() == ["me", server.address, "active", "yes"]
    assert lines[4].split() == ["bee", dead, "ConnectionRefusedError"]
    assert lines[6] == "me: Confirms wait: b is lost, for 1.2 s; until it is back or removed"
    assert max(map(len, lines)) <= 80


def test_a_verbose_query_tells_what_is_wrong(run: Run, server: SocketBroker, member: FakeMember) -> None:
    member.results["ha.query"] |= {"stalled": STALLED, "isolated": True, "advice": "promote b"}
    _, out = run("query", "-v", "-b", server.address)
    assert "Confirms wait:       b is lost, for 1.2 s; until it is back or removed\n" in out
    assert "Isolated:            clients are closed and refused, see ha-isolation-timeout\n" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "Advice:              promote b\n" in out


def test_a_verbose_status_tells_what_is_wrong(run: Run, server: SocketBroker, member: FakeMember) -> None:
    member.results["ha.status"] = {"state": "active", "stalled": "b is lost", "advice": ""}
    assert run("status", "-b", server.address) == (0, "active\n")
    assert run("status", "-v", "-b", server.address) == (0, "active\nConfirms wait:       b is lost\n")


def test_a_switch_over_gets_more_time_than_a_question(
    server: SocketBroker, member: FakeMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []

    def deadline(limit: float) -> Deadline:
        seconds.append(limit)
        return Deadline(limit)

    monkeypatch.setattr(cli, "Deadline", deadline)
    for words in (["relocate"], ["relocate", "--timeout", "3"], ["status"]):
        cli.main([*words, "-b", server.address])
    assert seconds == [20.0, 3.0, 10.0]
