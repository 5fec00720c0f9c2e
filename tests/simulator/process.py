"""One broker as a process of the simulation: the real core, broker and HA node in a world that is not real.

A process can be killed (its memory is gone, its host closes its connections), lose its host's power, die in the middle
of a write, be paused (as by SIGSTOP: octets and timers wait, the clock runs on), stand still in a write to a slow disk,
and be started again with what it had on disk, or on a new machine without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ha.model.local_member import LocalMember
from ha.model.membership import HaState, Member
from ha.model.settings import NodeSettings
from ha.model.state_file import NAME as STATE_FILE
from ha.model.state_file import StateFile, StateFileError, newest
from ha.model.twins import with_new_identity
from ha.shell.cluster_hooks import ClusterHooks
from ha.shell.configuration import VHostConfiguration
from ha.shell.recovering import Recovering
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.policy_keys import POLICY
from qpidd_py.broker.settings import Key
from qpidd_py.core import Engine
from qpidd_py.doorman import Hooks
from qpidd_py.errors import ConfigError, PageError
from qpidd_py.store.progress import Step
from tests.simulator.coverage import CoveredNode
from tests.simulator.disk import Disk, Killed
from tests.simulator.environment import Ports
from tests.simulator.follower import Passes
from tests.simulator.journal import SimulatedJournal
from tests.simulator.lateness import LateJudge
from tests.simulator.network import End
from tests.simulator.pages import SimulatedPages
from tests.simulator.reactor import Reactor
from tests.simulator.scheduler import TICK, Call, Violation
from tests.support.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

CHANGE = 0.1
"""How often the source of highest priority becomes the lowest, while what has waited is done."""
STEP = Step("read the journal", "frames", 1, 2, 1.0)
WALL = 1_800_000_000
"""Seconds since 1970 at the beginning of a simulation."""


@dataclass(frozen=True)
class Clock:
    """How a process sees virtual time."""

    rate: float = 1.0
    offset: float = 0.0
    """Seconds, of the monotonic clock."""
    wall: float = 0.0
    """Seconds, of the wall clock."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Clock:
        return cls(*values)


class OrderedConnections(dict[ClientConnection, None]):
    """A set of connections whose order does not depend on where they lie in memory: a seed must replay exactly."""

    def add(self, connection: ClientConnection) -> None:
        self[connection] = None

    def discard(self, connection: ClientConnection) -> None:
        self.pop(connection, None)


class BrokerProcess(Ports):
    """A host with its broker."""

    engine: Engine
    broker: Broker
    node: CoveredNode
    reactor: Reactor
    pages: SimulatedPages | None
    passes: Passes
    """Its queues that brokers outside follow."""

    def __init__(self, simulation: Simulation, name: str, settings: NodeSettings, clock: Clock) -> None:
        super().__init__(simulation, name)
        self.settings = settings
        self.clock = clock
        self.disk = Disk()
        self.state_file = StateFile(self.disk)
        self.state: HaState
        """What is on disk."""
        self._checked: HaState | None = None
        self.platter = MemoryDisk()
        """The disk of its journal."""
        self.journal: SimulatedJournal | None = None
        self.content: Member | None = None
        """Whose content the journal has; None without one, or if that is less than was acknowledged."""
        self.outdated = False
        """Its data directory was put back from a backup, and nothing was copied to it since."""
        self.life = 0
        self.alive = False
        self.paused = False
        self.powered = True
        self.buried = False
        """It is not started again."""
        self.busy_until = 0.0
        self.seen_safe = 0
        self.logged = 0
        """Octets of the batches that it has sealed as primary."""
        self.late = LateJudge(self)
        self.machine = 0
        self.original: BrokerProcess | None = None
        """Whose data directory was copied here."""
        self._waiting: list[tuple[object, int, Call]] = []
        self._brokers: list[Broker] = []
        """Of all its lives."""
        self._ends: list[End] = []
        self._unanswered: dict[int, Callable[[], None]] = {}
        self.new_machine()

    @property
    def address(self) -> str:
        return self.settings.address

    @property
    def running(self) -> bool:
        return self.alive and not self.paused

    @property
    def is_primary(self) -> bool:
        return self.alive and self.node.local.state.is_primary

    # ---- life -----------------------------------------------------------------------------------------------------

    def new_machine(self) -> None:
        """An empty disk, and so another identity."""
        self.machine += 1
        self.disk, self.platter, self.content, self.outdated = Disk(), MemoryDisk(), None, False
        self.state = HaState(f"id-{self.name}" if self.machine == 1 else f"id-{self.name}-{self.machine}")
        StateFile(self.disk).store(self.state)

    def copy_of(self, original: BrokerProcess, address: str) -> None:
        """An administrator copies the data directory of another broker, and its configuration; not its memory."""
        self.disk, self.state, self.original = Disk(), original.state, original
        self.platter, self.content = original.platter.copy(), original.content
        StateFile(self.disk).store(self.state)
        self.settings = replace(original.settings, name=self.name, address=address)

    def put_away(self) -> None:
        """It is never started again."""
        self.life, self.settings = 0, replace(self.settings, address=f"{self.name}:5672")

    def new_identity(self) -> None:
        """As `--new-identity` does."""
        self.machine += 1
        self.state = with_new_identity(self.state, f"id-{self.name}-{self.machine}")
        StateFile(self.disk).store(self.state)

    def configure(self) -> None:
        """An administrator writes the present members into `ha-brokers-url`, and this one."""
        members = [process.address for process in self.simulation.members]
        try:
            self.settings = replace(self.settings, brokers=tuple(dict.fromkeys([*members, self.address])))
        except ConfigError as error:
            raise Violation(f"liveness: {self.name} cannot start with the present members: {error}") from error

    def boot(self) -> None:
        """Start with an empty memory and with what is on disk."""
        self.life += 1
        self.alive, self.paused, self.powered, self.busy_until = True, False, True, self.scheduler.now
        self.state = self._load()
        self.scheduler.log(self.name, f"starts, life {self.life}, {self.state.id} at epoch {self.state.epoch}")
        self.simulation.history.loaded(self.state)
        self.engine = self._engine(**self.simulation.scenario.option("segments", {}))
        if units := self.simulation.scenario.option("looks", 0):
            self.engine.slice.look, self.engine.slice.most = units, 1
        read = self.simulation.scenario.option("pages", None)
        self.pages = SimulatedPages(self, read) if read is not None else None
        self.engine.now = self.wall_clock()
        self.seen_safe = self.engine.safe
        self.broker = Broker(self.name, heartbeat=1, rng=self.rng, engine=self.engine)
        self.broker.connections = OrderedConnections()  # type: ignore[assignment]
        self._brokers.append(self.broker)
        by_policy = self.simulation.scenario.option("policy", False)
        self.broker.vhosts.rules.default_replicate = "none" if by_policy else "all"
        self.broker.vhosts.rules.clustered = True
        self.broker.passive = True
        configuration, run = VHostConfiguration(self.broker), f"{self.name}.{self.life}"
        options = self.simulation.scenario.option("journal", {})
        self.journal = SimulatedJournal(self, self.platter, **options) if options else None
        journal = self.journal.journal if self.journal is not None else None
        self.node = CoveredNode(LocalMember(self.settings, self.engine, configuration, self, self.state, run, journal))
        self.node.pairs = self.simulation.pairs
        self.node.candidacy.news = partial(self.simulation.news, self)
        self.passes = Passes(self)
        self.engine.on_batch = self._batch
        self.engine.on_membership = self.node.membership
        self.engine.schedule = self._schedule
        self.reactor = Reactor(self)
        self.opened()
        if self.journal is not None:
            self.journal.begin()
            self.content = None if self.outdated else self.node.local.member
        self.simulation.tap.started(self)
        reads: float = self.simulation.scenario.option("reads", 0.0)
        if reads or self.journal is not None:
            self.broker.hooks = Hooks(self.name, Recovering(self.name, lambda: STEP, self.settings.username).request)
        if reads and self.life > 1:
            self.after(self.rng.uniform(0.0, reads), self._was_read)
        else:
            self.run("timer", self._was_read)

    def _was_read(self) -> None:
        """Its journal is read, and nothing is lost that the disk does not have of this run (`Store.settled`)."""
        if self.journal is not None:
            self.journal.when_settled(self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        """It becomes a member."""
        self.broker.hooks = ClusterHooks(self.node, self.passes)
        self.node.start()
        self.after(TICK, self._tick)

    def set_policy(self) -> None:
        """An administrator's (option `policy`), before a client declares anything."""
        key = Key(POLICY, "/", "ha")
        if not self.broker.passive and self.broker.settings.get(key) is None:
            value = {"pattern": "", "apply-to": "all", "priority": 0, "definition": {"ha-mode": "all"}}
            self.broker.settings.put(key, value)

    @staticmethod
    def _engine(size: int = 1 << 15, sparse: int = 1 << 18, sweep: int = 50000) -> Engine:
        """Octets of a segment of its log, octets that a compaction must win, index entries that a tick looks at."""
        engine = Engine(segment_size=size)
        engine.pool.sparse, engine.sweep_most = sparse, sweep
        return engine

    def _load(self) -> HaState:
        self.state_file = StateFile(self.disk)
        try:
            state = self.state_file.open()
        except StateFileError as error:
            raise Violation(f"I14: the state file of {self.name} is damaged: {error}") from error
        assert state is not None
        if state.ballot < self.state.ballot or state.in_sync.key < self.state.in_sync.key:
            raise Violation(f"I14: {self.name} has stored {self.state}, and after a restart has {state}")
        return state

    def check_stored(self, ballot: tuple[int, str], key: tuple[int, str, int]) -> None:
        """I14: that much is on the disk, whatever happens now."""
        try:
            found = newest(self.disk.durable(STATE_FILE))[1]
        except StateFileError as error:
            raise Violation(f"I14: on the disk of {self.name} is no state: {error}") from error
        if ballot > found.ballot or key > found.in_sync.key:
            raise Violation(f"I14: {self.name} acts on {ballot} and set {key}, on its disk is {found}")

    def _batch(self, batch: Any) -> None:
        self.logged += len(batch)
        before = {link: link.backlog for link in self.links}
        self.node.batch(batch)
        self.simulation.history.judge.throttles(self, before)
        self.simulation.history.sealed(self, batch)
        if self.simulation.faults.waits_for("letter") and b"x-death" in bytes(batch):
            self.simulation.faults.moment("letter", self)

    def forget(self) -> None:
        """The simulation is over."""
        self.alive = False
        self.died()
        self._waiting.clear()
        for broker in self._brokers:
            # What a client holds refers to its consumer in the core, where the garbage collector does not see it.
            broker.engine.schedule = broker.engine.on_batch = None
            for connection in list(broker.connections):
                connection.core.close()
            broker.engine.end_turn()  # what it held comes back in slices: all of it, as no turn is asked for

    def _schedule(self) -> None:
        if self.reactor.reading:
            return
        longest: float = self.simulation.scenario.option("turn", 0.0003)
        self.after(self.rng.choice((0.0, 0.0, longest)), self.engine.end_turn)

    def _tick(self) -> None:
        swept = self.engine.pool.swept
        self.engine.tick()
        self.simulation.history.counts["octets compacted"] += self.engine.pool.swept - swept
        if self.pages is not None:
            self.pages.tick()
        self.broker.tick(self.now())
        for transport in self.transports:
            transport.look()
        self.simulation.history.judge.backlogs(self)
        self.late.look()
        self.after(TICK, self._tick)

    def kill(self, power: bool = False) -> None:
        """SIGKILL, or the host loses its power."""
        if not self.alive:
            return
        self.scheduler.log(self.name, "loses power" if power else "is killed")
        self.alive, self.powered = False, not power
        self.died()
        self.disk.settle(self.rng, power)
        if self.journal is not None:
            self.journal.die(self.rng, power)
        self._waiting.clear()
        ends, self._ends = self._ends, []
        for end in ends:
            end.crash(power)
        self.busy_until = self.scheduler.now
        unanswered, self._unanswered = self._unanswered, {}
        if not power:
            for refuse in unanswered.values():
                refuse()
        self.simulation.history.crashed(self)
        self.simulation.rules.witness_died()
        for manager in self.simulation.managers:
            manager.died(self)

    def pause(self) -> None:
        self.scheduler.log(self.name, "is stopped (SIGSTOP)")
        self.paused = True

    def resume(self) -> None:
        """What waited happens now: each source in its order, the sources as the seed mixes them."""
        if not self.alive or not self.paused:
            return
        self.scheduler.log(self.name, "goes on (SIGCONT)")
        self.paused = False
        if self.reactor.in_turn:
            self.turn_goes_on(self.life)
        else:
            self._drain()

    def turn_goes_on(self, life: int) -> None:
        """In the middle of a poll time has passed; nothing else has run."""
        if not self.running or life != self.life or not self.reactor.in_turn or self.scheduler.now < self.busy_until:
            return
        self._execute(self.reactor.go_on)
        self._drain()

    def stall(self, seconds: float) -> None:
        """A system call takes that long: what follows it in this call happens later, to the world, and all else too."""
        self.busy_until = max(self.busy_until, self.scheduler.now) + seconds
        life = self.life
        self.scheduler.at(self.busy_until - self.scheduler.now, lambda: self._drain() if life == self.life else None)

    def _drain(self) -> None:
        if not self.running or not self._waiting or self._busy:
            return
        waiting, self._waiting = self._waiting, []
        sources: dict[int, list[tuple[object, int, Call]]] = {}
        numbers: dict[object, int] = {}
        for item in waiting:
            sources.setdefault(numbers.setdefault(item[0], len(numbers)), []).append(item)
        queues = list(sources.values())
        by_priority: bool = self.simulation.scenario.option("search", {}).get("priorities", False)
        self.rng.shuffle(queues)
        while queues:
            queue = self._next(queues) if by_priority else self.rng.choice(queues)
            source, life, call = queue.pop(0)
            if not queue:
                queues.remove(queue)
            self._run(source, life, call)

    def _next(self, queues: list[list[tuple[object, int, Call]]]) -> list[tuple[object, int, Call]]:
        """The source of highest priority, until it is empty or becomes the lowest (PCT, Burckhardt et al. 2010)."""
        if self.rng.random() < CHANGE:
            queues.append(queues.pop(0))
        return queues[0]

    # ---- running --------------------------------------------------------------------------------------------------

    def run(self, source: object, call: Call) -> None:
        self._run(source, self.life, call)

    def _run(self, source: object, life: int, call: Call) -> None:
        if not self.alive or life != self.life:
            return
        if self.paused or self._busy:
            self._waiting.append((source, life, call))
            return
        self._execute(call)

    @property
    def _busy(self) -> bool:
        return self.scheduler.now < self.busy_until or self.reactor.in_turn

    def _execute(self, call: Call) -> None:
        self.engine.now = self.wall_clock()
        try:
            call()
        except Violation:
            raise
        except PageError as error:
            self.scheduler.log(self.name, f"ends: {error}")
            self.simulation.faults.died(self)
            return
        except Killed:
            self.scheduler.log(self.name, "dies in the middle of a write")
            self.simulation.faults.died(self)
            return
        except Exception as error:
            self.scheduler.log(self.name, f"BROKEN: {type(error).__name__}: {error}")
            raise Violation(f"broker {self.name} breaks: {type(error).__name__}: {error}") from error
        if self.node.local.persisted is not self._checked:
            self._checked = self.node.local.persisted
            self.check_stored(self._checked.ballot, self._checked.in_sync.key)
        safe = self.engine.safe
        if safe != self.seen_safe:
            self.seen_safe = safe
            self.simulation.history.judge.safe_moved(self)
        self.reactor.look()

    def wall_clock(self) -> int:
        """Milliseconds since 1970."""
        return self.wall_clock_us() // 1000

    def wall_clock_us(self) -> int:
        """Microseconds since 1970."""
        return int(1e6 * (WALL + self.scheduler.now + self.clock.wall))

    def accept(self, end: End) -> bool:
        """A connection arrives."""
        if not self.alive:
            return False
        self._ends.append(end)
        self.run(end, lambda: self.accepted(end))
        return True

    def keep(self, end: End) -> None:
        self._ends.append(end)
