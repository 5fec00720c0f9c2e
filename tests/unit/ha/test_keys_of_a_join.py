"""A backup that joins remembers the keys that its primary remembers, whatever it has remembered before."""

import pytest

from ha.model.status import State
from qpidd_py.core.window import Window
from tests.support.memory import publish_octets
from tests.unit.ha.world import Publisher, World

SECRET = b"0123456789abcdef"


def keys(world: World, name: str) -> list[int]:
    """Positions of the messages whose keys the broker remembers."""
    window = world[name].configuration.queues["q"][0].window
    assert window is not None
    return [id for _, id, _ in window.entries()]


def publish(publisher: Publisher, *names: str) -> None:
    for name in names:
        publisher.connection.feed(publish_octets(b"", "q", message_id=name))
    publisher.host.engine.end_turn()


@pytest.mark.parametrize("lost", [1, 3, 4, 9])
def test_keys_that_the_new_primary_never_had_displaced_those_that_it_has(lost: int) -> None:
    world = World()
    world.cluster()
    world["a"].configuration.declare("q")
    world.until(lambda: all("q" in host.configuration.queues for host in world.hosts.values()))
    for host in world.hosts.values():
        host.configuration.queues["q"][0].window = Window(4, None, SECRET)
    publisher = Publisher(world["a"])
    publish(publisher, "1", "2", "3", "4")
    world.until(lambda: keys(world, "c") == keys(world, "b") == keys(world, "a"))
    world.cut("a", "c")
    publish(publisher, *(f"lost {number}" for number in range(lost)))
    world.until(lambda: keys(world, "b") == keys(world, "a"))
    world["a"].kill()
    world.promote("c", behind=True)
    world.run(2.0)
    assert world["b"].state is State.READY
    assert len(keys(world, "c")) == 4 and keys(world, "b") == keys(world, "c")
