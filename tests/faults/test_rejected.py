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
from tests.faults.witness import Confirmed, Witness, both_confirm, problems
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
        wait_for(lambda: first.status == "active", 60, lambda: first.log)
        wait_for(lambda: {other.status for other in others} == {"ready"}, 60, lambda: others[0].log)
        yield brokers


@pytest.fixture
def witness(ethernet: Ethernet, settled: list[HostBroker]) -> Iterator[Witness]:
    """The first broker has confirmed something."""
    with Witness(ethernet.clients, ethernet.hosts) as witness:
        witness.await_confirm(settled[0].host)
        yield witness


def heal(hosts: list[Host]) -> None:
    """No path refuses any more."""
    for host in hosts:
        for how in HOW.values():
            host.ip("route", "flush", "type", how)


def judge(witness: Witness, brokers: list[HostBroker]) -> None:
    """Both promises were kept, up to the end of all faults; `make test` trusts no count of primaries for that."""
    heal([broker.host for broker in brokers])
    wait_for(lambda: sorted(broker.status for broker in brokers) == ["active", "ready", "ready"], 60, "a whole cluster")
    primary = next(broker.host for broker in brokers if broker.status == "active")
    witness.await_confirm(primary)
    witness.stop()
    assert witness.problems(primary) == []


HOW = {"quorum": "prohibit", "manager": "unreachable", "availability": "unreachable"}


@pytest.mark.parametrize("safety", mostly_slow(["manager", "quorum"], 1))
def test_who_is_refused_by_all_is_not_promoted(settled: list[HostBroker], witness: Witness, safety: str) -> None:
    """Hosts that refuse a backup are alive: the manager's order to promote it is refused."""
    first, second, third = settled
    for other in (first, third):
        reject(second.host, other.host, HOW[safety])
    answer = second.ask("promote", "--cluster-manager")
    assert second.status not in PRIMARY, answer
    assert first.status == "active"
    judge(witness, settled)
    assert first.status == "active"


@pytest.mark.parametrize("safety", mostly_slow(["quorum", "manager"], 1))
def test_a_path_that_refuses_makes_no_second_primary(settled: list[HostBroker], witness: Witness, safety: str) -> None:
    """The third one hears both: when it grants the second one's claim, the first one is deposed."""
    first, second, _ = settled
    reject(second.host, first.host, HOW[safety])
    answer = second.ask("promote", "--cluster-manager")
    wait_for(lambda: sum(broker.status in PRIMARY for broker in settled) == 1, 60, f"one primary: {answer}")
    assert all(broker.running for broker in settled)
    judge(witness, settled)


# ---- the judge can fail ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("safety", ["availability"])
def test_where_nothing_forbids_it_both_are_seen_to_confirm(
    settled: list[HostBroker], witness: Witness, safety: str
) -> None:
    """The first schedule again, in the mode that counts who refuses as dead: what is promised elsewhere is broken."""
    first, second, third = settled
    for other in (first, third):
        reject(second.host, other.host, HOW[safety])
    second.ask("promote", "--cluster-manager")
    wait_for(lambda: both_confirm(tuple(witness.history)), 60, lambda: f"both confirm: {witness.history}")


def confirmed(broker: str, published: float, at: float) -> Confirmed:
    return Confirmed(f"{broker}{published}", broker, published, at)


HANDED_OVER = [confirmed("a", 0, 1), confirmed("a", 2, 5), confirmed("b", 3, 4), confirmed("b", 6, 7)]


def test_who_is_asked_in_the_moment_of_a_promotion_proves_nothing() -> None:
    """The old primary's last confirm arrives after the new one's first."""
    assert problems(HANDED_OVER, [each.body for each in HANDED_OVER]) == []


def test_a_confirm_between_two_of_another_broker_proves_that_both_confirm() -> None:
    late = confirmed("a", 4.5, 8)
    assert both_confirm([*HANDED_OVER, late]) == [(HANDED_OVER[0], HANDED_OVER[2], late)]


def test_what_was_confirmed_and_is_missing_is_lost() -> None:
    found = problems(HANDED_OVER, [each.body for each in HANDED_OVER[1:]])
    assert found == [f"lost: {HANDED_OVER[0]}"]
