"""One broker as a process of the simulation: the real core, broker and HA node in a world that is not real.

A process can be killed (its memory is gone, its host closes its connections), lose its host's power, be paused (as by
SIGSTOP: octets and timers wait, the clock runs on) and be started again with what it had on disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ha.environment import Answer, Json, Link, Outcome
from ha.link import OutgoingLink
from ha.membership import HaState
from ha.node import Node
from ha.plugin import ClusterHooks, VHostConfiguration
from ha.settings import NodeSettings
from qpidd_py.amqp.client import ClientConnection, ClientHandshake, Closed, Login, Opened
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.session import Session
from qpidd_py.core import Connection, Engine
from qpidd_py.errors import AmqpError
from tests.simulator.network import End
from tests.simulator.scheduler import Call, Violation

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

TICK = 0.1
"""Seconds between the ticks of the broker's shell."""


class SimTransport:
    """What a session asks of the shell."""

    def __init__(self, end: End) -> None:
        self.end = end
        self.session: Session

    def output_ready(self) -> None:
        self.end.send(self.session.connection.take_output())

    def disconnect(self) -> None:
        self.output_ready()
        self.end.close()


class SimOutgoingLink(OutgoingLink):
    """The backup's end of a link, on a simulated connection."""

    end: End
    process: BrokerProcess

    def link_batches(self, position: int) -> None:
        super().link_batches(position)
        self.process.simulation.history.applied(self.process)

    def output_ready(self) -> None:
        self.end.send(self.connection.take_output())


class _Wires:
    """Stands for the reactor, which an outgoing link asks to close its socket."""

    def __init__(self) -> None:
        self.ends: dict[Connection, End] = {}

    def remove(self, connection: Connection) -> None:
        end = self.ends.pop(connection, None)
        if end is not None:
            end.send(connection.take_output())
            end.close()


class OrderedSessions(dict[Session, None]):
    """A set of sessions whose order does not depend on where they lie in memory: a seed must replay exactly."""

    def add(self, session: Session) -> None:
        self[session] = None

    def discard(self, session: Session) -> None:
        self.pop(session, None)


class BrokerProcess:
    """A host with its broker, and `ha.environment.Environment` of the node in it."""

    engine: Engine
    broker: Broker
    node: Node

    def __init__(self, simulation: Simulation, name: str, settings: NodeSettings) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.network = simulation.network
        self.name = name
        self.settings = settings
        self.disk = HaState(id=f"id-{name}")
        self.life = 0
        self.alive = False
        self.paused = False
        self.powered = True
        self._waiting: list[tuple[object, int, Call]] = []
        self._ends: list[End] = []
        self._unanswered: dict[int, Callable[[], None]] = {}
        self._number = 0

    @property
    def address(self) -> str:
        return self.settings.address

    @property
    def running(self) -> bool:
        return self.alive and not self.paused

    @property
    def is_primary(self) -> bool:
        return self.alive and self.node.state.is_primary

    # ---- life -----------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start with an empty memory and with what is on disk."""
        self.life += 1
        self.alive, self.paused, self.powered = True, False, True
        self.scheduler.log(self.name, f"starts, life {self.life}")
        self._wires = _Wires()
        self.engine = Engine(segment_size=1 << 15)
        self.broker = Broker(self.name, heartbeat=1, rng=self.scheduler.rng, engine=self.engine)
        self.broker.sessions = OrderedSessions()  # type: ignore[assignment]
        self.broker.vhost.default_replicate = "all"
        self.broker.passive = True
        configuration = VHostConfiguration(self.broker)
        self.node = Node(self.settings, self.engine, configuration, self, self.disk)
        self.broker.hooks = ClusterHooks(self.node)
        self.engine.on_batch = self._batch
        self.engine.on_membership = self.node.membership
        self.engine.schedule = self._schedule
        self.run("timer", self.node.start)
        self.after(TICK, self._tick)

    def _batch(self, batch: Any) -> None:
        self.node.batch(batch)
        self.simulation.history.sealed(self, batch)

    def forget(self) -> None:
        """The simulation is over."""
        self.alive = False
        self._waiting.clear()

    def _schedule(self) -> None:
        self.after(self.scheduler.rng.choice((0.0, 0.0, 0.0003)), self.engine.end_turn)

    def _tick(self) -> None:
        self.engine.tick()
        self.broker.tick(self.scheduler.now)
        self.after(TICK, self._tick)

    def kill(self, power: bool = False) -> None:
        """SIGKILL, or the host loses its power."""
        if not self.alive:
            return
        self.scheduler.log(self.name, "loses power" if power else "is killed")
        self.alive, self.powered = False, not power
        self._waiting.clear()
        ends, self._ends = self._ends, []
        for end in ends:
            end.abort() if power else end.close()
        unanswered, self._unanswered = self._unanswered, {}
        if not power:
            for refuse in unanswered.values():
                refuse()
        self.simulation.history.crashed(self)
        self.simulation.manager.witness_died()

    def pause(self) -> None:
        self.scheduler.log(self.name, "is stopped (SIGSTOP)")
        self.paused = True

    def resume(self) -> None:
        """What waited happens now: each source in its order, the sources as the seed mixes them."""
        if not self.alive or not self.paused:
            return
        self.scheduler.log(self.name, "goes on (SIGCONT)")
        self.paused = False
        waiting, self._waiting = self._waiting, []
        sources: dict[int, list[tuple[object, int, Call]]] = {}
        for item in waiting:
            sources.setdefault(id(item[0]) if isinstance(item[0], End) else hash(item[0]), []).append(item)
        queues = list(sources.values())
        while queues:
            queue = self.scheduler.rng.choice(queues)
            source, life, call = queue.pop(0)
            if not queue:
                queues.remove(queue)
            self._run(source, life, call)

    # ---- running --------------------------------------------------------------------------------------------------

    def run(self, source: object, call: Call) -> None:
        self._run(source, self.life, call)

    def _run(self, source: object, life: int, call: Call) -> None:
        if not self.alive or life != self.life:
            return
        if self.paused:
            self._waiting.append((source, life, call))
            return
        try:
            call()
        except Violation:
            raise
        except Exception as error:
            self.scheduler.log(self.name, f"BROKEN: {type(error).__name__}: {error}")
            raise Violation(f"broker {self.name} breaks: {type(error).__name__}: {error}") from error

    def accept(self, end: End) -> bool:
        """A connection arrives."""
        if not self.alive:
            return False
        self._ends.append(end)
        self.run(end, lambda: self._accepted(end))
        return True

    def _accepted(self, end: End) -> None:
        transport = SimTransport(end)
        session = Session(self.broker, end.peer_host.name, transport)
        transport.session = session
        end.on_data = session.connection.feed
        end.on_closed = session.closed

    # ---- Environment ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.scheduler.now

    def after(self, delay: float, call: Call) -> None:
        life = self.life
        self.scheduler.at(delay, lambda: self._run("timer", life, call))

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        target, life = self.simulation.by_address[address], self.life
        over: list[bool] = []
        text = json.dumps(arguments)

        def finish(answer: Answer) -> None:
            if not over:
                over.append(True)
                done(answer)

        def back(answer: Answer) -> None:
            self.network.message(target, self, lambda: self._run(f"from {address}", life, lambda: finish(answer)))

        self.after(timeout, lambda: finish(Answer(Outcome.SILENT)))
        self.network.message(self, target, lambda: target.requested(method, text, back))

    def requested(self, method: str, arguments: str, back: Callable[[Answer], None]) -> None:
        """Another broker's request has reached our host."""
        if not self.alive:
            back(Answer(Outcome.REFUSED))
            return
        self._number += 1
        number = self._number
        self._unanswered[number] = lambda: back(Answer(Outcome.REFUSED))

        def reply(value: Json) -> None:
            if self._unanswered.pop(number, None):
                copy = json.loads(json.dumps(value))
                back(Answer(Outcome.ANSWERED, copy.get("result", {}), copy.get("error", "")))

        self.run("admin", lambda: self._handle(method, arguments, reply))

    def _handle(self, method: str, arguments: str, reply: Callable[[Json], None]) -> None:
        if not self.node.request(method, json.loads(arguments), reply):
            raise Violation(f"broker {self.name} does not know {method}")

    def connect(
        self, address: str, properties: Mapping[str, object], timeout: float, done: Callable[[Link | Answer], None]
    ) -> None:
        _Dialling(self, address, properties, timeout, done)

    def keep(self, end: End) -> None:
        self._ends.append(end)

    def hand_over(self, client: ClientConnection, end: End, done: Callable[[Link | Answer], None]) -> None:
        """The handshake is over: from here on the core reads."""
        link = SimOutgoingLink(self.node, self.engine, self._wires)  # type: ignore[arg-type]
        link.end, link.process = end, self
        self._wires.ends[link.connection] = end
        end.on_data, end.on_closed = link.connection.feed, link.closed
        done(link)
        if rest := client.left_over():
            link.connection.feed(rest)

    def persist(self, state: HaState) -> None:
        self.disk = HaState.from_json(json.loads(json.dumps(state.to_json())))

    def close_clients(self, code: int, text: str) -> None:
        for session in list(self.broker.sessions):
            if session.link is None and (not session.admin or session.holds_messages):
                session.close(code, text)

    def event(self, kind: str, **fields: object) -> None:
        shown = " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
        self.scheduler.log(self.name, f"[{kind}] {shown}")
        if kind == "promoted":
            self.simulation.history.promoted(self)

    def log(self, level: str, text: str) -> None:
        self.scheduler.log(self.name, text)


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
        self._client = ClientConnection(ClientHandshake(Login(), properties), stop_when_open=True)
        end = process.network.connect(process, process.simulation.by_address[address])
        self._end = end
        process.keep(end)
        end.on_data = self._data
        end.on_closed = lambda reason: self._finish(Answer(Outcome.REFUSED if reason == "refused" else Outcome.SILENT))
        end.send(self._client.take_output())
        process.after(timeout, lambda: self._finish(Answer(Outcome.SILENT, error="no answer in time")))

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
            self._end.close()
            self._done(answer)
