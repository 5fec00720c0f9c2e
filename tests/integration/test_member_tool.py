"""A broker is replaced by the tool while the others run on, and clients with them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_lib import Connection
from tests.support.members import TIME, Members
from tests.support.wait import wait_for


@pytest.fixture(params=["manager", "quorum"])
def members(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Members]:
    found = Members(tmp_path, "--ha-safety", request.param)
    try:
        found.up()
        yield found
    finally:
        found.close()


def addresses(members: Members, names: str) -> list[str]:
    return [members.brokers[name].address for name in names]


def in_sync(members: Members, name: str) -> set[str]:
    return {member["name"] for member in members.ask(name, "ha.query")["in_sync"]["members"]}


def test_a_broker_is_replaced_without_a_restart_of_the_others(members: Members) -> None:
    pids = {name: members.brokers[name].pid for name in "ab"}
    with Connection(members.url) as connection:
        session = connection.session()
        session.declare_queue("q", durable=True)
        sender = session.sender("q")
        sender.send("before", timeout=TIME)

        members.brokers["c"].kill()
        # First the dead one goes: of four brokers two would be no majority.
        assert members.tool("member", "remove", members.brokers["c"].address).split() == addresses(members, "ab")
        new = members.add("d")
        assert members.tool("member", "add", new.address, name="b").split() == addresses(members, "abd")
        members.settled("a")
        wait_for(lambda: in_sync(members, "a") == {"a", "b", "d"}, TIME, "d in sync")
        sender.send("after", timeout=TIME)

        for name in "abd":
            assert members.tool("member", "list", name=name).split() == addresses(members, "abd")
            queues = {queue["name"]: queue["ready"] for queue in members.ask(name, "queue.list")}
            assert queues == {"q": 2}
        shown = json.loads(members.tool("query", "--json"))["brokers_url"]
        assert shown.split(",") == addresses(members, "abd")

        members.brokers["a"].kill()
        members.tool("promote", "--cluster-manager", name="d")
        wait_for(lambda: in_sync(members, "d") == {"b", "d"}, TIME, "the set of both")
        assert members.tool("member", name="d").split() == addresses(members, "abd")
        assert members.brokers["b"].pid == pids["b"]
        # The client knows only the first three; it is told by name where the primary is.
        sender.send("later", timeout=TIME)
        assert {queue["name"]: queue["ready"] for queue in members.ask("d", "queue.list")} == {"q": 3}


def test_what_is_refused(members: Members) -> None:
    out = members.tool("member", "remove", members.brokers["a"].address, code=1)
    assert "is the primary: relocate it first" in out
    out = members.tool("member", "remove", "127.0.0.1:1", code=1)
    assert out.startswith("RequestRefused: 127.0.0.1:1 is not a member, expected one of 127.0.0.1:")
    assert members.tool("member", "add", members.brokers["b"].address).split() == addresses(members, "abc")
