"""Small programs as users of pika write them: `program(connect, name)` returns what its user can see.

`connect()` gives a pika.BlockingConnection or what claims to be as good; `name` is a prefix for queues and exchanges.
What comes back may not contain names, so that two runs can be compared.
"""

from __future__ import annotations

import functools
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions

Connect = Callable[[], Any]
Result = list[Any]
PATIENCE = 15.0  # seconds until a program that waits for a message that never comes gives up


def visible(properties: Any) -> dict[str, Any]:
    """The properties without a message id that the library has made up."""
    found = {key: value for key, value in vars(properties).items() if value is not None}
    if not str(found.get("message_id", "")).startswith("mine"):
        found.pop("message_id", None)
    return found


def give_up_after(connection: Any, channel: Any) -> None:
    connection.call_later(PATIENCE, channel.stop_consuming)


def hello_world(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        declared = channel.queue_declare(queue=name)
        for number in range(3):
            channel.basic_publish(exchange="", routing_key=name, body=f"Hello {number}")
        seen: Result = [declared.method.NAME, declared.method.queue == name, declared.method.message_count]

        def callback(ch: Any, method: Any, properties: Any, body: bytes) -> None:
            seen.append((ch is channel, method.NAME, method.delivery_tag, method.redelivered, method.exchange, body))
            seen.append((method.routing_key == name, visible(properties), threading.current_thread().name))
            if body == b"Hello 2":
                ch.stop_consuming()

        give_up_after(connection, channel)
        channel.basic_consume(queue=name, on_message_callback=callback, auto_ack=True)
        channel.start_consuming()
        seen.append(channel.queue_delete(queue=name).method.message_count)
        return seen


def work_queue(connect: Connect, name: str) -> Result:
    producer = connect()
    channel = producer.channel()
    channel.queue_declare(queue=name, durable=True)
    for number in range(6):
        properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent, priority=number)
        channel.basic_publish("", name, f"task {number}".encode(), properties)
    producer.close()

    worker = connect()
    channel = worker.channel()
    channel.queue_declare(queue=name, durable=True)
    channel.basic_qos(prefetch_count=1)
    seen: Result = []

    def work(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        seen.append((method.delivery_tag, properties.delivery_mode, properties.priority, body))
        ch.basic_ack(delivery_tag=method.delivery_tag)
        if body == b"task 5":
            ch.stop_consuming()

    give_up_after(worker, channel)
    tag = channel.basic_consume(name, work, consumer_tag="worker")
    seen.append((tag, channel.consumer_tags))
    channel.start_consuming()
    seen.append(channel.consumer_tags)
    channel.close()
    channel = worker.channel()
    seen.append(channel.queue_declare(name, passive=True).method.message_count)
    channel.queue_delete(name)
    worker.close()
    return seen


def publish_subscribe(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange=name, exchange_type="fanout")
        queues = []
        for _ in range(2):
            queue = channel.queue_declare(queue="", exclusive=True).method.queue
            channel.queue_bind(exchange=name, queue=queue)
            queues.append(queue)
        channel.basic_publish(exchange=name, routing_key="", body=b"info: hello")
        seen: Result = [len(set(queues)), all(queues)]

        def callback(ch: Any, method: Any, _properties: Any, body: bytes) -> None:
            seen.append((queues.index(tags[method.consumer_tag]), method.exchange == name, method.routing_key, body))
            if len(seen) == 4:
                ch.stop_consuming()

        give_up_after(connection, channel)
        tags = {channel.basic_consume(queue, callback, auto_ack=True): queue for queue in queues}
        channel.start_consuming()
        channel.exchange_delete(name)
        return [*seen[:2], sorted(seen[2:])]


def routing(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.exchange_declare(name, exchange_type=pika.exchange_type.ExchangeType.topic)
        channel.exchange_declare(f"{name}.all", "fanout", internal=True)
        seen: Result = [channel.exchange_bind(f"{name}.all", name, "#").method.NAME]
        queue = channel.queue_declare("", exclusive=True).method.queue
        everything = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(everything, f"{name}.all")
        for key in ("kern.*", "*.critical"):
            seen.append(channel.queue_bind(queue, name, key).method.NAME)
        channel.queue_bind(queue, name)  # the queue's name is the key
        channel.basic_publish(name, queue, b"by name")
        channel.queue_unbind(queue, name)
        channel.basic_publish(name, queue, b"not any more")
        seen.extend(channel.basic_get(queue, auto_ack=True)[2:])
        while channel.basic_get(everything, auto_ack=True)[0] is not None:
            pass
        keys = ["kern.info", "auth.info", "auth.critical", "kern.critical"]
        for key in keys:
            channel.basic_publish(name, key, key)
        seen.append(channel.queue_unbind(queue, name, "*.critical").method.NAME)
        seen.append(channel.exchange_unbind(f"{name}.all", name, "#").method.NAME)
        for key in keys:
            channel.basic_publish(name, key, "again " + key)
        for where in (queue, everything):
            while True:
                method, _properties, body = channel.basic_get(where, auto_ack=True)
                if method is None:
                    break
                seen.append((method.NAME, method.routing_key, method.message_count, body))
        seen.append(channel.exchange_delete(f"{name}.all").method.NAME)
        seen.append(channel.exchange_delete(name, if_unused=False).method.NAME)
        return seen


class RpcServer(threading.Thread):
    """Answers with the square."""

    def __init__(self, connect: Connect, queue: str) -> None:
        super().__init__(daemon=True)
        self.connection = connect()
        self.channel = self.connection.channel()
        self.channel.queue_declare(queue=queue)
        self.channel.basic_qos(prefetch_count=1)
        self.channel.basic_consume(queue=queue, on_message_callback=self.answer)

    def answer(self, ch: Any, method: Any, props: Any, body: bytes) -> None:
        properties = pika.BasicProperties(correlation_id=props.correlation_id)
        ch.basic_publish("", props.reply_to, str(int(body) ** 2), properties)
        ch.basic_ack(method.delivery_tag)

    def run(self) -> None:
        self.channel.start_consuming()

    def stop(self) -> None:
        self.connection.add_callback_threadsafe(self.channel.stop_consuming)
        self.join(10)
        self.connection.close()


class RpcClient:
    def __init__(self, connect: Connect, reply_to: str = "") -> None:
        self.connection = connect()
        self.channel = self.connection.channel()
        self.queue = reply_to or self.channel.queue_declare(queue="", exclusive=True).method.queue
        self.channel.basic_consume(queue=self.queue, on_message_callback=self.on_response, auto_ack=True)
        self.response: bytes | None = None
        self.correlation_id = ""

    def on_response(self, _ch: Any, _method: Any, props: Any, body: bytes) -> None:
        if self.correlation_id == props.correlation_id:
            self.response = body

    def call(self, queue: str, number: int) -> int:
        self.response, self.correlation_id = None, str(uuid.uuid4())
        properties = pika.BasicProperties(reply_to=self.queue, correlation_id=self.correlation_id)
        self.channel.basic_publish(exchange="", routing_key=queue, properties=properties, body=str(number))
        while self.response is None:
            self.connection.process_data_events(time_limit=PATIENCE)
        return int(self.response)


def rpc(connect: Connect, name: str) -> Result:
    server = RpcServer(connect, name)
    server.start()
    client = RpcClient(connect)
    seen: Result = [client.call(name, number) for number in range(5)]
    server.stop()
    client.channel.queue_delete(name)
    client.connection.close()
    return seen


def rpc_with_direct_reply(connect: Connect, name: str) -> Result:
    server = RpcServer(connect, name)
    server.start()
    try:
        client = RpcClient(connect, "amq.rabbitmq.reply-to")
        seen: Result = [client.call(name, number) for number in range(3)]
        client.connection.close()
    finally:
        server.stop()
    return seen


def generator(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        for number in range(7):
            channel.basic_publish("", name, str(number))
        seen: Result = []
        for method, _properties, body in channel.consume(name, inactivity_timeout=0.3):
            if method is None and len(seen) < 7:
                continue  # a busy broker
            if method is None:
                seen.append("quiet")
                break
            seen.append((method.delivery_tag, body))
            if method.delivery_tag == 4:
                channel.basic_ack(4, multiple=True)
        seen.append(channel.cancel())
        seen.append(channel.consumer_tags)
        # what was handed out and not acknowledged stays with the channel
        for method, _properties, body in channel.consume(name, inactivity_timeout=0.3):
            seen.append(None if method is None else (method.redelivered, body))
            if method is None or body == b"6":
                break
            channel.basic_ack(method.delivery_tag)
        try:
            next(channel.consume(name, auto_ack=True))
        except ValueError:
            seen.append("other parameters")
        channel.cancel()
        seen.append((channel.get_waiting_message_count(), channel.queue_delete(name).method.NAME))
        return seen


def get_and_settle(connect: Connect, name: str) -> Result:
    with connect() as connection, connection.channel() as channel:
        channel.queue_declare(name)
        seen: Result = [channel.basic_get(name)]
        for number in range(6):
            channel.basic_publish("", name, str(number))

        def get(auto_ack: bool = False) -> Any:
            method, _properties, body = channel.basic_get(name, auto_ack)
            seen.append(method and (method.delivery_tag, method.redelivered, method.message_count, body))
            return method and method.delivery_tag

        channel.basic_nack(get())
        channel.basic_reject(get(), requeue=False)
        channel.basic_ack(get())
        get(auto_ack=True)
        get()
        get()
        channel.basic_nack(get() or 0, multiple=True)
        channel.basic_ack(get())
        get()
        channel.basic_recover(requeue=True)
        channel.basic_ack(get())
        seen.append(get())
        seen.append(channel.queue_delete(name).method.message_count)
        return seen


def unroutable(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        seen: Result = []

        def returned(ch: Any, method: Any, properties: Any, body: bytes) -> None:
            where = (method.exchange, method.routing_key == name)
            seen.append((ch is channel, method.NAME, method.reply_code, *where, visible(properties), body))

        channel.add_on_return_callback(returned)
        properties = pika.BasicProperties(message_id="mine-1", headers={"a": 1})
        channel.basic_publish("", name, b"nobody", properties, mandatory=True)
        connection.process_data_events(time_limit=2)
        channel.basic_publish("", name, b"nobody cares", properties)
        channel.confirm_delivery()
        try:
            channel.basic_publish("", name, b"nobody", properties, mandatory=True)
        except pika.exceptions.UnroutableError as error:
            message = error.messages[0]
            seen.append((len(error.messages), message.method.reply_code, visible(message.properties), message.body))
        connection.process_data_events(time_limit=2)
        channel.queue_declare(name)
        channel.basic_publish("", name, b"somebody", properties, mandatory=True)
        seen.append(channel.queue_purge(name).method.message_count)
        channel.queue_delete(name)
        return seen


def seen_error(action: Callable[[], Any]) -> Any:
    try:
        return ("no error", action())
    except pika.exceptions.ChannelClosed as error:
        return ("ChannelClosed", error.reply_code)
    except pika.exceptions.AMQPError as error:
        wrong_state = (pika.exceptions.ChannelWrongStateError, pika.exceptions.ConnectionWrongStateError)
        return next((kind.__name__ for kind in wrong_state if isinstance(error, kind)), type(error).__name__)
    except (TypeError, ValueError) as error:
        return type(error).__name__


def errors(connect: Connect, name: str) -> Result:
    connection = connect()
    channel = connection.channel()
    seen: Result = [seen_error(lambda: channel.queue_declare(f"{name}.none", passive=True))]
    seen.append((channel.is_open, channel.is_closed, connection.is_open))
    seen.append(seen_error(lambda: channel.queue_declare(name)))
    seen.append(seen_error(lambda: channel.basic_publish("", name, b"")))
    seen.append(seen_error(channel.close))
    channel = connection.channel()
    channel.queue_declare(name)
    seen.append(seen_error(lambda: channel.queue_declare(name, durable=True)))
    channel = connection.channel()
    seen.append(seen_error(lambda: channel.basic_consume(f"{name}.none", print)))
    channel = connection.channel()
    seen.append(seen_error(lambda: channel.queue_bind(name, f"{name}.none")))
    channel = connection.channel()
    channel.basic_consume(name, print, consumer_tag="one")
    try:
        channel.basic_consume(name, print, consumer_tag="one")
    except pika.exceptions.DuplicateConsumerTag as error:
        seen.append(("duplicate", error.args))
    seen.append(seen_error(lambda: channel.queue_declare(None)))
    seen.append(seen_error(lambda: channel.basic_consume(name, None)))
    seen.append(channel.basic_cancel("nobody"))
    channel.queue_delete(name)
    connection.close()
    seen.append((connection.is_open, channel.is_open))
    for action in (connection.close, connection.channel, channel.start_consuming):
        seen.append(seen_error(action))
    seen.append(seen_error(lambda: connection.add_callback_threadsafe(print)))
    return seen


def acknowledged_twice(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.basic_publish("", name, b"once")

        def twice(ch: Any, method: Any, _properties: Any, _body: bytes) -> None:
            ch.basic_ack(method.delivery_tag)
            ch.basic_ack(method.delivery_tag)

        channel.basic_consume(name, twice)
        connection.call_later(PATIENCE, connection.close)
        seen: Result = [seen_error(channel.start_consuming), channel.is_open]
        # what needs no acknowledgement may not have one
        other = connection.channel()
        other.basic_publish("", name, b"automatic")
        method, _properties, _body = other.basic_get(name, auto_ack=True)

        def automatic() -> None:
            other.basic_ack(method.delivery_tag)
            other.queue_declare(name, passive=True)

        seen.append((method.delivery_tag, seen_error(automatic)))
        other = connection.channel()
        seen.append(other.queue_delete(name).method.message_count)
        return seen


def timers_and_threads(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        seen: Result = []
        connection.call_later(0.02, lambda: seen.append("first"))
        connection.call_later(0.04, functools.partial(seen.append, "second"))
        connection.remove_timeout(connection.call_later(0.01, lambda: seen.append("never")))
        connection.sleep(0.1)
        thread = threading.Thread(target=connection.add_callback_threadsafe, args=(lambda: seen.append("thread"),))
        thread.start()
        connection.process_data_events(time_limit=5)
        thread.join()

        def nested() -> None:
            try:
                channel.start_consuming()
            except pika.exceptions.ReentrancyError:
                seen.append("no recursion")
            connection.process_data_events(time_limit=0)

        connection.call_later(0, nested)
        connection.process_data_events(time_limit=5)
        # a consumer's callback raises: the program sees it, and the message is there for the next round
        channel.queue_declare(name)
        channel.basic_publish("", name, b"x")
        channel.basic_consume(name, lambda *_: 1 / 0)
        try:
            channel.start_consuming()
        except ZeroDivisionError:
            seen.append("my own error")
        channel.close()
        channel = connection.channel()
        seen.append(channel.queue_delete(name).method.message_count)
        return seen


def transactions(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        other = connection.channel()
        seen: Result = [channel.tx_select().method.NAME]

        def count() -> None:
            seen.append(other.queue_declare(name, passive=True).method.message_count)

        channel.basic_publish("", name, b"1")
        channel.basic_publish("", name, b"2")
        seen.append(channel.tx_rollback().method.NAME)
        count()
        channel.basic_publish("", name, b"3")
        channel.basic_publish("", name, b"4")
        seen.append(channel.tx_commit().method.NAME)
        count()
        method, _properties, body = channel.basic_get("")  # the queue declared last
        seen.append(body)
        channel.basic_ack(method.delivery_tag)
        channel.tx_rollback()
        channel.basic_recover(requeue=True)
        method, _properties, body = channel.basic_get(name)
        seen.append((body, method.redelivered))
        channel.basic_ack(method.delivery_tag)
        channel.tx_commit()
        channel.close()
        seen.append(other.queue_delete(name).method.message_count)
        return seen


def cancelled_by_the_broker(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel, other = connection.channel(), connection.channel()
        channel.queue_declare(name)
        seen: Result = []

        def cancelled(frame: Any) -> None:
            seen.append((frame.method.NAME, frame.method.consumer_tag, channel.consumer_tags))

        channel.add_on_cancel_callback(cancelled)
        channel.basic_consume(name, print, consumer_tag="mine")
        connection.call_later(0, lambda: other.queue_delete(name))
        connection.call_later(PATIENCE, channel.stop_consuming)
        channel.start_consuming()
        channel.queue_declare(name)
        connection.call_later(0.05, lambda: other.queue_delete(name))
        seen.append(list(channel.consume(name)))
        return seen


def cancelled_by_the_program(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        seen: Result = []
        for auto_ack in (True, False):
            for number in range(4):
                channel.basic_publish("", name, str(number))

            def one(ch: Any, method: Any, _properties: Any, body: bytes, auto_ack: bool = auto_ack) -> None:
                seen.append(body)
                if not auto_ack:
                    ch.basic_ack(method.delivery_tag)
                left = ch.basic_cancel(method.consumer_tag)
                seen.append(all(m.NAME == "Basic.Deliver" for m, _, _ in left))
                seen.append([body for _, _, body in left] if auto_ack else left)

            channel.basic_consume(name, one, auto_ack=auto_ack)
            # all have arrived before the first is handed out
            while channel.queue_declare(name, passive=True).method.message_count:
                connection.sleep(0)
            channel.start_consuming()
            channel.close()
            channel = connection.channel()
            seen.append(channel.queue_purge(name).method.message_count)
        channel.queue_delete(name)
        return seen


def limits(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        for number in range(10):
            channel.basic_publish("", name, str(number))
        seen: Result = []
        channel.basic_qos(prefetch_count=3, global_qos=True)
        channel.basic_qos(prefetch_count=2)

        def hold(_ch: Any, _method: Any, _properties: Any, body: bytes) -> None:
            seen.append(body)  # which of the consumers gets it is the broker's affair

        channel.basic_consume(name, hold, consumer_tag="a")
        connection.sleep(0.1)
        channel.basic_consume(name, hold, consumer_tag="b")
        connection.sleep(0.2)
        seen.append(channel.queue_declare(name, passive=True).method.message_count)
        channel.basic_ack(0, multiple=True)
        connection.sleep(0.2)
        seen.append(len(seen))
        channel.stop_consuming()
        channel.queue_delete(name)
        return seen


def without_limits(connect: Connect, name: str) -> Result:
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        seen: Result = []
        channel.basic_consume(name, lambda _ch, _method, _properties, body: seen.append(body))
        for number in range(150):
            channel.basic_publish("", name, str(number))
        deadline = time.monotonic() + PATIENCE
        while len(seen) < 150 and time.monotonic() < deadline:
            connection.process_data_events(time_limit=1)
        channel.close()
        connection.channel().queue_delete(name)
        return seen


def all_properties(connect: Connect, name: str) -> Result:
    given = pika.BasicProperties(
        content_type="application/json", content_encoding="gzip", headers={"n": 1, "t": [1, "two", {"three": True}]},
        delivery_mode=1, priority=3, correlation_id="c", reply_to="r", expiration="60000", message_id="mine-7",
        timestamp=1700000000, type="invoice", user_id="guest", app_id="billing",
    )  # fmt: skip
    with connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        before = dict(vars(given))
        seen: Result = []
        for body in (b"", b"bytes \x00\xff", "text \u00e4", b"x" * 300_000):
            channel.basic_publish("", name, body, given)
            method, properties, got = channel.basic_get(name)
            seen.append((visible(properties), len(got), got[:10], type(got).__name__))
            channel.basic_ack(method.delivery_tag)
        channel.basic_publish("", name, b"none")
        method, properties, got = channel.basic_get(name, auto_ack=True)
        seen.append((visible(properties), vars(given) == before))
        channel.queue_delete(name)
        return seen


PROGRAMS: list[Callable[[Connect, str], Result]] = [
    hello_world, work_queue, publish_subscribe, routing, rpc, rpc_with_direct_reply, generator, get_and_settle,
    unroutable, errors, acknowledged_twice, timers_and_threads, transactions, cancelled_by_the_broker,
    cancelled_by_the_program, limits, without_limits, all_properties,
]  # fmt: skip
