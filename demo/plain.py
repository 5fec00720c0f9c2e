"""Load by plain pika, as in typical programs: a list of addresses, a loop around everything, one re-send.

Unmodified pika notices a hung broker only by its heartbeat, and checks that 6 s apart at the earliest; the demo shows
the cost, compared with the client library.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError, NackError, UnroutableError

from client_lib.events import RUN_SECONDS, EventLog
from demo.progress import Slot
from testkit.dial import dial
from testkit.pace import Pace

Addresses = Sequence[tuple[str, int]]
RETRY = 0.02  # seconds between two attempts at the next address
PREFETCH = 200
ACK_EVERY = 50
QUIET = 1.5  # seconds without a delivery and an empty queue: drained
DRAIN_LIMIT = 30.0  # seconds
TROUBLE = (AMQPError, AMQPConnectorException, OSError)  # the second when a stopped broker does not finish the opening


class Client:
    """The common part of producer and consumer: connects again until it succeeds."""

    def __init__(self, name: str, queue: str, addresses: Addresses, directory: str, slot: Slot) -> None:
        self.name = name
        self.queue = queue
        self.log = EventLog(name, directory, cluster="demo")
        self.slot = slot
        self.stopping = False
        self._addresses = addresses
        self._next = 0
        self._flushed = time.monotonic()

    @contextmanager
    def connected(self) -> Iterator[BlockingChannel]:
        """A channel with the queue declared on the first broker that accepts; a lost connection ends the block."""
        connection, channel, address = self._connect()
        self.log.fact("connected", peer=address)
        try:
            yield channel
        except TROUBLE as error:
            self.log.fact("disconnected", peer=address, reason=_named(error))
        finally:
            _close(connection)

    def _connect(self) -> tuple[pika.BlockingConnection, BlockingChannel, str]:
        while True:
            host, port = self._addresses[self._next % len(self._addresses)]
            self._next += 1
            try:
                return *self._open(_parameters(host, port, self.name)), f"{host}:{port}"
            except TROUBLE as error:
                self.log.fact("connect_refused", peer=f"{host}:{port}", reason=_named(error))
                time.sleep(RETRY)

    def _open(self, parameters: pika.ConnectionParameters) -> tuple[pika.BlockingConnection, BlockingChannel]:
        connection = dial(parameters)
        try:
            channel = connection.channel()
            channel.queue_declare(self.queue, durable=True)
        except TROUBLE:
            _close(connection)
            raise
        return connection, channel

    def _message(self, kind: str, msg_id: str, flag: bool = False) -> None:
        now = time.monotonic()
        if now - self._flushed > RUN_SECONDS:
            self._flushed = now
            self.log.flush_runs()
        self.log.message(kind, self.queue, msg_id, flag)

    def stop(self, *_: object) -> None:
        self.stopping = True


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _close(connection: pika.BlockingConnection) -> None:
    with suppress(*TROUBLE):
        connection.close()


def waiting(addresses: Addresses, queue: str, name: str) -> int | None:
    """Messages ready in a queue, None when no broker answers."""
    for host, port in addresses:
        with suppress(*TROUBLE), dial(_parameters(host, port, name)) as connection:
            return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
    return None


def _parameters(host: str, port: int, name: str) -> pika.ConnectionParameters:
    """The brokers write the name into their logs; by it a report knows which clients' logs there must be."""
    return pika.ConnectionParameters(
        host, port, heartbeat=1, socket_timeout=1.0, stack_timeout=2.0, connection_attempts=1,
        client_properties={"qpid.client_id": name},
    )  # fmt: skip


class Producer(Client):
    """Publishes at a rate, each message confirmed before the next; sends one in doubt again."""

    def __init__(
        self, name: str, queue: str, addresses: Addresses, directory: str, slot: Slot, rate: float, size: int
    ) -> None:
        super().__init__(name, queue, addresses, directory, slot)
        self._rate = rate
        self._body = b"x" * size
        self._number = 0
        self._in_doubt = False

    def run(self) -> None:
        """Until `stop`, and then until the last message is confirmed."""
        while not self.stopping or self._in_doubt:
            with self.connected() as channel:
                channel.confirm_delivery()
                self._publish_on(channel)
        self.log.close()

    def _publish_on(self, channel: BlockingChannel) -> None:
        pace = Pace(self._rate)
        while self._in_doubt or not self.stopping:
            pace.wait()
            self._publish(channel)

    def _publish(self, channel: BlockingChannel) -> None:
        if not self._in_doubt:
            self._number += 1
        msg_id = f"{self.name}:{self._number}"
        self._message("publish", msg_id, self._in_doubt)
        self._in_doubt = True
        properties = pika.BasicProperties(delivery_mode=2, message_id=msg_id)
        try:
            channel.basic_publish("", self.queue, self._body, properties, mandatory=True)
            self._message("confirm", msg_id)
            self.slot.add()
        except NackError:
            self._message("nack", msg_id)
        except UnroutableError:
            self._message("return", msg_id)
        self._in_doubt = False


class Consumer(Client):
    """Consumes with acknowledgements in batches; after `stop` until the queue is empty and stays so."""

    def __init__(self, name: str, queue: str, addresses: Addresses, directory: str, slot: Slot) -> None:
        super().__init__(name, queue, addresses, directory, slot)
        self._unacked: list[tuple[int, str]] = []
        self._drain_from = 0.0
        self._done = False

    def run(self) -> None:
        while not self._done:
            with self.connected() as channel:
                self._unacked = []
                channel.basic_qos(prefetch_count=PREFETCH)
                self._consume_on(channel)
        self.log.close()

    def _consume_on(self, channel: BlockingChannel) -> None:
        last = time.monotonic()
        for method, properties, _ in channel.consume(self.queue, inactivity_timeout=0.05):
            if method is None:
                self._ack(channel)
                if self.stopping and self._drained(channel, last):
                    return
                continue
            last = time.monotonic()
            msg_id = str(properties.message_id)
            self._message("deliver", msg_id, bool(method.redelivered))
            self._unacked.append((method.delivery_tag, msg_id))
            if len(self._unacked) >= ACK_EVERY:
                self._ack(channel)

    def _ack(self, channel: BlockingChannel) -> None:
        if not self._unacked:
            return
        channel.basic_ack(self._unacked[-1][0], multiple=True)
        for _, msg_id in self._unacked:
            self._message("ack", msg_id)
        self.slot.add(len(self._unacked))
        self._unacked = []

    def _drained(self, channel: BlockingChannel, last: float) -> bool:
        now = time.monotonic()
        if not self._drain_from:
            self._drain_from = now
            self.log.fact("drain_begin", queue=self.queue)
        if now - max(last, self._drain_from) < QUIET:
            return False
        ready = channel.queue_declare(self.queue, passive=True).method.message_count
        if ready and now - self._drain_from < DRAIN_LIMIT:
            return False
        self.log.fact("drain_end", queue=self.queue, result="ok" if not ready else f"{ready} left")
        self._done = True
        return True
