"""Clients of a backup that knows no primary wait, instead of asking again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from ha.model.status import State
from ha.shell.waiting_clients import AT_ONCE, PATIENCE, WaitingClients
from qpidd_py.broker.client_connection import ClientConnection
from tests.unit.ha.world import World


class Client:
    """A connection whose connection.open waits, or is decided."""

    def __init__(self, lot: WaitingClients, world: World, name: str) -> None:
        self._lot, self._world, self._name = lot, world, name
        self.asked = 0
        self.ended: tuple[float, str] | None = None
        self.ask_again()

    @property
    def put_off(self) -> bool:
        return self.ended is None

    def ask_again(self) -> None:
        self.asked += 1
        host = self._world[self._name]
        if host.state.is_primary:
            self.ended = self._world.clock, "admitted"
        elif not self._lot.keeps(cast(ClientConnection, self)):
            self.ended = self._world.clock, host.node.role.primary_address or "refused"


class Site:
    """b and c have lost the primary a; clients come to both."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(safety="quorum", **settings)
        self.world.cluster()
        self.lots = {name: WaitingClients(self.world[name].node) for name in "abc"}

    def orphan(self) -> Site:
        self.world["a"].kill()
        self.world.until(lambda: not any(self.world[name].node.role.primary_address for name in "bc"))
        return self

    def come(self, name: str, count: int = 1) -> list[Client]:
        return [Client(self.lots[name], self.world, name) for _ in range(count)]


@pytest.fixture
def site() -> Iterator[Site]:
    yield Site().orphan()


def ends(clients: list[Client]) -> set[str]:
    return {client.ended[1] for client in clients if client.ended is not None}


def test_who_waits_is_admitted_by_the_promotion_and_told_by_the_other_backup(site: Site) -> None:
    here, there = site.come("b", 3), site.come("c", 3)
    site.world.run(0.3)
    assert ends(here) == ends(there) == set() and {client.asked for client in here} == {1}
    site.world.promote("b")
    assert site.world.until(lambda: all(client.ended for client in here)) < 0.01
    assert site.world.until(lambda: all(client.ended for client in there)) < 0.1
    assert (ends(here), ends(there)) == ({"admitted"}, {"b:1"})
    assert not site.lots["b"] and not site.lots["c"]


def test_patience_ends_and_each_client_has_its_own(site: Site) -> None:
    begin = site.world.clock
    first = site.come("b")
    site.world.run(0.6)
    second = site.come("b")
    site.world.run(2.0)
    assert ends(first + second) == {"refused"}
    waited = [client.ended[0] - begin for client in first + second if client.ended]
    assert waited == [pytest.approx(PATIENCE, abs=0.01), pytest.approx(PATIENCE + 0.6, abs=0.01)]
    assert {client.asked for client in first + second} == {2} and not site.lots["b"]


def test_nobody_waits_where_the_primary_is_known() -> None:
    site = Site()
    assert ends(site.come("b")) == {"a:1"} and ends(site.come("a")) == {"admitted"}
    assert not site.lots["b"]


def test_who_comes_while_a_broker_is_being_promoted_waits_for_that() -> None:
    """A planned switch-over: the old primary is known, and is none any more in a moment."""
    site = Site()
    site.world["b"].promote(takeover=True)
    clients = site.come("b")
    assert ends(clients) == set()
    site.world.until(lambda: all(client.ended for client in clients))
    assert ends(clients) == {"admitted"} and site.world["b"].state.is_primary


def test_a_promotion_that_is_refused_lets_them_go() -> None:
    site = Site()
    site.world["b"].promote()
    clients = site.come("b")
    assert site.world.until(lambda: all(client.ended for client in clients)) < PATIENCE / 2
    assert ends(clients) == {"a:1"} and site.world["b"].state is State.READY


def test_a_turn_decides_of_a_few(site: Site) -> None:
    clients = site.come("b", 10 * AT_ONCE + 1)
    after, turns = site.world["b"].after, []

    def counted(delay: float, call: Any) -> None:
        def turn() -> None:
            before = sum(client.ended is not None for client in clients)
            call()
            turns.append(sum(client.ended is not None for client in clients) - before)

        after(delay, turn)

    site.world["b"].after = counted  # type: ignore[method-assign]
    site.world.promote("b")
    site.world.until(lambda: all(client.ended for client in clients))
    assert max(turns) == AT_ONCE and ends(clients) == {"admitted"}


def test_who_has_gone_is_forgotten(site: Site) -> None:
    for client in site.come("b", 5):
        client.ended = site.world.clock, "gone"
    assert len(site.lots["b"]) == 5
    site.world.run(PATIENCE + 0.1)
    assert not site.lots["b"]
