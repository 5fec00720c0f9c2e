"""The phases of one incident, each between two lines with their errors (pure).

    fault        last sign of life .. first sign of death: the failure itself is somewhere in it
    detection    first sign of death .. known: a ring without the node, a failed monitor, the manager's verdict
    decision     known .. decided: the plan to fence or promote, the manager's request
    fencing      asked for .. done, by pacemaker-fenced (the controller's own notice comes late)
    promotion    asked for .. done, by the broker's own line if there is one
    recovering   promoted .. active, by the broker
    path         promoted .. a resource started on the new primary's node (virtual IP)
    first_client, all_clients    promoted .. the first, the last client that stood still goes on
    redundancy   promoted .. every known broker is ready again

Times are us.  A bound has the time (est), its lower and upper limit, and the line.  A phase without lines has `known`
false and says in `note` what is missing.  Nothing is taken from the order of phases: they may overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from spark_jobs.schema import Event
from spark_jobs.solve.bounds import Bound, Phase
from spark_jobs.solve.incidents import Incident
from spark_jobs.solve.signs import (
    OWN,
    SECOND,
    Facts,
    Promotion,
    attr,
    certainly_before,
    is_done,
    is_failed_monitor,
    is_fenced,
    is_known,
    is_loss,
    is_state,
    matches,
    place,
    subject,
)

ANSWER: Final = 10_000
"""us from when a broker sends an answer until its client has it, in a network that is well."""
UNPROMOTED: Final = "no log here shows a promotion"
"""A log that is not here may."""
UNFAILED: Final = "no line here says that anything had failed"
_FENCING: Final = frozenset(
    {"fence_request", "will_fence", "fence_delay", "fence_op_done", "fence_notify", "self_fenced"}
    | {"fence_wait", "fence_assumed"}
)
_TROUBLE: Final = frozenset(
    {"token_lost", "leave_missed", "daemon_exit", "sched_failed_op", "exit", "hung", "primary_lost", "backup_lost"}
    | {"sbd_reset", "sbd_late"}
)
NAMES: Final = (
    *("fault", "detection", "decision", "fencing", "promotion", "recovering", "path"),
    *("first_client", "all_clients", "redundancy"),
)
Row = dict[str, Any]


def find(incident: Incident, facts: Facts) -> list[Phase]:
    """All of NAMES, in this order."""
    scene = _Scene(incident, facts)
    return [scene.fault(), *scene.cluster(), *scene.service(), *scene.clients(), scene.redundancy()]


def rows(found: Iterable[Phase]) -> list[Row]:
    """As the table `phases` has them."""
    return [_row(number, phase) for number, phase in enumerate(found)]


def _row(number: int, phase: Phase) -> Row:
    limits = phase.limits
    row: Row = {"number": number, "phase": phase.name}
    for name, bound in (("begin", phase.begin), ("end", phase.end)):
        file, line = place(bound.line) if bound and bound.line else ("", 0)
        row |= {
            name: bound.est if bound else None,
            f"{name}_lo": bound.lo if bound else None,
            f"{name}_hi": bound.hi if bound else None,
            f"{name}_what": (bound.line["kind"] if bound.line else bound.said) if bound else None,
            f"{name}_node": bound.line.get("node") if bound and bound.line else None,
            f"{name}_file": file,
            f"{name}_line": line,
        }
    row |= {"known": phase.known, "duration_us": phase.duration, "note": phase.note}
    low, high = limits or (phase.at_least, None)
    return row | {"duration_lo_us": low, "duration_hi_us": high, "censored": phase.at_least is not None}


class _Scene:
    """One incident's facts and what its phases share."""

    def __init__(self, incident: Incident, facts: Facts) -> None:
        self.incident, self.facts, self.cause = incident, facts, incident.cause
        self.rows = incident.facts(facts)
        self.victim = incident.victim or incident.cause.about
        self.new = incident.new
        self.limit = self.new.done if self.new else None
        self.death = self._first(self._is_death)

    def _first(
        self, wanted: Callable[[Event], bool], since: Event | None = None, until: Event | None = None
    ) -> Event | None:
        """Of those that are not certainly before `since` nor certainly behind `until`.  It had happened when any of
        them had for certain, and may have begun with any: a line of a coarse clock makes its latest time no later."""
        found = []
        for event in self.rows:
            early = since is not None and certainly_before(event, since)
            late = until is not None and certainly_before(until, event)
            if not early and not late and wanted(event):
                found.append(event)
        known = [event for event in found if is_known(event)]
        if not known:
            return found[0] if found else None
        low, high = min(event["ts_lo"] for event in known), min(event["ts_hi"] for event in known)
        return {**known[0], "ts_lo": low, "ts_hi": high, "ts_est": min(known[0]["ts_est"], high)}

    # ---- what happened -----------------------------------------------------------------------------------------------

    def _is_death(self, event: Event) -> bool:
        kind, cause = event["kind"], self.cause.type
        if cause == "power-loss":
            return event is self.cause.evidence[0]
        if cause == "planned":
            return bool(event.get("planned")) or any(event is line for line in self.cause.evidence[:1])
        if cause == "fencing":
            return kind in ("token_lost", "fence_request", "will_fence", "fence_op_done")
        if cause in ("down", "moved"):
            return kind in ("stop_request", "stopped") or any(event is line for line in self.cause.evidence)
        if kind == "token_lost" or (kind == "primary_lost" and not event.get("peer")):
            return True
        if matches(event, "exit", "hung", "primary_lost", peer=self.victim):
            return True
        if matches(event, "daemon_exit", "start", node=self.victim):
            return kind == "daemon_exit" or event.get("source") in OWN
        return self.facts.is_dead_broker(event) and subject(event) == self.victim

    def fault(self) -> Phase:
        if self.death is None:
            told = any(map(_is_trouble, self.incident.near(self.facts)))
            return Phase("fault", note="no line here says what failed first" if told else UNFAILED)
        end = Bound.of(self.death)
        asked = self.cause.type in ("fencing", "down", "moved") and self.death["kind"] != "token_lost"
        if asked or self.cause.type == "planned":
            return Phase("fault", end, end, "it was asked for")
        begin = self._last_life(end)
        if begin is None:
            about = self.victim or ("the primary" if self.facts.has_primary else "what failed")
            return Phase("fault", None, end, f"no sign of life of {about} before it is here")
        down = self.cause.type == "power-loss"
        note = "all were down between the two, until the first was back" if down else "it failed between the two"
        return Phase("fault", begin, end, note)

    def _lives(self, event: Event) -> bool:
        """Where only the process died, a line of its node's other daemons says nothing."""
        return self.cause.type in ("crash", "controller") or event.get("source") in OWN

    def _last_life(self, death: Bound) -> Bound | None:
        """The latest of: what it wrote itself, and the token that was still there before it was missed."""
        found: list[Bound] = []
        own = [e for e in self.facts.between(None, death.est + 1) if e.get("node") == self.victim and self._lives(e)]
        line = death.line
        own = [e for e in own if line is None or not (certainly_before(line, e) or place(e) == place(line))]
        if own and self.cause.type != "partition":
            found.append(Bound.of(own[-1]))
        if death.line is not None and death.line["kind"] == "token_lost" and attr(death.line, "token").isdigit():
            token = int(attr(death.line, "token")) * 1000
            found.append(death.earlier(token, f"token {token // 1000} ms"))
        found += self._answers(death)
        every = interval(death.line)
        if every:
            found.append(death.earlier(every, f"monitor every {every // 1000} ms"))
        return max(found, key=lambda bound: bound.est, default=None)

    def _answers(self, death: Bound) -> list[Bound]:
        """Clients that were answered before they stood still: the primary lived, and had answered just before."""
        first = self.incident.promotions[0].done["ts_lo"] if self.incident.promotions else None
        until = death.est if first is None else min(death.est, first)
        answers = ((o["alive"], o.get("client")) for o in self.incident.outages if o.get("alive") is not None)
        return [Bound(at, at - ANSWER, at, None, f"answer to {name}") for at, name in answers if at <= until]

    # ---- detection, decision, fencing, promotion ---------------------------------------------------------------------

    def cluster(self) -> list[Phase]:
        if self.cause.type == "planned":
            asked = self.new.asked if self.new else None
            decision = self._phase("decision", self.death, asked, "no line here says when the promotion was asked for")
            return [Phase("detection", note="it was asked for"), decision, self._fencing(), self._promotion()]
        known = self._known()
        decided = self._first(_is_decision, known, self.limit) if known else None
        note = "until the last journal was read" if self.cause.type == "power-loss" else ""
        detection = self._phase("detection", self.death, known, "no line here says when it was known", note)
        decision = self._phase("decision", known, decided, "no plan and no request of a manager")
        return [detection, decision, self._fencing(), self._promotion()]

    def _phase(self, name: str, begin: Event | None, end: Event | None, missing: str, note: str = "") -> Phase:
        first, last = (Bound.of(event) if event else None for event in (begin, end))
        return Phase(name, first, last, note if first and last else missing)

    def _open(self, name: str, begin: Bound | None, note: str) -> Phase:
        """It began, and nothing says that it ended."""
        if begin is None:
            return Phase(name, None, None, note)
        last = max((event["ts_lo"] for event in self.rows), default=begin.hi)
        return Phase(name, begin, None, note, max(0, last - begin.hi))

    def _known(self) -> Event | None:
        if self.death is None:
            return None
        since = self.death
        if self.cause.type == "power-loss":
            read = [event for event in self.cause.evidence if event["kind"] == "journal_read"]
            early = [event for event in read if self.limit is None or not certainly_before(self.limit, event)]
            return max(early, key=lambda event: int(event["ts_est"]), default=None)
        if self.death["kind"] in ("token_lost", "daemon_exit"):
            ring = self._first(is_loss, since, self.limit)
            if self.death["kind"] == "token_lost":
                return ring or self._first(lambda e: e["kind"] == "membership", since, self.limit)
            return ring or self._first(lambda e: matches(e, "fsa", new="S_POLICY_ENGINE"), since)
        return self._first(lambda e: e["kind"] in ("election", "hung"), since, self.limit) or self.death

    def _fencing(self) -> Phase:
        # an administrator may have asked before anything had failed
        asked = self._first(self._asks_fencing, self.death) or self._first(self._asks_fencing)
        done = self._first(is_fenced)
        if asked is None:
            spoken = done or any(map(_speaks_of_fencing, self.incident.near(self.facts)))
            note = "no line here says when it was asked for" if spoken else "no log here asks for fencing"
            return Phase("fencing", None, Bound.of(done) if done else None, note)
        told = [e for e in self.rows if is_fenced(e) and e.get("peer") == asked.get("peer")]
        told = [e for e in told if not certainly_before(e, asked)]
        told.sort(key=lambda event: event["kind"] != "fence_op_done")
        # on the node that asked, there is no error of clocks in it
        done = next((e for e in told if e.get("node") == asked.get("node")), told[0] if told else None)
        return self._phase("fencing", asked, done, f"{asked.get('peer')} was never reported as fenced")

    def _asks_fencing(self, event: Event) -> bool:
        return event["kind"] == "fence_request" and (not self.victim or event.get("peer") == self.victim)

    def _promotion(self) -> Phase:
        if self.new is None:
            return Phase("promotion", note=UNPROMOTED)
        note = "no line here says when it was asked for"
        return self._phase("promotion", self.new.asked, _by_agent(self.new), note)

    # ---- service -----------------------------------------------------------------------------------------------------

    def service(self) -> list[Phase]:
        if self.new is None:
            return [Phase(name, note=UNPROMOTED) for name in ("recovering", "path")]
        return [self._recovering(self.new), self._path(self.new)]

    def _recovering(self, new: Promotion) -> Phase:
        active = self._first(lambda e: is_state(e, new.node, "active"), new.done)
        if new.node not in self.facts.own:
            return Phase("recovering", note=f"no log of the broker on {new.node}")
        earlier = ("ts_wall", "ts_est", "ts_lo", "ts_hi")
        near = {**new.done, **{name: new.done[name] - SECOND for name in earlier}, "ts_mono": None}
        begin = self._first(lambda e: is_state(e, new.node, "recovering"), near) or new.done
        if active is None:
            return self._open("recovering", Bound.of(begin), f"{new.node} did not become active")
        return Phase("recovering", Bound.of(begin), Bound.of(active))

    def _path(self, new: Promotion) -> Phase:
        done = _by_agent(new)
        started = self._first(lambda e: _is_start(e, new.node), done)
        if started is None:
            return Phase("path", None, None, f"no resource was started on {new.node}")
        return Phase("path", Bound.of(done), Bound.of(started), f"{attr(started, 'resource')} on {new.node}")

    # ---- clients -----------------------------------------------------------------------------------------------------

    def clients(self) -> list[Phase]:
        outages = self.incident.outages
        names = ("first_client", "all_clients")
        if not outages:
            return [Phase(name, note="no client is known to have stood still") for name in names]
        begin = Bound.of(self.new.done) if self.new else None
        never = sorted({str(outage.get("client")) for outage in outages if outage["end"] is None})
        since = self.new.done["ts_lo"] if self.new else None
        back = [o for o in outages if o["end"] is not None and (since is None or o["end"] >= since)]
        if not back:
            return [self._open(name, begin, f"never back: {', '.join(never)}") for name in names]
        first, last = min(back, key=_back), max(back, key=_back)
        end = self._open(names[1], begin, f"never back: {', '.join(never)}") if never else None
        return [Phase(names[0], begin, _gone_on(first)), end or Phase(names[1], begin, _gone_on(last))]

    # ---- redundancy --------------------------------------------------------------------------------------------------

    def redundancy(self) -> Phase:
        new = self.new
        if new is None:
            return Phase("redundancy", note=UNPROMOTED)
        begin = Bound.of(new.done)
        if not self.facts.own:
            return Phase("redundancy", begin, None, "no log of any broker")
        missing = {node for node in self.facts.brokers if node != new.node}
        if not missing:
            return Phase("redundancy", begin, None, "no backup is known")
        for event in self.rows:
            peer, ready = ("", False) if certainly_before(event, new.done) else _listed(event, new)
            missing = missing - {peer} if ready else missing | ({peer} - {""})
            if not missing:
                return Phase("redundancy", begin, Bound.of(event), f"last: {peer}")
        return self._open("redundancy", begin, f"not ready again: {', '.join(sorted(missing))}")


def _listed(event: Event, new: Promotion) -> tuple[str, bool]:
    """(backup, is it ready now?) as the new primary says it, or the backup of itself; ("", False) if neither."""
    if event.get("source") not in OWN:
        return "", False
    if event["kind"] == "membership" and event.get("node") == new.node and event.get("peer"):
        return str(event["peer"]), event.get("result") == "ready"
    node = str(event.get("node") or "")
    return (node, True) if node != new.node and is_state(event, node, "ready") else ("", False)


def _is_trouble(event: Event) -> bool:
    """Says that something is not well."""
    gone = matches(event, "peer_state", new="lost") or is_loss(event) or is_failed_monitor(event)
    return gone or event["kind"] in _TROUBLE or _speaks_of_fencing(event)


def _speaks_of_fencing(event: Event) -> bool:
    return event["kind"] in _FENCING or (matches(event, "plan") and attr(event, "task") == "fence")


def _is_decision(event: Event) -> bool:
    if event["kind"] == "plan":
        return attr(event, "task") in ("fence", "promote") and event.get("old") != "Stopped"
    if event["kind"] == "promote_request":
        return event.get("result") != "refused"
    return bool(event["kind"] == "will_fence")


def _by_agent(new: Promotion) -> Event:
    """For Pacemaker a promotion ends with the agent's result; else with the broker's own line."""
    told = {line["kind"]: line for line in reversed(new.lines) if is_done(line, "promote")}
    return told.get("op_result") or told.get("op_confirmed") or new.done


def _is_start(event: Event, node: str) -> bool:
    return is_done(event, "start") and subject(event) == node


def interval(event: Event | None) -> int | None:
    """us between two monitors, from the operation's key `broker_monitor_1000`."""
    if event is None or event["kind"] not in ("op_unexpected", "op_result"):
        return None
    milliseconds = attr(event, "op").rpartition("_")[2]
    return int(milliseconds) * 1000 if milliseconds.isdigit() and int(milliseconds) else None


def _back(outage: Mapping[str, Any]) -> tuple[int, str]:
    return outage["end"], str(outage.get("client"))


def _gone_on(outage: Mapping[str, Any]) -> Bound:
    error = int(outage.get("error") or 0)
    return Bound(outage["end"], outage["end"] - error, outage["end"] + error, None, f"client {outage.get('client')}")


def total(found: Iterable[Phase], down: bool = False) -> int | None:
    """us from the first sign of death until the service was there again for new connections; None if it never was.
    `down`: all were down, so it counts from the last sign of life, and is that long at the most."""
    by_name = {phase.name: phase for phase in found}
    death = (by_name["fault"].begin if down else None) or by_name["fault"].end
    ends = [by_name[name].end for name in ("promotion", "recovering", "path")]
    last = max((bound for bound in ends if bound is not None), key=lambda bound: bound.est, default=None)
    if last is None or death is None:
        return None
    return Phase("total", replace(death, line=None), replace(last, line=None)).duration
