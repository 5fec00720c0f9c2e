"""What a user is told who sees a part only: each management request, against the table of rights.

Of two users in two virtual hosts none is told a name of the other; and what is asked about the other's is answered as
what is asked about nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from pamqp.commands import Basic, Queue

from qpidd_py.broker.vhost import VHost
from qpidd_py.management.model import Management
from qpidd_py.management.rights import ADMINISTERS, NOTHING, OWN, RIGHTS
from qpidd_py.security.entries import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, TAGS
from tests.unit.broker.peer import Peer, Replicated

EVERY: Final = {"configure": ".*", "write": ".*", "read": ".*"}
USERS: Final = ("anna", "bob")
WORDS: Final = ("7d1f", "e82c", "0b95")
"""Of anna's, of bob's, and of nothing."""
ARGUMENTS: Final = ("queue", "exchange", "source", "target", "name", "user", "pattern")


class House:
    def __init__(self) -> None:
        self.broker = Replicated()
        self.management = Management(self.broker)
        self.broker.rights.checked = True
        for user, word in zip(USERS, WORDS, strict=False):
            self.ask(None, "vhost.add", name=f"{word}h")
            self.ask(None, "user.put", user=user, hash="", tags=[])
            self.ask(None, "permission.set", user=user, vhost=f"{word}h", **EVERY)
            self.vhost(word).declare_queue(None, f"{word}q", True, False, False, {"x-max-length": 9})
            policy = {"name": f"{word}p", "vhost": f"{word}h", "pattern": word, "definition": {"max-length": 1}}
            self.ask(None, "policy.set", **policy)
        self.broker.advance()
        self.peers = {
            user: Peer(self.broker, vhost=f"{word}h", user=user) for user, word in zip(USERS, WORDS, strict=False)
        }
        for word, peer in zip(WORDS, self.peers.values(), strict=False):
            peer.open_channel()
            peer.send(1, Queue.Bind(queue=f"{word}q", exchange="amq.topic", routing_key=f"{word}k"))
            peer.send(1, Basic.Consume(queue=f"{word}q", consumer_tag=f"{word}t"))
            self.broker.advance()
            assert len(peer.frames()) == 2

    def vhost(self, word: str) -> VHost:
        found = self.broker.vhosts.get(f"{word}h")
        assert found is not None
        return found

    def tag(self, *tags: str) -> None:
        for user in USERS:
            self.ask(None, "user.put", user=user, tags=list(tags))

    def ask(self, who: str | None, method: str, **arguments: Any) -> list[Any]:
        answers: list[Any] = []
        asker = None if who is None else self.peers[who].connection
        for _ in self.management.work(method, arguments, answers.append, asker):
            pass
        self.broker.advance()
        return answers


@pytest.fixture
def house() -> House:
    return House()


def arguments_of(word: str) -> dict[str, Any]:
    return {name: f"{word}{name[0]}" for name in ARGUMENTS} | {"vhost": f"{word}h", "exchange": "amq.topic"}


STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    MANAGEMENT: (MANAGEMENT, POLICYMAKER, MONITORING, ADMINISTRATOR),
    POLICYMAKER: (POLICYMAKER, ADMINISTRATOR),
    MONITORING: (MONITORING, ADMINISTRATOR),
    ADMINISTRATOR: (ADMINISTRATOR,),
    ADMINISTERS: (ADMINISTRATOR,),
}
REFUSALS: Final = ("has no tag", "is no administrator")
tags = pytest.mark.parametrize("tag", ["", MANAGEMENT, POLICYMAKER])


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(
    "method", [method for method, needs in RIGHTS.items() if isinstance(needs, str) and needs in STEPS]
)
def test_a_tag_opens_what_the_table_says(house: House, method: str, tag: str) -> None:
    house.tag(tag)
    answers = str(house.ask("anna", method, vhost=f"{WORDS[0]}h"))
    needs = RIGHTS[method]
    assert isinstance(needs, str)
    assert any(text in answers for text in REFUSALS) == (tag not in STEPS[needs]), answers


def test_the_table_has_all_requests(house: House) -> None:
    """What is new and not in it is for administrators; so somebody has to say who else may."""
    model = house.management
    known = {*model._methods, *model._objects, *model._lists, *model._contents, *model._changes, *model._pages}
    unlisted = {"broker.options", "shovel.report"}
    assert known - unlisted <= RIGHTS.keys() and not unlisted & RIGHTS.keys()
    mine = {method for method in RIGHTS if not method.startswith("ha.")} - known
    assert mine == {"user.self", "session.close", "queue.peek", "event.list", "acl.reload"}
    assert {needs for needs in RIGHTS.values() if isinstance(needs, str)} == {*STEPS, NOTHING, OWN} - {ADMINISTRATOR}


@tags
@pytest.mark.parametrize("method", [*RIGHTS, "nothing.list"])
def test_anothers_is_as_nothing(house: House, method: str, tag: str) -> None:
    house.tag(*filter(None, [tag]))
    for form in (str, lambda name: [name], lambda name: {name: None}):
        theirs, nothing = (
            json.dumps(house.ask("anna", method, **arguments_of(word) | {"vhost": form(f"{word}h")})).replace(word, "?")
            for word in WORDS[1:]
        )
        assert theirs == nothing
    for arguments in ({}, {"vhost": None}, {"vhost": None, "sight": None}, {"vhost": None, "sight": {"hosts": None}}):
        found = json.dumps(house.ask("anna", method, **arguments))
        assert WORDS[1] not in found and "bob" not in found, found


@tags
def test_numbers_are_of_ones_own(house: House, tag: str) -> None:
    house.tag(*filter(None, [tag]))
    counting = ("broker.overview", "queue.totals", "queue.count", "queue.page", "session.page", "vhost.list")
    before = {method: house.ask("anna", method, vhost=None) for method in counting}
    for number in range(5):
        house.vhost(WORDS[1]).declare_queue(None, f"another{number}", True, False, False, {})
        Peer(house.broker, vhost=f"{WORDS[1]}h", user="bob").open_channel()
    house.ask(None, "vhost.add", name="another")
    assert {method: house.ask("anna", method, vhost=None) for method in counting} == before
    assert house.ask("bob", "queue.count", vhost=None) != before["queue.count"] or not tag


def test_the_connection_of_another_is_not_there(house: House) -> None:
    house.tag(MANAGEMENT)
    number = house.peers["bob"].connection.number
    [theirs], [none] = (house.ask("anna", "session.close", number=each) for each in (number, 999))
    assert theirs == {**none, "error": none["error"].replace("999", str(number))} and none["code"] == 404
    [mine] = house.ask("anna", "session.close", number=house.peers["anna"].connection.number)
    assert mine["ok"]


def test_a_census_of_one_is_not_gone_on_with_by_another(house: House) -> None:
    """Nor by the same one with other rights: it would keep what is not seen any more."""
    house.tag(MANAGEMENT)
    house.ask(None, "permission.set", user="anna", vhost=f"{WORDS[1]}h", **EVERY)
    [answer] = house.ask("anna", "queue.census", vhost=None)
    both = answer["result"][-1]
    assert both["total"] == 2
    place = {"history": both["history"], "after": both["last"], "known": both["total"]}
    house.ask(None, "permission.clear", user="anna", vhost=f"{WORDS[1]}h")
    [answer] = house.ask("anna", "queue.census", vhost=None, **place)
    parts = answer["result"]
    assert parts[-1]["history"] != both["history"] and parts[-1]["total"] == 1
    assert [each[2] for part in parts[:-1] for each in json.loads(part["named"])] == [f"{WORDS[0]}q"]


def test_clients_of_others_in_the_same_virtual_host(house: House) -> None:
    """They share its queues, and not what is told of their connections."""
    house.tag(MANAGEMENT)
    house.ask(None, "permission.set", user="bob", vhost=f"{WORDS[0]}h", **EVERY)
    guest = Peer(house.broker, vhost=f"{WORDS[0]}h", user="bob")
    guest.open_channel()
    guest.send(1, Basic.Consume(queue=f"{WORDS[0]}q", consumer_tag="another"))
    house.broker.advance()
    for method in ("session.list", "session.page", "channel.list", "subscription.list"):
        found = json.dumps(house.ask("anna", method, vhost=None))
        assert "bob" not in found and "another" not in found and "anna" in found, method
    [answer] = house.ask("anna", "session.close", number=guest.connection.number)
    assert answer["code"] == 404
    [answer] = house.ask("anna", "queue.info", queue=f"{WORDS[0]}q")
    assert answer["result"]["consumers"] == 2
