"""FailoverConnection against real brokers: it looks like pika, and it goes on where pika ends."""

import contextlib
import threading
import time

import pika
import pika.exceptions
import pytest

from client_lib import Failover, FailoverConnection, InDoubt, TransactionAborted
from demo.cluster import Cluster
from ha.qpid_cluster.main import settled
from tests.support.pika_programs import PROGRAMS
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture(scope="module", params=["qpidd", "rabbitmq"])
def port(request):
    """Of either broker."""
    if request.param == "qpidd":
        yield request.getfixturevalue("broker").port
        return
    yield request.getfixturevalue("rabbit_port")


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.__name__ for program in PROGRAMS])
def test_the_same_as_pika(port, program) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", port)
    expected = program(lambda: pika.BlockingConnection(parameters), f"{program.__name__}.pika")
    assert program(lambda: FailoverConnection(parameters), f"{program.__name__}.ours") == expected
    assert expected  # a program that shows nothing compares nothing


def test_what_makes_a_broker_close_the_connection_costs_the_channel(port) -> None:
    """pika's connection would be closed; ours comes back, without the command."""
    with FailoverConnection(f"127.0.0.1:{port}") as connection:
        channel, other = connection.channel(), connection.channel()
        other.queue_declare("other", exclusive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.exchange_declare("nonsense", "no such type")
        assert caught.value.reply_code in (406, 503)
        assert channel.is_closed
        assert other.queue_declare("other", passive=True).method.message_count == 0
        assert connection.failovers <= 1


@pytest.fixture
def mortal(tmp_path):
    """A broker that a test may kill."""
    with BrokerProcess(tmp_path) as found:
        yield found


def failover_to(broker: BrokerProcess, **options) -> FailoverConnection:
    return FailoverConnection(broker.address, heartbeat=1, connect_timeout=1.0, **options)


def restart(broker: BrokerProcess, connection: FailoverConnection) -> None:
    before = connection.failovers
    broker.kill()
    broker.start()
    wait_for(lambda: connection.failovers > before and connection.is_connected, 60, "connected again")


def cut(connection: FailoverConnection) -> None:
    """Ends the connection under the program; the broker keeps what it has."""
    before = connection.failovers
    link = connection._connection.link
    link.post(lambda: link.abandon("cut by the test"))
    wait_for(lambda: connection.failovers > before and connection.is_connected, 60, "connected again")


def arrive(connection: FailoverConnection, seen: list[bytes], count: int) -> None:
    def arrived() -> bool:
        connection.process_data_events(0.05)
        return len(seen) >= count

    wait_for(arrived, what=f"{count} messages")


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.down()


def promoted(cluster: Cluster, old: str) -> None:
    wait_for(lambda: cluster.primary not in ("", old), 60, "another primary")


class Worker(threading.Thread):
    """A consumer as pika's users write it; stops when told, and says why if it stops by itself."""

    def __init__(self, addresses: str) -> None:
        super().__init__(daemon=True)
        self.connection = FailoverConnection(addresses, heartbeat=1, connect_timeout=1.0)
        self.channel = self.connection.channel()
        self.channel.queue_declare("work", durable=True)
        self.channel.basic_qos(prefetch_count=50)
        self.channel.basic_consume("work", self.work)
        self.tags: list[int] = []
        self.seen: list[int] = []
        self.again: set[int] = set()
        self.failovers: list[Failover] = []
        self.threads: set[int] = set()
        self.connection.add_on_failover_callback(self.failed_over)
        self.error: BaseException | None = None

    def work(self, channel, method, properties, body) -> None:
        self.threads.add(threading.get_ident())
        self.tags.append(method.delivery_tag)
        number = int(body)
        if method.redelivered or (properties.headers or {}).get("x-resent"):
            self.again.add(number)
        self.seen.append(number)
        channel.basic_ack(method.delivery_tag)

    def failed_over(self, connection, failover) -> None:
        assert connection is self.connection
        self.threads.add(threading.get_ident())
        self.failovers.append(failover)

    def run(self) -> None:
        try:
            self.channel.start_consuming()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self.connection.add_callback_threadsafe(self.channel.stop_consuming)
        self.join(30)
        assert not self.is_alive()
        self.connection.close()


class Publisher(threading.Thread):
    """Publishes 0, 1, 2 ... until told to stop; `confirmed` says what it was told is safe."""

    def __init__(self, addresses: str, window: int | None) -> None:
        super().__init__(daemon=True)
        self.connection = FailoverConnection(addresses, heartbeat=1, connect_timeout=1.0, publish_window=window)
        self.channel = self.connection.channel()
        self.channel.queue_declare("work", durable=True)
        self.window = window
        self.published = 0
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ended.wait(0.003):
                properties = pika.BasicProperties(delivery_mode=2)
                self.channel.basic_publish("", "work", str(self.published), properties, mandatory=True)
                self.published += 1
            self.channel.wait_for_confirms(timeout=20)
        except BaseException as error:
            self.error = error

    def more(self, count: int) -> None:
        goal = self.published + count
        wait_for(lambda: self.published >= goal or self.error, 60, f"{count} more published")

    def stop(self) -> None:
        self.ended.set()
        self.join(30)
        assert not self.is_alive() and self.error is None, self.error
        assert self.channel.unconfirmed == 0
        self.connection.close()


@pytest.mark.parametrize("window", [100, pytest.param(None, marks=pytest.mark.slow)], ids=["window", "each confirmed"])
def test_callbacks_go_on_and_nothing_confirmed_is_lost(cluster, window) -> None:
    worker, publisher = Worker(cluster.addresses()), Publisher(cluster.addresses(), window)
    worker.start()
    publisher.start()
    for _ in range(2):
        publisher.more(200)
        old = cluster.primary
        cluster.command("kill", old)
        promoted(cluster, old)
        publisher.more(200)
        wait_for(lambda: settled(cluster.status()), 60, "one active, the others ready")
    publisher.stop()
    wait_for(lambda: len(set(worker.seen)) >= publisher.published or worker.error, 60, "all consumed")
    worker.stop()
    assert worker.error is None
    assert sorted(set(worker.seen)) == list(range(publisher.published))
    first_copies = list(dict.fromkeys(worker.seen))
    assert [number for number in first_copies if number not in worker.again] == sorted(
        number for number in first_copies if number not in worker.again
    )
    assert {number for number in worker.seen if worker.seen.count(number) > 1} <= worker.again
    assert worker.tags == list(range(1, len(worker.tags) + 1))
    assert worker.threads == {worker.ident}
    assert len([failover for failover in worker.failovers if failover.lost != failover.connected]) >= 2
    for failover in worker.failovers:
        assert failover.outage > 0 and failover.reason


def test_a_tag_of_a_lost_connection_is_dropped_silently(broker) -> None:
    with failover_to(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"held")
        messages = channel.consume("q", inactivity_timeout=30)
        method, _properties, body = next(messages)
        assert (method.delivery_tag, body) == (1, b"held")
        cut(connection)
        channel.basic_ack(method.delivery_tag)
        channel.basic_nack(method.delivery_tag, multiple=True)
        again, _properties, body = next(messages)
        assert (again.delivery_tag, again.redelivered, body) == (2, True, b"held")
        channel.basic_ack(again.delivery_tag)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.basic_ack(again.delivery_tag)
        assert caught.value.reply_code == 406
        assert connection.channel().queue_delete("q").method.message_count == 0


def test_topology_and_rpc_go_on(mortal) -> None:
    with failover_to(mortal) as server, failover_to(mortal) as client:
        serving, calling = server.channel(), client.channel()
        for channel in (serving, calling):  # the broker loses it, and either may be back first
            channel.exchange_declare("rpc", "direct")
        serving.queue_bind(serving.queue_declare("", exclusive=True).method.queue, "rpc", "square")

        def answer(channel, method, properties, body) -> None:
            again = pika.BasicProperties(correlation_id=properties.correlation_id)
            channel.basic_publish("", properties.reply_to, str(int(body) ** 2), again)
            channel.basic_ack(method.delivery_tag)

        serving.basic_consume("", answer)
        thread = threading.Thread(target=serving.start_consuming, daemon=True)
        thread.start()
        replies: list[tuple[str, bytes]] = []
        queue = calling.queue_declare("", exclusive=True).method.queue
        calling.basic_consume(queue, lambda _c, _m, properties, body: replies.append((properties.correlation_id, body)),
                              auto_ack=True)  # fmt: skip
        for number in range(3):
            if number:
                restart(mortal, client)
                wait_for(lambda: server.is_connected, 60, "the server is back, too")
            asked = pika.BasicProperties(reply_to=queue, correlation_id=str(number))
            deadline = time.monotonic() + 20
            while (str(number), str(number**2).encode()) not in replies and time.monotonic() < deadline:
                # the server may need a moment to bind again: ask until there is an answer
                with contextlib.suppress(pika.exceptions.UnroutableError):
                    calling.basic_publish("rpc", "square", str(number), asked, mandatory=True)
                client.process_data_events(time_limit=0.5)
        assert {correlation for correlation, _ in replies} == {"0", "1", "2"}
        server.add_callback_threadsafe(serving.stop_consuming)
        thread.join(30)
        assert not thread.is_alive()


def test_what_was_undone_does_not_come_back(broker) -> None:
    with failover_to(broker) as connection:
        channel, other = connection.channel(), connection.channel()
        channel.exchange_declare("undone", "fanout")
        channel.exchange_declare("undone.2", "fanout")
        for queue in ("undone.bound", "undone.deleted"):
            channel.queue_declare(queue)
            channel.queue_bind(queue, "undone")
        channel.exchange_bind("undone.2", "undone")
        channel.queue_bind("undone.bound", "undone.2")
        channel.queue_unbind("undone.bound", "undone")
        channel.exchange_unbind("undone.2", "undone")
        channel.queue_delete("undone.deleted")
        cut(connection)
        channel.basic_publish("undone", "", b"to nobody")
        assert other.queue_declare("undone.bound", passive=True).method.message_count == 0
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            other.queue_declare("undone.deleted", passive=True)
        channel.exchange_delete("undone")
        channel.exchange_delete("undone.2")
        cut(connection)
        channel.queue_declare("undone.bound")  # the channel is back
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            connection.channel().exchange_declare("undone", passive=True)
        channel.queue_delete("undone.bound")


def test_what_parameters_say_is_done(broker) -> None:
    given = pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=7, blocked_connection_timeout=3)
    with FailoverConnection(given) as connection:
        assert (connection.publish_timeout, connection._connection.options.heartbeat) == (3, 7)
    with FailoverConnection(given, publish_timeout=4, heartbeat=8) as connection:
        assert (connection.publish_timeout, connection._connection.options.heartbeat) == (4, 8)


def test_a_transaction_that_lost_its_connection(broker) -> None:
    with failover_to(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("tx")
        channel.tx_select()
        channel.basic_publish("", "tx", b"lost")
        channel.wait_for_confirms()  # written; what still waits is sent to the next broker
        cut(connection)
        with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
            channel.tx_commit()
        assert isinstance(caught.value, TransactionAborted)
        assert channel.is_open
        channel.tx_rollback()
        channel.basic_publish("", "tx", b"kept")
        channel.tx_commit()
        assert connection.channel().queue_delete("tx").method.message_count == 1


def test_a_tag_from_before_a_rollback_is_dropped_silently(broker) -> None:
    with failover_to(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("back")
        channel.basic_publish("", "back", b"x")
        channel.tx_select()
        method, _properties, _body = channel.basic_get("back")
        channel.tx_rollback()
        channel.basic_ack(method.delivery_tag)
        again, _properties, _body = channel.basic_get("back")
        assert (again.delivery_tag, again.redelivered) == (2, True)
        channel.basic_ack(again.delivery_tag)
        channel.tx_commit()
        assert connection.channel().queue_delete("back").method.message_count == 0


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_consumer_in_a_transaction_that_lost_its_connection(broker, prefetch) -> None:
    """Without a limit all four are one transaction; with it each is one, for the broker waits for the commit."""
    cut_at = prefetch or 2
    with failover_to(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("tx.in")
        for number in range(4):
            channel.basic_publish("", "tx.in", str(number))
        channel.tx_select()
        seen: list[tuple[bytes, bool]] = []

        def work(ch, method, _properties, body) -> None:
            seen.append((body, method.redelivered))
            ch.basic_ack(method.delivery_tag)
            if len(seen) == cut_at:
                cut(connection)
            elif body == b"3":
                ch.stop_consuming()
            elif prefetch:
                ch.tx_commit()

        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume("tx.in", work)
        with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
            channel.start_consuming()
        assert isinstance(caught.value, TransactionAborted)
        assert [body for body, _ in seen] == [b"0", b"1"][:cut_at]
        channel.tx_rollback()
        channel.start_consuming()
        channel.tx_commit()
        assert [body for body, _ in seen[cut_at:]] == [b"0", b"1", b"2", b"3"]
        assert seen[cut_at] == (b"0", True)
        channel.close()
        assert connection.channel().queue_delete("tx.in").method.message_count == 0


def test_a_generator_with_automatic_acknowledgement_keeps_what_had_arrived(broker) -> None:
    with failover_to(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("auto")
        for number in range(5):
            channel.basic_publish("", "auto", str(number))
        messages = channel.consume("auto", auto_ack=True, inactivity_timeout=30)
        assert next(messages)[2] == b"0"
        wait_for(lambda: channel.get_waiting_message_count() == 4, 60, "all have arrived")
        cut(connection)
        assert [next(messages)[2] for _ in range(4)] == [b"1", b"2", b"3", b"4"]
        channel.basic_publish("", "auto", b"5")
        assert next(messages)[2] == b"5"
        channel.cancel()
        channel.queue_delete("auto")


def test_a_late_acknowledgement_settles_the_copy_when_duplicates_are_dropped(broker) -> None:
    with failover_to(broker, drop_duplicates=True) as connection:
        channel = connection.channel()
        channel.queue_declare("once")
        channel.basic_publish("", "once", b"once", pika.BasicProperties(message_id="7"))
        seen: list[bytes] = []
        tags: list[int] = []

        def hold(_channel, method, _properties, body) -> None:
            seen.append(body)
            tags.append(method.delivery_tag)

        channel.basic_consume("once", hold)
        arrive(connection, seen, 1)
        cut(connection)
        channel.basic_publish("", "once", b"next", pika.BasicProperties(message_id="8"))
        arrive(connection, seen, 2)
        channel.basic_ack(tags[0])
        channel.basic_ack(tags[1])
        channel.close()
        assert seen == [b"once", b"next"]
        assert connection.channel().queue_delete("once").method.message_count == 0


def test_limits_and_flow_are_restored(broker) -> None:
    with failover_to(broker) as connection:
        channel = connection.channel()
        channel.queue_declare("limited")
        channel.basic_qos(prefetch_count=2, global_qos=True)
        seen: list[bytes] = []
        channel.basic_consume("limited", lambda _c, _m, _p, body: seen.append(body))
        cut(connection)
        for number in range(4):
            channel.basic_publish("", "limited", str(number))
        arrive(connection, seen, 2)
        connection.sleep(0.2)
        assert seen == [b"0", b"1"]
        channel.flow(False)
        cut(connection)
        connection.sleep(0.2)
        assert seen == [b"0", b"1"]
        channel.flow(True)
        arrive(connection, seen, 4)
        assert seen == [b"0", b"1", b"0", b"1"]
        channel.close()
        connection.channel().queue_delete("limited")


def test_blocking_calls_wait_for_the_broker_to_return(mortal) -> None:
    with failover_to(mortal) as connection:
        channel = connection.channel()
        mortal.kill()
        wait_for(lambda: not connection.is_connected, 60, "the loss is seen")
        assert connection.is_open and channel.is_open
        answers: list[object] = []
        thread = threading.Thread(target=lambda: answers.append(channel.queue_declare("q").method.queue), daemon=True)
        thread.start()
        mortal.start()
        thread.join(20)
        assert answers == ["q"]


def test_publish_timeout_and_close_with_a_broker_that_hangs(mortal) -> None:
    connection = FailoverConnection(mortal.address, heartbeat=30, publish_timeout=0.2)
    channel = connection.channel()
    channel.queue_declare("q")
    mortal.pause()
    with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
        channel.basic_publish("", "q", b"in doubt")
    assert channel.is_open
    assert channel.unconfirmed == 1
    mortal.resume()
    channel.wait_for_confirms(timeout=30)
    assert channel.queue_declare("q", passive=True).method.message_count == 1
    connection.close()


def test_close_of_many_channels_to_a_broker_that_hangs(mortal, monkeypatch) -> None:
    monkeypatch.setattr("client_lib.failover.connection.CLOSE_TIME", 0.3)
    connection = FailoverConnection(mortal.address, heartbeat=60, publish_window=10)
    channels = [connection.channel() for _ in range(5)]
    for channel in channels:
        channel.queue_declare("q")
        channel.basic_consume("q", print)
    mortal.pause()
    for channel in channels:
        channel.basic_publish("", "q", b"in doubt")
    began = time.monotonic()
    with pytest.raises(InDoubt):
        connection.close()
    assert time.monotonic() - began < 20
    assert not any(channel.is_open for channel in channels)


def test_a_connection_without_channels_ends_its_waiting_when_no_broker_returns(mortal) -> None:
    connection = failover_to(mortal, reconnect=False)
    mortal.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(time_limit=None)
    assert connection.is_closed


def test_when_no_broker_returns(mortal) -> None:
    connection = failover_to(mortal, reconnect_limit=2, reconnect_interval=0.05)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", print)
    killer = threading.Timer(0.1, mortal.kill)
    killer.start()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        channel.start_consuming()
    killer.join()
    assert connection.is_closed and channel.is_closed
    with pytest.raises(pika.exceptions.AMQPError):
        channel.basic_publish("", "q", b"")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.channel()


def test_connecting_in_vain(broker) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError, match="not connected within"):
        FailoverConnection("127.0.0.1:1", open_timeout=0.2)
    wrong = pika.ConnectionParameters("127.0.0.1", broker.port, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        FailoverConnection(wrong)
    with pytest.raises(ValueError, match="publish_window"):
        FailoverConnection(broker.address, publish_window=0)


def test_what_cannot_be_had_says_so(broker) -> None:
    with FailoverConnection(broker.address) as connection:
        channel = connection.channel()
        for action in (
            lambda: connection.channel(7),
            lambda: connection.update_secret("secret", "expired"),
            lambda: channel.basic_qos(prefetch_size=1),
            lambda: channel.basic_recover(),
        ):
            with pytest.raises(NotImplementedError, match="="):
                action()
        channel.queue_declare("nothing")
        channel.basic_consume("nothing", print)
        with pytest.raises(NotImplementedError, match="before basic_consume"):
            channel.tx_select()
        assert channel.is_open
        channel.queue_delete("nothing")


def test_flow_where_the_broker_has_none(port, broker) -> None:
    if port == broker.port:
        return  # see below
    with FailoverConnection(f"127.0.0.1:{port}") as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.flow(False)
        assert caught.value.reply_code == 540
        assert channel.is_closed
        connection.channel().close()


def test_flow(broker) -> None:
    with FailoverConnection(broker.address) as connection:
        channel = connection.channel()
        seen: list[bytes] = []
        channel.queue_declare("flow")
        channel.basic_consume("flow", lambda _c, _m, _p, body: seen.append(body), auto_ack=True)
        assert channel.flow(False) is False
        channel.basic_publish("", "flow", b"later")
        connection.sleep(0.1)
        assert seen == []
        assert channel.flow(True) is True
        arrive(connection, seen, 1)
        assert seen == [b"later"]
        channel.queue_delete("flow")
