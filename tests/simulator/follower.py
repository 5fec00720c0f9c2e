"""A broker outside the cluster that follows one of its queues: the real `Replica`; in the cluster `ReplicaSource`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ha.dial import Dial
from ha.model.difference import normalise
from ha.model.environment import Answer, Link
from ha.model.protocol import REPLICA
from ha.plugin import standing
from ha.shell.core_link import IncomingLink, LinkOwner, OutgoingLink
from ha.single_queue.follower import FollowStep, Replica, Source
from ha.single_queue.source import Feed, ReplicaSource
from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core import Engine, Queue, decode_ids
from qpidd_py.errors import PageError
from tests.simulator.environment import Wires, _Dialling
from tests.simulator.network import End
from tests.simulator.scheduler import Call, Violation

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

NUMBER: Final = 7
"""Of the local queue, in no cluster the same."""
AGAIN: Final = 0.3
"""Seconds until somebody starts a replica that has ended anew."""
LAST: Final = (1 << 64) - 1


def ids_of(queue: Queue) -> set[int]:
    ranges = normalise(decode_ids(queue.held(0, LAST)))
    return {id for low, high in ranges for id in range(low, high + 1)}


class Passes(ReplicaSource):
    """Notes what its queue has when a pass begins."""

    def __init__(self, process: BrokerProcess) -> None:
        settings = process.settings
        told = partial(standing, process.node)
        super().__init__(process, process.engine, self._queue, told, settings.heartbeat, settings.slice_size)  # type: ignore[arg-type]
        self._process = process
        self.begun: dict[str, tuple[Queue, set[int]]] = {}
        """By the name of the follower."""

    def _queue(self, name: str) -> Queue | None:
        found = self._process.broker.vhost.queues.get(name)
        return found.core if found is not None else None

    def _begin(self, feed: Feed) -> None:
        assert feed.queue is not None
        self.begun[feed.name] = feed.queue, ids_of(feed.queue)
        super()._begin(feed)

    def opened(self, connection: ClientConnection) -> bool:
        """As `QueueReplication.opened`."""
        if REPLICA not in connection.client.properties:
            return False
        link = IncomingLink(self, connection)
        connection.link = link
        connection.core.switch_to_link(False)
        self.accepted(link)
        return True


class FollowerLink(OutgoingLink):
    """The follower's end."""

    end: End

    def output_ready(self) -> None:
        if not self.end.full:
            self.end.send(self.connection.take_output())


class Follower:
    """The broker outside: its port to the world (`replica.Port`), a host of the network, and a client of the plan."""

    busy_until = 0.0
    powered = True

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.network = simulation.network
        self.name: str = fields["name"]
        self.fields = fields
        self._wires = Wires()
        self._ends: list[End] = []
        self._begin()

    def _begin(self) -> None:
        self.engine = Engine(segment_size=1 << 15)
        self.engine.schedule = lambda: self.after(0.0, self.engine.end_turn)
        self.queue = self.engine.create_queue(NUMBER, self.fields["follows"], False)
        addresses = tuple(process.address for process in self.simulation.brokers)
        settings = self.simulation.settings
        times = settings.heartbeat, settings.maintenance
        self._replica = WatchedReplica(self, Source(addresses, Dial(Login())), *times, self._ended)
        self.after(0.0, self._replica.start)

    def _ended(self, replica: Replica) -> None:
        """It says that there is no such queue (yet)."""
        self.simulation.history.counts["replicas ended"] += 1
        self.after(AGAIN, self._begin)

    # ---- what a replica asks of the world -------------------------------------------------------------------------

    def now(self) -> float:
        return self.scheduler.now

    def after(self, delay: float, call: Call) -> None:
        self.scheduler.at(delay, call)

    def log(self, level: str, text: str) -> None:
        self.scheduler.log(self.name, text)

    def connect(
        self,
        owner: LinkOwner,
        address: str,
        dial: Dial,
        properties: Mapping[str, object],
        timeout: float,
        done: Callable[[Link | Answer], None],
    ) -> None:
        _Dialling(self, address, properties, timeout, done)  # type: ignore[arg-type]

    def hand_over(self, client: AmqpClient, end: End, done: Callable[[Link | Answer], None]) -> None:
        link = FollowerLink(self._replica, self.engine, self._wires)  # type: ignore[arg-type]
        link.end = end
        self._wires.ends[link.connection] = end
        end.on_data, end.on_closed, end.on_writable = link.connection.feed, link.closed, link.output_ready
        done(link)
        if rest := client.left_over():
            link.connection.feed(rest)

    # ---- a host, and a client -------------------------------------------------------------------------------------

    def accept(self, end: End) -> bool:
        return False

    def run(self, source: object, call: Call) -> None:
        call()

    def keep(self, end: End) -> None:
        """It does not die."""

    def told(self, what: str, fields: Mapping[str, Any]) -> None:
        """Nothing is asked of it."""

    def calm(self) -> None:
        """The faults have ended."""

    @property
    def finished(self) -> bool:
        """Is the copy equal?"""
        primary = next((process for process in self.simulation.members if process.is_primary), None)
        queue = primary and primary.broker.vhost.queues.get(self.fields["follows"])
        if queue is None:
            return True
        if self._replica.step is not FollowStep.FOLLOWING:
            return False
        try:
            return _bodies(self.queue) == _bodies(queue.core)
        except PageError:
            return False  # its primary has to refill itself first

    # ---- the judge ------------------------------------------------------------------------------------------------

    def equal(self, address: str) -> None:
        """A pass has ended.  I20."""
        process = self.simulation.by_address[address]
        begun = process.passes.begun.get(self.name)
        if not process.alive or begun is None:
            return
        self.simulation.history.counts["passes of a follower"] += 1
        (queue, before), held = begun, ids_of(self.queue)
        if strange := held - before:
            raise Violation(f"I20: {self.name} has {len(strange)} messages that {queue.name} of {process.name} had not")
        if lacking := (before - held) & ids_of(queue):
            raise Violation(f"I20: {self.name} lacks {len(lacking)} messages of {queue.name} of {process.name}")


class WatchedReplica(Replica):
    """Tells the judge when it is equal."""

    def __init__(self, follower: Follower, source: Source, *rest: Any) -> None:
        super().__init__(follower, follower.engine, follower.queue, source, follower.name, *rest)
        self._follower = follower

    def _equal(self) -> None:
        super()._equal()
        self._follower.equal(self.address)


def _bodies(queue: Queue) -> list[tuple[int, bytes]]:
    return [(message[0], message[5]) for message in queue.peek(1 << 30)]
