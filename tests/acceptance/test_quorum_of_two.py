"""Confirmed means kept: schedules on real brokers in which a confirm, or the service, rested on something unsafe.

Each class has the name of its schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.clients import qpid_ha
from tests.acceptance.cluster import Cluster, Member
from tests.support.wait import wait_for, wait_logged

MakeCluster = Callable[..., Cluster]
LOGIN = "guest/guest@"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def publish(primary: Member, body: str) -> None:
    """To the queue q; confirmed on return."""
    with primary.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", body.encode(), PERSISTENT)


class TestB5:
    """The members become two under `quorum`: what `member remove` allows, start allows, too.

    Two are a step on the way when a broker is replaced: of three brokers one is dead for ever, and it has to be removed
    before another one is added, since of four brokers two in sync would be no majority.
    """

    @staticmethod
    def tell_two(cluster: Cluster, gone: Member) -> list[Member]:
        """The administrator removes one and writes the others into their configuration."""
        rest = [member for member in cluster.members if member is not gone]
        url = ",".join(member.address for member in rest)
        for member in rest:
            member.options = [url if word == cluster.url else word for word in member.options]
        return rest

    @pytest.mark.parametrize("written", [True, False], ids=["the new list", "the old list"])
    def test_a_member_that_restarts_is_back(self, make_cluster: MakeCluster, written: bool) -> None:
        cluster = make_cluster(3, ha_safety="quorum").start()
        primary, backup, gone = cluster.members
        publish(primary, "before")
        gone.kill()
        answer = primary.ask("ha.member", action="remove", address=gone.address)
        assert answer["brokers"] == [primary.address, backup.address]
        if written:
            self.tell_two(cluster, gone)
        cluster.restart(backup)
        primary.wait_status("active")
        publish(primary, "after")
        assert backup.peek("q") == ["before", "after"]

        primary.kill()
        primary.start()
        wait_for(lambda: promoted(backup), 60, "a promotion of the one that holds everything")
        cluster.settle()
        assert primary.peek("q") == backup.peek("q") == ["before", "after"]

    def test_of_two_one_alone_confirms_nothing(self, make_cluster: MakeCluster) -> None:
        """What the shorter list costs, and that it costs nothing else: neither of the two promises is given up."""
        cluster = make_cluster(2, ha_safety="quorum").start()
        primary, backup = cluster.members
        wait_logged(backup, "quorum with 2 brokers")
        publish(primary, "both")
        primary.kill()
        with pytest.raises(RequestRefused):
            backup.promote_once()
        primary.start()
        wait_for(lambda: promoted(backup), 60, "a promotion of the one that holds everything")
        assert backup.peek("q") == ["both"]

    def test_the_last_two_stay(self, make_cluster: MakeCluster) -> None:
        cluster = make_cluster(2, ha_safety="quorum").start()
        primary, backup = cluster.members
        code, said = qpid_ha("member", "remove", backup.address, "-b", f"{LOGIN}{primary.address}")
        assert code == 1
        assert "found quorum with 1 broker, wanted 2 or more" in said
        assert primary.ask("ha.member", action="list")["brokers"] == [primary.address, backup.address]

    def test_one_alone_does_not_start(self, tmp_path: Path, make_alone: Callable[..., Member]) -> None:
        words = ("--ha-cluster", "yes", "--ha-safety", "quorum", "--ha-brokers-url", "127.0.0.1:1")
        alone = make_alone("alone", *words, "--ha-username", "guest", "--ha-password", "guest")
        alone.spawn()
        assert alone.wait() == 1
        wait_logged(alone, "found quorum with 1 broker, wanted 2 or more")


def promoted(member: Member) -> bool:
    try:
        member.promote_once()
    except RequestRefused:
        return False
    return True
