"""What must hold: the record of what clients sent and were told, and the checks on it.

A *copy* is one publish: message and attempt, as `p1.17@2`.  Each copy has a body that no other copy has.  What the logs
say of it is in `ledger.py`.  Acknowledged is what a client has sent basic.ack for, and what the host of a broker has
taken for a client with automatic acknowledgement; a delivery by itself is nothing.

    I1   a confirmed copy is, in each of its queues, held by every later primary, exactly as sent; or a client has
         acknowledged it; or the log that this primary holds says that it was removed, or says why no queue took it
    I2   a confirm that comes from a deposed primary is good all the same: every newer primary has the copy (I1)
    I3   a backup that follows holds at position P, in each queue, the ids that the primary held at P (log prefix)
    I4   counters and order inside every queue are right (Queue.check)
    I5   one consumer of one connection gets what was not redelivered in the order in which it was published
    I6   a transaction is whole or absent: its outputs all there or none; its input consumed or not, accordingly; it is
         there when it was committed, and when a client got one of its outputs
    I7   configuration: what was declared is there on every later primary; what was deleted is not
    I8   nothing is delivered that was never sent, or not as it was sent
    I9   when a primary's `safe` moves, every rival has all that becomes safe: who was promoted with a higher ballot,
         later or still living (one that died before took nothing along; the next one is held to I1)
    I10  when a primary's `safe` moves, every living whole member of its in-sync set shows the ids that the log up to
         there brought in and did not take out, whatever position it claims (`shadow.py`), and so does every member of
         the sets that those know (one that was removed counts until all that remain know it)
    I11  a confirm is released once, and only for what was sent (`producers.py`)
    I12  what was rejected or returned is in no queue
    I13  what was confirmed before a purge or a deletion that was answered is on no later primary, in that queue
    I14  what was stored on disk is there after a restart, whole; neither the vote and the set in memory nor a granted
         claim is ahead of the disk (`process.py`)
    I15  where the manager gambles: a confirmed copy is held by the last primary, was delivered, is in a salvage file,
         or the last broker that held it has died
    I16  in a scenario with nothing but planned switch-overs no publish is left in doubt
    I17  of what clients get of a copy from one queue all but one is marked, as redelivered or as a dead letter that was
         made before, whichever primaries hand it out; a copy that came into the queue twice, by the log, may come twice
    I18  what left a queue with a dead letter exchange is where that sends it, and is not in both; unless it was
         acknowledged, or an administrator has purged it
    I24  a message that is handed out has come back as often as its log says, those that were out at the end of an
         earlier primary included, and no oftener than its queue allows
    I26  a fencing token belongs to one consumer; a primary of a higher epoch gives higher ones, whatever a deposed one
         still gives; and who gets from one primary what another one had before has a higher one (`tokens.py`)
    I27  by the log of a primary, no key comes into a queue a second time within its window; a key of which a copy was
         confirmed is there, with one of its copies, or a client has acknowledged one (I1)
    I28  a message that waits for its time is not sent on before it; it is where it waits or where it was sent (I18),
         and does not wait for ever
    I29  while a consumer holds a message of a group no other one gets any of that group, and each connection gets those
         of a group in order, but for what it has given back (`groups.py`)
    I30  a last-value queue has the last message of each value that came by its log, or a client has acknowledged that;
         only one that is not the last may leave otherwise, and when all is done there is one of each value
    I31  what has a time to live does not leave before it; of a queue with a limit only what has as many behind it
         leaves, and when all is done it has no more (I27, I28, I30, I31: `kinds.py`)
    I33  an auto-delete queue with a timeout is not deleted before its consumer has been away for so long, by the
         primary that it consumed from, nor by a new one before it has led for so long; in the end it is
    I34  an exclusive queue is in no log
    I19  a backup that cannot keep up costs bounded memory and time: while more than `backlog_high` waits for one, the
         primary reads no publisher; one for which so much waits longer than `slow_backup_timeout` goes from the set,
         unless the rest would be too few; for one that is kept out because it is late no publisher waits
    I23  while the rest of the set is enough (a majority, and one backup) and quick, no member delays the confirms of
         all for long; one that is kept out for that is a member again as soon as it is needed (`lateness.py`)
    I25  a living broker with a link keeps its place when another one with its identity comes (`identities.py`)
    I20  the copy of a queue that a broker outside follows has, after each pass, what the queue had when the pass began,
         less what was taken out of it meanwhile; in the end it is equal (`follower.py`)

What a total failure takes (no whole member of the newest in-sync set is alive any more, and none has a journal on a
disk that was not lost) is excused: promise 1 holds while one in-sync replica survives, in memory or on disk.

    I21  a journal can be read after any crash (`journal.py`)
    I22  when a backup has taken over the content of a primary, its journal has that content (`journal.py`)
    I32  a set that is stored lists the run of a process only when the journal of that process has its name on disk
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ha.backup.backup import Backup
from ha.backup.joining import JoinStep
from ha.model.membership import HaState, InSync, Member
from ha.model.position import epoch_of, make, sequence_of
from qpidd_py.core import Batch
from tests.simulator.checks import (
    check_queues,
    contents,
    differ,
    held_ids,
    name_of,
    objects,
    queues,
)
from tests.simulator.consumers import Consumer
from tests.simulator.groups import Groups, Holder
from tests.simulator.identities import Place
from tests.simulator.judge import Judge
from tests.simulator.kinds import Kinds
from tests.simulator.ledger import Ledger, Log
from tests.simulator.records import Ballot, Copy, Declared, Handed, Job, Promotion, Scrap, Stream
from tests.simulator.scheduler import Violation
from tests.simulator.tokens import Tokens
from tests.simulator.topology import LIMITS

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation


class History:
    """The omniscient observer."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.copies: dict[str, Copy] = {}
        self.taken: dict[str, set[str]] = {}
        """Copies delivered, by queue."""
        self.acknowledged: dict[str, set[str]] = {}
        """Copies that a client has said it is done with, by queue."""
        self.handed: dict[tuple[str, str], list[Handed]] = {}
        """What clients got, by queue and copy."""
        self.ledger = Ledger()
        self.salvaged: dict[str, Counter[str]] = {}
        """Copies in salvage files, by queue, and in how many."""
        self.gambles = simulation.scenario.mode == "gamble"
        """Only I15 is promised, not I1, I2, I6, I7, I9 and I13."""
        self.jobs: dict[str, Job] = {}
        self.configuration = Declared(self._log)
        self.scrap = Scrap(lambda: {name for name, copy in self.copies_in("scrap") if copy.confirmed})
        self.tokens = Tokens()
        self.groups = Groups()
        self.kinds = Kinds(self)
        self.homes: dict[str, str] = {}
        self.alone: dict[str, str] = {}
        """Queues of hermits by client; they go with it."""
        self.relocated_at = 0.0
        """When the last planned switch-over began."""
        self.promotions: list[Promotion] = []
        self.counts: Counter[str] = Counter()
        self.ends: dict[tuple[str, int], dict[int, bytes]] = {}
        """(primary, position) -> ids held at the end of that batch."""
        self.streams: dict[str, Stream] = {}
        self.judge = Judge(self)
        self.enrolled = set(simulation.settings.brokers)
        """Addresses of all that are or were members of the cluster."""
        self.newest = InSync()
        """The newest in-sync set that anybody has stored; with `availability` that of the primary that was promoted
        last, which need not have the highest ballot: the manager alone sees to it that there is one."""
        self._places: defaultdict[tuple[Ballot, str], Place] = defaultdict(Place)
        """By primary and identity."""
        self._sets: dict[Ballot, InSync] = {}
        """The newest one of each primary."""

    def _now(self) -> float:
        return self.simulation.scheduler.now

    def _log(self, text: str) -> None:
        self.simulation.scheduler.log("", text)

    def copies_in(self, queue: str) -> Iterable[tuple[str, Copy]]:
        return ((name, copy) for name, copy in self.copies.items() if queue in copy.queues)

    # ---- clients say ----------------------------------------------------------------------------------------------

    def published(self, name: str, copy: Copy) -> None:
        self.counts["published"] += 1
        self.copies[name] = copy
        self._log(f"publish {name} to {'+'.join(copy.queues)}")

    def confirmed(self, name: str, broker: BrokerProcess, ballot: Ballot) -> None:
        """`ballot`: under which the broker has let this client in."""
        copy = self.copies[name]
        self.counts["confirmed"] += 1
        copy.confirmed = f"by {broker.name} at {self._now():.4f}"
        copy.confirmed_at, copy.ballot = self._now(), ballot
        self.kinds.confirmed(name, copy.queues)
        self._log(f"confirmed {name} by {broker.name}")
        # Those that were promoted over the broker that has confirmed: it may be dead, deposed, or not know yet.
        for promotion in [] if self.gambles else self.judge.rivals(ballot):
            self.judge.check_copy(name, copy, promotion)

    def hung_up_on(self, client: str, ready_at: float, unconfirmed: list[str]) -> None:
        """A producer has lost its connection.  I16; who comes in the middle of a switch-over has not been asked."""
        asked = ready_at < self.relocated_at
        if unconfirmed and asked and self.simulation.scenario.option("calm", False):
            raise Violation(f"I16: {client} has paused, and does not know what became of {' '.join(unconfirmed)}")

    def rejected(self, name: str) -> None:
        self.counts["rejected"] += 1
        self.copies[name].rejected = True
        self._log(f"rejected {name}")

    def returned(self, name: str) -> None:
        self.counts["returned"] += 1
        self.copies[name].returned = True
        self._log(f"returned {name}")

    def delivered(self, queue: str, stream: str, marked: bool, body: bytes, ballot: Ballot) -> str:
        """`marked`: it may have come before; `ballot`: under which the broker has let this client in."""
        name = name_of(body)
        copy = self.copies.get(name)
        self.counts["redelivered" if marked else "delivered"] += 1
        self._log(f"delivered {name} from {queue} to {stream}{' redelivered' if marked else ''}")
        if copy is None or copy.body != body or not copy.belongs(queue):
            raise Violation(f"I8: {body[:40]!r} was delivered from {queue}, but never sent like that")
        if copy.returned:
            raise Violation(f"I12: {name} was returned, and is delivered from {queue}")
        if copy.rejected:
            raise Violation(f"I12: {name} was rejected, and is delivered from {queue}")
        self._check_work(queue, name)
        self.taken.setdefault(queue, set()).add(name)
        self._hand_out(queue, name, marked, ballot)
        if not marked and queue in copy.queues and "/" not in name:
            self._check_order(queue, f"{stream} {copy.key}" if queue == "grouped" else stream, name, copy.priority)
        return name

    def _hand_out(self, queue: str, name: str, marked: bool, ballot: Ballot) -> None:
        """I6, I17."""
        handed = Handed(ballot, marked)
        before = self.handed.setdefault((queue, name), [])
        if not self.gambles:
            self.judge.check_marked(queue, name, handed, before)
            if (job := self.jobs.get(name[:-1])) and not job.excused:
                self.judge.check_seen(name[:-1], job, ballot)
        before.append(handed)

    def counted(self, queue: str, name: str, count: int, ballot: Ballot) -> None:
        """A message that was delivered has come back so often."""
        if queue in LIMITS:
            self.counts["counted"] += count > 0
            if not self.gambles:
                self.judge.check_count(queue, name, count, ballot)

    def fenced(self, queue: str, name: str, stream: str, token: int, ballot: Ballot) -> None:
        """A consumer got a message with this token."""
        if queue == "lock":
            self.counts["with a token"] += 1
            if not self.gambles:
                self.tokens.given(stream, token, ballot, name)

    def grouped(self, consumer: Holder, queue: str, name: str) -> None:
        """A consumer got a message."""
        if queue == "grouped":
            self.counts["grouped"] += 1
            others = [
                each for each in self.simulation.clients if isinstance(each, Consumer) and each.queue_name == queue
            ]
            self.groups.given(consumer, others, name, {each: copy.key for each, copy in self.copies_in(queue)})

    def gave_back(self, stream: str, queue: str, name: str) -> None:
        """A consumer gives a message back to its queue."""
        if queue == "grouped":
            self.groups.gave_back(stream, name)

    def settled(self, queue: str, names: Iterable[str]) -> None:
        """A client sends basic.ack for these."""
        self.given_up(queue, names)

    def given_up(self, queue: str, names: Iterable[str]) -> None:
        """From outside: a client has acknowledged these, or an administrator has purged them."""
        self.acknowledged.setdefault(queue, set()).update(names)

    def overheard(self, body: bytes) -> None:
        """A message from a queue that no rule looks at."""
        copy = self.copies.get(name_of(body))
        if copy is None or copy.body != body:
            raise Violation(f"I8: {body[:40]!r} was never sent like that")
        self.counts["overheard"] += 1

    def moved_in(self, client: str, queue: str, alone: bool = False) -> None:
        """A hermit has a new queue, and not its old one.  `alone`: an exclusive one."""
        self.homes[client] = queue
        self.alone[client] = queue if alone else ""

    def _check_order(self, queue: str, stream: str, name: str, priority: int) -> None:
        key, _, attempt = name.partition("@")
        producer, _, number = key.partition(".")
        last = self.streams.setdefault(stream, Stream()).last
        before = last.get((producer, attempt, priority), 0)
        if before >= int(number):
            raise Violation(f"I5: {stream} gets {name} from {queue} behind number {before}")
        last[producer, attempt, priority] = int(number)

    def begun(self, job: str, source: str, outputs: list[tuple[str, str]]) -> None:
        self.jobs[job] = Job(source, outputs, excused=self.copies[source].excused)
        for queue, name in outputs:
            self.copies[name] = Copy((queue,), f"{name}|".encode(), self._now())
        self._log(f"transaction {job}: {source} -> {' '.join(name for _, name in outputs)}")

    def committing(self, job: str) -> None:
        self.jobs[job].state = "unknown"

    def committed(self, job: str, broker: BrokerProcess, ballot: Ballot) -> None:
        self.counts["committed"] += 1
        self.jobs[job].state = "committed"
        for _, name in self.jobs[job].outputs:
            self.copies[name].ballot, self.copies[name].confirmed_at = ballot, self._now()
        self._log(f"committed {job} by {broker.name}")

    def _check_work(self, queue: str, name: str) -> None:
        done = [job for job, each in self.jobs.items() if each.source == name and each.state == "committed"]
        if queue == "work" and done and not self.jobs[done[0]].excused and not self.gambles:
            raise Violation(f"I6: {name} is delivered again, but {done[0]} was committed")

    def put_aside(self, process: BrokerProcess, queue: str, body: bytes) -> None:
        """A message goes to a salvage file."""
        self.counts["salvaged"] += 1
        self.salvaged.setdefault(queue, Counter())[name_of(body)] += 1
        self._log(f"{process.name} puts {name_of(body)} of {queue} aside")

    def taken_back(self, queue: str, body: bytes) -> None:
        """A salvage file was cancelled: the broker that wrote it still holds its messages."""
        self.salvaged[queue] -= Counter([name_of(body)])

    # ---- brokers say ----------------------------------------------------------------------------------------------

    def loaded(self, state: HaState) -> None:
        """A broker has started with this."""
        self.persisted(state)

    def persisted(self, state: HaState) -> None:
        ballot = state.in_sync.key[:2]
        self._sets[ballot] = max(self._sets.get(ballot, InSync()), state.in_sync, key=lambda in_sync: in_sync.key)
        self.enrolled.update(state.in_sync.brokers)
        self._check_names(state.in_sync)
        self._find_newest()

    def _check_names(self, in_sync: InSync) -> None:
        """I32."""
        listed = {member.instance for member in in_sync.members}
        for process in self.simulation.brokers:
            early = process.alive and process.journal is not None and not process.journal.named
            if early and process.node.local.instance in listed:
                raise Violation(f"I32: a set lists {process.name}, whose disk does not have the name of its run yet")

    def _find_newest(self) -> None:
        if self.simulation.scenario.mode == "availability" and self.promotions:
            self.newest = self._sets.get(self.promotions[-1].ballot, self.newest)
        else:
            self.newest = max(self._sets.values(), key=lambda in_sync: in_sync.key)

    def sealed(self, process: BrokerProcess, batch: Batch) -> None:
        """A primary has sealed a batch; of several that are sealed together only the last one shows a state."""
        check_queues(process)
        ballot = batch.last >> 48, process.node.local.id
        before = self.ledger.chapters[ballot].end
        for queue, name, id in self.ledger.append(process.node.local.id, batch, self._now()):
            self.kinds.arrived(ballot, queue, name, id)
        self.kinds.check_homes(self.ledger.chapters[ballot], before, process.clock.rate)
        if batch.last == process.engine.position:
            self.ends[process.node.local.id, batch.last] = held_ids(process)

    def applied(self, process: BrokerProcess) -> None:
        """A backup has applied batches.  I3."""
        check_queues(process)
        role = process.node.role
        if not isinstance(role, Backup) or role.step is not JoinStep.FOLLOWING or role.leader is None:
            return
        wanted = self.ends.get((role.leader.id, process.engine.position))
        if wanted is None:
            return
        self.counts["prefixes compared"] += 1
        found = held_ids(process)
        if found != wanted:
            raise Violation(f"I3: {process.name} at {process.engine.position:#x}: {differ(process, wanted, found)}")

    def let_in(self, primary: BrokerProcess, name: str) -> None:
        """A primary has let this backup in.  I25."""
        backup = self.simulation.by_name[name]
        self._places[primary.node.local.persisted.ballot, backup.state.id].taken(backup, primary)

    def promoted(self, process: BrokerProcess) -> None:
        """I1, I4, I6, I7, I12, I13 on the new primary, before it does anything."""
        self.counts["promotions"] += 1
        check_queues(process)
        ballot = process.node.local.persisted.ballot
        log = self._begun_log(process, ballot)
        promotion = Promotion(ballot, process.name, contents(process), objects(process), log, process.life)
        self.promotions.append(promotion)
        self._find_newest()
        if not self.gambles:
            self.judge.promoted(promotion)

    def _begun_log(self, process: BrokerProcess, ballot: Ballot) -> Log:
        lineage = process.node.local.lineage
        base = lineage[ballot[0]].base
        epochs = [epoch for epoch in lineage if epoch < ballot[0]]
        if not base and epochs and self._listed(process, ballot):
            # It holds everything, without knowing that it has been listed.
            base = make(max(epochs), sequence_of(process.engine.position))
        held = lineage.get(epoch_of(base))
        chapter = self.ledger.open(ballot, held.leader if held is not None else "", base)
        self.kinds.began[ballot] = self._now()
        if not chapter.before:
            # The best copy after a total failure is no prefix of any log, and its queues are not declared again.
            chapter.names.update({queue.number: queue.name for queue in queues(process)})
        return chapter.before

    def _listed(self, process: BrokerProcess, ballot: Ballot) -> bool:
        """Had a primary listed this run of it?  An earlier run's memory is gone; its own first set says nothing."""
        earlier = [in_sync for each, in_sync in self._sets.items() if each < ballot]
        trusting = self.simulation.scenario.mode == "availability"
        newest = self.newest if trusting else max(earlier, key=lambda in_sync: in_sync.key, default=InSync())
        return any(each.instance == process.node.local.instance for each in newest.members)

    def crashed(self, process: BrokerProcess) -> None:
        """Was that the last one that held everything?"""
        if self.gambles:
            self._bury(process)
        self.fewer()

    def fewer(self) -> None:
        """A process or a disk is gone."""
        if self.survivors():
            return
        if self.holders():
            self.counts["only disks left"] += 1
            return
        self._log("TOTAL FAILURE: no whole member of the newest in-sync set is left; what was confirmed is excused")
        self.counts["total failures"] += 1
        if not self.gambles:
            for copy in self.copies.values():
                copy.excused = True
            for job in self.jobs.values():
                job.excused = True
        self.configuration.forget()
        self.scrap.forget()

    def _bury(self, process: BrokerProcess) -> None:
        """What no other broker holds is gone with it."""
        living = [contents(other) for other in self.simulation.brokers if other.alive]
        for queue, names in contents(process).items():
            for name in names:
                if name in self.copies and not any(name in held.get(queue, {}) for held in living):
                    self.copies[name].excused = True

    def holders(self) -> list[BrokerProcess]:
        """Those, and those whose disk has what a member of the newest set has acknowledged."""
        kept = [process for process in self.simulation.brokers if not process.alive and process.content is not None]
        return self.survivors() + [each for each in kept if self._lists(each.content)]

    def _lists(self, member: Member | None) -> bool:
        return member is not None and (not self.newest.version or self.newest.lists(member))

    def outdated(self, process: BrokerProcess) -> bool:
        """It has an old copy: what it holds counts from when a set lists this process."""
        member = process.node.local.member
        if process.outdated and any(each.same_life(member) for each in self.newest.members):
            process.outdated, process.content = False, member
        return process.outdated

    def survivors(self, among: Iterable[BrokerProcess] | None = None) -> list[BrokerProcess]:
        """Alive, whole, and in the newest in-sync set; everyone before there was any."""
        candidates = self.simulation.brokers if among is None else among
        alive = [process for process in candidates if process.alive and not self.outdated(process)]
        if not self.newest.version:
            return alive
        return [
            process for process in alive if process.node.local.whole and self.newest.lists(process.node.local.member)
        ]
