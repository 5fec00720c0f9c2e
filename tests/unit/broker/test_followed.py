"""What routes that follow bindings are told: changes in order, those that are forgotten, pages, paths, and rights."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from pamqp.commands import Queue

from qpidd_py.broker import followed
from qpidd_py.broker.parameters import SHOVEL
from tests.unit.broker.test_parameters import ROUTE
from tests.unit.broker.test_policies import House


class Followed:
    """`amq.topic` of a house, as a worker sees it."""

    def __init__(self) -> None:
        self.house = House()
        self.house.broker.federation_tag = "here"
        self.history, self.last = "", 0
        self.house.declare("q")

    def look(self) -> list[str] | None:
        found = self.house.ask("route.changes", exchange="amq.topic", history=self.history, after=self.last)
        self.history, self.last = found["history"], found["last"]
        if found["changes"] is None:
            return None
        return [f"{'+' if each['added'] else '-'}{key_of(each)}" for each in found["changes"]]

    def bind(self, key: str, method: Any = Queue.Bind, **arguments: Any) -> None:
        self.house.peer.send(1, method(queue="q", exchange="amq.topic", routing_key=key, arguments=arguments))
        self.house.broker.advance()
        self.house.peer.frames()


def key_of(item: dict[str, Any]) -> str:
    return "all" if item["key"] is None else b64decode(item["key"]).decode()


def test_changes_come_in_order_and_once() -> None:
    found = Followed()
    found.bind("before")
    assert found.look() is None
    assert [key_of(each) for each in found.house.ask("route.bindings", exchange="amq.topic")] == ["before"]
    assert found.look() == []
    found.bind("a")
    found.bind("a")
    found.bind("b", **{"x-qpid.fed.path": "there"})
    found.bind("a", Queue.Unbind)
    assert found.look() == ["+a", "+b", "-a"] and found.look() == []
    found.house.ask("queue.delete", queue="q")
    assert found.look() == ["-all"]


def test_what_is_forgotten_begins_anew(monkeypatch: Any) -> None:
    monkeypatch.setattr(followed, "KEPT", 5)
    found = Followed()
    found.look()
    for number in range(5):
        found.bind(str(number))
    assert found.look() == [f"+{number}" for number in range(5)]
    for number in range(6):
        found.bind(f"more.{number}")
    assert found.look() is None and found.look() == []
    found.last += 1
    assert found.look() is None
    found.history = "of another broker"
    assert found.look() is None


def test_bindings_of_a_queue_come_in_pages(monkeypatch: Any) -> None:
    monkeypatch.setattr("qpidd_py.management.routes.PAGE", 2)
    found, pages = Followed(), []
    for number in range(3):
        found.bind(str(number))
    for offset in (0, 2, 4):
        pages.append(found.house.ask("queue.bindings", queue="q", exchange="amq.topic", offset=offset))
    assert [[key_of(each) for each in page] for page in pages] == [["0", "1"], ["2"], []]
    assert "no queue" in found.house.ask("queue.bindings", queue="x", exchange="amq.topic")
    assert "no exchange" in found.house.ask("queue.bindings", queue="q", exchange="x")
    assert "offset" in found.house.ask("queue.bindings", queue="q", exchange="amq.topic", offset=-1)


def test_paths_are_those_that_were_reported() -> None:
    house = Followed().house
    assert house.ask("route.paths", exchange="amq.topic") == {"tag": "here", "type": "topic", "paths": []}
    house.ask(
        "parameter.set",
        component=SHOVEL,
        name="r",
        value={**ROUTE, "src-exchange": "amq.topic", "dest-exchange": "amq.topic"},
    )
    assert house.ask("route.paths", exchange="amq.topic")["paths"] is None, "qpid-shovel has not reported"
    (item,) = house.ask("shovel.report", shovels=[])
    known = {"name": "r", "vhost": "/", "uid": item["uid"], "restarts": 0, "state": "running"}
    house.ask("shovel.report", shovels=[known])
    assert house.ask("route.paths", exchange="amq.topic")["paths"] is None, "it does not know them"
    house.ask("shovel.report", shovels=[{**known, "paths": ["far", "farther,far"]}])
    assert house.ask("route.paths", exchange="amq.topic")["paths"] == ["far", "farther,far"]
    assert house.ask("route.paths", exchange="amq.direct")["paths"] == []
    for wrong in (5, [5], ["x" * 2001], ["x"] * 65):
        assert "paths" in house.ask("shovel.report", shovels=[{**known, "paths": wrong}])


def test_a_broker_without_a_tag_and_a_kind_that_cannot_be_followed() -> None:
    found = Followed()
    found.house.broker.federation_tag = ""
    assert "set federation-tag" in found.house.ask("route.paths", exchange="amq.topic")
    assert "set federation-tag" in found.house.ask("route.changes", exchange="amq.topic")
    found.house.broker.federation_tag = "here"
    found.house.ask("vhost.add", name="v")
    assert found.house.ask("route.paths", exchange="amq.topic", vhost="v")["tag"] == "here/76"
