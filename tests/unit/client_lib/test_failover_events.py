"""FailoverConnection against a scripted broker: what is told, to whom, and in which thread."""

import threading
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from pamqp import commands

from client_lib.failover import Failover, FailoverConnection
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.test_client_pause import say


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    found = ScriptedBroker()
    yield found
    found.kill()


@pytest.fixture
def connection(broker: ScriptedBroker) -> Iterator[FailoverConnection]:
    with FailoverConnection(broker.url, heartbeat=0, reconnect_interval=0.01) as found:
        yield found


def lose(broker: ScriptedBroker, connection: FailoverConnection) -> None:
    before = connection.failovers
    broker.drop()
    wait_for(lambda: connection.failovers > before and connection.is_connected, 60, "connected again")


def test_blocked_and_unblocked_are_told_in_this_thread(broker, connection) -> None:
    seen: list[tuple[object, ...]] = []

    def note(where, frame) -> None:
        assert where is connection
        seen.append((frame.method.NAME, getattr(frame.method, "reason", ""), threading.get_ident()))

    connection.add_on_connection_blocked_callback(note)
    connection.add_on_connection_unblocked_callback(note)
    here = threading.get_ident()
    say(broker, commands.Connection.Blocked("memory"))
    connection.process_data_events(time_limit=30)
    say(broker, commands.Connection.Unblocked())
    connection.process_data_events(time_limit=30)
    assert seen == [("Connection.Blocked", "memory", here), ("Connection.Unblocked", "", here)]
    say(broker, commands.Connection.Blocked("disk"))
    connection.process_data_events(time_limit=30)
    lose(broker, connection)
    connection.process_data_events(time_limit=30)
    assert seen[2:] == [("Connection.Blocked", "disk", here), ("Connection.Unblocked", "", here)]


def test_failovers_are_told(broker, connection) -> None:
    seen: list[tuple[object, Failover]] = []
    connection.add_on_failover_callback(lambda where, failover: seen.append((where, failover)))
    for _ in range(2):
        lose(broker, connection)
        connection.process_data_events(time_limit=30)
    assert [where is connection for where, _ in seen] == [True, True]
    assert {(failover.lost, failover.connected) for _, failover in seen} == {(broker.url, broker.url)}
    assert all(failover.outage > 0 and failover.reason for _, failover in seen)


def test_a_nack_raises_and_the_channel_stays(broker, connection) -> None:
    channel = connection.channel()
    broker.confirm = "nack"
    with pytest.raises(pika.exceptions.NackError) as caught:
        channel.basic_publish("", "q", b"no", pika.BasicProperties(message_id="7"))
    assert caught.value.message.id == "7"
    broker.confirm = "ack"
    channel.basic_publish("", "q", b"yes")
    assert channel.is_open


def test_in_a_window_each_failure_is_raised_once_by_a_later_call(broker) -> None:
    with FailoverConnection(broker.url, heartbeat=0, publish_window=10) as connection:
        channel = connection.channel()
        broker.confirm = "nack"
        for body in (b"1", b"2"):
            channel.basic_publish("", "q", body)
            wait_for(lambda: channel.unconfirmed == 0, 60, "nacked")
            with pytest.raises(pika.exceptions.NackError) as caught:
                channel.wait_for_confirms(timeout=30)
            assert caught.value.message.body == body
        broker.confirm, broker.unroutable = "ack", True
        channel.basic_publish("", "q", b"3", mandatory=True)
        wait_for(lambda: channel.unconfirmed == 0, 60, "returned")
        with pytest.raises(pika.exceptions.UnroutableError) as returned:
            channel.basic_publish("", "q", b"not taken")
        assert [message.body for message in returned.value.messages] == [b"3"]
        channel.wait_for_confirms(timeout=30)


def test_a_full_window_waits_and_is_bounded_by_the_timeout(broker) -> None:
    with FailoverConnection(broker.url, heartbeat=0, publish_window=2, publish_timeout=0.1) as connection:
        channel = connection.channel()
        broker.confirm = "hold"
        for _ in range(2):
            channel.basic_publish("", "q", b"held")
        with pytest.raises(pika.exceptions.AMQPConnectionError, match="capacity 2"):
            channel.basic_publish("", "q", b"not taken")
        with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
            channel.wait_for_confirms(timeout=0.1)
        assert channel.unconfirmed == 2
        broker.confirm = "ack"
        lose(broker, connection)
        channel.wait_for_confirms(timeout=30)


def test_in_doubt_is_sent_again_with_the_same_id(broker) -> None:
    with FailoverConnection(broker.url, heartbeat=0, publish_timeout=0.1) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        broker.confirm = "hold"
        properties = pika.BasicProperties(headers={"a": 1}, app_id="billing")
        with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
            channel.basic_publish("", "q", b"doubtful", properties)
        broker.confirm = "ack"
        lose(broker, connection)
        channel.wait_for_confirms(timeout=30)
        (_, first, _, _), (_, again, body, _) = broker.store.queues["q"]
        assert (first.message_id, first.headers, body) == (again.message_id, {"a": 1}, b"doubtful")
        assert (again.headers, again.app_id) == ({"a": 1, "x-resent": True}, "billing")
        assert properties.headers == {"a": 1}


def test_a_channel_that_the_broker_closes_while_we_consume(broker, connection) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", print)
    connection.call_later(0.05, lambda: say(broker, commands.Channel.Close(404, "NOT_FOUND", 0, 0), channel=1))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.start_consuming()
    assert (caught.value.reply_code, caught.value.reply_text) == (404, "NOT_FOUND")
    assert connection.is_open and channel.is_closed and channel.consumer_tags == []
    for action in (channel.start_consuming, channel.close, lambda: channel.basic_publish("", "q", b"")):
        with pytest.raises(pika.exceptions.ChannelWrongStateError):
            action()
    connection.channel().queue_declare("q")


def test_callbacks_of_each_channel_run_in_the_order_of_arrival(broker, connection) -> None:
    seen: list[bytes] = []
    channels = [connection.channel() for _ in range(2)]
    for number, channel in enumerate(channels):
        channel.queue_declare(f"q{number}")
        channel.basic_consume(f"q{number}", lambda _c, _m, _p, body: seen.append(body), auto_ack=True)
    for number in range(6):
        channels[0].basic_publish("", f"q{number % 2}", str(number))
    wait_for(lambda: connection.process_data_events(0.01) or len(seen) == 6, 60, "all seen")
    assert [body for body in seen if int(body) % 2 == 0] == [b"0", b"2", b"4"]
    assert [body for body in seen if int(body) % 2 == 1] == [b"1", b"3", b"5"]


def test_publishing_and_acknowledging_from_many_threads(broker, connection) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    threads = [
        threading.Thread(target=lambda: [channel.basic_publish("", "q", b"x") for _ in range(20)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    tags = []
    for method, _properties, _body in channel.consume("q", inactivity_timeout=30):
        tags.append(method.delivery_tag)
        threading.Thread(target=channel.basic_ack, args=(method.delivery_tag,)).start()
        if len(tags) == 80:
            break
    for thread in threads:
        thread.join(30)
    assert tags == list(range(1, 81))
    peer = next(peer for peer in broker.peers if not peer.gone)
    wait_for(lambda: not peer.unacked, 60, "all acknowledged")


def test_a_consumer_that_is_closed_in_its_callback_sees_no_more(broker, connection) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    for number in range(3):
        channel.basic_publish("", "q", str(number))
    seen: list[bytes] = []

    def once(ch, method, _properties, body) -> None:
        seen.append(body)
        ch.close()

    channel.basic_consume("q", once)
    channel.start_consuming()
    connection.process_data_events(time_limit=0.05)
    assert seen == [b"0"]


def test_a_generator_inside_a_callback(broker, connection) -> None:
    channel, other = connection.channel(), connection.channel()
    channel.queue_declare("q")
    other.queue_declare("answers")
    seen: list[bytes] = []

    def ask(ch, method, _properties, body) -> None:
        ch.basic_publish("", "answers", b"answer to " + body)
        for _method, _properties, answer in other.consume("answers", inactivity_timeout=0.2, auto_ack=True):
            if answer is not None:
                seen.append(answer)
            elif seen:  # else a busy broker has not answered yet
                break
        ch.stop_consuming()

    channel.basic_consume("q", ask)
    channel.basic_publish("", "q", b"it")
    channel.start_consuming()
    assert seen == [b"answer to it"]


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_generator_inside_a_callback_that_the_broker_ends(broker, connection, end) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    seen: list[object] = []

    def end_it(method: object) -> None:
        wait_for(lambda: "mine" in broker.peers[-1].consumers)
        with broker.store.lock:  # which is held until the consumer has its answer
            say(broker, method, channel=1)

    def ask() -> None:
        method = commands.Basic.Cancel("mine") if end == "cancel" else commands.Channel.Close(404, "NOT_FOUND", 0, 0)
        threading.Thread(target=end_it, args=(method,)).start()
        try:
            seen.extend(channel.consume("q", consumer_tag="mine"))
            seen.append("ended")
        except pika.exceptions.ChannelClosedByBroker as error:
            seen.append(error.reply_code)

    connection.call_later(0, ask)
    connection.process_data_events(time_limit=30)
    assert seen == ["ended" if end == "cancel" else 404]
    assert channel.is_open == (end == "cancel")


def test_close_from_inside_a_callback_ends_the_loop(broker) -> None:
    connection = FailoverConnection(broker.url, heartbeat=0)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", print)
    connection.call_later(0, connection.close)
    channel.start_consuming()
    assert connection.is_closed
    with pytest.raises(pika.exceptions.ConnectionWrongStateError):
        connection.close()
    with pytest.raises(pika.exceptions.ConnectionWrongStateError):
        connection.process_data_events()
