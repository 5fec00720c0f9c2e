"""How often a message comes back to a quorum queue: RabbitMQ and we count alike.

Apart from the random conversations: RabbitMQ's quorum queues answer when they like, so each step is waited for.
"""

from __future__ import annotations

from typing import Any

from pamqp import commands

from qpidd_py.amqp.codec import encode_method
from tests.differential.conversation import OPTIONS
from tests.support.three_ways import Client
from tests.support.wait import wait_for

Basic, Channel, Confirm = commands.Basic, commands.Channel, commands.Confirm
QUORUM = {"x-queue-type": "quorum", "qpid.replicate": "all", "x-delivery-limit": 2}
LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "returns.dead"}
WAYS = ("nack", "reject", "recover", "channel")
COUNT = "x-delivery-count"
ACQUIRED = "x-acquired-count"
"""RabbitMQ has it from 4.3 on."""


def test_returns_are_counted_alike(ports: dict[str, int]) -> None:
    theirs, *ours = ([gets(port, way) for way in WAYS] + consumed(port) for port in ports.values())
    for found in ours:
        assert found == theirs


def connected(port: int) -> Client:
    client = Client(port)
    client.open(**OPTIONS)
    client.declare("returns.dead")
    client.declare("returns", arguments={**QUORUM, **LETTERS})
    client.call(1, Confirm.Select(), Confirm.SelectOk)
    return client


def gets(port: int, way: str) -> list[Any]:
    """What basic.get and the dead letter say of a message that comes back in this way, again and again."""
    client = connected(port)
    found: list[Any] = []
    assert client.confirmed(b"m", queue="returns", headers={COUNT: "mine", "a": 1}) == [True]
    while (message := wait_for(lambda: client.get("returns", no_ack=False))) is not None:
        answer, headers, body = message
        headers.pop(ACQUIRED, None)
        found.append((answer.redelivered, headers, body))
        give_back(client, way, answer.delivery_tag)
        if len(found) == 3:
            break
    letter = wait_for(lambda: client.get("returns.dead"))
    assert letter is not None
    (death,) = letter[1].pop("x-death")
    found.append((letter[1], death["reason"], death["count"], death["queue"]))
    client.close()
    return found


def give_back(client: Client, way: str, tag: int) -> None:
    if way == "channel":
        client.call(1, Channel.Close(200, "", 0, 0), Channel.CloseOk)
        client.open_channel(1)
    elif way == "recover":
        client.call(1, Basic.Recover(requeue=True), Basic.RecoverOk)
    else:
        method = Basic.Nack(tag, requeue=True) if way == "nack" else Basic.Reject(tag, requeue=True)
        client.send(encode_method(1, method))


def consumed(port: int) -> list[Any]:
    """The same of basic.deliver."""
    client = connected(port)
    found: list[Any] = []
    client.call(1, Basic.Consume(queue="returns", consumer_tag="c"), Basic.ConsumeOk)
    client.publish(b"m", "returns")
    published = False  # a quorum queue of RabbitMQ's confirms when it likes, also after it has delivered
    while len(found) < 3 or not published:
        frame = client.read()[1]
        published |= isinstance(frame, Basic.Ack)
        if isinstance(frame, Basic.Deliver):
            headers, body = client.content()
            headers.pop(ACQUIRED, None)
            found.append((frame.redelivered, headers, body))
            client.send(encode_method(1, Basic.Nack(frame.delivery_tag or 0, requeue=True)))
    assert wait_for(lambda: client.get("returns.dead")) is not None
    client.close()
    return found
