"""What must hold: the record of what clients sent and were told, and the checks on it.

A *copy* is one publish: message and attempt, as `p1.17@2`.  Each copy has a body that no other copy has.

    I1  a confirmed copy is, in each of its queues, held by every later primary or was delivered, exactly as sent
    I2  a confirm that comes from a deposed primary is good all the same: every newer primary has the copy (I1)
    I3  a backup that follows holds at position P, in each queue, the ids that the primary held at P (log prefix)
    I4  counters and order inside every queue are right (Queue.check)
    I5  one consumer of one connection gets what was not redelivered in the order in which it was published
    I6  a transaction is whole or absent: its outputs all there or none; its input consumed or not, accordingly
    I7  configuration: what was declared is there on every later primary; what was deleted is not
    I8  nothing is delivered that was never sent, or not as it was sent

What a total failure takes (no whole member of the newest in-sync set is alive any more) is excused: promise 1 holds
while one in-sync replica survives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ha.backup import Backup, Step
from ha.membership import InSync
from qpidd_py.core import Batch, decode_ids
from qpidd_py.errors import InvariantError
from tests.simulator.scheduler import Violation

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

Ballot = tuple[int, str]
Contents = dict[str, dict[str, bytes]]


@dataclass
class Copy:
    """One publish."""

    queues: tuple[str, ...]
    body: bytes
    confirmed: str = ""
    """When, and by whom."""
    ballot: Ballot = (0, "")
    """Of the primary that has confirmed."""
    excused: bool = False


@dataclass
class Job:
    """One transaction: a message of `work` settled, and outputs."""

    source: str
    outputs: list[tuple[str, str]]
    state: str = "open"
    excused: bool = False


@dataclass
class Promotion:
    """What a new primary held when it was promoted."""

    ballot: Ballot
    name: str
    contents: Contents


@dataclass
class Stream:
    """Order in one consumer: the last copy by (producer, attempt)."""

    last: dict[tuple[str, str], int] = field(default_factory=dict)


def contents(process: BrokerProcess) -> Contents:
    """Everything in the replicated queues of a broker: {queue: {copy: body}}."""
    found: Contents = {}
    for queue in process.broker.vhost.queues.values():
        if queue.core.replicated:
            messages = (message[5] for message in queue.core.peek(1 << 30))
            found[queue.name] = {body.partition(b"|")[0].decode(): body for body in messages}
    return found


def held_ids(process: BrokerProcess) -> dict[int, bytes]:
    return {queue.number: queue.held() for queue in process.engine.queues.values() if queue.replicated}


def check_queues(process: BrokerProcess) -> None:
    """I4."""
    for queue in process.engine.queues.values():
        try:
            queue.check()
        except InvariantError as error:
            raise Violation(f"I4: {process.name}: {error}") from error


class History:
    """The omniscient observer."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.copies: dict[str, Copy] = {}
        self.taken: dict[str, set[str]] = {}
        """Copies delivered, by queue."""
        self.jobs: dict[str, Job] = {}
        self.declared: dict[str, bool | None] = {}
        """Queues of the architect: there, not there, or nobody can tell."""
        self._in_doubt: set[str] = set()
        self.promotions: list[Promotion] = []
        self.counts: dict[str, int] = {}
        self.ends: dict[tuple[str, int], dict[int, bytes]] = {}
        """(primary, position) -> ids held at the end of that batch."""
        self.streams: dict[str, Stream] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _log(self, text: str) -> None:
        self.simulation.scheduler.log("", text)

    # ---- clients say ----------------------------------------------------------------------------------------------

    def published(self, name: str, queues: tuple[str, ...], body: bytes) -> None:
        self.count("published")
        self.copies[name] = Copy(queues, body)
        self._log(f"publish {name} to {'+'.join(queues)}")

    def confirmed(self, name: str, broker: BrokerProcess, ballot: Ballot) -> None:
        """`ballot`: under which the broker has let this client in."""
        copy = self.copies[name]
        self.count("confirmed")
        copy.confirmed = f"by {broker.name} at {self.simulation.scheduler.now:.4f}"
        copy.ballot = ballot
        self._log(f"confirmed {name} by {broker.name}")
        for promotion in self.promotions:
            # Those that were promoted over the broker that has confirmed: it may be dead, deposed, or not know yet.
            if promotion.ballot > ballot:
                self._check_copy(name, copy, promotion)

    def delivered(self, queue: str, stream: str, redelivered: bool, body: bytes) -> str:
        name = body.partition(b"|")[0].decode()
        copy = self.copies.get(name)
        self.count("redelivered" if redelivered else "delivered")
        self._log(f"delivered {name} from {queue} to {stream}{' redelivered' if redelivered else ''}")
        if copy is None or copy.body != body or queue not in copy.queues:
            raise Violation(f"I8: {body[:40]!r} was delivered from {queue}, but never sent like that")
        self._check_work(queue, name)
        self.taken.setdefault(queue, set()).add(name)
        if not redelivered:
            self._check_order(queue, stream, name)
        return name

    def _check_order(self, queue: str, stream: str, name: str) -> None:
        key, _, attempt = name.partition("@")
        producer, _, number = key.partition(".")
        last = self.streams.setdefault(stream, Stream()).last
        if last.get((producer, attempt), 0) >= int(number):
            raise Violation(f"I5: {stream} gets {name} from {queue} behind number {last[producer, attempt]}")
        last[producer, attempt] = int(number)

    def begun(self, job: str, source: str, outputs: list[tuple[str, str]]) -> None:
        self.jobs[job] = Job(source, outputs, excused=self.copies[source].excused)
        for queue, name in outputs:
            self.copies[name] = Copy((queue,), f"{name}|".encode())
        self._log(f"transaction {job}: {source} -> {' '.join(name for _, name in outputs)}")

    def committing(self, job: str) -> None:
        self.jobs[job].state = "unknown"

    def committed(self, job: str, broker: BrokerProcess) -> None:
        self.count("committed")
        self.jobs[job].state = "committed"
        self._log(f"committed {job} by {broker.name}")

    def _check_work(self, queue: str, name: str) -> None:
        done = [job for job, each in self.jobs.items() if each.source == name and each.state == "committed"]
        if queue == "work" and done and not self.jobs[done[0]].excused:
            raise Violation(f"I6: {name} is delivered again, but {done[0]} was committed")

    def architect(self, name: str, there: bool | None) -> None:
        if there is None:
            self._in_doubt.discard(name)
        elif name in self._in_doubt:
            return  # the answer was under way when everything was lost
        self.declared[name] = there
        if there is not None:
            self.count("configured")
            self._log(f"queue {name} is {'declared' if there else 'deleted'}")

    # ---- brokers say ----------------------------------------------------------------------------------------------

    def sealed(self, process: BrokerProcess, batch: Batch) -> None:
        """A primary has sealed a batch; of several that are sealed together only the last one shows a state."""
        check_queues(process)
        if batch.last == process.engine.position:
            self.ends[process.node.id, batch.last] = held_ids(process)

    def applied(self, process: BrokerProcess) -> None:
        """A backup has applied batches.  I3."""
        check_queues(process)
        role = process.node.role
        if not isinstance(role, Backup) or role.step is not Step.FOLLOWING or role.leader is None:
            return
        wanted = self.ends.get((role.leader.id, process.engine.position))
        if wanted is None:
            return
        self.count("prefixes compared")
        found = held_ids(process)
        if found != wanted:
            raise Violation(f"I3: {process.name} at {process.engine.position:#x}: {_differ(process, wanted, found)}")

    def promoted(self, process: BrokerProcess) -> None:
        """I1, I4, I6, I7 on the new primary, before it does anything."""
        self.count("promotions")
        check_queues(process)
        promotion = Promotion(process.node.persisted.ballot, process.name, contents(process))
        self.promotions.append(promotion)
        for name, copy in self.copies.items():
            # One that comes late with a lower ballot will be deposed; it owes nothing to higher ones.
            if copy.confirmed and copy.ballot < promotion.ballot:
                self._check_copy(name, copy, promotion)
        if any(earlier.ballot > promotion.ballot for earlier in self.promotions):
            self.count("promotions below another")
            return
        self._check_jobs(promotion)
        for name, there in self.declared.items():
            if there is not None and there != (name in promotion.contents):
                raise Violation(
                    f"I7: queue {name} {'was declared' if there else 'was deleted'}; not so on {process.name}"
                )

    def _check_copy(self, name: str, copy: Copy, promotion: Promotion) -> None:
        for queue in copy.queues:
            if copy.excused or name in self.taken.get(queue, ()):
                continue
            if name not in promotion.contents.get(queue, {}):
                who = f"{promotion.name}, primary of epoch {promotion.ballot[0]}"
                raise Violation(f"I1: {name}, confirmed {copy.confirmed}, is not in {queue} of {who}")

    def _check_jobs(self, promotion: Promotion) -> None:
        """The outputs are never consumed: so they are there or not, and together."""
        for name, job in self.jobs.items():
            there = [output in promotion.contents.get(queue, {}) for queue, output in job.outputs]
            if job.excused:
                continue
            if any(there) != all(there):
                raise Violation(f"I6: {promotion.name} has part of the transaction {name}: {there}")
            if job.state == "committed" and not all(there):
                raise Violation(f"I6: {promotion.name} lacks the committed transaction {name}")
            if job.state == "open" and any(there):
                raise Violation(f"I6: {promotion.name} has the transaction {name}, which was not committed")
            if all(there) == (job.source in promotion.contents.get("work", {})):
                what = "outputs and input" if all(there) else "neither outputs nor input"
                if all(there) or not self._done(job, promotion):
                    raise Violation(f"I6: {promotion.name} has {what} of the transaction {name}")

    def _done(self, job: Job, promotion: Promotion) -> bool:
        """Another transaction has the same input, and its outputs are there; or the input had never been safe."""
        if not self.copies[job.source].confirmed:
            return True
        return any(
            other.source == job.source
            and all(output in promotion.contents.get(queue, {}) for queue, output in other.outputs)
            for other in self.jobs.values()
        )

    def crashed(self, process: BrokerProcess) -> None:
        """Was that the last one that held everything?"""
        if self.survivors():
            return
        self._log("TOTAL FAILURE: no whole member of the newest in-sync set is left; what was confirmed is excused")
        self.count("total failures")
        for copy in self.copies.values():
            copy.excused = True
        for job in self.jobs.values():
            job.excused = True
        self._in_doubt = {name for name, there in self.declared.items() if there is None}
        self.declared = dict.fromkeys(self.declared)

    def newest(self) -> InSync:
        return max((process.disk.in_sync for process in self.simulation.brokers), key=lambda in_sync: in_sync.key)

    def survivors(self, among: Iterable[BrokerProcess] | None = None) -> list[BrokerProcess]:
        """Alive, whole, and in the newest in-sync set; everyone before there was any."""
        newest = self.newest()
        candidates = self.simulation.brokers if among is None else among
        alive = [process for process in candidates if process.alive]
        if not newest.version:
            return alive
        return [process for process in alive if process.node.whole and process.node.id in newest]

    # ---- at the end -----------------------------------------------------------------------------------------------

    def check_end(self, primary: BrokerProcess) -> None:
        """Faults are over, everything was drained: nothing may be missing, and all brokers are equal."""
        for process in self.simulation.brokers:
            check_queues(process)
        promotion = Promotion(primary.node.persisted.ballot, primary.name, contents(primary))
        for name, copy in self.copies.items():
            if copy.confirmed:
                self._check_copy(name, copy, promotion)
        self._check_jobs(promotion)
        self._check_alien(promotion)
        wanted = _everything(primary)
        for process in self.simulation.brokers:
            if process is not primary and (found := _everything(process)) != wanted:
                raise Violation(
                    f"I3: at the end {process.name} is not equal to {primary.name}: {_first(wanted, found)}"
                )

    def _check_alien(self, promotion: Promotion) -> None:
        for queue, messages in promotion.contents.items():
            for name, body in messages.items():
                copy = self.copies.get(name)
                if copy is None or copy.body != body or queue not in copy.queues:
                    raise Violation(f"I8: {name} in {queue} was never sent like that")


def _differ(process: BrokerProcess, wanted: dict[int, bytes], found: dict[int, bytes]) -> str:
    if wanted.keys() != found.keys():
        return f"queues {sorted(found)}, expected {sorted(wanted)}"
    for number, ids in wanted.items():
        if found[number] != ids:
            name = process.engine.queues[number].name
            return f"queue {name} holds {_hex(decode_ids(found[number]))}, expected {_hex(decode_ids(ids))}"
    return ""


def _hex(ranges: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"{low >> 48}.{low & 0xFFFFFFFFFFFF}-{high & 0xFFFFFFFFFFFF}" for low, high in ranges)


def _everything(process: BrokerProcess) -> dict[str, Any]:
    """Configuration and messages, without what only a primary knows (redelivered)."""
    # Position 0 has the next free queue number; one that was primary may have given out more, which does no harm.
    found: dict[str, Any] = {"configuration": sorted(each for each in process.broker.vhost.snapshot() if each[0])}
    for queue in process.broker.vhost.queues.values():
        if queue.core.replicated:
            messages = queue.core.peek(1 << 30)
            found[queue.name] = [(message[0], *message[2:]) for message in messages]
    return found


def _first(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            return f"{name}: found {str(found.get(name))[:300]}, expected {str(wanted.get(name))[:300]}"
    return ""
