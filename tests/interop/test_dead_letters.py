"""Dead letters as pika sees them, against the format that RabbitMQ documents (https://www.rabbitmq.com/docs/dlx)."""

from datetime import UTC, datetime, timedelta

import pika
import pytest
from pika.exceptions import NackError

from tests.support.wait import wait_for


@pytest.fixture
def dead(channel):
    """A queue that gets all letters of the exchange "dlx"."""
    channel.exchange_declare("dlx", "fanout")
    channel.queue_declare("dead")
    channel.queue_bind("dead", "dlx")
    return "dead"


def take(channel, queue):
    """The next message: (method, properties, body)."""
    found = []

    def get():
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        found[:] = [method, properties, body]
        return method is not None

    wait_for(get, timeout=60, what=f"nothing in {queue}")
    return found


def publish(channel, queue, body, exchange="", **properties):
    channel.basic_publish(exchange, queue, body, pika.BasicProperties(**properties))


def reject(channel, queue):
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)


def test_x_death_as_rabbitmq_writes_it(channel, dead):
    channel.exchange_declare("in", "topic")
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "dlx"})
    channel.queue_bind("q", "in", "a.#")
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=2)
    publish(channel, "a.b", b"m", "in", headers={"mine": [1, "x"]}, message_id="id", expiration="60000", priority=2)
    reject(channel, "q")
    method, properties, body = take(channel, dead)
    assert (method.exchange, method.routing_key, method.redelivered, body) == ("dlx", "a.b", False, b"m")
    headers = properties.headers
    time = headers["x-death"][0].pop("time")
    assert before < time.replace(tzinfo=None) < before + timedelta(seconds=60)
    assert headers == {
        "mine": [1, "x"],
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "in",
        "x-death": [
            {
                "count": 1,
                "reason": "rejected",
                "queue": "q",
                "exchange": "in",
                "routing-keys": ["a.b"],
                "original-expiration": "60000",
            }
        ],
    }
    assert (properties.message_id, properties.priority, properties.expiration) == ("id", 2, None)


def test_expiry_of_the_message_and_of_the_queue(channel, dead):
    channel.queue_declare("own", arguments={"x-dead-letter-exchange": "dlx"})
    channel.queue_declare("ttl", arguments={"x-dead-letter-exchange": "dlx", "x-message-ttl": 1})
    publish(channel, "own", b"own", expiration="1")
    (death,) = take(channel, dead)[1].headers["x-death"]
    assert (death["queue"], death["reason"], death["original-expiration"]) == ("own", "expired", "1")
    publish(channel, "ttl", b"ttl")
    (death,) = take(channel, dead)[1].headers["x-death"]
    assert (death["queue"], death["reason"]) == ("ttl", "expired")
    assert "original-expiration" not in death


def test_limits(channel, dead):
    channel.queue_declare("ring", arguments={"x-dead-letter-exchange": "dlx", "x-max-length": 1})
    arguments = {"x-dead-letter-exchange": "dlx", "x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    channel.queue_declare("full", arguments=arguments)
    publish(channel, "ring", b"old")
    publish(channel, "ring", b"new")
    _, properties, body = take(channel, dead)
    assert (properties.headers["x-death"][0]["reason"], body) == ("maxlen", b"old")
    channel.confirm_delivery()
    publish(channel, "full", b"in")
    with pytest.raises(NackError):
        publish(channel, "full", b"refused")
    _, properties, body = take(channel, dead)
    assert (properties.headers["x-death"][0]["reason"], body) == ("maxlen", b"refused")
    assert take(channel, "full")[2] == b"in"


def test_retries_with_a_delay(channel):
    """The pattern of the tutorials: rejected messages wait, and come back with a count."""
    channel.queue_declare("work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work", "x-message-ttl": 1}
    channel.queue_declare("wait", arguments=arguments)
    publish(channel, "work", b"m")
    seen = []

    def consume(ch, method, properties, body):
        deaths = {death["reason"]: death["count"] for death in (properties.headers or {}).get("x-death", [])}
        seen.append(deaths)
        if len(seen) < 4:
            ch.basic_nack(method.delivery_tag, requeue=False)
        else:
            ch.basic_ack(method.delivery_tag)

    channel.basic_consume("work", consume)
    wait_for(lambda: channel.connection.process_data_events(0.01) or len(seen) == 4, timeout=60)
    assert seen == [{}, *({"rejected": n, "expired": n} for n in (1, 2, 3))]


def test_letters_of_a_transaction(channel, dead, connection):
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "dlx"})
    publish(channel, "q", b"0")
    publish(channel, "q", b"1")
    other = connection.channel()
    other.tx_select()
    reject(other, "q")
    other.tx_rollback()
    assert channel.basic_get(dead)[0] is None
    reject(other, "q")
    other.tx_commit()
    assert channel.basic_get(dead, auto_ack=True)[2] == b"1"


def test_an_alternate_exchange_of_a_queue_gets_what_is_left(channel, dead, connection):
    channel.queue_declare("q", auto_delete=True, arguments={"alternate-exchange": "dlx"})
    for i in range(3):
        publish(channel, "q", b"%d" % i, headers={"n": i})
    other = connection.channel()
    other.basic_consume("q", lambda *_: None)
    connection.process_data_events(0)
    other.close()
    messages = [take(channel, dead) for _ in range(3)]
    assert [(properties.headers["n"], body) for _, properties, body in messages] == [(i, b"%d" % i) for i in range(3)]


def test_consumers_with_priorities(channel, connection):
    channel.queue_declare("q")
    got = []
    low, high = connection.channel(), connection.channel()
    for each, name, priority in ((low, "low", 0), (high, "high", 10)):
        each.basic_qos(prefetch_count=2)
        arguments = {"x-priority": priority}
        each.basic_consume("q", lambda *_, name=name: got.append(name), consumer_tag=name, arguments=arguments)
    for _ in range(3):
        publish(channel, "q", b"m")
    wait_for(lambda: connection.process_data_events(0.01) or len(got) == 3, timeout=60)
    assert sorted(got) == ["high", "high", "low"]


def test_a_client_that_begins_to_publish_is_told_that_publishers_are_blocked(server, connection, channel):
    seen = []
    connection.add_on_connection_blocked_callback(lambda _, frame: seen.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda *_: seen.append("unblocked"))
    server.call(lambda: server.broker.block("backup b is slow", "throttle"))
    channel.queue_declare("q")
    assert seen == [], "it does not publish"
    publish(channel, "q", b"m")
    wait_for(lambda: connection.process_data_events(0.01) or seen == ["backup b is slow"], timeout=60)
    server.call(lambda: server.broker.block("relocation"))
    server.call(lambda: server.broker.unblock("throttle"))
    channel.queue_declare("q")
    assert seen == ["backup b is slow"], "one cause is left"
    server.call(server.broker.unblock)
    wait_for(lambda: connection.process_data_events(0.01) or seen[1:] == ["unblocked"], timeout=60)
