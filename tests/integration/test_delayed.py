"""Exchanges of type `x-delayed-message`: messages are due at their time, on whichever broker leads then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands

from qpidd_py.amqp.codec import make
from tests.interop.raw import method
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.three_ways import Client, Site
from tests.support.wait import wait_for

Basic, Channel, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)
LATER = 3000
"""Milliseconds: longer than a fail-over takes here."""


def exchange(name: str, **arguments: Any) -> bytes:
    flags = dict.fromkeys(("passive", "auto_delete", "internal", "nowait"), False)
    fields = {"ticket": 0, "exchange_type": "x-delayed-message", "durable": True, "arguments": arguments}
    return bytes(method(1, make(Exchange.Declare, exchange=name, **fields, **flags)))


def bound(client: Client, queue: str, kind: str = "direct", **arguments: Any) -> None:
    client.send(exchange(queue, **{"x-delayed-type": kind, **arguments}))
    assert isinstance(client.read()[1], Exchange.DeclareOk)
    client.declare(queue)
    client.call(1, Queue.Bind(queue=queue, exchange=queue, routing_key="k"), Queue.BindOk)


def send(client: Client, exchange: str, body: bytes, delay: Any, key: str = "k", **headers: Any) -> None:
    headers = headers if delay is None else {"x-delay": delay, **headers}
    client.publish(body, key, exchange=exchange, headers=headers, delivery_mode=2)


def delayed(site: Site, name: str) -> int:
    return next(int(row["delayed"]) for row in site.ask_primary("exchange.list") if row["name"] == name)


def test_a_message_is_due_at_its_time(site: Site, client: Client, queue: str) -> None:
    bound(client, queue)
    client.confirming()
    began = time.monotonic()
    for body, delay in ((b"later", LATER), (b"soon", LATER - 1000), (b"now", None)):
        send(client, queue, body, delay)
        assert isinstance(client.read()[1], Basic.Ack)
    assert client.bodies(queue) == [b"now"]
    assert delayed(site, queue) == 2
    client = site.middle()
    assert wait_for(lambda: client.count(queue) == 1, TIME) and time.monotonic() - began >= LATER / 1000 - 1
    assert client.bodies(queue) == [b"soon"]
    answer, headers, body = wait_for(lambda: client.get(queue), TIME)  # type: ignore[misc]
    assert time.monotonic() - began >= LATER / 1000
    assert (answer.exchange, answer.routing_key, body) == (queue, "k", b"later")
    assert headers == {"x-delay": -LATER} | site.mark
    assert delayed(site, queue) == 0


AT_ONCE: list[Any] = [None, 0, -1, -50, 1 << 32, 1 << 62, "soon", "", "1e3", b"\xff", True, False, [5], {"a": 5}, 0.9]


def test_what_is_no_delay_is_routed_at_once(site: Site, client: Client, queue: str) -> None:
    bound(client, queue)
    for number, delay in enumerate(AT_ONCE):
        send(client, queue, b"%d" % number, delay)
    assert client.count(queue) == len(AT_ONCE)
    client = site.middle()
    for delay in (60_000, "60000", "+60000", 60_000.9, (1 << 32) - 1):
        send(client, queue, b"x", delay)
    assert client.count(queue) == len(AT_ONCE)
    assert delayed(site, queue) == 5
    client.call(1, Exchange.Delete(exchange=queue), Exchange.DeleteOk)
    assert client.count(queue) == len(AT_ONCE)


def test_it_routes_when_it_is_due_as_its_type_does(site: Site, client: Client, queue: str) -> None:
    bound(client, queue, "topic")
    client.declare(f"{queue}.all")
    send(client, queue, b"x", LATER, key="a.b")
    send(client, queue, b"nobody wants it", 1, key="none")
    client = site.middle()
    client.call(1, Queue.Bind(queue=f"{queue}.all", exchange=queue, routing_key="a.*"), Queue.BindOk)
    assert wait_for(lambda: client.count(f"{queue}.all"), TIME) == 1
    assert (client.count(queue), delayed(site, queue)) == (0, 0)


def test_copies_and_a_way_through_other_exchanges(site: Site, client: Client, queue: str) -> None:
    bound(client, queue)
    for name in ("cc", "bcc"):
        client.declare(f"{queue}.{name}")
        client.call(1, Queue.Bind(queue=f"{queue}.{name}", exchange=queue, routing_key=name), Queue.BindOk)
    client.call(1, Exchange.Bind(destination=queue, source="amq.topic", routing_key="k"), Exchange.BindOk)
    client.declare(f"{queue}.direct")
    client.call(1, Queue.Bind(queue=f"{queue}.direct", exchange="amq.topic", routing_key="k"), Queue.BindOk)
    send(client, queue, b"copies", LATER, CC=["cc"], BCC=["bcc"])
    send(client, "amq.topic", b"through", LATER)
    assert client.bodies(f"{queue}.direct") == [b"through"]
    client = site.middle()
    wait_for(lambda: client.count(queue) == 2, TIME)
    assert client.bodies(queue) == [b"copies", b"through"]
    for name in ("cc", "bcc"):
        _, headers, _ = client.get(f"{queue}.{name}")  # type: ignore[misc]
        assert headers == {"x-delay": -LATER, "CC": ["cc"]} | site.mark
    assert client.count(f"{queue}.direct") == 0
    client.call(1, Exchange.Unbind(destination=queue, source="amq.topic", routing_key="k"), Exchange.UnbindOk)
    client.call(1, Queue.Delete(queue=f"{queue}.direct"), Queue.DeleteOk)


def test_transactions_and_expiry(site: Site, client: Client, queue: str) -> None:
    """`expiration` counts from when it is due."""
    bound(client, queue)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish(b"x", "k", exchange=queue, headers={"x-delay": 100}, expiration="50000")
    client.send(method(1, Tx.Rollback()))
    assert isinstance(client.read()[1], Tx.RollbackOk)
    client.publish(b"y", "k", exchange=queue, headers={"x-delay": LATER}, expiration="50000")
    client.call(1, Tx.Commit(), Tx.CommitOk)
    client = site.middle()
    wait_for(lambda: client.count(queue) == 1, TIME)
    assert client.bodies(queue) == [b"y"]


def test_what_is_refused(site: Site, client: Client, queue: str) -> None:
    for arguments in ({}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": 1}, {"x-delayed-type": None}):
        assert client.refusal(exchange(queue, **arguments)) == 406
    other = site.client()
    other.send(exchange(queue, **{"x-delayed-type": "strange"}))
    assert "unknown exchange type 'strange'" in other.expect_close(503, 40, 10)
    bound(client, queue)
    client = site.middle()
    assert client.refusal(exchange(queue, **{"x-delayed-type": "topic"})) == 406
    client.send(exchange(queue, **{"x-delayed-type": "direct"}))
    assert isinstance(client.read()[1], Exchange.DeclareOk)
    assert client.refusal(Queue.Declare(queue=f"amq.delayed.{queue}", passive=True)) == 404


# ---------------------------------------------------------------- joining, and the journal


def test_a_broker_that_has_joined_sends_them_when_it_leads(members: Members) -> None:
    client = Client(members.brokers["a"].port)
    client.open()
    bound(client, "later")
    for number in range(500):
        send(client, "later", b"%d" % number, 8000 + number % 7)
    client.declare("the-end")
    client.close()
    members.brokers["b"].kill()
    members.brokers["b"].start()
    members.settled("a")
    members.brokers["a"].kill()
    members.promote_newest("b")
    wait_for(lambda: members.states()["b"] == "active", TIME, "the new primary is active")
    client = Client(members.brokers["b"].port)
    client.open()
    wait_for(lambda: client.count("later") == 500, TIME)
    assert sorted(map(int, client.bodies("later"))) == [*range(500)]
    client.close()


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_restart_with_the_journal(tmp_path: Path, end: str) -> None:
    with BrokerProcess(tmp_path, "--journal", "yes") as broker:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.port)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
            channel.queue_declare("later", durable=True)
            channel.queue_bind("later", "later")
            for delay in (1, 600_000):
                properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay})
                channel.basic_publish("later", "", b"%d" % delay, properties)
        broker.kill() if end == "kill" else broker.stop()
        broker.start()
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
            channel = connection.channel()
            wait_for(lambda: channel.queue_declare("later", durable=True).method.message_count == 1, TIME)
            assert channel.basic_get("later", auto_ack=True)[2] == b"1"
