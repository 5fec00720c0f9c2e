"""The checks on what the history has recorded; the invariants are listed in `history.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.position import epoch_of
from tests.simulator.checks import check_queues, contents, everything, first_difference, objects, usurped
from tests.simulator.records import Ballot, Copy, Job, Promotion
from tests.simulator.scheduler import Violation
from tests.simulator.topology import QUEUES

if TYPE_CHECKING:
    from tests.simulator.history import History
    from tests.simulator.process import BrokerProcess

WALL_CLOCKS = 0.1
"""Seconds by which the wall clocks of two brokers may differ."""


class Judge:
    """Raises Violation."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.simulation = history.simulation

    # ---- when a broker says that something is safe ----------------------------------------------------------------

    def safe_moved(self, process: BrokerProcess) -> None:
        """A broker has decided that more is safe, and so may confirm it.  I9, I10."""
        node, safe = process.node, process.engine.safe
        if not node.state.is_primary:
            return
        for other in self._relied_upon(process, safe):
            if other.node.whole and other.node.role.position < safe:
                where = f"{other.name} is at {other.node.role.position:#x}"
                raise Violation(f"I10: {process.name} says that {safe:#x} is safe, and {where}")
        above = self.rivals(node.persisted.ballot)
        if above and not self.history.gambles:
            self.history.counts["safe below another"] += 1
            self._check_rivals(process, safe, above)

    def rivals(self, ballot: Ballot) -> list[Promotion]:
        """Promotions above this ballot that were made after it, or of brokers that still live.

        One that was made before and has died took nothing along; whoever comes next is held to I1."""
        own = next((i for i, each in enumerate(self.history.promotions) if each.ballot == ballot), 0)
        above = [(i, each) for i, each in enumerate(self.history.promotions) if each.ballot > ballot]
        return [each for i, each in above if i > own or self._lives(each)]

    def _lives(self, promotion: Promotion) -> bool:
        process = self.simulation.by_name[promotion.name]
        return process.alive and process.life == promotion.life

    def _relied_upon(self, process: BrokerProcess, safe: int) -> list[BrokerProcess]:
        """Who may be promoted after this one, for all that the members of its set know."""
        in_sync = process.node.persisted.in_sync
        ids = set(in_sync.ids)
        living = [other for other in self.simulation.brokers if other.alive and not usurped(other, in_sync)]
        if process.node.safety.probes and epoch_of(safe) == in_sync.epoch:
            for other in living:
                if other.node.id in in_sync and other.node.persisted.in_sync.key < in_sync.key:
                    ids |= other.node.persisted.in_sync.ids
        return [other for other in living if other is not process and other.node.id in ids]

    def _check_rivals(self, process: BrokerProcess, safe: int, above: list[Promotion]) -> None:
        for queue, names in contents(process, safe).items():
            for name in names:
                copy = self.history.copies.get(name)
                if copy is None or queue not in copy.queues or self.may_be_gone(name, copy, queue):
                    continue
                for promotion in above:
                    if name not in promotion.contents.get(queue, {}):
                        rival = f"{promotion.name}, primary of epoch {promotion.ballot[0]}"
                        raise Violation(f"I9: {process.name} says that {name} in {queue} is safe; {rival} lacks it")

    # ---- when a broker is promoted --------------------------------------------------------------------------------

    def promoted(self, promotion: Promotion) -> None:
        """I1, I6, I7, I12, I13 on the new primary, before it does anything."""
        history = self.history
        for name, copy in history.copies.items():
            # One that comes late with a lower ballot will be deposed; it owes nothing to higher ones.
            if copy.confirmed and copy.ballot < promotion.ballot:
                self.check_copy(name, copy, promotion)
        self._check_absent(promotion)
        if any(earlier.ballot > promotion.ballot for earlier in history.promotions):
            history.counts["promotions below another"] += 1
            return
        self._check_jobs(promotion)
        if wrong := history.configuration.wrong(promotion.objects):
            raise Violation(f"I7: {wrong}; not so on {promotion.name}")

    def check_copy(self, name: str, copy: Copy, promotion: Promotion) -> None:
        for queue in copy.queues:
            if name not in promotion.contents.get(queue, {}) and not self.may_be_gone(name, copy, queue):
                who = f"{promotion.name}, primary of epoch {promotion.ballot[0]}"
                raise Violation(f"I1: {name}, confirmed {copy.confirmed}, is not in {queue} of {who}")

    def may_be_gone(self, name: str, copy: Copy, queue: str) -> bool:
        """By the queue's own rules, or because somebody has had it."""
        if copy.excused or copy.rejected or name in self.history.taken.get(queue, ()):
            return True
        kind = QUEUES[queue]
        if kind.ttl and self.simulation.scheduler.now - copy.at >= kind.ttl - WALL_CLOCKS:
            return True
        if kind.length and self._may_be_behind(queue, copy) >= kind.length:
            return True
        return not kind.fixed and (self.history.gambles or not self.history.scrap.keeps(copy))

    def _may_be_behind(self, queue: str, copy: Copy) -> int:
        """How many came later, as far as one can tell: all that were not confirmed when this was sent."""
        return sum(other is not copy and other.confirmed_at > copy.at for _, other in self.history.copies_in(queue))

    def _check_absent(self, promotion: Promotion) -> None:
        """I12, I13."""
        for queue, messages in promotion.contents.items():
            for name in messages:
                copy = self.history.copies.get(name)
                if copy is not None and copy.rejected:
                    raise Violation(f"I12: {name} was rejected, and is in {queue} of {promotion.name}")
        for name, ballot in self.history.scrap.gone.items():
            if promotion.ballot > ballot and name in promotion.contents.get("scrap", {}):
                raise Violation(f"I13: {name} is in scrap of {promotion.name}, from before a purge or deletion")

    def _check_jobs(self, promotion: Promotion) -> None:
        """The outputs are never consumed: so they are there or not, and together."""
        for name, job in self.history.jobs.items():
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
        if not self.history.copies[job.source].confirmed:
            return True
        return any(
            other.source == job.source
            and all(output in promotion.contents.get(queue, {}) for queue, output in other.outputs)
            for other in self.history.jobs.values()
        )

    # ---- at the end -----------------------------------------------------------------------------------------------

    def check_end(self, primary: BrokerProcess) -> None:
        """Faults are over, everything was drained: nothing may be missing, and all brokers are equal."""
        for process in self.simulation.members:
            check_queues(process)
        promotion = Promotion(primary.node.persisted.ballot, primary.name, contents(primary), objects(primary))
        self._check_alien(promotion)
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
            if name in promotion.contents.get(queue, {}) or self.may_be_gone(name, self.history.copies[name], queue):
                continue
            if any(name in held.get(queue, {}) for held in outside):
                continue  # a broker that was removed still has it; it may come back
            self.history.counts["recovered"] += 1
            if name not in self.history.salvaged.get(queue, ()):
                where = f"it is not in {queue} of {promotion.name}, and in no salvage file"
                raise Violation(f"I15: {name} was confirmed; {where}")

    def _check_alien(self, promotion: Promotion) -> None:
        for queue, messages in promotion.contents.items():
            for name, body in messages.items():
                copy = self.history.copies.get(name)
                if queue.startswith("own."):
                    continue
                if copy is None or copy.body != body or queue not in copy.queues:
                    raise Violation(f"I8: {name} in {queue} was never sent like that")
