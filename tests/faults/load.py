"""Many senders and receivers, each with a connection of its own, that remember everything for the judge."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pika

from client_lib import TransactionAborted, TransactionUnknown
from testkit.pace import Pace
from testkit.record import body_of
from tests.faults.judge import Copy, Evidence, Report, judge
from tests.faults.styles import Place, Received, Style, Threaded
from tests.support.wait import SHORTEST, stays, wait_for

CAPACITY: Final = 200
PREFETCH: Final = 50
RATE: Final = 100.0
"""Messages a second of each sender: one every 10 ms finds each fault with messages in flight, and three times as many
cost three times the processor time of clients and brokers."""
KEPT: Final = 5
"""Messages a receiver has in hand before it acknowledges the first of them."""
OUTCOMES: Final[Mapping[type[Exception], str]] = {TransactionAborted: "abort", TransactionUnknown: "unknown"}
CLOSE: Final = 5.0
CLOSE_SLACK: Final = 3.0


@dataclass(frozen=True)
class Group:
    """Clients of one place."""

    name: str
    senders: int = 1
    receivers: int = 1
    drop_duplicates: bool = False


GROUPS: Final = (Group("single", drop_duplicates=True), Group("plain"), Group("crowd", senders=2, receivers=2))


class Client:
    """A thread and what it remembers."""

    def __init__(self, load: Load, name: str) -> None:
        self.name = name
        self.load = load
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(self.load.patience)
        assert not self._thread.is_alive(), f"{self.name} does not stop"
        self.check()

    def check(self) -> None:
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed") from self.failure

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def note(self, kind: str, id: str, **more: Any) -> None:
        now = time.monotonic_ns() // 1000
        self.load.evidence.application.append({"kind": kind, "id": id, "client": self.name, "t": now, **more})

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.load.evidence.closed.append((self.name, time.monotonic() - began, CLOSE + CLOSE_SLACK))


class SendingClient(Client):
    """Sends at a rate; what an outage has held up is not made up for."""

    def __init__(self, load: Load, name: str, place: Place) -> None:
        super().__init__(load, name)
        self.confirms: list[int] = []
        """Moments, µs."""
        self.sent = 0
        self.publisher = load.style.publisher(place, CAPACITY, self._settled, **load.options(name))

    def work(self) -> None:
        pace = Pace(self.load.rate)
        while not self.stopping.wait(pace.left()):
            self.sent += 1
            id = f"{self.name}:{self.sent}"
            self.note("invoke", id, tx=self.publisher.transaction)
            self.publisher.send(id, body_of(id))

    def _settled(self, id: str, error: Exception | None) -> None:
        if error is None:
            self.note("ok", id)
            self.confirms.append(time.monotonic_ns() // 1000)
        else:
            self.note(OUTCOMES.get(type(error), "nack"), id, reason=str(error))


class ReceivingClient(Client):
    """Keeps a few messages in hand and acknowledges them in the order of a die."""

    def __init__(self, load: Load, name: str, place: Place, drop_duplicates: bool) -> None:
        super().__init__(load, name)
        self.place = place
        self.ids: set[str] = set()
        self._rng = random.Random(name)
        self._hand: deque[Received] = deque()
        self.consumer = load.style.consumer(place, PREFETCH, drop_duplicates, **load.options(name))

    def work(self) -> None:
        while not self.stopping.is_set():
            found = self.consumer.fetch(0.1)
            if found is None:
                self._acknowledge(0)
                continue
            changed = {"changed": True} if found.body != body_of(found.id) else {}
            self.note("receive", found.id, redelivered=found.redelivered, resent=found.resent, **changed)
            self.ids.add(found.id)
            self._hand.append(found)
            self._acknowledge(KEPT)
        self._acknowledge(0)

    def _acknowledge(self, keep: int) -> None:
        while len(self._hand) > keep:
            self._hand.rotate(self._rng.randrange(KEPT))
            received = self._hand.popleft()
            self.consumer.acknowledge(received)
            self.note("ack", received.id)


class Load:
    """Use as a context manager: at the end everything is closed, whatever has happened."""

    def __init__(
        self,
        addresses: str,
        name: str,
        groups: Sequence[Group] = GROUPS,
        style: Style | None = None,
        rate: float = RATE,
        arguments: Mapping[str, Any] | None = None,
        audit: Callable[[], str] | None = None,
        patience: float = 40.0,
        **options: Any,
    ) -> None:
        """`rate`: messages a second of each sender; `audit`: where to read the audit, default `addresses`; `patience`:
        seconds that anything may take."""
        self.style = style or Threaded()
        self.rate = rate
        self.evidence = Evidence()
        self._read = 0
        """Events of the application that `_missing` has seen."""
        self._confirmed: set[str] = set()
        self._arrived: set[str] = set()
        self.places = {group.name: Place(f"{name}.{group.name}", dict(arguments or {})) for group in groups}
        self.senders: list[SendingClient] = []
        self.receivers: list[ReceivingClient] = []
        self.patience = patience
        self._addresses = addresses
        self._audit = audit or (lambda: addresses)
        self._options = options
        self._name = name
        self._groups = groups

    def options(self, client: str) -> dict[str, Any]:
        return {
            "urls": self._addresses,
            "heartbeat": 1,
            "connect_timeout": 1.0,
            "reconnect_interval_max": 0.3,
            "client_id": client,
            "on_event": self.evidence.library.append,
            **self._options,
        }

    def __enter__(self) -> Load:
        try:
            for group in self._groups:
                self._add(group)
        except BaseException:
            self.__exit__()
            raise
        for client in self.clients:
            client.start()
        return self

    def _add(self, group: Group) -> None:
        place = self.places[group.name]
        for number in range(group.senders):
            self.senders.append(SendingClient(self, f"{place.name}.s{number + 1}", place))
        for number in range(group.receivers):
            name = f"{place.name}.r{number + 1}"
            self.receivers.append(ReceivingClient(self, name, place, group.drop_duplicates))
            if group.drop_duplicates:
                self.evidence.filtered.add(name)
            if group.receivers == 1:
                self.evidence.alone.add(name)

    @property
    def clients(self) -> list[Client]:
        return [*self.senders, *self.receivers]

    def run_on(self, count: int = 100) -> None:
        """Each sender has `count` more messages confirmed, each place's receivers have got as many."""
        before = Counter({sender.name: len(sender.confirms) for sender in self.senders}) + self._received()

        def served() -> bool:
            for client in self.clients:
                client.check()
            now = Counter({sender.name: len(sender.confirms) for sender in self.senders}) + self._received()
            return all(now[name] >= before[name] + count for name in [*self.places, *(s.name for s in self.senders)])

        wait_for(served, max(self.patience, SHORTEST), lambda: f"{count} more messages\n{self.tail()}", poll=0.02)

    def attempts(self) -> int:
        """To connect, by all clients."""
        return sum(event["kind"] == "connect" for event in list(self.evidence.library))

    def losses(self) -> int:
        """Connections that were lost, by all clients."""
        return sum(event["kind"] == "disconnected" for event in list(self.evidence.library))

    def ended(self) -> int:
        """Connections that were lost, and attempts to connect that failed, by all clients."""
        return sum(event["kind"] in ("disconnected", "connect_refused") for event in list(self.evidence.library))

    def _received(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for receiver in self.receivers:
            found[receiver.place.name.rpartition(".")[2]] += len(receiver.ids)
        return found

    def tail(self, count: int = 40) -> str:
        """The last facts of the library, for a failed test."""
        facts = [event for event in self.evidence.library if "msg_id" not in event][-count:]
        return "\n".join(
            f"{event['ts_mono']} {event['client_id']} {event['kind']} {event.get('peer')} {event.get('reason', '')}"
            f" {event.get('attrs', '')}"
            for event in facts
        )

    # ---- the end ----------------------------------------------------------------------------------------------------

    def finish(self, complete: bool = True) -> Report:
        """All senders stop, all that was confirmed arrives, everything is closed and judged.

        `complete`: AssertionError if something does not arrive; else that is left to the judge."""
        for sender in self.senders:
            sender.stop()
            with contextlib.suppress(*([] if complete else [TimeoutError])):
                sender.publisher.settle(self.patience)
            self.evidence.unsettled[sender.name] = sender.publisher.unsettled()
        if stays(lambda: self._missing(), self.patience, poll=0.05) and complete:
            raise AssertionError(self._what_is_missing())
        for receiver in self.receivers:
            receiver.stop()
            receiver.consumer.settle(self.patience)
        self.close()
        for place in self.places.values():
            self.evidence.audit += read_all(self._audit(), place.audit)
        return judge(self.evidence)

    def verdict(self, forgiven: Collection[str] = ()) -> Report:
        """Of `finish`; AssertionError names what was not kept, but for the rules that are `forgiven`."""
        report = self.finish()
        problems = [problem for problem in report.problems if problem.partition(":")[0] not in forgiven]
        assert not problems, "\n".join([*problems, report.line(), self.tail()])
        return report

    def _missing(self) -> set[str]:
        """Confirmed and not received.  Reads only what is new: it is asked for often, where the receivers run."""
        new = self.evidence.application[self._read :]
        self._read += len(new)
        for event in new:
            if event["kind"] == "receive":
                self._arrived.add(event["id"])
            elif event["kind"] == "ok":
                self._confirmed.add(event["id"])
        self._confirmed -= self._arrived
        return self._confirmed

    def _what_is_missing(self) -> str:
        missing = self._missing()
        return f"received: {len(missing)} of {len(self._arrived)} are missing: {sorted(missing)[:5]}\n{self.tail()}"

    def close(self) -> None:
        """Ends all clients that are still there."""
        while self.senders:
            sender = self.senders.pop()
            sender.stopping.set()
            with sender.closing():
                sender.publisher.close(CLOSE)
        while self.receivers:
            receiver = self.receivers.pop()
            receiver.stopping.set()
            with receiver.closing():
                receiver.consumer.close(CLOSE)

    def __exit__(self, *_: object) -> None:
        self.close()


def read_all(addresses: str, queue: str) -> list[Copy]:
    """Empties a queue with bare pika, wherever it is served; in the order of the queue."""
    connection = wait_for(lambda: _dial(addresses), 20, f"somebody who serves {queue}", poll=0.1)
    with connection:
        channel = connection.channel()
        left = channel.queue_declare(queue, passive=True).method.message_count
        found: list[Copy] = []
        while len(found) < left:
            for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=5.0):
                assert method is not None, f"{queue}: {left} messages, {len(found)} came"
                found.append(Copy(properties.message_id, bool((properties.headers or {}).get("x-resent")), body))
                if len(found) >= left:
                    break
        channel.cancel()
        return found


def _dial(addresses: str) -> Any:
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        parameters = pika.ConnectionParameters(
            host, int(port), socket_timeout=2, stack_timeout=2, blocked_connection_timeout=10
        )
        try:
            return pika.BlockingConnection(parameters)
        except pika.exceptions.AMQPError:
            continue
    return None
