"""Races of the original's history that real brokers can be made to run (README.md says what covers the others)."""

import threading

import pika
import pytest

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.clients import assert_browse_backup, publish, take
from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.acceptance.test_pitfalls import fill, in_sync
from tests.support.wait import wait_for


def test_race_a_queue_is_deleted_while_it_is_copied(make_cluster) -> None:
    """And made again under its name; deletions of what the backup has not got yet are harmless."""
    cluster = make_cluster(2, ha_slice_size="2k").start()
    primary, backup = cluster.members
    names = [f"q{number}" for number in range(20)]
    for name in names:
        fill(cluster, name, 500)
    backup.kill()
    with primary.channel() as channel:
        backup.spawn()
        wait_for(lambda: backup.status == "catchup" or backup.status == "ready", what="the copy", poll=0.001)
        for number, name in enumerate(names):
            if number % 2:
                channel.queue_purge(name)
            else:
                assert take(channel, name, 1)[0].startswith("0.")
            channel.queue_delete(name)
            channel.queue_declare(name)
            publish(channel, name, [f"new {number}"])
    backup.wait_status("ready")
    for number, name in enumerate(names):
        assert_browse_backup(backup, name, [f"new {number}"])


def test_race_two_promotions_at_one_moment(cluster: Cluster) -> None:
    """Of both survivors: never two active ones; when both fail, or one deposes the other, the next attempt succeeds."""
    primary, *backups = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("race", durable=True)
        publish(channel, "race", range(5))
    primary.kill()
    start = threading.Barrier(2)
    refusals: list[str] = []

    def promote(member: Member) -> None:
        start.wait()
        try:
            member.promote_once()
        except RequestRefused as error:
            refusals.append(str(error))

    threads = [threading.Thread(target=promote, args=(member,)) for member in backups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    def settled() -> bool:
        answers = [member.ask("ha.status") for member in backups]
        states = [answer["state"] for answer in answers]
        # Asked one after the other: two may say active, but not of one epoch.
        assert states.count("active") <= 1 or len({answer["epoch"] for answer in answers}) == 2
        if not {"active", "recovering"} & set(states):
            # Both failed, or the winner was deposed by the higher ballot of the other one.
            first_promotable(backups)
        return sorted(states) == ["active", "ready"]

    wait_for(settled, 60, lambda: f"{cluster.states()} {refusals}")
    for member in backups:
        assert_browse_backup(member, "race", range(5))


def test_race_double_promote_of_one_broker(cluster: Cluster) -> None:
    """Callers that ask while it is under way all get its result; it is promoted once."""
    primary, backup, _ = cluster.ready()
    before = len(backup.events("promoted"))
    primary.kill()
    threads = [threading.Thread(target=backup.promote) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    backup.wait_status("active")
    assert len(backup.events("promoted")) == before + 1


def test_race_no_client_slips_in_before_the_exclusion(cluster: Cluster) -> None:
    """A backup is started again and again under clients that try at every moment: no client is ever let in."""
    _, backup, _ = cluster.ready()
    port, stop = backup.port, threading.Event()
    admitted: list[object] = []
    refused: list[object] = []

    def knock() -> None:
        while not stop.is_set():
            try:
                with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, stack_timeout=2.0)) as found:
                    admitted.append(found.channel())
            except (pika.exceptions.AMQPError, OSError) as error:
                refused.append(error)

    threads = [threading.Thread(target=knock) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            refused.clear()
            cluster.restart(backup)
            wait_for(lambda: len(refused) > 10, what="refusals")
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert not admitted
    assert any("is a backup" in repr(error) for error in refused)


def test_race_an_old_link_closes_after_the_reconnect(cluster: Cluster) -> None:
    """A stopped backup's link is closed by the primary; what is left of it when the backup wakes up harms no client."""
    primary, backup, _ = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("link")
        for number in range(3):
            backup.pause()
            publish(channel, "link", [number])
            backup.resume()
            backup.wait_status("ready")
    assert_browse_backup(backup, "link", range(3))
    assert primary.status == "active"


def test_race_a_membership_that_omits_us(make_cluster) -> None:
    """A backup that is linked and complete is taken off the list: it is ready no more, and may not be promoted."""
    cluster = make_cluster(3).start()
    primary, _, removed = cluster.members
    primary.ask("ha.member", action="remove", address=removed.address)
    wait_for(lambda: removed.status != "ready", what="ready no more")
    wait_for(lambda: removed.address not in in_sync(primary), what="the smaller set")
    primary.kill()
    with pytest.raises(RequestRefused, match="cannot be promoted"):
        removed.promote_once()


def test_race_a_broker_that_connects_to_itself(cluster: Cluster) -> None:
    """It has its own address in ha-brokers-url, and tries it: refused by its id, in every role."""
    primary, backup, _ = cluster.ready()
    for member in (primary, backup):
        own = {"qpid.ha-backup": {"id": member.ask("ha.status")["id"]}}
        with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
            member.connect(client_properties=own)
        assert "has connected to itself" in repr(caught.value)
