"""The client library against three nodes of RabbitMQ with quorum queues: the same scenarios, the same judge.

All nodes serve, so clients that know all of them leave a node behind a bad line; what happens to lines is played with
one node's address.
"""

import pytest

from tests.faults.load import Group, Load
from tests.faults.scenarios import EVERYWHERE, stall
from tests.faults.scene import RabbitScene, addresses
from tests.support.slow import mostly_slow

GROUPS = (Group("single", drop_duplicates=True), Group("crowd", senders=2, receivers=2))
LINES = ("cut", "vanish", "snap-to-client", "refuse", "slow", "snap-to-server", "snap-handshake")
"""What is slow does the same to the library as it does before our brokers, see test_cluster_faults.py."""


def loaded(rabbit: RabbitScene, name: str, where: str) -> Load:
    load = Load(where, f"rabbit.{name}", GROUPS, rate=100.0, arguments=rabbit.queue_arguments, heartbeat=2)
    load.evidence.uneven = True
    return load


@pytest.mark.parametrize("name", mostly_slow(LINES, 1))
def test_line(rabbit: RabbitScene, name: str) -> None:
    rabbit.whole()
    with loaded(rabbit, name, rabbit.proxies["rabbit0"].address) as load:
        load.run_on(50)
        EVERYWHERE[name](rabbit, load)
        load.run_on(20)
        load.verdict()


def test_kill(rabbit: RabbitScene) -> None:
    """What the dead node had sent to the others is in their sockets: a busy one may read it behind what clients have
    sent again, so that neither order nor marks of copies can be kept."""
    rabbit.whole()
    with loaded(rabbit, "kill", addresses(rabbit)) as load:
        load.run_on(50)
        EVERYWHERE["kill"](rabbit, load)
        rabbit.whole()
        load.run_on(20)
        load.verdict(forgiven=("order", "unmarked"))


def test_stall(rabbit: RabbitScene) -> None:
    """When the node wakes it reads what clients had written to it before they gave it up: that may come in behind what
    they have sent again, so that neither order nor marks of copies can be kept."""
    rabbit.whole()
    with loaded(rabbit, "stall", addresses(rabbit)) as load:
        load.run_on(50)
        stall(rabbit, load)
        load.run_on(20)
        load.verdict(forgiven=("order", "unmarked"))
