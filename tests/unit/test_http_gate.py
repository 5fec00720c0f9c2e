"""Whose requests `qpid-http` sends to the broker at once, and whose wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.http import gate as gates
from qpidd_py.http.door import Problem, WrongLogin, told
from qpidd_py.http.gate import OF_ADDRESS, REMEMBERED, UNPROVEN, WAITING, Gate


class World:
    """Requests that stay at the broker until `answer`."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.at_broker: dict[str, asyncio.Future[None]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, user: str, address: str = "10.0.0.1") -> asyncio.Task[None]:
        self.tasks[user] = asyncio.ensure_future(self._ask(user, address))
        return self.tasks[user]

    async def _ask(self, user: str, address: str) -> None:
        async with self.gate.passed(Login(user, "secret"), address):
            self.at_broker[user] = asyncio.get_running_loop().create_future()
            try:
                await self.at_broker[user]
            finally:
                del self.at_broker[user]

    async def answer(self, user: str, problem: Problem | None = None) -> None:
        future = self.at_broker[user]
        future.set_exception(problem) if problem is not None else future.set_result(None)
        await asyncio.wait([self.tasks[user]])
        await turns()

    async def log_in(self, user: str) -> None:
        self.ask(user)
        await turns()
        await self.answer(user)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_guesses_of_one_address_hold_few_places_and_delay_nobody_else() -> None:
    async def story() -> None:
        world = World()
        await world.log_in("known")
        for number in range(OF_ADDRESS + WAITING):
            world.ask(f"guess{number}")
        await turns()
        assert set(world.at_broker) == {"guess0", "guess1"}
        with pytest.raises(Problem, match="429 too_many_requests: 18 logins of this address are being tried"):
            await world.ask("one more")
        world.ask("known"), world.ask("other", "10.0.0.2")
        await turns()
        assert set(world.at_broker) == {"guess0", "guess1", "known", "other"}
        await world.answer("guess0", WrongLogin())
        assert "guess2" in world.at_broker
        for task in world.tasks.values():
            task.cancel()

    run(story())


def test_guesses_of_many_addresses_leave_places_for_those_who_are_known() -> None:
    async def story() -> None:
        world = World()
        await world.log_in("known")
        for number in range(3 * UNPROVEN):
            world.ask(f"guess{number}", f"10.0.1.{number}")
        await turns()
        assert len(world.at_broker) == UNPROVEN
        world.ask("known")
        await turns()
        assert "known" in world.at_broker and len(world.at_broker) == UNPROVEN + 1
        for task in world.tasks.values():
            task.cancel()

    run(story())


def refused(code: int) -> Problem:
    """By the broker."""
    try:
        with told():
            raise RequestRefused("no", code)
    except Problem as problem:
        return problem


@pytest.mark.parametrize(
    ("problem", "known"),
    [
        (None, True),
        (refused(404), True),
        (refused(320), False),
        (Problem(400, "x", "a body that is none, which the broker has not seen"), False),
        (WrongLogin(), False),
    ],
)
def test_what_an_answer_says_of_the_login(problem: Problem | None, known: bool) -> None:
    async def story() -> None:
        world = World()
        world.ask("u")
        await turns()
        await world.answer("u", problem)
        assert len(world.gate._proven) == known
        assert not world.gate._lanes, "nothing is left of an address that asks nothing"

    run(story())


def test_a_login_that_is_no_longer_right_is_forgotten() -> None:
    async def story() -> None:
        world = World()
        await world.log_in("u")
        world.ask("u")
        await turns()
        await world.answer("u", WrongLogin())
        assert not world.gate._proven

    run(story())


def test_what_is_remembered_is_bounded_and_names_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "REMEMBERED", 3)

    async def story() -> None:
        world = World()
        for number in range(5):
            await world.log_in(f"u{number}")
        assert len(world.gate._proven) == 3
        await world.log_in("u2")
        await world.log_in("u5")
        names = [world.gate._name(Login(f"u{number}", "secret")) for number in range(6)]
        assert list(world.gate._proven) == [names[4], names[2], names[5]]
        assert b"secret" not in b"".join(world.gate._proven) and REMEMBERED == 1000
        assert world.gate._name(Login("ab", "c")) != world.gate._name(Login("a", "bc"))

    run(story())


def test_a_client_that_goes_away_while_it_waits_gives_its_place_back() -> None:
    async def story() -> None:
        world = World()
        for number in range(4):
            world.ask(f"guess{number}")
        await turns()
        world.tasks["guess2"].cancel()
        world.tasks["guess0"].cancel()
        await turns()
        assert set(world.at_broker) == {"guess1", "guess3"}
        for name in ("guess1", "guess3"):
            await world.answer(name, WrongLogin())
        assert not world.gate._lanes

    run(story())
