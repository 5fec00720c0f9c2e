"""`ha.model.environment.Environment` of a simulated broker: its ports to the rest of the world."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ha.dial import Dial
from ha.model.environment import EXIT_TWIN, Answer, Exchanged, Json, Link, Outcome, StateNotStored
from ha.model.membership import HaState
from ha.model.protocol import REPLICA
from ha.model.salvaged import Header, Record
from ha.shell.asker import Asker
from ha.shell.core_link import OutgoingLink
from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import ClientHandshake, Closed, Login, Opened
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core import Connection
from qpidd_py.errors import AmqpError
from qpidd_py.management.amqp_door import AmqpDoor
from qpidd_py.management.model import Management
from qpidd_py.management.turns import Slices
from tests.simulator.clients import Client
from tests.simulator.loop import SimLoop
from tests.simulator.network import End
from tests.simulator.reactor import Reactor, Socket
from tests.simulator.scheduler import Call, Violation

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess, Clock
    from tests.simulator.simulation import Simulation


class SimTransport:
    """What a connection asks of the shell."""

    waiting = 0

    def __init__(self, end: End) -> None:
        self.end = end
        self.connection: ClientConnection
        self._unread: list[Call] = []
        """What comes while the broker does not read, as behind a full socket."""

    def received(self, data: bytes) -> None:
        connection = self.connection.core
        self._in_order(lambda: connection.feed(data))

    def closed(self, reason: str) -> None:
        if reason == "reset":
            self._unread.clear()
        self._in_order(lambda: self.connection.closed(reason))

    def _in_order(self, call: Call) -> None:
        if self._unread or not self.connection.core.reads():
            self._unread.append(call)
        else:
            call()

    def look(self) -> None:
        """Does the broker read again?  The core does not say so by itself (as `TlsConnection.look`)."""
        while self._unread and self.connection.core.reads():
            self._unread.pop(0)()

    @property
    def is_over(self) -> bool:
        return not self.end.open and not self._unread

    @property
    def backlog(self) -> int:
        return self.connection.core.backlog

    @property
    def is_link(self) -> bool:
        return self.connection.link is not None and self.end.open and REPLICA not in self.connection.client.properties

    def output(self, leaves: bool = True) -> bytes:
        return self.connection.core.take_output(leaves)

    def output_ready(self) -> None:
        peer = self.end.peer_host
        if self.end.full:
            return
        if isinstance(peer, Client):
            if not peer.reads:
                return  # the octets stay with the broker, as behind a full socket
            octets = self.output()
            if self.end.open:
                peer.octets_left(octets)
            self.end.send(octets)
        else:
            self.end.send(self.output())

    def disconnect(self) -> None:
        """What does not fit the socket any more is lost."""
        self.output_ready()
        self._unread.clear()
        self.end.close()


class ReactorTransport(SimTransport):
    """Behind a socket that the reactor serves."""

    def through(self, reactor: Reactor) -> None:
        """As `Reactor.add`."""
        connection = self.connection
        self._socket = Socket(reactor, self.end, connection.core, lambda: self.output(False), connection.closed)

    def look(self) -> None:
        """The reactor does."""

    @property
    def is_over(self) -> bool:
        return self._socket.gone

    def output_ready(self) -> None:
        self._socket.flush()

    def disconnect(self) -> None:
        self._socket.close()


class SimOutgoingLink(OutgoingLink):
    """The backup's end of a link, on a simulated connection."""

    end: End
    process: BrokerProcess
    socket: Socket | None = None
    """If the reactor serves it."""

    def link_batches(self, position: int) -> None:
        super().link_batches(position)
        self.process.simulation.history.applied(self.process)

    def output_ready(self) -> None:
        if self.socket is not None:
            self.socket.flush()
        elif not self.end.full:
            self.end.send(self.connection.take_output())

    def through(self, reactor: Reactor) -> Socket:
        output = self.connection.take_output
        self.socket = Socket(reactor, self.end, self.connection, lambda: output(False), self.closed)
        return self.socket


class Wires:
    """Stands for the reactor, which an outgoing link asks to close its socket."""

    def __init__(self) -> None:
        self.ends: dict[Connection, End] = {}
        self.sockets: dict[Connection, Socket] = {}

    def remove(self, connection: Connection) -> None:
        if socket := self.sockets.pop(connection, None):
            socket.close()
        end = self.ends.pop(connection, None)
        if end is not None:
            if not end.full:
                end.send(connection.take_output())
            end.close()


class SimSalvageFile:
    """`ha.model.environment.SalvageFile`: what is added is on disk at once."""

    def __init__(self, process: BrokerProcess, header: Header) -> None:
        self.name = f"{process.name}-{header.epoch}"
        self._process = process
        self._records: list[Record] = []

    def add(self, records: Sequence[Record]) -> None:
        self._records += records
        for record in records:
            self._process.simulation.history.put_aside(self._process, record.queue, record.body)

    def finish(self) -> None:
        self._process.scheduler.log(self._process.name, f"salvage file {self.name} is complete")

    def cancel(self) -> None:
        for record in self._records:
            self._process.simulation.history.taken_back(record.queue, record.body)


class Ports:
    """The half of a `BrokerProcess` that its node sees."""

    clock: Clock
    busy_until: float
    life: int
    alive: bool
    state: HaState
    _unanswered: dict[int, Callable[[], None]]

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.network = simulation.network
        self.name = name
        self.rng = simulation.scenario.rng(f"process {name}")
        self.late_timers: float = simulation.scenario.option("search", {}).get("timers", 0.0)
        """A timer is late by so many seconds, on average."""
        self.write_seconds = 0.0
        """A write to the disk takes that long."""
        self.mute: frozenset[str] = frozenset()
        """Methods that are carried out and not answered."""
        self._wires = Wires()
        self.transports: list[SimTransport] = []
        """Of the open connections that came to us."""
        self._number = 0
        self._asks: bool = simulation.scenario.option("asker", False)
        """Do questions go over connections, through the real `Asker`?"""
        self._askers: dict[str, Asker] = {}
        self._loop: SimLoop | None = None

    @property
    def process(self: Ports) -> BrokerProcess:
        return self  # type: ignore[return-value]

    def opened(self) -> None:
        """A new life begins."""
        self._wires = Wires()
        self.transports = []
        self._askers = {}
        self._loop = SimLoop(self.process)
        self.process.broker.management = AmqpDoor(AdminDoor(self.process))

    def died(self) -> None:
        """The life ends."""
        if self._loop is not None:
            self._loop.die()

    # ---- time -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.clock.offset + max(self.scheduler.now, self.busy_until) * self.clock.rate

    def wall(self) -> int:
        return self.process.wall_clock_us()

    def after(self, delay: float, call: Call) -> None:
        process, life = self.process, self.life
        busy = max(0.0, self.busy_until - self.scheduler.now)
        if self.late_timers:
            delay += self.rng.expovariate(1 / self.late_timers)
        self.scheduler.at(busy + delay / self.clock.rate, lambda: process._run("timer", life, call))

    def when_free(self, call: Call) -> None:
        """Now, or as soon as the write is over in which this process stands still, if it lives to see that."""
        if self.scheduler.now >= self.busy_until:
            call()
        else:
            life = self.life
            self.scheduler.at(
                self.busy_until - self.scheduler.now, lambda: call() if self.alive and life == self.life else None
            )

    @property
    def links(self) -> list[SimTransport]:
        """To our backups."""
        return [each for each in self.transports if each.is_link]

    # ---- connections and links ---------------------------------------------------------------------------------------

    def accepted(self, end: End) -> None:
        reactor = self.process.reactor
        transport = ReactorTransport(end) if reactor.used else SimTransport(end)
        transport.connection = ClientConnection(self.process.broker, end.peer_host.name, transport)
        if isinstance(transport, ReactorTransport):
            transport.through(reactor)
        else:
            end.on_data, end.on_closed = transport.received, transport.closed
            end.on_writable = transport.output_ready
        self.transports = [each for each in self.transports if not each.is_over]
        self.transports.append(transport)

    def connect(
        self, address: str, properties: Mapping[str, object], timeout: float, done: Callable[[Link | Answer], None]
    ) -> None:
        _Dialling(self.process, address, properties, timeout, done)

    def hand_over(self, client: AmqpClient, end: End, done: Callable[[Link | Answer], None]) -> None:
        """The handshake is over: from here on the core reads."""
        process = self.process
        link = SimOutgoingLink(process.node, process.engine, self._wires)  # type: ignore[arg-type]
        link.end, link.process = end, process
        if process.reactor.used:
            self._wires.sockets[link.connection] = link.through(process.reactor)
        else:
            self._wires.ends[link.connection] = end
            end.on_data, end.on_closed, end.on_writable = link.connection.feed, link.closed, link.output_ready
        done(link)
        if rest := client.left_over():
            link.connection.feed(rest)

    # ---- requests -------------------------------------------------------------------------------------------------

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        if self._asks:
            self._asker(address).ask(method, arguments, timeout, done)
            return
        process, life = self.process, self.life
        target = self.simulation.by_address.get(address)
        over: list[bool] = []
        text = json.dumps(arguments)

        def finish(answer: Answer) -> None:
            if not over:
                over.append(True)
                done(answer)

        self.after(timeout, lambda: finish(Answer(Outcome.SILENT)))
        if target is None:
            return  # no broker has that address (any more)

        def back(answer: Answer) -> None:
            self.network.message(target, process, lambda: process._run(f"from {address}", life, lambda: finish(answer)))

        def arrives() -> None:
            if self.network.rejects(process, target):
                back(Answer(Outcome.REFUSED))
            else:
                target.requested(method, text, back)

        self.when_free(lambda: self.network.request(process, target, arrives))

    def _asker(self, address: str) -> Asker:
        if address not in self._askers:
            self._askers[address] = Asker(self._loop, address, Dial(Login()))  # type: ignore[arg-type]
        return self._askers[address]

    def granted(self, claim: Json) -> None:
        """This broker has granted a claim, and is about to say so."""
        ballot = (claim["epoch"], claim["claimant"]["id"])
        self.process.check_stored(ballot, self.process.node.local.persisted.in_sync.key)

    def requested(self, method: str, arguments: str, back: Callable[[Answer], None]) -> None:
        """Another broker's request has reached our host."""
        process = self.process
        if not self.alive:
            back(Answer(Outcome.REFUSED))
            return
        self._number += 1
        number = self._number
        self._unanswered[number] = lambda: back(Answer(Outcome.REFUSED))

        def reply(value: Json) -> None:
            copy = json.loads(json.dumps(value))
            if method == "ha.claim" and (copy.get("result") or {}).get("granted"):
                self.granted(json.loads(arguments))
            self.when_free(lambda: answer(copy))

        def answer(value: Json) -> None:
            if self._unanswered.pop(number, None) and method not in self.mute:
                back(Answer(Outcome.ANSWERED, value.get("result") or {}, value.get("error", "")))
                if method == "ha.claim" and (value.get("result") or {}).get("granted"):
                    self.simulation.faults.moment("granted", process)  # the answer is under way: it cannot die *in* it

        process.run("admin", lambda: self.handle(method, json.loads(arguments), reply))

    def handle(self, method: str, arguments: Json, reply: Callable[[Json], None]) -> None:
        """A management request."""
        process = self.process
        process.node.note(method)
        if not process.broker.hooks.request(method, arguments, reply, process.settings.username):
            raise Violation(f"broker {self.name} does not know {method}")

    # ---- what is kept ---------------------------------------------------------------------------------------------

    def persist(self, state: HaState) -> None:
        """Raises StateNotStored; may raise Killed."""
        process = self.process
        state = HaState.from_json(json.loads(json.dumps(state.to_json())))
        vote = "a vote" if state.ballot != self.state.ballot else "a set"
        self.simulation.faults.moment(f"before {vote}", process)
        if self.write_seconds:
            process.stall(self.write_seconds)
        try:
            process.state_file.store(state)
        except OSError as error:
            self.simulation.history.counts[f"{vote} not stored"] += 1
            raise StateNotStored(str(error)) from error
        self.state = state
        self.simulation.history.persisted(state)
        self.simulation.faults.moment(f"after {vote}", process)

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        self.simulation.registry.exchange(self.process, state, timeout, done)

    def salvage(self, header: Header) -> SimSalvageFile:
        return SimSalvageFile(self.process, header)

    # ---- this broker ----------------------------------------------------------------------------------------------

    def close_clients(self, code: int, text: str) -> None:
        for connection in list(self.process.broker.connections):
            if connection.opened and (not connection.client.admin or connection.holds_messages):
                connection.close(code, text)

    def end(self, reason: str, code: int = EXIT_TWIN) -> None:
        """The process ends itself; it is not started again before an administrator has looked."""
        process, life = self.process, self.life
        self.scheduler.log(self.name, f"ends: {reason}")
        if code != EXIT_TWIN:
            self.simulation.rules.restart_later(process, 0.3)
            self.scheduler.at(0.0, lambda: process.kill() if life == self.life else None)
            return
        self.simulation.history.counts["ended as a twin"] += 1
        self.scheduler.at(0.0, lambda: process.kill() if life == self.life else None)

    def event(self, kind: str, **fields: object) -> None:
        shown = " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
        self.scheduler.log(self.name, f"[{kind}] {shown}")
        self.simulation.tap.broker(self.process, kind, fields)
        if kind == "backup_lost" and "too slow" in str(fields["reason"]):
            self.simulation.history.counts["dropped as slow"] += 1
        if kind == "backup_late":
            self.simulation.history.counts[f"late: {fields['result']}"] += 1
        if kind == "backup_connected":
            self.simulation.history.let_in(self.process, str(fields["peer"]))
        if kind == "promoted":
            self.simulation.history.promoted(self.process)
            self.simulation.rules.promoted(self.process)
        self.simulation.faults.moment(kind, self.process)

    def log(self, level: str, text: str) -> None:
        self.scheduler.log(self.name, text)
        if text.startswith("publishers wait"):
            self.simulation.history.counts["publishers wait"] += 1


class AdminDoor(Management):
    """Management requests that come over a connection."""

    def __init__(self, process: BrokerProcess) -> None:
        super().__init__(process.broker)
        self._process = process

    def work(
        self, method: str, arguments: Json, reply: Callable[[Json], None], asker: ClientConnection | None
    ) -> Slices:
        process = self._process

        def answer(value: Json) -> None:
            process.simulation.history.counts["answers over connections"] += 1
            granted = method == "ha.claim" and (value.get("result") or {}).get("granted")
            if granted:
                process.granted(arguments)
            if method not in process.mute:
                reply(value)
            if granted:
                process.scheduler.at(0.0, lambda: process.simulation.faults.moment("granted", process))

        return super().work(method, arguments, answer, asker)


class _Dialling:
    """A backup's way to a link: connect, shake hands as an AMQP client, hand over."""

    def __init__(
        self,
        process: BrokerProcess,
        address: str,
        properties: Mapping[str, object],
        timeout: float,
        done: Callable[[Link | Answer], None],
    ) -> None:
        self._process = process
        self._done = done
        self._over = False
        self._client = AmqpClient(ClientHandshake(Login(), properties), stop_when_open=True)
        process.after(timeout, lambda: self._finish(Answer(Outcome.SILENT, error="no answer in time")))
        target = process.simulation.by_address.get(address)
        if target is None:
            return
        self._end = end = process.network.connect(process, target)
        process.keep(end)
        end.on_data = self._data
        end.on_closed = lambda reason: self._finish(Answer(Outcome.REFUSED if reason == "refused" else Outcome.SILENT))
        end.send(self._client.take_output())

    def _data(self, data: bytes) -> None:
        try:
            events = self._client.feed(data)
        except AmqpError as error:
            self._finish(Answer(Outcome.SILENT, error=str(error)))
            return
        self._end.send(self._client.take_output())
        for event in events:
            if isinstance(event, Opened) and not self._over:
                self._over = True
                self._process.hand_over(self._client, self._end, self._done)
            elif isinstance(event, Closed):
                self._finish(Answer(Outcome.ANSWERED, error=event.reply_text))

    def _finish(self, answer: Answer) -> None:
        if not self._over:
            self._over = True
            if hasattr(self, "_end"):
                self._end.close()
            self._done(answer)
