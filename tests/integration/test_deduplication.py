"""`x-message-deduplication`: what is sent again after a fail-over, a restart or a reconnect enters its queue once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands

from tests.interop.raw import method
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.three_ways import Client, Site, declaration
from tests.support.wait import wait_for

Basic, Exchange, Queue, Tx = commands.Basic, commands.Exchange, commands.Queue, commands.Tx
ONCE = {"x-message-deduplication": True}


def sent(client: Client, queue: str, *keys: str) -> list[bool]:
    """Whether each was confirmed."""
    return [client.confirmed(key.encode(), queue=queue, message_id=key, delivery_mode=2)[0] for key in keys]


def row(site: Site, queue: str) -> dict[str, Any]:
    return next(found for found in site.ask_primary("queue.list") if found["name"] == queue)


def test_it_enters_once(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments=ONCE)
    assert sent(client, queue, "a", "b", "a") == [True] * 3
    assert client.get(queue)[2] == b"a"  # type: ignore[index]
    client = site.middle().confirming()
    assert sent(client, queue, "a", "b", "c") == [True] * 3
    assert client.bodies(queue) == [b"b", b"c"]
    assert row(site, queue)["remembered"] == 3


def test_a_window_by_count_and_a_key_in_a_header(site: Site, client: Client, queue: str) -> None:
    arguments = {**ONCE, "x-deduplication-window": 2, "x-deduplication-key": "order"}
    client.confirming().declare(queue, arguments=arguments)

    def order(*numbers: int) -> None:
        for number in numbers:
            client.confirmed(b"%d" % number, queue=queue, headers={"order": number}, message_id="m")

    order(1, 2, 3, 2)
    client = site.middle().confirming()
    order(3, 2, 1)
    assert client.bodies(queue) == [b"1", b"2", b"3", b"1"]


def test_a_window_by_time(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments={**ONCE, "x-deduplication-time": 60000})
    short = f"{queue}.short"
    client.declare(short, arguments={**ONCE, "x-deduplication-time": 100})
    for name in (queue, short):
        sent(client, name, "a")
    client = site.middle().confirming()
    time.sleep(0.7)  # the time runs out
    for name in (queue, short):
        sent(client, name, "a")
    assert [client.count(name) for name in (queue, short)] == [1, 2]


def test_what_was_refused_may_come_again(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments={**ONCE, "x-max-length": 1, "x-overflow": "reject-publish"})
    assert sent(client, queue, "a", "b", "a") == [True, False, True]
    client = site.middle().confirming()
    assert client.bodies(queue) == [b"a"]
    assert sent(client, queue, "b") == [True]
    assert client.bodies(queue) == [b"b"]


def test_a_transaction_that_is_sent_again(site: Site, client: Client, queue: str) -> None:
    other = f"{queue}.other"
    client.declare(queue, arguments=ONCE)
    client.declare(other)
    for again in (False, True):
        client = site.middle() if again else client
        client.call(1, Tx.Select(), Tx.SelectOk)
        for name in (queue, other):
            client.publish(b"a", name, message_id="a")
        client.call(1, Tx.Commit(), Tx.CommitOk)
    assert (client.count(queue), client.count(other)) == (1, 2)


def test_copies_to_several_queues(site: Site, client: Client, queue: str) -> None:
    other = f"{queue}.other"
    client.confirming().declare(queue, arguments=ONCE)
    client.declare(other)
    for again in (False, True):
        client = site.middle().confirming() if again else client
        for headers in ({"CC": [other]}, {"BCC": [other]}):
            client.confirmed(b"a", queue=queue, message_id="a", headers=headers)
    assert (client.count(queue), client.count(other)) == (1, 4)


def test_a_dead_letter_that_returns_is_no_duplicate(site: Site, client: Client, queue: str) -> None:
    waiting = f"{queue}.waiting"
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": 1}
    to_waiting = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": waiting}
    client.confirming().declare(waiting, arguments=back)
    client.declare(queue, arguments={**ONCE, **to_waiting})
    sent(client, queue, "a")
    for again in (False, True):
        client = site.middle().confirming() if again else client
        answer, _, _ = wait_for(lambda: client.get(queue, no_ack=False))  # type: ignore[misc]  # noqa: B023
        client.send(method(1, Basic.Nack(answer.delivery_tag, requeue=False)))
    wait_for(lambda: client.count(queue) == 1)
    sent(client, queue, "a")
    assert client.count(queue) == 1


WRONG: list[dict[str, Any]] = [
    {"x-message-deduplication": "yes"},
    {"x-message-deduplication": 1},
    {"x-deduplication-window": 10},
    {"x-message-deduplication": False, "x-deduplication-time": 10},
    *({**ONCE, "x-deduplication-window": value} for value in (0, -1, 100_000_001, "10", True, 1.5, None, 2**62)),
    *({**ONCE, "x-deduplication-time": value} for value in (0, -1, "10", False)),
    *({**ONCE, "x-deduplication-key": value} for value in ("", "k" * 256, 1, b"\xff", True)),
]


def test_arguments_that_mean_nothing_are_refused(site: Site, client: Client, queue: str) -> None:
    for arguments in WRONG:
        assert client.refusal(declaration(queue, arguments=arguments)) == 406, arguments
    client.declare(queue, arguments=ONCE)
    assert client.refusal(declaration(queue)) == 406
    assert client.refusal(declaration(queue, arguments={**ONCE, "x-deduplication-window": 5})) == 406
    client = site.middle()
    assert isinstance(client.declare(queue, arguments=ONCE), Queue.DeclareOk)
    most = {
        **ONCE,
        "x-deduplication-window": 100_000_000,
        "x-deduplication-time": 2**62,
        "x-deduplication-key": "k" * 255,
    }
    assert isinstance(client.declare(f"{queue}.most", arguments=most), Queue.DeclareOk)


# ---------------------------------------------------------------- joining, and the journal


def test_a_broker_that_has_joined_takes_nothing_twice_when_it_leads(members: Members) -> None:
    """By the whole set of keys, and (c, which stays) by what it lacks."""
    client = Client(members.brokers["a"].port)
    client.open()
    client.declare("once", arguments=ONCE)
    keys = [str(number) for number in range(3000)]
    for key in keys:
        client.publish(key.encode(), "once", message_id=key)
    client.publish(b"last", "once", message_id="last")
    wait_for(lambda: client.declare("once", arguments=ONCE).message_count == 3001)
    client.close()
    members.brokers["b"].kill()
    members.brokers["b"].start()
    members.settled("a")
    members.brokers["a"].kill()
    primary = members.promote_newest("b")
    wait_for(lambda: members.states()[primary] == "active", TIME, "the new primary is active")
    again(members.brokers["b"].port, keys, 3001)
    members.brokers["a"].start()
    members.settled("b")
    members.brokers["b"].kill()
    members.promote_newest("c")
    wait_for(lambda: members.states()["c"] == "active", TIME, "the new primary is active")
    again(members.brokers["c"].port, keys, 3002)


def again(port: int, keys: list[str], count: int) -> None:
    client = Client(port)
    client.open()
    for key in keys:
        client.publish(key.encode(), "once", message_id=key)
    client.publish(b"new", "once", message_id=str(count))
    assert wait_for(lambda: client.declare("once", arguments=ONCE).message_count >= count)
    assert client.declare("once", arguments=ONCE).message_count == count + 1
    client.close()


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_restart_with_the_journal(tmp_path: Path, end: str) -> None:
    """Also of keys whose messages have gone, and whose segments have."""
    options = ("--journal", "yes", "--journal-segment-size", "1M")
    with BrokerProcess(tmp_path, *options) as broker:
        for life in range(3):
            parameters = pika.ConnectionParameters("127.0.0.1", broker.port)
            with pika.BlockingConnection(parameters) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("once", durable=True, arguments={**ONCE, "x-deduplication-window": 50_000})
                for number in (0, 1, 2, 10 + life):
                    channel.basic_publish(
                        "", "once", b"m", pika.BasicProperties(message_id=str(number), delivery_mode=2)
                    )
                for _ in range(200):
                    channel.basic_publish("", "once", bytes(50_000), pika.BasicProperties(delivery_mode=2))
                found = channel.queue_purge("once").method.message_count
                assert found == 200 + (4 if life == 0 else 1)
            broker.kill() if end == "kill" else broker.stop()
            broker.start()
