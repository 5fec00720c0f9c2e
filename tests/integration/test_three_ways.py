"""Where applications have noticed that this is another broker, stand-alone, in a cluster, and over a fail-over."""

import struct
import time
from typing import Any

import pytest
from pamqp import commands

from qpidd_py.amqp.codec import make
from tests.interop.raw import frame, method
from tests.interop.test_raw_errors import CHANNEL_ERRORS, FRAME_ERRORS
from tests.support.memory import publish_octets
from tests.support.three_ways import Client, Site, declaration
from tests.support.wait import wait_for

Basic, Channel, Connection, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Connection,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)


# ---------------------------------------------------------------- transactions

FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


def test_what_a_full_queue_refuses_refuses_the_whole_transaction(site: Site, client: Client, queue: str) -> None:
    other = f"{queue}.other"
    client.declare(queue, arguments=FULL)
    client.declare(other)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish(b"a", other)
    client.publish(b"b", queue)
    client.publish(b"c", queue)
    client.send(method(1, Tx.Commit()))
    assert f"queue '{queue}' is full" in client.expect_channel_close(406, 90, 20)
    client = site.middle()
    assert (client.count(queue), client.count(other)) == (0, 0)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish(b"a", other)
    client.publish(b"b", queue)
    client.call(1, Tx.Commit(), Tx.CommitOk)
    assert (client.bodies(queue), client.bodies(other)) == ([b"b"], [b"a"])


def test_a_transaction_that_is_too_large_costs_its_channel_and_does_nothing(
    site: Site, client: Client, queue: str
) -> None:
    client.declare(queue)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.send(publish_octets(b"x", queue) * 16385)
    assert "more than 16384 publishes and settlements (max-transaction)" in client.expect_channel_close(406, 60, 40)
    client = site.middle()
    assert client.count(queue) == 0
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.send(publish_octets(b"x", queue) * 16384)
    client.call(1, Tx.Commit(), Tx.CommitOk)
    assert client.count(queue) == 16384


# ---------------------------------------------------------------- the end of a connection

CLOSE = method(0, Connection.Close(200, "bye", 0, 0))


def test_close_behind_answers_that_wait(site: Site, client: Client, queue: str) -> None:
    client.send(declaration(queue), publish_octets(b"1", queue), declaration(queue), publish_octets(b"2", queue), CLOSE)
    for answer in (Queue.DeclareOk, Queue.DeclareOk, Connection.CloseOk):
        client.expect(answer)
    client = site.client()
    assert client.count(queue) == 2  # an answer that is safe, and so is what came before
    client = site.middle()
    assert client.bodies(queue) == [b"1", b"2"]


def test_the_end_of_the_stream_behind_answers_that_wait(site: Site, client: Client, queue: str) -> None:
    client.send(declaration(queue), publish_octets(b"1", queue))
    client.close()
    client = site.client()
    wait_for(lambda: client.declare(queue).message_count == 1)
    client = site.middle()
    assert client.bodies(queue) == [b"1"]


# ---------------------------------------------------------------- properties that no consumer could read

MALFORMED = {
    "a table longer than the header": (0x2000, b"\0\0\xff\xff\x01aV"),
    "a string longer than its table": (0x2000, b"\0\0\0\x08\x01aS\0\0\0\xffx"),
    "a field of no type": (0x2000, b"\0\0\0\x03\x01aZ"),
    "a table in a table": (0x2000, b"\0\0\0\x0c\x01aF\0\0\0\x05\x01bS\0\0"),
    "an array": (0x2000, b"\0\0\0\x0c\x01aA\0\0\0\x05S\0\0\0\xff"),
    "a short string": (0x8000, b"\xffabc"),
    "nothing": (0xF000, b""),
    "more than the flags say": (0, b"junk"),
    "flags that go on": (1, b"\0\0"),
}


def test_properties_that_cannot_be_read_are_refused(site: Site, client: Client, queue: str) -> None:
    client.declare(queue)
    for flags, properties in MALFORMED.values():
        other = site.client()
        header = struct.pack(">HHQH", 60, 0, 1, flags) + properties
        other.send(method(1, Basic.Publish(routing_key=queue)) + frame(2, 1, header) + frame(3, 1, b"x"))
        assert "FRAME_ERROR" in other.expect_close(501, 60, 40)
    client.publish(b"good", queue, headers={"a": {"b": [1, "c", None, True, {"d": 1.5}]}}, timestamp=1)
    assert client.count(queue) == 1
    client = site.middle()
    assert client.bodies(queue) == [b"good"]


# ---------------------------------------------------------------- expiry


def test_a_message_that_comes_back_after_its_time_dies_at_once(site: Site, client: Client, queue: str) -> None:
    dead = f"{queue}.dead"
    client.declare(dead)
    client.declare(queue, arguments=dying(dead))
    client.send(publish_octets(b"x", queue, expiration="1000"), method(1, Basic.Get(queue=queue)))
    answer = client.expect(Basic.GetOk)
    client.content()
    time.sleep(1.05)  # its time runs out while it is with us, and not before on a busy machine
    client.send(method(1, Basic.Nack(answer.delivery_tag, requeue=True)))
    assert reasons(client, dead) == ["expired"]
    client = site.middle()
    assert (client.count(queue), client.count(dead)) == (0, 0)


def test_expired_messages_do_not_count_for_a_limit(site: Site, client: Client, queue: str) -> None:
    dead = f"{queue}.dead"
    arguments = {"x-message-ttl": 40, "x-max-length": 1, "x-overflow": "reject-publish"}
    client.confirming().declare(dead)
    client.declare(queue, arguments={**arguments, **dying(dead)})
    for number in range(4):
        assert client.confirmed(b"%d" % number, queue=queue) == [True]
        time.sleep(0.06)  # its time runs out
    assert [reasons(client, dead) for _ in range(4)] == [["expired"]] * 4
    client = site.middle()
    assert (client.count(queue), client.count(dead)) == (0, 0)


def test_dead_letters_come_when_the_time_is_up(site: Site, client: Client, queue: str) -> None:
    """A tick of 250 ms would take 125 ms on average; a busy machine takes its time for some of them."""
    dead = f"{queue}.dead"
    client.declare(dead)
    client.declare(queue, arguments={"x-message-ttl": 50, **dying(dead)})
    client.call(1, Basic.Consume(queue=dead, consumer_tag="t", no_ack=True), Basic.ConsumeOk)
    took = []
    for _ in range(8):
        began = time.monotonic()
        client.publish(b"x", queue)
        client.expect(Basic.Deliver)
        client.content()
        took.append(time.monotonic() - began)
    assert min(took) >= 0.05
    assert min(took) < 0.1
    client = site.middle()
    client.publish(b"last", queue)
    assert wait_for(lambda: client.count(dead)) == 1


def dying(dead: str) -> dict[str, str]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}


def reasons(client: Client, dead: str) -> list[str]:
    """Of the next dead letter."""
    letter = wait_for(lambda: client.get(dead))
    assert letter is not None
    headers = letter[1]
    return [death["reason"] for death in headers["x-death"]]


# ---------------------------------------------------------------- limits


def test_a_limit_holds_when_messages_come_back(site: Site, client: Client, queue: str) -> None:
    dead = f"{queue}.dead"
    client.confirming().declare(dead)
    client.declare(queue, arguments={"x-max-length": 2, **dying(dead)})
    for body in (b"0", b"1"):
        client.confirmed(body, queue=queue)
        client.get(queue, no_ack=False)
    client.confirmed(b"2", b"3", queue=queue)
    client.send(method(1, Basic.Nack(1, requeue=True)))
    assert client.count(queue) == 2
    assert reasons(client, dead) == ["maxlen"]  # 0
    other = site.middle()
    assert wait_for(lambda: other.count(dead)) == 1  # 1 came back with the end of its consumer, or of its primary
    assert other.bodies(queue) == [b"2", b"3"]


def test_a_full_queue_that_refuses_keeps_what_comes_back(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments=FULL)
    assert client.confirmed(b"0", queue=queue) == [True]
    client.get(queue, no_ack=False)
    assert client.confirmed(b"1", queue=queue) == [True]
    client = site.middle()
    assert client.bodies(queue) == [b"0", b"1"]


# ---------------------------------------------------------------- exclusive queues

ALL = {"qpid.replicate": "all"}


def test_an_exclusive_queue_ends_with_its_connection(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, durable=False, exclusive=True)
    client.publish(b"x", queue)
    assert client.count(queue) == 1
    for name in site.backups:
        assert queue not in {found["name"] for found in site.ask(name, "queue.list")}
    client = site.middle()
    wait_for(lambda: client.refusal(Queue.Declare(queue=queue, passive=True)) == 404)


@pytest.mark.parametrize("site", ["fail-over"], indirect=True)
@pytest.mark.parametrize("arguments", [ALL, {"qpid.auto_delete_timeout": 60}], ids=["all", "timed"])
def test_an_exclusive_queue_that_is_replicated_waits_for_its_owner(
    site: Site, client: Client, queue: str, arguments: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"exclusive": True, "auto_delete": arguments is not ALL, "arguments": arguments}
    client.declare(queue, **options)
    client.publish(b"x", queue)
    assert client.count(queue) == 1
    client = site.middle()
    assert client.refusal(Queue.Declare(queue=queue, passive=True)) == 405
    assert client.declare(queue, **options).message_count == 1
    assert site.client().refusal(Queue.Declare(queue=queue, passive=True)) == 405
    client.close()
    other = site.client()
    wait_for(lambda: other.refusal(Queue.Declare(queue=queue, passive=True)) == 404)


# ---------------------------------------------------------------- copies and direct replies


def test_copies_go_to_further_routing_keys(site: Site, client: Client, queue: str) -> None:
    others = [f"{queue}.{number}" for number in range(3)]
    client.confirming()
    for name in (queue, *others):
        client.declare(name)
    headers = {"CC": [others[0], queue], "BCC": [others[1], "nobody", 7], "k": "v"}
    assert client.confirmed(b"x", queue=queue, headers=headers) == [True]
    client.publish(b"y", "nobody", headers={"BCC": [others[2]]}, mandatory=True)  # is not returned
    assert isinstance(client.read()[1], Basic.Ack)
    client = site.middle()
    for name in (queue, *others[:2]):
        assert client.count(name) == 1
        answer = client.get(name)
        assert answer is not None
        assert (answer[0].routing_key, answer[1], answer[2]) == (queue, {"CC": headers["CC"], "k": "v"}, b"x")
    assert client.bodies(others[2]) == [b"y"]


def test_copies_are_part_of_a_transaction(site: Site, client: Client, queue: str) -> None:
    full = f"{queue}.full"
    client.declare(queue)
    client.declare(full, arguments=FULL)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish(b"1", queue, headers={"CC": [full]})
    client.publish(b"2", queue, headers={"BCC": [full]})
    client.send(method(1, Tx.Commit()))
    assert f"queue '{full}' is full" in client.expect_channel_close(406, 90, 20)
    client = site.middle()
    assert (client.count(queue), client.count(full)) == (0, 0)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish(b"1", queue, headers={"BCC": [full]})
    client.call(1, Tx.Commit(), Tx.CommitOk)
    assert (client.bodies(queue), client.bodies(full)) == ([b"1"], [b"1"])


@pytest.mark.parametrize("headers", [{"CC": "text"}, {"BCC": 1}, {"CC": [], "BCC": {"a": 1}}])
def test_copies_of_a_wrong_type_are_refused(site: Site, client: Client, queue: str, headers: dict[str, Any]) -> None:
    client.declare(queue)
    client.publish(b"x", queue, headers=headers)
    client.expect_channel_close(406, 60, 40)
    assert site.client().count(queue) == 0


def test_a_dead_letter_goes_to_its_copies_again(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments={"x-dead-letter-exchange": "amq.direct"})
    dead = f"{queue}.dead"
    client.declare(dead)
    client.call(1, Queue.Bind(queue=dead, exchange="amq.direct", routing_key="copy"), Queue.BindOk)
    client.publish(b"x", queue, headers={"CC": ["copy"]})
    answer = client.get(queue, no_ack=False)
    assert answer is not None
    client.send(method(1, Basic.Reject(answer[0].delivery_tag, requeue=False)))
    wait_for(lambda: client.count(dead) == 1)
    client = site.middle()
    letter = client.get(dead)
    assert letter is not None
    assert letter[1]["x-death"][0]["routing-keys"] == [queue, "copy"]


REPLY_TO = "amq.rabbitmq.reply-to"


def replies(client: Client) -> Client:
    client.call(1, Basic.Consume(queue=REPLY_TO, consumer_tag="replies", no_ack=True), Basic.ConsumeOk)
    return client


def asked(client: Client, queue: str) -> str:
    """Takes a request; where its answer goes."""
    client.send(method(1, Basic.Get(queue=queue, no_ack=True)))
    client.expect(Basic.GetOk)
    address: str = client.read()[1].properties.reply_to
    client.read()
    return address


def test_direct_replies(site: Site, client: Client, queue: str) -> None:
    client.declare(queue)
    assert client.declare(REPLY_TO, passive=True).consumer_count == 1
    for again in (False, True):
        client = replies(site.middle() if again else client)
        client.publish(b"question", queue, reply_to=REPLY_TO)
        assert client.count(queue) == 1
        answered(site, client, queue)


def answered(site: Site, client: Client, queue: str) -> None:
    """By another client; an answer that comes when `client` has gone is returned."""
    server = site.client()
    address = asked(server, queue)
    assert address.startswith(f"{REPLY_TO}.")
    assert server.declare(address, passive=True).consumer_count == 1
    server.publish(b"answer", address)
    delivery = client.expect(Basic.Deliver)
    assert (delivery.consumer_tag, delivery.routing_key) == ("replies", address)
    assert client.content() == ({}, b"answer")
    if site.way == "cluster":
        for name in site.backups:
            assert address not in {found["name"] for found in site.ask(name, "queue.list")}
    client.close()
    wait_for(lambda: server.refusal(Queue.Declare(queue=address, passive=True)) == 404)
    server.publish(b"late", address, mandatory=True)
    server.expect(Basic.Return)


def test_direct_replies_are_refused(site: Site, client: Client, queue: str) -> None:
    client.declare(queue)
    consume = Basic.Consume(queue=REPLY_TO, consumer_tag="r", no_ack=True)
    assert client.refusal(Basic.Consume(queue=REPLY_TO, consumer_tag="r")) == 406  # cannot acknowledge
    assert client.refusal(publish_octets(b"x", queue, reply_to=REPLY_TO)) == 406  # there is no consumer
    client.call(1, consume, Basic.ConsumeOk)
    assert client.refusal(Basic.Consume(queue=REPLY_TO, consumer_tag="s", no_ack=True)) == 406  # there is one
    client.call(1, consume, Basic.ConsumeOk)
    client.call(1, Basic.Cancel("r"), Basic.CancelOk)
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.call(1, consume, Basic.ConsumeOk)
    client.publish(b"x", queue, reply_to=REPLY_TO)
    client.call(1, Basic.Cancel("r"), Basic.CancelOk)
    assert client.refusal(Tx.Commit()) == 406
    assert client.count(queue) == 0


# ---------------------------------------------------------------- one consumer at a time

SINGLE = {"x-single-active-consumer": True}


def subscribed(client: Client, queue: str, tag: str, **options: Any) -> Client:
    client.call(1, Basic.Consume(queue=queue, consumer_tag=tag, **options), Basic.ConsumeOk)
    return client


def delivered(client: Client) -> tuple[bytes, bool]:
    """The next delivery, and whether it is marked as another than the first."""
    delivery = client.expect(Basic.Deliver)
    return client.content()[1], bool(delivery.redelivered)


def test_one_consumer_at_a_time(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=SINGLE)
    for again in (False, True):
        client = site.middle() if again else client
        first = subscribed(site.client(), queue, "first")
        second = subscribed(site.client(), queue, "second", arguments={"x-priority": 5})
        client.publish(b"1", queue)
        client.publish(b"2", queue)
        assert [delivered(first), delivered(first)] == [(b"1", False), (b"2", False)]
        first.send(method(1, Basic.Ack(1)))
        first.call(1, Queue.Declare(queue=queue, passive=True), Queue.DeclareOk)
        first.close()
        assert delivered(second) == (b"2", True)  # the other takes over
        assert client.count(queue) == 0
        second.send(method(1, Basic.Ack(1)))
        client.publish(b"3", queue)
        assert delivered(second) == (b"3", False)
        second.call(1, Basic.Cancel("second"), Basic.CancelOk)
        third = subscribed(site.client(), queue, "third")
        client.publish(b"4", queue)
        assert delivered(third) == (b"4", False)
        second.send(method(1, Basic.Ack(2)))
        third.send(method(1, Basic.Ack(1)))
        assert client.declare(queue, arguments=SINGLE).consumer_count == 1


TOKEN = "x-fencing-token"
FENCED = {**SINGLE, TOKEN: True}


def token(client: Client) -> int:
    """Of the next delivery."""
    client.expect(Basic.Deliver)
    return int(client.content()[0][TOKEN])


def test_fencing_tokens_grow(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=FENCED)
    client.publish(b"job", queue)
    seen: list[int] = []
    for again in (False, True):
        client = site.middle() if again else client
        first, second = (subscribed(site.client(), queue, tag) for tag in ("first", "second"))
        seen.append(token(first))
        first.close()
        seen.append(token(second))
        (row,) = [row for row in site.ask_primary("subscription.list") if row["queue"] == queue]
        assert (row["active"], row["fencing_token"]) == (True, seen[-1])
        second.close()
    assert seen == sorted(set(seen))


def test_what_a_queue_with_tokens_refuses(site: Site, client: Client, queue: str) -> None:
    assert client.refusal(declaration(queue, arguments={TOKEN: True})) == 406
    assert client.refusal(declaration(queue, arguments={**SINGLE, TOKEN: "yes"})) == 406
    client.declare(queue, arguments=FENCED)
    assert client.refusal(declaration(queue, arguments=SINGLE)) == 406
    client = site.middle()
    assert client.refusal(Basic.Get(queue=queue)) == 406
    client.declare(queue, arguments=FENCED)


def test_the_one_consumer_keeps_its_queue_while_it_is_full(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=SINGLE)
    first, second = site.client(), site.client()
    for consumer, tag in ((first, "first"), (second, "second")):
        consumer.call(1, Basic.Qos(prefetch_count=1), Basic.QosOk)
        subscribed(consumer, queue, tag)
    for number in range(3):
        client.publish(b"%d" % number, queue)
    assert delivered(first) == (b"0", False)
    assert client.count(queue) == 2
    rows = site.ask_primary("subscription.list")
    shown = {row["tag"]: row["active"] for row in rows if row["queue"] == queue}
    assert shown == {"first": True, "second": False}
    first.send(method(1, Basic.Nack(1, requeue=True)))
    assert delivered(first) == (b"0", True)
    client = site.middle()  # the first may go before the second, which then holds this one message for a moment
    assert client.count(queue) == 3
    other = subscribed(site.client(), queue, "other")
    found = [delivered(other) for _ in range(3)]
    assert [body for body, _ in found] == [b"0", b"1", b"2"] and found[0][1], "the others may be marked, too"


def test_one_consumer_at_a_time_is_part_of_the_declaration(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=SINGLE)
    client = site.middle()
    assert client.refusal(declaration(queue)) == 406
    assert client.refusal(Basic.Consume(queue=queue, consumer_tag="t", exclusive=True)) == 403
    assert isinstance(client.declare(queue, arguments=SINGLE), Queue.DeclareOk)


# ---------------------------------------------------------------- exchanges that choose by a hash


def test_a_hash_chooses_the_same_queue_after_a_fail_over(site: Site, client: Client, queue: str) -> None:
    queues = [f"{queue}.{name}" for name in ("b", "a", "c")]
    flags = dict.fromkeys(("passive", "durable", "auto_delete", "internal", "nowait"), False)
    fields = {"ticket": 0, "exchange": queue, "exchange_type": "x-consistent-hash", "arguments": {}}
    assert isinstance(client.ask(make(Exchange.Declare, **fields, **flags)), Exchange.DeclareOk)
    for place, name in enumerate(queues):
        client.declare(name)
        client.call(1, Queue.Bind(queue=name, exchange=queue, routing_key=str(1 + place)), Queue.BindOk)
    assert client.refusal(Queue.Bind(queue=queues[0], exchange=queue, routing_key="many")) == 406
    keys = [f"key.{number}" for number in range(40)]

    def spread() -> list[list[bytes]]:
        for key in keys:
            client.publish(key.encode(), key, exchange=queue)
        return [client.bodies(name) for name in queues]

    before = spread()
    assert all(before) and sum(map(len, before)) == len(keys)
    client = site.middle()
    assert spread() == before


# ---------------------------------------------------------------- exchanges that are internal, or have an alternate


def declared(client: Client, exchange: str, kind: str, **options: Any) -> None:
    flags = dict.fromkeys(("passive", "durable", "auto_delete", "internal", "nowait"), False)
    fields = {"ticket": 0, "exchange": exchange, "exchange_type": kind, "arguments": {}, **flags, **options}
    assert isinstance(client.ask(make(Exchange.Declare, **fields)), Exchange.DeclareOk)


def test_internal_and_alternate_exchanges_and_the_user_of_a_message(site: Site, client: Client, queue: str) -> None:
    hidden, shown = f"{queue}.hidden", f"{queue}.shown"
    declared(client, hidden, "fanout", internal=True)
    declared(client, shown, "direct", arguments={"alternate-exchange": hidden})
    client.declare(queue)
    client.call(1, Queue.Bind(queue=queue, exchange=hidden), Queue.BindOk)
    for again in (False, True):
        client = site.middle() if again else client
        assert client.refusal(publish_octets(b"x", "k", exchange=hidden)) == 403
        assert client.refusal(publish_octets(b"x", "k", exchange=shown, user_id="somebody")) == 406
        client.publish(b"1", "k", exchange=shown, user_id="guest", mandatory=True)
        assert client.bodies(queue) == [b"1"]
    assert client.refusal(commands.Exchange.Delete(exchange=hidden, if_unused=True)) == 406


# ---------------------------------------------------------------- how often a message comes back

QUORUM = {"x-queue-type": "quorum", "qpid.replicate": "all"}


def taken(client: Client, queue: str, *, back: bool) -> tuple[bool, int] | None:
    """(redelivered, x-delivery-count) of the first message, which goes back to the queue or is kept; None for none."""
    found = client.get(queue, no_ack=False)
    if found is None:
        return None
    answer, headers, _ = found
    if back:
        client.send(method(1, Basic.Nack(answer.delivery_tag, requeue=True)))
    return bool(answer.redelivered), int(headers["x-delivery-count"])


def test_a_message_comes_back_as_often_as_its_queue_allows(site: Site, client: Client, queue: str) -> None:
    dead = f"{queue}.dead"
    client.declare(dead)
    client.declare(queue, arguments={**QUORUM, "x-delivery-limit": 4, **dying(dead)})
    client.publish(b"x", queue)
    assert [taken(client, queue, back=True) for _ in range(2)] == [(False, 0), (True, 1)]
    assert taken(client, queue, back=False) == (True, 2)
    client = site.middle()  # it was out: that counts
    assert [taken(client, queue, back=True) for _ in range(2)] == [(True, 3), (True, 4)]
    assert taken(client, queue, back=True) is None
    assert reasons(client, dead) == ["delivery_limit"]
    assert (client.count(queue), client.count(dead)) == (0, 0)


def test_what_waits_in_its_queue_at_a_fail_over_has_not_come_back(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=QUORUM)
    client.publish(b"x", queue)
    assert [taken(client, queue, back=True) for _ in range(3)] == [(False, 0), (True, 1), (True, 2)]
    client = site.middle()
    assert taken(client, queue, back=True) == (True, 3)


def kept(client: Client, queue: str, count: int) -> list[tuple[bytes, bool, int]]:
    """(body, redelivered, x-delivery-count) of the next messages, which the client keeps; both counts are the same."""
    found = []
    for _ in range(count):
        message = client.get(queue, no_ack=False)
        assert message is not None
        answer, headers, body = message
        assert headers["x-acquired-count"] == headers["x-delivery-count"]
        found.append((body, bool(answer.redelivered), int(headers["x-delivery-count"])))
    return found


def test_a_quorum_queue_hands_out_two_high_messages_for_a_normal_one(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=QUORUM)
    for number in range(6):
        client.publish(b"n%d" % number, queue, priority=4 if number % 2 else None)
    for number in range(6):
        client.publish(b"h%d" % number, queue, priority=5 + number)
    assert kept(client, queue, 3) == [(b"h0", False, 0), (b"h1", False, 0), (b"n0", False, 0)]
    client = site.middle()
    found = kept(client, queue, 12)
    bodies = [body for body, _, _ in found]
    assert bodies == [b"h0", b"h1", b"n0", b"h2", b"h3", b"n1", b"h4", b"h5", b"n2", b"n3", b"n4", b"n5"]
    assert [body for body, again, count in found if again and count == 1] == bodies[:3]
    assert [body for body, _, count in found if not count] == bodies[3:], (
        "a fail-over may mark them, and counts nothing"
    )


def test_a_high_message_may_come_after_a_fail_over(site: Site, client: Client, queue: str) -> None:
    """What is out when the queue gets its second class comes back to its place; a backup that was there before and one
    that joined have both."""
    client.declare(queue, arguments=QUORUM)
    for number in range(3):
        client.publish(b"n%d" % number, queue)
    assert kept(client, queue, 1) == [(b"n0", False, 0)]
    client = site.middle()
    (first, (body, _, count)) = kept(client, queue, 2)
    assert (first, body, count) == ((b"n0", True, 1), b"n1", 0)
    client.publish(b"h0", queue, priority=9)
    client.send(method(1, Basic.Nack(2, requeue=True)))
    client.publish(b"h1", queue, priority=9)
    *found, (body, _, count) = kept(client, queue, 4)
    assert found == [(b"h0", False, 0), (b"h1", False, 0), (b"n1", True, 1)]
    assert (body, count) == (b"n2", 0)
    client.send(method(1, Basic.Ack(0, multiple=True)))
    assert client.count(queue) == 0


def test_dead_letters_at_least_once_stay_until_a_queue_has_them(site: Site, client: Client, queue: str) -> None:
    dead = f"{queue}.dead"
    arguments = {**QUORUM, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", **dying(dead)}
    client.declare(queue, arguments=arguments)
    client.publish(b"x", queue, expiration="100")
    for again in (False, True):
        client = site.middle() if again else client
        time.sleep(0.3)  # it has expired
        assert client.bodies(queue) == [], "it waits for its queue"
    client.declare(dead, arguments=ALL)
    assert wait_for(lambda: client.count(dead)) == 1
    assert reasons(client, dead) == ["expired"]
    assert client.count(queue) == 0


def test_a_quorum_queue_that_names_no_limit_has_one(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=QUORUM)
    client.publish(b"x", queue)
    assert [taken(client, queue, back=True) for _ in range(11)][-1] == (True, 10)
    client = site.middle()
    assert [taken(client, queue, back=True) for _ in range(10)][-1] == (True, 20)
    assert taken(client, queue, back=True) is None


def test_delivery_limits_that_are_refused(site: Site, client: Client, queue: str) -> None:
    for arguments in (
        {"x-delivery-limit": 3},
        {"x-queue-type": "classic", "x-delivery-limit": 3},
        {**QUORUM, "x-queue-version": 1},
        {**QUORUM, "x-max-age": "1D"},
        {"x-max-in-memory-length": 3},
        {"x-quorum-initial-group-size": 3},
        {"x-stream-max-segment-size-bytes": 1 << 20},
        {**QUORUM, "x-max-priority": 3},
        {**QUORUM, "x-queue-mode": "lazy"},
    ):
        assert client.refusal(declaration(queue, arguments=arguments)) == 406
    for flags in ({"durable": False}, {"exclusive": True}, {"auto_delete": True}):
        assert client.refusal(declaration(queue, arguments=QUORUM, **flags)) == 406
    client.declare(queue, arguments={**QUORUM, "x-delivery-limit": -1})
    assert client.refusal(declaration(queue, arguments=QUORUM)) == 406  # another limit


@pytest.mark.parametrize("value", [-1, "3", True])
def test_a_delivery_limit_that_is_no_number_is_none(site: Site, client: Client, queue: str, value: Any) -> None:
    client.declare(queue, arguments={**QUORUM, "x-delivery-limit": value})
    client.publish(b"x", queue)
    assert [taken(client, queue, back=True) for _ in range(13)][-1] == (True, 12)
    client = site.middle()
    assert [taken(client, queue, back=True) for _ in range(12)][-1] == (True, 24)


# ---------------------------------------------------------------- clients that keep deliveries


def test_a_client_that_keeps_a_delivery_loses_its_channel(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments={"x-consumer-timeout": 500})
    client.publish(b"x", queue)
    for again in (False, True):
        client = site.middle() if again else client
        assert client.get(queue, no_ack=False) is not None
        assert "delivery acknowledgement on channel 1 timed out" in client.expect_channel_close(406, 0, 0)
        assert site.client().count(queue) == 1


# ---------------------------------------------------------------- declarations


def test_redeclarations(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments={"x-mine": 1, "x-max-length": 5})
    for arguments in (
        {"x-max-length": 5},
        {"x-max-length": 5, "x-queue-type": "classic"},
        {"x-max-length": 5, "x-a": 1},
    ):
        assert isinstance(client.declare(queue, arguments=arguments), Queue.DeclareOk)
    assert client.refusal(declaration(queue, exclusive=True, arguments={"x-max-length": 5})) == 405
    client = site.middle()
    assert isinstance(client.declare(queue, arguments={"x-max-length": 5}), Queue.DeclareOk)
    assert client.refusal(declaration(queue, arguments={"x-max-length": 6})) == 406


def test_unbinding_what_is_not_there(site: Site, client: Client, queue: str) -> None:
    client.declare(queue)
    for again in (False, True):
        client = site.middle() if again else client
        for name, exchange in ((queue, "amq.direct"), (queue, "none"), ("none", "amq.direct"), ("none", "none")):
            client.call(1, Queue.Unbind(queue=name, exchange=exchange, routing_key="k"), Queue.UnbindOk)
        for name, exchange in (("none", "amq.direct"), ("amq.direct", "none"), ("amq.fanout", "amq.direct")):
            client.call(1, Exchange.Unbind(destination=name, source=exchange, routing_key="k"), Exchange.UnbindOk)


def test_only_what_is_ready_keeps_a_queue_that_is_to_be_empty(site: Site, client: Client, queue: str) -> None:
    client.declare(queue)
    client.publish(b"x", queue)
    assert client.refusal(Queue.Delete(queue=queue, if_empty=True)) == 406
    client = site.middle()
    client.get(queue, no_ack=False)
    assert client.call(1, Queue.Delete(queue=queue, if_empty=True), Queue.DeleteOk).message_count == 0


def test_a_new_secret_is_checked(site: Site, client: Client) -> None:
    client.call(0, Connection.UpdateSecret("guest", "renewed"), Connection.UpdateSecretOk)
    client = site.middle()
    client.send(method(0, Connection.UpdateSecret("wrong", "renewed")))
    client.expect_close(530, 10, 70)


def test_codes_of_refusals(site: Site, client: Client, queue: str) -> None:
    client.declare("q", durable=False)
    for again in (False, True):
        client = site.middle() if again else client
        for octets, code, class_id, method_id in FRAME_ERRORS.values():
            other = site.client()
            other.send(octets)
            other.expect_close(code, class_id, method_id)
        client.declare("q", durable=False)
        for command, code, *_ in CHANNEL_ERRORS.values():
            assert client.refusal(command) == code
    client.call(1, Queue.Delete(queue="q"), Queue.DeleteOk)


def test_times_beyond_32_bits_and_keys_without_words(site: Site, client: Client, queue: str) -> None:
    arguments = {"x-expires": 1 << 38, "x-message-ttl": 1 << 38}
    client.declare(queue, arguments=arguments)
    client.call(1, Queue.Bind(queue=queue, exchange="amq.topic", routing_key="*"), Queue.BindOk)
    client = site.middle()
    client.publish(b"no word", "", exchange="amq.topic")
    client.publish(b"a word", "word", exchange="amq.topic")
    assert client.bodies(queue) == [b"a word"]
