"""Load by the client library, which does fail-over, re-sending and the dropping of duplicates itself."""

import time
from contextlib import suppress

from client_lib import Connection, Message, Receiver, Session, Timeout
from client_lib.errors import MessagingError
from demo.plain import DRAIN_LIMIT, QUIET, Addresses, waiting
from demo.progress import Slot
from testkit.pace import Pace

CAPACITY = 500


class Client:
    """What producer and consumer share."""

    def __init__(self, name: str, queue: str, addresses: Addresses, directory: str, slot: Slot) -> None:
        self.queue = queue
        self.name = name
        self.slot = slot
        self.stopping = False
        self._addresses = addresses
        self._url = ",".join(f"{host}:{port}" for host, port in addresses)
        self._directory = directory

    def connection(self) -> Connection:
        return Connection(self._url, heartbeat=1, client_id=self.name, event_log=self._directory, cluster="demo")

    def stop(self, *_: object) -> None:
        self.stopping = True


class Producer(Client):
    """Publishes at a rate, with a window of unconfirmed messages."""

    def __init__(
        self, name: str, queue: str, addresses: Addresses, directory: str, slot: Slot, rate: float, size: int
    ) -> None:
        super().__init__(name, queue, addresses, directory, slot)
        self._rate = rate
        self._body = b"x" * size

    def run(self) -> None:
        """Until `stop`, and then until everything is confirmed."""
        with self.connection() as connection:
            session = connection.session()
            session.declare_queue(self.queue, durable=True)
            sender = session.sender(self.queue, capacity=CAPACITY, on_settled=self._settled)
            number, pace = 0, Pace(self._rate)
            while not self.stopping:
                pace.wait()
                number += 1
                sender.send(Message(self._body, id=f"{self.name}:{number}"), sync=False)
            sender.close()

    def _settled(self, _message: Message, _message_id: str, error: MessagingError | None) -> None:
        if error is None:
            self.slot.add()


class Consumer(Client):
    """Consumes with acknowledgements; after `stop` until the queue is empty and stays so."""

    def run(self) -> None:
        with self.connection() as connection:
            session = connection.session()
            session.declare_queue(self.queue, durable=True)
            receiver = session.receiver(self.queue, capacity=200, drop_duplicates=True)
            self._consume(session, receiver)

    def _consume(self, session: Session, receiver: Receiver) -> None:
        last, began = time.monotonic(), 0.0
        while True:
            try:
                message = receiver.fetch(timeout=0.1)
            except Timeout:  # also without a broker for long
                if self.stopping and not began:
                    began = time.monotonic()
                    session.events.fact("drain_begin", queue=self.queue)
                if began and time.monotonic() - max(last, began) > QUIET and self._drained(session, began):
                    return
                continue
            session.acknowledge(message, sync=False)
            self.slot.add()
            last = time.monotonic()

    def _drained(self, session: Session, began: float) -> bool:
        with suppress(Timeout):
            session.sync(timeout=5.0)
        left = waiting(self._addresses, self.queue, self.name)
        if left != 0 and time.monotonic() - began < DRAIN_LIMIT:
            return False
        session.events.fact("drain_end", queue=self.queue, result="ok" if left == 0 else f"{left} left")
        return True
