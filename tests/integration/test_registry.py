"""Real brokers whose manager has a registry, and no node is fenced."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from qpidd_py.cli.client_socket import BrokerError
from tests.support.members import TIME, Members
from tests.support.wait import wait_for

FAST = ["--link-heartbeat-interval", "0.25", "--link-maintenance-interval", "0.5", "--ha-backup-timeout", "3"]
REGISTRY = "registry.json"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Members]:
    file = str(tmp_path / REGISTRY)
    options = ["--ha-registry", "file", "--ha-registry-file", file, "--ha-isolation-timeout", "2", *FAST]
    members = Members(tmp_path, *options, names="ab")
    try:
        members.up()
        yield members
    finally:
        for broker in members.brokers.values():
            if broker.running:
                os.kill(broker.pid, signal.SIGCONT)
        members.close()


def publish(members: Members, name: str, *bodies: bytes) -> None:
    """Returns when all are confirmed."""
    port = members.brokers[name].port
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for body in bodies:
            channel.basic_publish("", "q", body)


def taken(members: Members, name: str) -> list[bytes]:
    port = members.brokers[name].port
    found = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)) as connection:
        channel = connection.channel()
        while (body := channel.basic_get("q", auto_ack=True)[2]) is not None:
            found.append(body)
    return found


def stop(members: Members, name: str) -> None:
    os.kill(members.brokers[name].pid, signal.SIGSTOP)


def go_on(members: Members, name: str) -> None:
    os.kill(members.brokers[name].pid, signal.SIGCONT)


def in_sync(members: Members, name: str) -> set[str]:
    return {member["name"] for member in members.ask(name, "ha.query")["in_sync"]["members"]}


def test_a_backup_takes_over_from_a_primary_that_stands_still(pair: Members) -> None:
    publish(pair, "a", b"one", b"two")
    stop(pair, "a")
    pair.ask("b", "ha.promote")
    publish(pair, "b", b"three")
    go_on(pair, "a")
    pair.settled("b")
    assert taken(pair, "b") == [b"one", b"two", b"three"]


def test_a_backup_that_was_dropped_meanwhile_is_refused(pair: Members) -> None:
    publish(pair, "a", b"one")
    stop(pair, "b")
    publish(pair, "a", b"two")
    assert in_sync(pair, "a") == {"a"}
    stop(pair, "a")
    go_on(pair, "b")
    with pytest.raises(BrokerError, match=r"not in the in-sync set \(a\), and a may hold more but does not answer"):
        pair.ask("b", "ha.promote")
    go_on(pair, "a")
    pair.settled("a")
    assert taken(pair, "a") == [b"one", b"two"]


def test_a_refused_connection_is_a_death_only_when_the_process_has_ended(pair: Members, tmp_path: Path) -> None:
    """A process that holds its lock stands for a primary that lives, and whose host refuses connections."""
    publish(pair, "a", b"one")
    stop(pair, "b")
    publish(pair, "a", b"two")
    with (tmp_path / f"{REGISTRY}.alive" / pair.ask("a", "ha.query")["broker_id"]).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        pair.brokers["a"].kill()
        go_on(pair, "b")
        with pytest.raises(BrokerError, match="a may hold more: a host that refuses a connection may still run"):
            pair.ask("b", "ha.promote")
    wait_for(lambda: is_promoted(pair, "b"), TIME, "b is promoted")
    # "two" was confirmed by a alone, which has ended; it may have been on its way to b.
    assert taken(pair, "b")[:1] == [b"one"]


def is_promoted(members: Members, name: str) -> bool:
    """What was read from the registry a moment ago may still count."""
    try:
        members.ask(name, "ha.promote")
    except BrokerError:
        return False
    return True


def test_a_registry_that_is_damaged_stalls_the_primary_and_isolates_it(pair: Members, tmp_path: Path) -> None:
    publish(pair, "a", b"one")
    file = tmp_path / REGISTRY
    good = file.read_bytes()
    file.write_bytes(good[:-10])
    pair.brokers["b"].kill()
    wait_for(lambda: pair.ask("a", "ha.query")["isolated"], TIME, "the primary is isolated")
    stalled = pair.ask("a", "ha.query")["stalled"]
    assert "the registry has not recorded: b is dropped" in stalled["why"]
    assert "registry.json cannot be used" in stalled["why"]
    assert (stalled["until"], stalled["seconds"] > 1.0) == ("the registry answers", True)
    with pytest.raises(AMQPError, match=r"isolated: a \(the registry"):
        publish(pair, "a", b"refused")
    file.write_bytes(good)
    wait_for(lambda: not pair.ask("a", "ha.query")["isolated"], TIME, "it is not isolated any more")
    wait_for(lambda: in_sync(pair, "a") == {"a"}, TIME, "the smaller set is recorded")
    publish(pair, "a", b"two")
    assert taken(pair, "a") == [b"one", b"two"]
