"""A page of the queues or connections, one queue, and the totals."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core import Route
from qpidd_py.management import pages
from qpidd_py.management.model import Management
from qpidd_py.management.pages import SORTS
from tests.unit.test_management import NoTransport

NUMBER = 60
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Queues with some messages; few are looked at in a slice."""
    monkeypatch.setattr(pages, "LOOKS", 7)
    broker, rng = Broker("b"), Random(5)
    management = Management(broker)
    for number in range(NUMBER):
        queue = broker.vhost.declare_queue(
            None, f"{'Orders' if number % 3 else 'bills'}.{number}", True, False, False, {}
        )[0]
        for _ in range(rng.randrange(4)):
            broker.engine.publish(Route([queue.core]), b"", b"k", bytes(14), bytes(rng.randrange(9)))

    def asked(method: str, **arguments: Any) -> dict[str, Any]:
        replies: list[dict[str, Any]] = []
        management.request(method, arguments, replies.append)
        whole = [item for reply in replies for item in reply["result"]] if method == "queue.list" else None
        return {"ok": True, "result": whole} if whole is not None else replies[-1]

    return asked


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_pages_are_the_list_in_order(ask: Ask, sort: str, reverse: bool) -> None:
    by_name = sorted(ask("queue.list")["result"], key=itemgetter("name"))
    expected = sorted(by_name, key=itemgetter(sort), reverse=reverse)  # equals stay in the order of their names
    found: list[Any] = []
    for offset in range(0, NUMBER, 13):
        page = ask("queue.page", offset=offset, limit=13, sort=sort, reverse=reverse)["result"]
        assert (page["matched"], page["total"]) == (NUMBER, NUMBER)
        found += page["queues"]
    assert found == expected


@pytest.mark.parametrize(("name", "matched"), [("ORDERS", 40), ("bills", 20), ("s.3", 11), ("none", 0), ("", NUMBER)])
def test_a_part_of_the_name(ask: Ask, name: str, matched: int) -> None:
    page = ask("queue.page", name=name, limit=5)["result"]
    assert (page["matched"], page["total"], len(page["queues"])) == (matched, NUMBER, min(matched, 5))
    assert all(name.lower() in each["name"].lower() for each in page["queues"])


def test_behind_the_last_one_is_nothing(ask: Ask) -> None:
    assert ask("queue.page", offset=NUMBER)["result"] == {"queues": [], "matched": NUMBER, "total": NUMBER}


def test_totals_are_the_sums_of_the_list(ask: Ask) -> None:
    listed, sums = ask("queue.list")["result"], ask("queue.totals")["result"]
    assert sums.pop("queues") == NUMBER and sums["messages"] > NUMBER // 2
    assert sums == {name: sum(each[name] for each in listed) for name in sums}


def test_one_of_them(ask: Ask) -> None:
    listed = ask("queue.list")["result"]
    assert ask("queue.info", queue="bills.3")["result"] in listed
    assert ask("queue.info", queue="bills")["error"] == "no queue 'bills'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"sort": "arguments"}, "sort 'arguments', wanted one of name, messages"),
        ({"limit": 0}, "limit 0, wanted a number from 1 to 10000"),
        ({"limit": True}, "limit True, wanted"),
        ({"offset": -1}, "offset -1, wanted a number from 0"),
        ({"offset": 9999, "limit": 2}, "offset 9999 and limit 2, wanted 10000 together, or less"),
        ({"offset": "1" * 900}, "wanted a number"),
        ({"name": 5}, "name is 5"),
        ({"name": [1] * 900}, "name is [1, 1, 1"),
        ({"reverse": {"a": "b" * 900}}, "reverse is {'a': 'bbb"),
        ({"reverse": "yes"}, "reverse is 'yes'"),
    ],
)
def test_what_is_no_page(ask: Ask, arguments: dict[str, Any], text: str) -> None:
    answer = ask("queue.page", **arguments)
    assert not answer["ok"] and text in answer["error"] and len(answer["error"]) < 200


def test_queues_that_go_meanwhile_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LOOKS", 1)
    broker, replies = Broker("b"), list[Any]()
    made = [broker.vhost.declare_queue(None, f"q{number}", True, False, False, {})[0] for number in range(3)]
    work = Management(broker).work("queue.page", {}, replies.append, None)
    next(work)
    broker.vhost.configuration.drop_queue(made[0])
    for _ in work:
        pass
    assert [each["name"] for each in replies[0]["result"]["queues"]] == ["q1", "q2"]


# ---- connections

Met = tuple[Ask, list[ClientConnection]]


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Met:
    """Clients, and a link to another broker; few are looked at in a slice."""
    monkeypatch.setattr(pages, "LOOKS", 7)
    broker = Broker("b")
    clients = [ClientConnection(broker, f"node{number % 2}:{number}", NoTransport()) for number in range(NUMBER)]
    ClientConnection(broker, "node1:9", NoTransport()).link = Mock()

    def asked(method: str, **arguments: Any) -> dict[str, Any]:
        replies: list[dict[str, Any]] = []
        Management(broker).request(method, arguments, replies.append)
        return replies[-1]

    return asked, clients


def test_pages_of_connections_are_the_clients_by_number(met: Met) -> None:
    ask, clients = met
    found = []
    for offset in range(0, NUMBER, 13):
        page = ask("session.page", offset=offset, limit=13)["result"]
        assert (page["matched"], page["total"]) == (NUMBER, NUMBER)
        found += page["sessions"]
    listed = [each for each in ask("session.list")["result"] if not each["link"]]
    assert found == listed and [each["peer"] for each in found] == [each.peer for each in clients]


def test_connections_whose_peer_or_user_has_the_name(met: Met) -> None:
    ask, clients = met
    clients[4].handshake.user = "Reports"
    assert ask("session.page", name="NODE1", limit=3)["result"]["matched"] == NUMBER // 2
    page = ask("session.page", name="reports")["result"]
    assert [each["number"] for each in page["sessions"]] == [clients[4].number] and page["matched"] == 1


def test_a_wrong_page_of_connections(met: Met) -> None:
    assert "limit 0" in met[0]("session.page", limit=0)["error"]
