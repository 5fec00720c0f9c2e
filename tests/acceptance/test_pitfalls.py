"""What is easy to get wrong (the list is in README.md), where no other test asserts it on real brokers."""

import contextlib
import re
import socket
import threading
import time
from collections import Counter
from typing import Any

import pika
import pytest

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.clients import assert_browse_backup, publish, take
from tests.acceptance.cluster import Cluster, Member
from tests.support.wait import wait_for

MEGABYTE = 1 << 20


def in_sync(primary: Member) -> set[str]:
    """Addresses of the set in force."""
    return {member["address"] for member in primary.ask("ha.query")["in_sync"]["members"]}


def fill(cluster: Cluster, queue: str, count: int, size: int = 1000, **arguments: Any) -> None:
    """So many confirmed messages, quickly."""
    with cluster.library() as connection:
        session = connection.session()
        session.declare_queue(queue, durable=True, arguments=arguments or None)
        sender = session.sender(queue, capacity=2000)
        for number in range(count):
            sender.send(f"{number}".encode().ljust(size, b"."), sync=False)
        sender.sync(30)


def test_pitfall_03_ready_is_the_primarys_verdict(cluster: Cluster) -> None:
    """joining, catchup, ready, in this order; and a broker that says ready is in the primary's set."""
    primary, backup, _ = cluster.ready()
    fill(cluster, "p3", 2000)
    backup.kill()
    wait_for(lambda: backup.address not in in_sync(primary), what="the smaller set")
    backup.spawn()
    seen: list[str] = []

    def look() -> bool:
        state = backup.status
        if state and state not in seen:
            seen.append(state)
        return state == "ready"

    wait_for(look, what="ready", poll=0.001)
    assert backup.address in in_sync(primary)
    order = ["joining", "catchup", "ready"]
    assert seen == [state for state in order if state in seen]
    steps = [(event["old"], event["new"]) for event in backup.events("state")][-2:]
    assert steps == [("joining", "catchup"), ("catchup", "ready")]


def test_pitfall_05_each_message_is_confirmed_once(cluster: Cluster) -> None:
    """A confirm may be released by the backups, by consumption, or by the loss of a backup: once, whatever comes."""
    primary, backup, _ = cluster.ready()
    settled: Counter[str] = Counter()
    with cluster.library() as connection, primary.channel() as consumer:
        session = connection.session()
        session.declare_queue("p5", durable=True)
        sender = session.sender("p5", on_settled=lambda _message, id_, _error: settled.update([id_]))
        backup.pause()
        ids = [sender.send(str(number), sync=False) for number in range(100)]
        assert len(take(consumer, "p5", 50)) == 50
        wait_for(lambda: len(settled) >= 50, what="the confirms of what was consumed")
        backup.resume()
        sender.sync(20)
        ids += [sender.send("later", timeout=20)]
    assert settled == Counter(ids)


def test_pitfall_06_a_stale_backup_is_not_promoted(cluster: Cluster) -> None:
    """Cut off while the primary goes on confirming without it, it is refused: by name while another one holds the
    messages, and because it cannot know while no broker answers."""
    primary, other, stale = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("p6", durable=True)
        stale.pause()
        publish(channel, "p6", range(10))
    assert stale.address not in in_sync(primary)
    primary.pause()
    stale.resume()
    # It finds no broker to follow, and what it has is old: the other one is complete.
    with pytest.raises(RequestRefused, match="cannot be promoted"):
        stale.promote_once()
    other.pause()
    with pytest.raises(RequestRefused, match="does not answer"):
        stale.promote_once()
    other.resume()
    other.promote()
    assert_browse_backup(other, "p6", range(10))
    primary.resume()
    cluster.settle()
    for member in (primary, stale):
        assert_browse_backup(member, "p6", range(10))


def test_pitfall_07_the_joining_verdict_is_asked_anew(make_cluster) -> None:
    """The original decides at boot and keeps it.  Here a broker that was refused is promoted, unrestarted, when those
    who held more are dead."""
    cluster = make_cluster(3).start()
    primary, ready, joining = cluster.members
    for member in (primary, joining):
        member.kill()
    joining.start().wait_status("joining")
    with pytest.raises(RequestRefused, match="joining an active cluster"):
        joining.promote_once()
    ready.kill()
    joining.promote()
    joining.wait_status("active")


def test_pitfall_08_what_makes_room_arrives_before_what_needs_it(cluster: Cluster) -> None:
    """A backup never holds more of a ring than the ring may hold, not even for a moment, and in order."""
    primary, backup, _ = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("p8", arguments={"x-max-length": 5})
    stop = threading.Event()

    def flood() -> None:
        with primary.channel(confirm=False) as channel:
            for number in range(20_000):
                channel.basic_publish("", "p8", str(number).encode())
                if stop.is_set():
                    return

    thread = threading.Thread(target=flood)
    thread.start()
    seen: list[list[int]] = []

    def look() -> bool:
        seen.append([int(body) for body in backup.peek("p8")])
        return len({tuple(found) for found in seen}) >= 20 or not thread.is_alive()

    try:
        wait_for(look, what="twenty looks", poll=0)
    finally:
        stop.set()
        thread.join(30)
    assert any(seen)
    for found in seen:
        assert len(found) <= 5
        assert found == list(range(found[0], found[0] + len(found))) if found else True


def test_pitfall_11_the_replicator_is_no_consumer(cluster: Cluster) -> None:
    primary, backup, _ = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("p11")
        publish(channel, "p11", [1])
        assert_browse_backup(backup, "p11", [1])
        assert channel.queue_declare("p11", passive=True).method.consumer_count == 0
        channel.queue_delete("p11", if_unused=True)


def test_pitfall_15_misconfiguration_is_visible(make_cluster) -> None:
    """Another ha-replicate: the backup stays outside, and both logs say again and again which levels differ.  (The
    original ends the process; ours goes on asking, so that one restart, of the broker that is wrong, repairs it.)"""
    cluster = make_cluster(2)
    primary, backup = cluster.members
    backup.options = [word if word != "all" else "configuration" for word in backup.options]
    cluster.spawn()
    primary.promote()
    text = "ha-replicate is configuration, at the primary node1 it is all"
    wait_for(lambda: min(member.log.count(text) for member in cluster.members) > 1, what="two complaints of each")
    assert backup.status == "joining"
    assert in_sync(primary) == {primary.address}
    with pytest.raises(RequestRefused, match="is primary"):
        backup.promote_once()
    backup.kill()
    backup.options = primary.options
    backup.start().wait_status("ready")


def test_pitfall_17_admission_is_decided_after_the_open(cluster: Cluster) -> None:
    """TCP alone says nothing about a broker's role: a health check has to ask (`qpid-ha ping`, `status`)."""
    _, backup, _ = cluster.ready()
    with contextlib.closing(socket.create_connection(("127.0.0.1", backup.port), 5)) as raw:
        raw.sendall(b"AMQP\x00\x00\x09\x01")
        assert raw.recv(8)[0] == 1  # a method frame: connection.start
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        backup.connect()


def test_pitfall_19_heartbeats_below_a_second(make_cluster) -> None:
    """A tenth of a second is one: a stopped backup holds a publisher up for less than the original's shortest wait."""
    cluster = make_cluster(3, link_heartbeat_interval="0.2").start()
    primary, _, stopped = cluster.members
    with primary.channel() as channel:
        channel.queue_declare("p19")
        stopped.pause()
        publish(channel, "p19", ["waits"])
    lost = [event for event in primary.events("backup_lost") if event["peer"] == stopped.name][-1]
    silence = float(re.findall(r"silent for ([0-9.]+)", lost["reason"])[0])
    assert silence < 5.0, "seconds; less than the original's shortest wait on a loaded machine, too"


def test_pitfall_20_publishers_do_not_wait_for_a_copy(make_cluster) -> None:
    """A deep queue, a new backup: confirms of that very queue go on while it is copied."""
    cluster = make_cluster(2, ha_slice_size="2k").start()
    primary, backup = cluster.members
    fill(cluster, "p20", 10_000, size=300)
    backup.kill()
    confirmed: list[str] = []
    stop, deadline = threading.Event(), time.monotonic() + 60

    def publisher() -> None:
        with primary.channel() as channel:
            while not stop.is_set():
                publish(channel, "p20", ["live"])
                confirmed.append(backup.status)

    thread = threading.Thread(target=publisher)
    thread.start()
    try:
        wait_for(lambda: len(confirmed) > 5, what="confirms without a backup")
        backup.start().wait_status("ready")
        while "catchup" not in confirmed and time.monotonic() < deadline:  # a busy publisher has missed it
            backup.kill()
            backup.start().wait_status("ready")
    finally:
        stop.set()
        thread.join(20)
    # Asked after each confirm: it was given before the copy was complete.
    assert "catchup" in confirmed
    assert len(primary.peek("p20", 1)) == 1
    assert backup.queues()["p20"]["ready"] == primary.queues()["p20"]["ready"] == 10_000 + len(confirmed)


def test_pitfall_21_resynchronisation_is_by_difference(make_cluster) -> None:
    """Ten thousand waiting messages: a backup that was stopped, or follows a new primary, gets what it lacks."""
    cluster = make_cluster(3).start()
    primary, first, second = cluster.members
    fill(cluster, "p21", 10_000)
    second.pause()
    with primary.channel() as channel:
        publish(channel, "p21", ["missed"])
    second.resume()
    cluster.settle()
    cluster.fail_over(to=first)
    second.wait_status("ready")
    wait_for(lambda: second.queues()["p21"]["ready"] == 10_001, what="all messages")
    for member in (primary, first):
        copied = [event for event in member.events("catchup_end") if event["peer"] == second.name][-1]
        assert int(copied["attrs"]["octets"]) < MEGABYTE
