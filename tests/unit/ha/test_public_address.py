"""What clients call a member, and who is told which address."""

from dataclasses import replace

import pytest

from ha.model.protocol import BACKUP, REPLICA
from ha.model.public_url import public_address
from ha.shell.connection_guard import admit
from tests.unit.ha.world import World

BROKERS = ("a:1", "b:1", "c:1")


@pytest.mark.parametrize(
    ("public_url", "address"),
    [
        ("", "b:1"),
        ("10.0.0.9:5672", "b:1"),
        ("x:5,y:6", "b:1"),
        ("x:5,y:6,z:7", "y:6"),
        ("amqp:x, ssl:y:6 ,z", "ssl:y:6"),
        ("amqp:user/pass@x,user/pass@y,z", "y"),
        ("x,,z", "b:1"),
    ],
)
def test_one_public_address_for_each_member(public_url: str, address: str) -> None:
    assert public_address("b:1", BROKERS, public_url) == address
    assert public_address("d:1", BROKERS, public_url) == "d:1"


def test_clients_are_told_the_public_address_and_brokers_their_own() -> None:
    world = World(public_url="x:5,y:6,ssl:z:7")
    world.cluster()
    backup = world["b"].node

    def told(properties: dict) -> str:
        rejection = admit(backup, properties)
        assert rejection is not None
        return rejection.text.partition("the primary is ")[2]

    assert told({}) == told({"product": "pika"}) == "x:5"
    assert told({BACKUP: {"id": "id-c"}}) == told({REPLICA: {"queue": "q"}}) == "a:1"
    assert backup.role.refusal_text().endswith("the primary is a:1")
    backup.local.settings = replace(backup.local.settings, public_url="moves:5672")
    assert told({}) == "a:1"


def test_clients_of_a_primary_that_steps_down_are_told_it_too() -> None:
    world = World(public_url="x:5,y:6,ssl:z:7")
    world.cluster()
    world["a"].node.demote("a test", "c:1")
    world.run(0.1)
    (text,) = world["a"].closed_clients
    assert text.endswith("the primary is ssl:z:7")
