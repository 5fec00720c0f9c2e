"""The local supervisor's elections and planned switch-overs: which broker becomes primary.  Pure.

Theory
------
There is a *primary* if a node that is UP answered `recovering` or `active`; of several, the one with the highest epoch,
since the others have not noticed yet that they were deposed.  Without a primary an *election* runs, one at a time:

    ASKING ──all answered, or ask_timeout──> PROMOTING ──accepted──> (over)
      ^                                          │ refused or promote_timeout: the next candidate
      └────────── RESTING (bounded back-off) <───┘ no candidate left

For a *switch-over* the living primary drains its log to the named backup and steps down (`ha.relocate`).  Until it has
answered, or is gone, there is no election.  A switch-over that was requested from the broker directly shows in the
broker's answers: it has stepped down and names its successor, which gets HANDOVER seconds to be promoted.

The election ends at once if an asked broker is primary already.  Candidates are the backups, those with the
highest promotion score first (`ha.promotion.score`); among equals the newest position, then the order of the cluster
file.  Each is tried, since the brokers themselves refuse a promotion that could lose messages.  If none is known to
hold everything (a fresh cluster, or a total failure), the election waits until all wanted brokers have answered or
gather_timeout has passed, since the broker with the newest data may be the slowest to start.

`Supervisor` (supervisor.py) watches the nodes and calls `_evaluate` after every new fact; effects are described there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ha.qpid_cluster.cluster_file import Watch
from ha.qpid_cluster.supervision import (
    Ask,
    Effect,
    Election,
    ElectionPhase,
    ManagedBroker,
    Note,
    Process,
    Promote,
    Refused,
    Relocate,
    Report,
    SwitchOver,
    rank,
    rest,
    show_position,
)

HANDOVER = 1.0  # seconds between the step down of a primary and the promotion of its successor


class Electing:
    """The part of a supervisor that decides which broker is primary."""

    def __init__(self, names: Iterable[str], watch: Watch) -> None:
        self.nodes = {name: ManagedBroker(name) for name in names}
        self.watch = watch
        self.primary = ""
        self.election: Election | None = None
        self.preferred = ""
        self.switch_over: SwitchOver | None = None
        self.refusal = ""
        """Why the last switch-over failed."""
        self.closing = False
        self._handover_until = self._move_again = 0.0
        self._serial = 0
        self._began = 0.0
        self._last_tick = 0.0

    # ---- answers -----------------------------------------------------------------------------------------------

    def promoted(self, name: str, serial: int, error: str | None, now: float) -> list[Effect]:
        """The answer to a promotion; `error` is None for success."""
        election, node = self.election, self.nodes[name]
        if election is None or election.promoting != name or election.serial != serial:
            return []  # it came after promote_timeout; the pings will show which broker is primary
        if error is not None:
            return self._next_candidate(f"{name} refused the promotion: {error}", now)
        took = (now - election.begun) * 1000
        if node.report is not None:
            node.report = Report("recovering", node.report.epoch, node.report.position)
        self.primary, self.election, self.preferred = name, None, ""
        text = f"{name} is promoted, {took:.1f} ms after: {election.reason}"
        return [Note("promoted", text, name, {"ms": round(took, 3), "reason": election.reason})]

    def relocated(self, serial: int, error: str | None, now: float) -> list[Effect]:
        """The primary's answer to a planned switch-over; `error` is None for success."""
        switch = self.switch_over
        if switch is None or switch.serial != serial:
            return []
        if error is not None:
            return self._refuse(switch, error) + self._evaluate(now)
        self.switch_over, self.preferred = None, ""
        for name, state in ((switch.source, "joining"), (switch.target, "recovering")):
            report = self.nodes[name].report
            if report is not None:
                self.nodes[name].report = replace(report, state=state)
        self.primary, self.election = switch.target, None
        reason = f"a planned switch-over from {switch.source}"
        took = (now - switch.begun) * 1000
        text = f"{switch.target} is promoted, {took:.1f} ms after: {reason}"
        return [Note("promoted", text, switch.target, {"ms": round(took, 3), "reason": reason})]

    def _refuse(self, switch: SwitchOver, why: str) -> list[Effect]:
        self.refusal, self.switch_over, self.preferred = why, None, ""
        text = f"the switch-over from {switch.source} to {switch.target} came to nothing: {why}"
        return [Note("refused", text, switch.target, {"reason": why})]

    def _notice_step_down(self, name: str, old: Report | None, report: Report, now: float) -> None:
        """The primary answers that it has stepped down, and names its successor."""
        if name == self.primary and old is not None and old.is_primary and report.successor:
            self._handover_until = now + HANDOVER

    # ---- what is asked -----------------------------------------------------------------------------------------

    def _relocate(self, name: str, now: float) -> list[Effect]:
        if self.switch_over is not None:
            raise Refused(f"a switch-over from {self.switch_over.source} to {self.switch_over.target} is under way")
        self._serial += 1
        source, self.preferred, self.refusal = self.primary, name, ""
        deadline = now + self.watch.relocate_timeout
        self.switch_over = SwitchOver(source, name, self._serial, now, deadline)
        text = f"switch-over from {source} to {name} requested"
        return [Note("command", text, name), Relocate(source, name, self._serial)]

    def _ask(self, node: ManagedBroker, now: float) -> Ask:
        self._serial += 1
        node.asked = self._serial
        if node.silent_since is None:
            node.silent_since = now
        return Ask(node.name, self._serial)

    # ---- the election ------------------------------------------------------------------------------------------

    def _evaluate(self, now: float, reason: str = "") -> list[Effect]:
        """Adopt an existing primary, or continue the election."""
        if self.closing:
            return []
        if self.switch_over is not None and now >= self.switch_over.deadline:
            return self._refuse(self.switch_over, "no answer in time") + self._evaluate(now)
        seen = self._seen_primary()
        if seen:
            return self._adopt(seen, now) or self._move_away(seen, now)
        if self._handing_over(now):
            return []
        if self.election is None:
            self.election = Election(reason or self._why(), now, deadline=now)
            self.primary = ""
            why = self.election.reason
            return [Note("election", f"a primary is wanted: {why}", attrs={"reason": why}), *self._advance(now)]
        return self._advance(now)

    def _handing_over(self, now: float) -> bool:
        """True for HANDOVER seconds after the primary has stepped down for a successor."""
        alive = self.primary != "" and self.nodes[self.primary].process is Process.UP
        return alive and (self.switch_over is not None or now < self._handover_until)

    def _seen_primary(self) -> str:
        reports = {name: node.report for name, node in self.nodes.items() if node.is_primary and node.report}
        newest = max((node.report.epoch for node in self.nodes.values() if node.report), default=0)
        current = {name: report for name, report in reports.items() if report.epoch >= newest or name == self.primary}
        return max(current, key=lambda name: (current[name].epoch, name == self.primary), default="")

    def _why(self) -> str:
        if not self.primary:
            return "none has been promoted yet"
        node = self.nodes[self.primary]
        if node.process is Process.HUNG:
            return f"the primary {self.primary} hangs"
        if node.process is Process.DOWN:
            return f"the primary {self.primary} is down"
        return f"{self.primary} is no longer primary, it is {node.report.state if node.report else 'silent'}"

    def _move_away(self, name: str, now: float) -> list[Effect]:
        """A primary whose disk hangs has a score below that of a backup which could serve (`ha.promotion.score`)."""
        report = self.nodes[name].report
        others = {node.name: node.report for node in self._reachable() if node.report and node.name != name}
        best = next(iter(rank(others, "")), "")
        if report is None or report.score is None or not best or others[best].worth <= report.score:
            return []
        if self.switch_over is not None or self.election is not None or now < self._move_again:
            return []
        self._move_again = now + self.watch.relocate_timeout
        why = f"{name} has score {report.score}, {best} has {others[best].worth}"
        return [Note("command", f"{best} is to take over: {why}", best), *self._relocate(best, now)]

    def _adopt(self, name: str, now: float) -> list[Effect]:
        election, old = self.election, self.primary
        if election is not None and election.phase is ElectionPhase.PROMOTING:
            return []  # the answer to the promotion follows, with its duration
        self.primary, self.election = name, None
        if name == old:
            return []
        return [Note("adopted", f"{name} is primary already; nothing to promote", name)]

    def _advance(self, now: float) -> list[Effect]:
        election = self.election
        assert election is not None
        if election.phase is ElectionPhase.RESTING:
            return self._ask_all(election, now) if now >= election.deadline else []
        if election.phase is ElectionPhase.ASKING:
            return self._choose(election, now) if not election.waiting or now >= election.deadline else []
        if now < election.deadline:
            return []
        return self._next_candidate(f"{election.promoting} did not answer the promotion in time", now)

    def _ask_all(self, election: Election, now: float) -> list[Effect]:
        election.phase, election.rounds = ElectionPhase.ASKING, election.rounds + 1
        election.deadline = now + self.watch.ask_timeout
        questions = [self._ask(node, now) for node in self._reachable()]
        election.waiting = {question.node: question.serial for question in questions}
        return [*questions] if questions else self._choose(election, now)

    def _reachable(self) -> list[ManagedBroker]:
        return [node for node in self.nodes.values() if node.process is Process.UP and node.connected]

    def _choose(self, election: Election, now: float) -> list[Effect]:
        """All have answered, or the timeout is over: decide the order of the candidates."""
        silent = set(election.waiting)
        reports = {node.name: node.report for node in self._reachable() if node.report and node.name not in silent}
        election.candidates = rank(reports, self.preferred)
        if not election.candidates:
            return self._rest(election, self._no_candidate(reports), now)
        missing, best = self._missing(), reports[election.candidates[0]]
        if not best.worth and missing and not self._gathered(election, now):
            return self._rest(election, f"no broker is known to hold everything; waiting for {', '.join(missing)}", now)
        return self._next_candidate("", now)

    def _no_candidate(self, reports: Mapping[str, Report]) -> str:
        seen = ", ".join(f"{name} {report.state}" for name, report in reports.items())
        return f"no broker can be promoted ({seen or 'none answers'})"

    def _missing(self) -> list[str]:
        """Wanted brokers that have not answered yet, without paused and hung ones."""
        late = (Process.DOWN, Process.STARTING)
        return [node.name for node in self.nodes.values() if node.wanted and node.process in late]

    def _gathered(self, election: Election, now: float) -> bool:
        return now - max(election.begun, self._began) >= self.watch.gather_timeout

    def _next_candidate(self, why: str, now: float) -> list[Effect]:
        election = self.election
        assert election is not None
        effects: list[Effect] = []
        if why and election.refusals.get(election.promoting) != why:
            election.refusals[election.promoting] = why
            effects.append(Note("refused", why, election.promoting, {"reason": why}))
        election.promoting = ""
        while election.candidates:
            name = election.candidates.pop(0)
            node = self.nodes[name]
            if node.process is not Process.UP or not node.connected or node.report is None:
                continue
            self._serial += 1
            election.phase, election.promoting, election.serial = ElectionPhase.PROMOTING, name, self._serial
            election.deadline = now + self.watch.promote_timeout
            report = node.report
            text = f"promoting {name}: {report.state}, epoch {report.epoch}, position {show_position(report.position)}"
            attrs = {"position": report.position, "reason": election.reason, "term": report.epoch}
            if name not in election.refusals:
                effects.append(Note("promote_request", text, name, attrs))
            return [Promote(name, self._serial), *effects]
        return effects + self._rest(election, why or "no candidate left", now)

    def _rest(self, election: Election, excuse: str, now: float) -> list[Effect]:
        election.phase, election.promoting = ElectionPhase.RESTING, ""
        election.deadline = now + rest(election.rounds)
        if excuse == election.told:
            return []
        election.told = excuse
        return [Note("no_primary", f"no primary yet: {excuse}; asking again", attrs={"reason": excuse})]

    def _no_longer_waiting(self, name: str, now: float) -> list[Effect]:
        """A node that is gone cannot answer: continue the election without it."""
        election = self.election
        if election is None or self.closing:
            return []
        if election.phase is ElectionPhase.ASKING and election.waiting.pop(name, None) is not None:
            return self._advance(now)
        if election.phase is ElectionPhase.PROMOTING and election.promoting == name:
            return self._next_candidate(f"{name} was lost while it was promoted", now)
        return []
