"""Three brokers on hosts of their own, and a path that refuses although the broker at its end lives.

A route of the type `unreachable` or `prohibit` refuses connections as a firewall's ICMP answers "host unreachable" and
"prohibited" do.  The answer "port unreachable" is ECONNREFUSED: tests/acceptance/test_refused.py has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults import namespaces
from tests.faults.host_broker import PORT, HostBroker
from tests.faults.namespaces import Ethernet, Host
from tests.support.slow import mostly_slow
from tests.support.wait import wait_for

PRIMARY = ("active", "recovering")


@pytest.fixture
def ethernet() -> Iterator[Ethernet]:
    if text := namespaces.problem():
        pytest.skip(text)
    with Ethernet(3) as found:
        yield found


def reject(first: Host, second: Host, how: str) -> None:
    """Neither reaches the other; each connection is refused at once."""
    for one, other in ((first, second), (second, first)):
        one.ip("route", "add", how, f"{other.address}/32")


@pytest.fixture
def settled(ethernet: Ethernet, tmp_path: Path, safety: str) -> Iterator[list[HostBroker]]:
    """The first one is primary, and the others are ready."""
    peers = ",".join(f"{host.address}:{PORT}" for host in ethernet.hosts)
    brokers = [
        HostBroker(host, tmp_path, peers, "--ha-safety", safety, "--ha-address", f"{host.address}:{PORT}")
        for host in ethernet.hosts
    ]
    first, *others = brokers
    with ExitStack() as stack:
        for broker in brokers:
            stack.enter_context(broker)
        first.ask("promote", "--cluster-manager")
        wait_for(lambda: first.status == "active", 30, lambda: first.log)
        wait_for(lambda: {other.status for other in others} == {"ready"}, 30, lambda: others[0].log)
        yield brokers


HOW = {"quorum": "prohibit", "manager": "unreachable"}


@pytest.mark.parametrize("safety", mostly_slow(["manager", "quorum"], 1))
def test_who_is_refused_by_all_is_not_promoted(settled: list[HostBroker], safety: str) -> None:
    """Hosts that refuse a backup are alive: the manager's order to promote it is refused."""
    first, second, third = settled
    for other in (first, third):
        reject(second.host, other.host, HOW[safety])
    answer = second.ask("promote", "--cluster-manager")
    assert second.status not in PRIMARY, answer
    assert first.status == "active"


@pytest.mark.parametrize("safety", mostly_slow(["quorum", "manager"], 1))
def test_a_path_that_refuses_makes_no_second_primary(settled: list[HostBroker], safety: str) -> None:
    """The third one hears both: when it grants the second one's claim, the first one is deposed."""
    first, second, _ = settled
    reject(second.host, first.host, HOW[safety])
    answer = second.ask("promote", "--cluster-manager")
    wait_for(lambda: sum(broker.status in PRIMARY for broker in settled) == 1, 20, f"one primary: {answer}")
    assert all(broker.running for broker in settled)
