"""Who may steer, and how requests are answered."""

from __future__ import annotations

from typing import Any

import pytest

from ha.model.environment import Json
from ha.model.status import State
from ha.requests import RequestTable, steers
from ha.shell.standalone import Standalone
from qpidd_py.errors import LinkError
from tests.unit.ha.world import Host, World

STEERING: list[tuple[str, Json]] = [
    ("ha.promote", {}),
    ("ha.demote", {}),
    ("ha.relocate", {"to": "b"}),
    ("ha.claim", {}),
    ("ha.replicate", {}),
    ("ha.member", {"action": "add"}),
    ("ha.member", {"action": "remove"}),
    ("ha.salvage", {"action": "restore"}),
    ("ha.salvage", {"action": "discard"}),
]
LOOKING: list[tuple[str, Json]] = [
    ("ha.status", {}),
    ("ha.query", {}),
    ("ha.ask", {}),
    ("ha.member", {}),
    ("ha.member", {"action": "list"}),
    ("ha.salvage", {"action": "show"}),
]


def ask(table: Any, method: str, arguments: Json, user: str) -> list[Json]:
    replies: list[Json] = []
    assert table.request(method, arguments, replies.append, user)
    return replies


@pytest.mark.parametrize(("method", "arguments"), STEERING)
def test_what_steers(method: str, arguments: Json) -> None:
    assert steers(method, arguments)


@pytest.mark.parametrize(("method", "arguments"), LOOKING)
def test_what_only_looks(method: str, arguments: Json) -> None:
    assert not steers(method, arguments)


@pytest.mark.parametrize(("method", "arguments"), STEERING)
def test_only_the_user_of_ha_username_may_steer(method: str, arguments: Json) -> None:
    table = RequestTable("qpid-ha", {method: lambda arguments, user: {"by": user}}, {})
    action = f" {arguments['action']}" if "action" in arguments else ""
    text = f"ACCESS_REFUSED - user 'guest' may not call {method}{action}, expected the user of ha-username"
    assert ask(table, method, arguments, "guest") == [{"ok": False, "error": text}]
    assert ask(table, method, arguments, "qpid-ha") == [{"ok": True, "result": {"by": "qpid-ha"}}]


def test_without_ha_username_everybody_may() -> None:
    table = RequestTable("", {"ha.promote": lambda arguments, user: {}}, {})
    assert ask(table, "ha.promote", {}, "anybody") == [{"ok": True, "result": {}}]


def test_a_refusal_is_an_answer_and_unknown_methods_are_not_ours() -> None:
    def refuse(arguments: Json, user: str) -> Json:
        raise LinkError("not now")

    table = RequestTable("", {"ha.x": refuse}, {})
    assert ask(table, "ha.x", {}, "") == [{"ok": False, "error": "not now"}]
    assert not table.request("ha.y", {}, lambda reply: None, "")


def test_a_late_answer() -> None:
    waiting: list[Any] = []
    table = RequestTable("", {}, {"ha.x": lambda arguments, user, reply: waiting.append(reply)})
    replies = ask(table, "ha.x", {}, "")
    assert replies == []
    waiting[0]({"ok": True, "result": {"a": 1}})
    assert replies == [{"ok": True, "result": {"a": 1}}]


@pytest.fixture
def guarded() -> World:
    world = World(username="qpid-ha")
    world.cluster()
    return world


@pytest.mark.parametrize("method", ["ha.promote", "ha.demote", "ha.relocate"])
def test_a_stranger_changes_nothing(guarded: World, method: str) -> None:
    (reply,) = ask(guarded["a"].requests, method, {"to": "b"}, "guest")
    assert reply["error"].startswith("ACCESS_REFUSED - user 'guest'")
    guarded.run(0.1)
    assert [host.state for host in guarded.hosts.values()] == [State.ACTIVE, State.READY, State.READY]


def test_a_stranger_cannot_depose_by_a_question(guarded: World) -> None:
    question = {"id": "evil", "epoch": 99, "leader": "evil"}
    (reply,) = ask(guarded["a"].requests, "ha.ask", question, "guest")
    assert (reply["ok"], guarded["a"].state) == (True, State.ACTIVE)
    ask(guarded["a"].requests, "ha.ask", question, "qpid-ha")
    assert guarded["a"].state is State.JOINING


def test_a_stranger_makes_no_disk_write(guarded: World) -> None:
    host = guarded["b"]
    for user, stores in ("guest", None), ("qpid-ha", True):
        (answer,) = ask(host.requests, "ha.ask", {"store": True}, user)
        assert answer["result"].get("stores") is stores
    (answer,) = ask(host.requests, "ha.ask", {}, "qpid-ha")
    assert "stores" not in answer["result"]


def test_a_cluster_with_a_steerer_works(guarded: World) -> None:
    host: Host = guarded["a"]
    replies = ask(host.requests, "ha.relocate", {"to": "b"}, "qpid-ha")
    guarded.until(lambda: bool(replies))
    assert replies[0]["ok"]
    assert guarded["b"].state.is_primary


def test_alone() -> None:
    table = Standalone("n", "id", "qpid-ha")
    assert ask(table, "ha.status", {}, "guest")[0]["result"]["state"] == "standalone"
    assert ask(table, "ha.query", {}, "guest")[0]["result"]["broker_id"] == "id"
    assert not ask(table, "ha.promote", {}, "guest")[0]["ok"]
    assert ask(table, "ha.promote", {}, "qpid-ha") == [{"ok": True, "result": {}}]
    off = {"ok": False, "error": "ha-queue-replication is off here"}
    assert ask(table, "ha.replicate", {}, "qpid-ha") == [off]
