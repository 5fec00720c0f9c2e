"""An IP address that really moves: two brokers on hosts of their own, and a third address that goes with the primary.

The cable of the primary's host is pulled, so no host resets anything; the other broker is promoted, takes the address
over with a gratuitous ARP, as a cluster manager's resource does.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults import namespaces
from tests.faults.host_broker import PORT, HostBroker
from tests.faults.load import Group, Load
from tests.faults.namespaces import Ethernet
from tests.support.wait import wait_for

VIRTUAL = f"{namespaces.SUBNET}100"
GROUPS = (Group("single", drop_duplicates=True), Group("crowd", senders=2, receivers=2))


class Broker(HostBroker):
    """One that takes the address over when it is promoted."""

    def promote(self) -> None:
        self.ask("promote", "--cluster-manager")
        wait_for(lambda: self.status == "active", 60, lambda: f"active: {self.status}")
        self.host.take(VIRTUAL)


@pytest.fixture
def ethernet() -> Iterator[Ethernet]:
    if text := namespaces.problem():
        pytest.skip(text)
    with Ethernet(2) as found:
        yield found


def test_an_ip_address_that_moves(ethernet: Ethernet, tmp_path: Path) -> None:
    peers = ",".join(f"{host.address}:{PORT}" for host in ethernet.hosts)
    first, second = (Broker(host, tmp_path, peers) for host in ethernet.hosts)
    with ExitStack() as stack:
        for broker in (first, second):
            stack.enter_context(broker)
        first.promote()
        wait_for(lambda: "ready" in second.ask("status"), 60, "a ready backup")
        stack.enter_context(ethernet.clients.inside())
        with Load(f"{VIRTUAL}:{PORT}", "vip", GROUPS) as load:
            load.run_on(50)
            ethernet.unplug(first.host)
            second.promote()
            load.run_on(100)
            load.verdict()
