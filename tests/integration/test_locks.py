"""Locks made of a queue with one consumer at a time: with tokens (docs/how-to/locks.md), and why none without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

SINGLE = {"x-single-active-consumer": True}
FENCED = {**SINGLE, "x-fencing-token": True}
TOKEN = "x-fencing-token"


class Program:
    """One that wants the lock."""

    def __init__(self, broker: BrokerProcess, arguments: dict[str, Any]) -> None:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=0)
        self.connection = pika.BlockingConnection(parameters)
        channel = self.connection.channel()
        channel.basic_qos(prefetch_count=1)
        if not channel.queue_declare("lock", durable=True, arguments=arguments).method.message_count:
            channel.basic_publish("", "lock", b"lock", pika.BasicProperties(delivery_mode=2))
        self.tokens: list[int | None] = []
        channel.basic_consume("lock", self._got_it)

    def _got_it(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.tokens.append((properties.headers or {}).get(TOKEN))

    def holds(self) -> bool:
        self.connection.process_data_events(0.02)
        return bool(self.tokens)

    def locked(self) -> int | None:
        wait_for(self.holds, TIME, "the lock")
        return self.tokens[-1]


class Account:
    """As on the page."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.highest = 0

    def write(self, row: str, token: int | None) -> None:
        if token is not None and token < self.highest:
            raise PermissionError(f"token {token} is older than {self.highest}")
        self.highest = token or 0
        self.rows.append(row)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    found = Members(tmp_path, "--ha-safety", "quorum")
    try:
        found.up()
        yield found
    finally:
        found.close()


def partition(members: Members, arguments: dict[str, Any]) -> tuple[int | None, int | None]:
    """The first holder's primary stands still, and so does not tell it that another one has the lock; their tokens."""
    first = Program(members.brokers["a"], arguments)
    before = first.locked()
    members.brokers["a"].pause()
    try:
        primary = members.promote_newest("b", "c")
        wait_for(lambda: members.ask(primary, "ha.query")["status"] == "active", TIME, "the new primary is active")
        after = Program(members.brokers[primary], arguments).locked()
        assert not first.connection.is_closed and first.tokens == [before], "it holds the lock, for all it knows"
    finally:
        members.brokers["a"].resume()
    members.settled(primary)
    return before, after


def test_two_hold_a_lock_without_tokens(members: Members) -> None:
    account = Account()
    before, after = partition(members, SINGLE)
    account.write("of the second", after)
    account.write("of the first", before)
    assert account.rows == ["of the second", "of the first"]


def test_with_tokens_the_later_one_writes(members: Members) -> None:
    account = Account()
    before, after = partition(members, FENCED)
    assert before is not None and after is not None and before < after
    account.write("of the second", after)
    with pytest.raises(PermissionError, match=f"token {before} is older than {after}"):
        account.write("of the first", before)
    assert account.rows == ["of the second"]


def test_a_primary_that_was_cut_off_gives_nobody_a_token(members: Members) -> None:
    broker = members.brokers["a"]
    first, late = Program(broker, FENCED), Program(broker, FENCED)
    first.locked()
    for name in "bc":
        members.brokers[name].pause()
    try:
        first.connection.close()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="isolated"):
            wait_for(late.holds, TIME, "the end of the connection")
        assert not late.tokens
    finally:
        for name in "bc":
            members.brokers[name].resume()


def test_they_grow_over_restarts_of_a_broker_with_a_journal(tmp_path: Path) -> None:
    """Also if nothing but the lock changed hands between two of them."""
    tokens: list[int | None] = []
    with BrokerProcess(tmp_path, "--journal", "yes") as broker:
        for kill in (False, True, True, False):
            tokens.append(Program(broker, FENCED).locked())
            broker.kill() if kill else broker.stop()
            broker.start()
        tokens.append(Program(broker, FENCED).locked())
    assert None not in tokens and tokens == sorted(set(tokens), key=lambda token: token or 0)
