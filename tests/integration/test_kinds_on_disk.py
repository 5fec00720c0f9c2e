"""Queues of special kinds whose messages are in journals and in page files: over a fail-over, and over the death of all
brokers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from tests.support.members import Members
from tests.support.memory import publish_octets
from tests.support.three_ways import Client
from tests.support.wait import wait_for

Basic = commands.Basic
OPTIONS = ("--ha-safety", "quorum", "--journal", "yes", "--memory-limit", "64M")
BACKLOG = 1200
SIZE = 65536
"""What comes behind the messages of the special queues, so that these leave memory first."""
KINDS: dict[str, dict[str, Any]] = {
    "values": {"qpid.last_value_queue_key": "key"},
    "groups": {"qpid.group_header_key": "key", "qpid.shared_msg_group": 1},
    "letters": {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-dead-letter-strategy": "at-least-once",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    },
    "backlog": {},
}


class Kept(Client):
    persistent = True

    @classmethod
    def of(cls, members: Members, primary: str) -> Kept:
        client = cls(members.brokers[primary].port)
        client.open()
        return client

    def keyed(self, queue: str, *bodies: bytes) -> None:
        """The first letter is the key."""
        for body in bodies:
            assert self.confirmed(body, queue=queue, headers={"key": body[:1].decode()}) == [True]

    def taken(self, queue: str) -> tuple[bytes, bool] | None:
        """Its body, and whether it was handed out before; not acknowledged."""
        found = self.get(queue, no_ack=False)
        return found and (found[2], bool(found[0].redelivered))


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    found = Members(tmp_path, *OPTIONS)
    try:
        found.up()
        yield found
    finally:
        found.close()


def filled(client: Kept) -> None:
    for queue, arguments in KINDS.items():
        client.declare(queue, arguments=arguments)
    client.confirming()
    client.keyed("values", b"a1", b"b1", b"a2")
    client.keyed("groups", b"a1", b"a2", b"b1")
    assert client.confirmed(b"x", queue="letters", expiration="1") == [True]
    sent = 7
    for _ in range(BACKLOG // 100):
        client.send(publish_octets(b"x" * SIZE, "backlog", delivery_mode=2) * 100)
        sent += 100
        while client.expect(Basic.Ack).delivery_tag < sent:
            pass


def paged(members: Members, name: str) -> bool:
    return bool(members.ask(name, "broker.info")["paged"]["octets"])


def peeked(members: Members, primary: str) -> list[str]:
    return [message["body"] for message in members.ask(primary, "queue.peek", queue="values", limit=100)]


def test_over_a_fail_over_and_the_death_of_all(members: Members) -> None:
    filled(Kept.of(members, "a"))
    for name in members.brokers:
        wait_for(partial(paged, members, name), what=f"messages of {name} in the page file")
    members.brokers["a"].kill()
    primary = members.promote_newest("b", "c")
    wait_for(lambda: members.states()[primary] == "active")
    check(members, primary, "a2")
    client = Kept.of(members, primary)
    client.confirming()
    client.keyed("values", b"a3")
    for broker in members.brokers.values():
        broker.kill()
    for broker in members.brokers.values():
        broker.start()
    primary = members.promote_newest(*members.brokers)
    members.settled(primary)
    check(members, primary, "a3")
    client = Kept.of(members, primary)
    client.declare("dead")
    letter = wait_for(lambda: client.get("dead"), what="the dead letter")
    assert letter is not None and [death["reason"] for death in letter[1]["x-death"]] == ["expired"]
    assert wait_for(lambda: client.bodies("letters") == [])


def check(members: Members, primary: str, last: str) -> None:
    client, other = Kept.of(members, primary), Kept.of(members, primary)
    assert client.count("backlog") == BACKLOG
    assert peeked(members, primary) == ["b1", last]
    assert (client.taken("groups"), other.taken("groups")) == ((b"a1", True), (b"b1", True))
    assert other.taken("groups") is None, "the rest is of a group that is with another client"
    assert client.taken("letters") is None, "it has expired, and waits for its queue"
    client.close()
    other.close()
