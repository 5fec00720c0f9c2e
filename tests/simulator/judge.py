"""The checks on what the history has recorded; the invariants are listed in `history.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ha.model.position import epoch_of
from ha.primary.primary import Primary
from tests.simulator import ledger
from tests.simulator.checks import check_queues, contents, everything, first_difference, objects, queues, usurped
from tests.simulator.ledger import Log
from tests.simulator.records import Ballot, Copy, Handed, Job, Promotion
from tests.simulator.scheduler import TICK, Violation
from tests.simulator.shadow import Shadow
from tests.simulator.topology import KEPT, LETTERS, LIMITS

if TYPE_CHECKING:
    from tests.simulator.environment import SimTransport
    from tests.simulator.history import History
    from tests.simulator.process import BrokerProcess

HIGH = 5
"""The lowest priority of the second level of a quorum queue."""
LATE = 0.5
"""Seconds after its time in which a slow backup is dropped, at the latest."""


class Judge:
    """Raises Violation."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.simulation = history.simulation
        self.shadow = Shadow(history.ledger)
        self._slow: dict[str, dict[SimTransport, tuple[int, int]]] = {}
        """By primary and link for which too much waits: for how many ticks so far, octets sent by then."""

    # ---- when a broker says that something is safe ----------------------------------------------------------------

    def safe_moved(self, process: BrokerProcess) -> None:
        """A broker has decided that more is safe, and so may confirm it.  I9, I10."""
        node, safe = process.node, process.engine.safe
        if not node.local.state.is_primary:
            return
        for other in self._relied_upon(process, safe):
            self._check_backup(process, other, safe)
        above = self.rivals(node.local.persisted.ballot)
        if above and not self.history.gambles:
            self.history.counts["safe below another"] += 1
            self._check_rivals(process, safe, above)

    def _check_backup(self, process: BrokerProcess, other: BrokerProcess, safe: int) -> None:
        """I10.  One that has gone over to a newer primary is compared with that one's log (I9, I3).  What was put back
        from a backup has acknowledged what it lacks: that it is not promoted alone is I1."""
        ballot = process.node.local.persisted.ballot
        gone_over = epoch_of(other.engine.position) > ballot[0]
        if not other.node.local.whole or gone_over or self.history.outdated(other):
            return
        if lacking := self.shadow.lacks(other, ballot, safe):
            raise Violation(f"I10: {process.name} says that {safe:#x} is safe, and {lacking}")

    def rivals(self, ballot: Ballot) -> list[Promotion]:
        """Promotions above this ballot that were made after it, or of brokers that still live.

        One that was made before and has died took nothing along; the next one is held to I1."""
        own = next((i for i, each in enumerate(self.history.promotions) if each.ballot == ballot), 0)
        above = [(i, each) for i, each in enumerate(self.history.promotions) if each.ballot > ballot]
        return [each for i, each in above if i > own or self._lives(each)]

    def _lives(self, promotion: Promotion) -> bool:
        process = self.simulation.by_name[promotion.name]
        return process.alive and process.life == promotion.life

    def _relied_upon(self, process: BrokerProcess, safe: int) -> list[BrokerProcess]:
        """Who may be promoted after this one, for all that the members of its set know."""
        in_sync = process.node.local.persisted.in_sync
        living = [other for other in self.simulation.brokers if other.alive and not usurped(other, in_sync)]
        known = [in_sync]
        if process.node.local.safety.probes and epoch_of(safe) == in_sync.epoch:
            members = [other.node.local for other in living if other.node.local.id in in_sync]
            known += [local.persisted.in_sync for local in members if local.persisted.in_sync.key < in_sync.key]

        def relied_upon(other: BrokerProcess) -> bool:
            """Each set means one of a broker and its running copy."""
            return any(other.node.local.id in each and not usurped(other, each) for each in known)

        return [other for other in living if other is not process and relied_upon(other)]

    def _check_rivals(self, process: BrokerProcess, safe: int, above: list[Promotion]) -> None:
        own = self.history.ledger.log_of(process.node.local.persisted.ballot)
        for queue, names in contents(process, safe).items():
            for name in names:
                copy = self.history.copies.get(name)
                if copy is None or queue not in copy.queues:
                    continue
                for promotion in above:
                    if not self._kept(name, queue, promotion, own):
                        rival = f"{promotion.name}, primary of epoch {promotion.ballot[0]}"
                        raise Violation(f"I9: {process.name} says that {name} in {queue} is safe; {rival} lacks it")

    # ---- while a broker is primary --------------------------------------------------------------------------------

    def throttles(self, process: BrokerProcess, before: Mapping[SimTransport, int]) -> None:
        """I19; after each batch.  What waited before it: a link that joins, and gets no batches yet, may have more."""
        for link, waited in before.items() if process.is_primary else ():
            name = link.end.peer_host.name
            held_up = process.engine.throttled or self._kept_out(process, name)
            if waited < link.backlog > process.settings.backlog_high and not held_up:
                raise Violation(f"I19: {link.backlog} octets wait for {name}, and {process.name} reads its publishers")

    def backlogs(self, process: BrokerProcess) -> None:
        """I19; called at each tick of the broker, so that no time counts in which it does not run."""
        before, found = self._slow.get(process.name, {}), {}
        for link in process.links if process.is_primary else []:
            if link.backlog > process.settings.backlog_high:
                ticks, before_sent = before.get(link, (0, -1))
                sent = link.connection.core.sent
                found[link] = (ticks + 1 if sent == before_sent else 1), sent
                self._check_patience(process, link.end.peer_host.name, found[link][0] * TICK)
        self._slow[process.name] = found

    def _kept_out(self, process: BrokerProcess, name: str) -> bool:
        role = process.node.role
        return isinstance(role, Primary) and role._late.out(self.simulation.by_name[name].node.local.id)

    def _check_patience(self, process: BrokerProcess, name: str, seconds: float) -> None:
        self.history.counts["ticks with a slow backup"] += 1
        timeout, in_sync = process.settings.slow_backup_timeout, process.node.local.persisted.in_sync
        voters = in_sync.brokers or process.settings.brokers
        rest = {
            member.address for member in in_sync.members if member.id != self.simulation.by_name[name].node.local.id
        }
        enough = self.simulation.scenario.mode != "quorum" or 2 * len(rest.intersection(voters)) > len(voters)
        if self._kept_out(process, name):
            timeout, enough = TICK, True
        if timeout and enough and seconds > timeout + LATE:
            raise Violation(f"I19: too much waits for {name} for {seconds:.1f} s, and {process.name} does not drop it")

    # ---- when a broker is promoted --------------------------------------------------------------------------------

    def promoted(self, promotion: Promotion) -> None:
        """I1, I6, I7, I12, I13 on the new primary, before it does anything."""
        history = self.history
        for name, copy in history.copies.items():
            # One that comes late with a lower ballot will be deposed; it owes nothing to higher ones.
            if copy.confirmed and copy.ballot < promotion.ballot:
                self.check_copy(name, copy, promotion)
        self._check_absent(promotion)
        self._check_letters(promotion)
        self.history.kinds.check_values(promotion.name, promotion.contents, promotion.log)
        if any(earlier.ballot > promotion.ballot for earlier in history.promotions):
            history.counts["promotions below another"] += 1
            return
        self._check_jobs(promotion)
        if wrong := history.configuration.wrong(promotion.objects):
            raise Violation(f"I7: {wrong}; not so on {promotion.name}")

    def check_copy(self, name: str, copy: Copy, promotion: Promotion) -> None:
        confirming = self.history.ledger.log_of(copy.ballot)
        for queue in copy.queues:
            if not self._kept(name, queue, promotion, confirming):
                who = f"{promotion.name}, primary of epoch {promotion.ballot[0]}"
                raise Violation(f"I1: {name}, confirmed {copy.confirmed}, is not in {queue} of {who}")

    def _kept(self, name: str, queue: str, promotion: Promotion, confirming: Log) -> bool:
        """It is there, or what counts as the same, or may be gone."""
        same, there = self.history.kinds.same(name, queue), promotion.contents.get(queue, {})
        if any(each in there or each in self.history.acknowledged.get(queue, ()) for each in same):
            return True
        return self.may_be_gone(name, self.history.copies[name], queue, promotion.log, confirming)

    def may_be_gone(self, name: str, copy: Copy, queue: str, log: Log, confirming: Log) -> bool:
        """May it be missing where the log is this one?  A client has acknowledged it, or the log says that it was
        removed, from a queue of which more than clients remove, or what made it unroutable.  `confirming`: the log
        of the primary that calls it safe."""
        if copy.excused or copy.rejected or name in self.history.acknowledged.get(queue, ()):
            return True
        if came := ledger.arrivals(log, queue, name):
            said = all(ledger.removed(log, *each) for each in came)
            return queue not in KEPT and self.history.kinds.may_leave(queue, name, log, said)
        if ledger.arrivals(confirming, queue, name):
            return False  # it was in the log of the primary that has confirmed it, and this log has not got that far
        return any(self._unroutable(copy, what, confirming, log) for what in copy.needs(queue))

    def _unroutable(self, copy: Copy, what: str, confirming: Log, log: Log) -> bool:
        """Was this missing when the copy arrived, and does the log say so, too?"""
        absent = ledger.absences(confirming, what, copy.at, copy.confirmed_at)
        writers = {position: ledger.writer(confirming, position) for position in absent if position}
        return any(not position or ledger.has(log, writers[position], position) for position in absent)

    def _check_letters(self, promotion: Promotion) -> None:
        """I18."""
        for name, copy in self.history.copies.items():
            for queue in copy.queues:
                if queue in LETTERS and not copy.excused:
                    self._check_letter(name, queue, LETTERS[queue], promotion)

    def _check_letter(self, name: str, queue: str, to: str, promotion: Promotion) -> None:
        held = name in promotion.contents.get(queue, {})
        sent = self._came(promotion, to, name)
        if held and sent:
            raise Violation(f"I18: {promotion.name} has {name} in {queue}, and has sent it on to {to}")
        came = ledger.arrivals(promotion.log, queue, name)
        if came and not held and not sent and name not in self.history.acknowledged.get(queue, ()):
            raise Violation(f"I18: {name} is neither in {queue} of {promotion.name} nor in {to}")

    def _check_absent(self, promotion: Promotion) -> None:
        """I12, I13."""
        for queue, messages in promotion.contents.items():
            for name in messages:
                copy = self.history.copies.get(name)
                if copy is not None and (copy.rejected or copy.returned):
                    raise Violation(f"I12: {name} was refused, and is in {queue} of {promotion.name}")
        for name, ballot in self.history.scrap.gone.items():
            if promotion.ballot > ballot and name in promotion.contents.get("scrap", {}):
                raise Violation(f"I13: {name} is in scrap of {promotion.name}, from before a purge or deletion")

    def check_marked(self, queue: str, name: str, now: Handed, before: list[Handed]) -> None:
        """I17.  (What was handed out first may arrive last, where connections overtake each other.)"""
        log = self.history.ledger.log_of(now.ballot)
        if now.marked or len(ledger.arrivals(log, queue, name)) > 1:
            return  # it came back into the queue as another message
        for each in before:
            if not each.marked:
                who = f"epoch {each.ballot[0]}, and now by that of epoch {now.ballot[0]}"
                raise Violation(f"I17: {name} of {queue} was handed out by the primary of {who}, unmarked")

    def check_count(self, queue: str, name: str, count: int, ballot: Ballot) -> None:
        """I24."""
        if count > LIMITS[queue]:
            raise Violation(f"I24: {name} of {queue} came back {count} times, and is handed out")
        log = self.history.ledger.log_of(ballot)
        came = ledger.arrivals(log, queue, name)
        level = 1 + (self.history.copies[name].priority >= HIGH)
        least = ledger.returns(log[1:], *came[0], level) if len(came) == 1 else 0
        if count < least:
            raise Violation(f"I24: {name} of {queue} is handed out with count {count}, but this log has {least}")

    def check_seen(self, name: str, job: Job, ballot: Ballot) -> None:
        """I6: a client got one of the outputs."""
        job.seen = max(job.seen or ballot, ballot)
        for promotion in self.rivals(ballot):
            self._check_job(name, job, promotion)

    def _check_jobs(self, promotion: Promotion) -> None:
        for name, job in self.history.jobs.items():
            if not job.excused:
                self._check_job(name, job, promotion)

    def _check_job(self, name: str, job: Job, promotion: Promotion) -> None:
        there = [self._came(promotion, queue, output) for queue, output in job.outputs]
        if any(there) != all(there):
            raise Violation(f"I6: {promotion.name} has part of the transaction {name}: {there}")
        if job.state == "committed" and not all(there):
            raise Violation(f"I6: {promotion.name} lacks the committed transaction {name}")
        if job.seen is not None and job.seen < promotion.ballot and not all(there):
            raise Violation(f"I6: {promotion.name} lacks the transaction {name}, of which a client has seen a part")
        if job.state == "open" and any(there):
            raise Violation(f"I6: {promotion.name} has the transaction {name}, which was not committed")
        if all(there) == (job.source in promotion.contents.get("work", {})):
            what = "outputs and input" if all(there) else "neither outputs nor input"
            if all(there) or not self._done(job, promotion):
                raise Violation(f"I6: {promotion.name} has {what} of the transaction {name}")

    def _came(self, promotion: Promotion, queue: str, name: str) -> bool:
        """It is there, or was there and has left by this log, or a client has acknowledged it."""
        if name in promotion.contents.get(queue, {}):
            return True
        came = ledger.arrivals(promotion.log, queue, name)
        if came and not all(ledger.removed(promotion.log, *each) for each in came):
            return name in self.history.acknowledged.get(queue, ())
        return bool(came)

    def _done(self, job: Job, promotion: Promotion) -> bool:
        """Another transaction has the same input, and its outputs are there; or the input had never been safe."""
        if not self.history.copies[job.source].confirmed:
            return True
        return any(
            other.source == job.source and all(self._came(promotion, *output) for output in other.outputs)
            for other in self.history.jobs.values()
        )

    # ---- at the end -----------------------------------------------------------------------------------------------

    def check_end(self, primary: BrokerProcess) -> None:
        """Faults are over, everything was drained: nothing may be missing, and all brokers are equal."""
        for process in self.simulation.members:
            check_queues(process)
        ballot = primary.node.local.persisted.ballot
        log = self.history.ledger.log_of(ballot)
        promotion = Promotion(ballot, primary.name, contents(primary), objects(primary), log)
        self._check_alien(promotion)
        ready = {queue.name: queue.core.ready for queue in queues(primary)}
        self.history.kinds.check_end(promotion.contents, ready)
        if self.history.gambles:
            self._check_gamble(promotion)
        else:
            self._check_kept(promotion)
        wanted = everything(primary)
        for process in self.simulation.members:
            if process is not primary and (found := everything(process)) != wanted:
                difference = first_difference(wanted, found)
                raise Violation(f"I3: at the end {process.name} is not equal to {primary.name}: {difference}")

    def _check_kept(self, promotion: Promotion) -> None:
        for name, copy in self.history.copies.items():
            if copy.confirmed:
                self.check_copy(name, copy, promotion)
        self._check_jobs(promotion)
        self._check_absent(promotion)
        self._check_letters(promotion)
        self.history.kinds.check_values(promotion.name, promotion.contents, promotion.log)
        if wrong := self.history.configuration.wrong(promotion.objects):
            raise Violation(f"I7: at the end {wrong}; not so on {promotion.name}")

    def _check_gamble(self, promotion: Promotion) -> None:
        """I15."""
        outputs = [each for job in self.history.jobs.values() if job.state == "committed" for each in job.outputs]
        copies = self.history.copies.items()
        members = self.simulation.members
        outside = [contents(each) for each in self.simulation.brokers if each.alive and each not in members]
        confirmed = [(queue, name) for name, copy in copies if copy.confirmed for queue in copy.queues]
        for queue, name in (*outputs, *confirmed):
            same = self.history.kinds.same(name, queue)
            if any(each in promotion.contents.get(queue, {}) or self._gambled_away(each, queue) for each in same):
                continue
            if any(each in held.get(queue, {}) for held in outside for each in same):
                continue  # a broker that was removed still has it; it may come back
            self.history.counts["recovered"] += 1
            if not any(each in self.history.salvaged.get(queue, ()) for each in same):
                where = f"it is not in {queue} of {promotion.name}, and in no salvage file"
                raise Violation(f"I15: {name} was confirmed; {where}")

    def _gambled_away(self, name: str, queue: str) -> bool:
        """Delivered (or from the queue to which it was sent on), lost with the last broker that held it, or removed by
        one of the primaries that had it."""
        records = self.history.ledger
        copy, chapters = self.history.copies[name], [*records.chapters.values(), *records.twins]
        if any(name in self.history.taken.get(each, ()) for each in (queue, LETTERS.get(queue, queue))):
            return True
        confirming, logs = records.log_of(copy.ballot), [chapter.whole() for chapter in chapters]
        if any(self.may_be_gone(name, copy, queue, log, confirming) for log in logs):
            return True
        # One that was promoted without holding everything removes what came in chapters that its log does not continue.
        knowing = [log for log in logs if ledger.arrivals(log, queue, name)]
        came = {each for log in knowing for each in ledger.arrivals(log, queue, name)}
        said = all(any(ledger.removed(log, *each) for log in logs) for each in came)
        return queue not in KEPT and any(self.history.kinds.may_leave(queue, name, log, said) for log in knowing)

    def _check_alien(self, promotion: Promotion) -> None:
        for queue, messages in promotion.contents.items():
            for name, body in messages.items():
                copy = self.history.copies.get(name)
                if queue.startswith("own."):
                    continue
                if copy is None or copy.body != body or not copy.belongs(queue):
                    raise Violation(f"I8: {name} in {queue} was never sent like that")
