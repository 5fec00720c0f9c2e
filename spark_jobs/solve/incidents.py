"""Incidents of one cluster, from its facts and the outages of its clients (pure).

A *seed* is a fact that an incident is made of: a token lost, a daemon or broker gone, a fencing, the promotion of
another broker, a primary that steps down.  Seeds with less than GAP between them are one incident, unless it had
*settled* before: the new primary is active (and Pacemaker's DC is idle again), and then a primary of now fails.  What
comes of the old one later (its late fencing, its return) belongs to the incident in which it was replaced.

Plans are no seeds: a cleanup and a re-probe print `Promote`, and nothing happens.  The first promotion of a new cluster
and the stop of all brokers in order are no incidents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from spark_jobs.schema import Event
from spark_jobs.solve import causes, power, resources
from spark_jobs.solve.ordinary import Cause
from spark_jobs.solve.signs import (
    CLUSTER,
    MANAGER,
    OWN,
    SECOND,
    Facts,
    Promotion,
    attr,
    certainly_before,
    is_done,
    is_state,
    lines_dropped,
    place,
    places,
    select,
    subject,
)

GAP: Final = 120 * SECOND
NEAR: Final = SECOND
"""us: an outage that is further from an incident is none of it, and within GAP none of its own."""
_SIGNS: Final = frozenset(
    {"demote", "primary_lost", "isolated", "fenced_self", "relocate", "stop", "exit", "hung"},
)
Row = dict[str, Any]


@dataclass
class Incident:
    """`seeds`: by time; `begin`, `end`: us; `end` is None if it had not settled when the logs ended; `others`: outages
    not far from it that do not touch it."""

    cluster: str
    seeds: list[Event] = field(default_factory=list)
    outages: list[Mapping[str, Any]] = field(default_factory=list)
    others: list[Mapping[str, Any]] = field(default_factory=list)
    promotions: list[Promotion] = field(default_factory=list)
    old: Promotion | None = None
    dead: Event | None = None
    """The last sign of a failure."""
    rest: Event | None = None
    """With this line it had settled."""
    since: int | None = None
    until: int | None = None
    cause: Cause = Cause("unknown")

    @property
    def begin(self) -> int:
        first = [event["ts_est"] for event in self.seeds[:1]] + [outage["begin"] for outage in self.outages]
        return int(min(first))

    @property
    def settled(self) -> int | None:
        return None if self.rest is None else int(self.rest["ts_est"])

    @property
    def last(self) -> int:
        return int(self.seeds[-1]["ts_est"]) if self.seeds else self.begin

    @property
    def end(self) -> int | None:
        ends = [outage["end"] for outage in self.outages]
        awaited = self.promotions or (self.victim and self.cause.type in causes.NEEDS_PRIMARY)
        if None in ends or (self.settled is None and awaited):
            return None
        return int(max([self.last, *([self.settled] if self.settled else []), *ends]))

    @property
    def new(self) -> Promotion | None:
        """The last one that was promoted, unless its end is named here."""
        if not self.promotions:
            return None
        last = self.promotions[-1]
        ended = (e for e in self.seeds if e["kind"] == "exit" and e.get("peer") == last.node)
        return None if any(certainly_before(last.done, event) for event in ended) else last

    @property
    def victim(self) -> str | None:
        """The primary, as far as the logs have it."""
        return self.cause.victim

    @property
    def id(self) -> str:
        """The same in each run, however the files were split or named."""
        first: Mapping[str, Any] = self.seeds[0] if self.seeds else _by_begin(self.outages)[0]
        parts = [
            self.cluster,
            *(first.get(name) for name in ("node", "source", "kind", "ts_wall", "client_id", "begin")),
        ]
        return sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]

    def facts(self, facts: Facts) -> Sequence[Event]:
        """Everything from when the one before had settled until the next one."""
        if self.settled is None or self.promotions:
            return facts.during(self.since, self.until)
        return facts.during(self.since, min(self.settled + 1, self.until or self.settled + 1))

    def near(self, facts: Facts) -> Sequence[Event]:
        """All that may belong to it by their bounds: what may deny that there is no such line."""
        return facts.between(self.since, self.until)


def find(facts: Facts, outages: Iterable[Mapping[str, Any]] = (), cluster: str = "") -> list[Incident]:
    """By time.  `outages`: client (or client_id), begin, end (None, or `censored`: it never came back), us."""
    groups = _groups(facts, cluster)
    alone = _attach(groups, outages, cluster)
    for incident in groups:
        incident.cause = causes.of(facts, incident.facts(facts), incident.old, incident.promotions)
    found = [incident for incident in groups if not _is_routine(incident, facts)]
    # what was only near to an incident that is none
    alone += _attach(found, (one for incident in groups if incident not in found for one in incident.others), cluster)
    for incident in alone:
        incident.cause = causes.clients_only(facts)
    return sorted([*found, *alone], key=lambda incident: (incident.begin, incident.id))


def rows(incidents: Iterable[Incident], facts: Facts) -> list[Row]:
    """As the table `incidents` has them."""
    return [_row(incident, facts) for incident in incidents]


def _row(incident: Incident, facts: Facts) -> Row:
    new = incident.new
    first = incident.seeds[0] if incident.seeds else {}
    file, line = place(first) if first else ("", 0)
    cause = incident.cause
    return {
        "incident": incident.id,
        "begin": incident.begin,
        "end": incident.end,
        "type": cause.type,
        "planned": cause.type == "planned",
        "failover": bool(incident.promotions),
        "old_primary": cause.victim,
        "new_primary": new.node if new else None,
        "term": new.term if new else None,
        "promotions": len(incident.promotions),
        "why": cause.why,
        "evidence": places(cause.evidence),
        "unknown": _unknown(incident, facts, incident.facts(facts)),
        "seeds": len(incident.seeds),
        "outages": len(incident.outages),
        "other_outages": len(incident.others),
        "file": file,
        "line_no": line,
    }


def _unknown(incident: Incident, facts: Facts, rows: Sequence[Event]) -> list[str]:
    """As text: missing logs, lost lines, coarse clocks."""
    named = {*facts.brokers, incident.victim or ""} - {""}
    found = [f"no log of {node}: only what others say of it is known" for node in sorted(named - facts.written)]
    if facts.own:
        missing = [node for node in facts.brokers if node in facts.written and node not in facts.own]
        found += [f"no log of the broker on {node}" for node in missing]
    else:
        found.append("no log of any broker: states, redundancy and confirms are not known")
    if not incident.outages and not facts.clients:
        found.append("no log of any client: whether a client noticed is not known")
    coarse = sorted({str(e.get("node")) for e in rows if (e.get("ts_res") or 1) >= SECOND})
    return [
        *found,
        *(f"{name} is torn at its end" for name in facts.torn),
        *map(lines_dropped, select(rows, "lines_dropped")),
        *(f"{node}: times are to the second" for node in coarse),
    ]


# ---- grouping -------------------------------------------------------------------------------------------------------


def _groups(facts: Facts, cluster: str) -> list[Incident]:
    groups: list[Incident] = []
    done = {id(promotion.done): promotion for promotion in facts.promotions}
    for event, fresh in _seeds(facts):
        at = event["ts_est"]
        group = groups[-1] if groups else None
        if group is not None:
            group.rest = _settled(facts, group, at)
        down = group is not None and group.seeds[-1]["kind"] == "start"  # all of them: until one is promoted
        over = group is not None and fresh and group.rest is not None and _ticked(group.rest, event)
        if group is None or over or (at - group.last > GAP and not down):
            group = Incident(cluster)
            groups.append(group)
        group.seeds.append(event)
        group.dead = event if _is_death(event, facts) else group.dead
        group.promotions += [done[id(event)]] if id(event) in done else []
    for number, group in enumerate(groups):
        group.until = groups[number + 1].begin if number + 1 < len(groups) else None
        group.rest = _settled(facts, group, group.until)
        group.old = facts.primary_at(group.begin)
        before = groups[number - 1] if number else None
        group.since = max(group.begin - GAP, 0 if before is None else before.settled or before.last + 1)
    return groups


def _seeds(facts: Facts) -> list[tuple[Event, bool]]:
    """(fact, can a new incident begin with it although there was one just now?)"""
    certain = {id(promotion.done) for promotion in facts.promotions}
    if not facts.has_primary:
        certain |= {id(move.end) for move in resources.moves(facts)}
    certain |= {id(loss.returns[0].start) for loss in power.find(facts) if _took_primary(loss, facts)}
    found = []
    for event in facts.rows:
        fresh = True if id(event) in certain else _freshness(event, facts)
        if fresh is not None:
            found.append((event, fresh))
    return found


def _took_primary(loss: power.Loss, facts: Facts) -> bool:
    primary = facts.primary_at(loss.returns[0].start["ts_est"])
    return primary is not None and primary.node in loss.nodes


def _freshness(event: Event, facts: Facts) -> bool | None:
    """None: no seed."""
    kind, source = event["kind"], event.get("source")
    if source in CLUSTER:
        return _of_cluster(event, facts)
    if kind not in _SIGNS:
        return None
    primary = facts.primary_at(event["ts_est"])
    current = primary.node if primary else None
    if source in OWN and kind in ("demote", "primary_lost", "isolated", "fenced_self", "relocate", "stop"):
        if (kind, event.get("result")) in (("isolated", "ended"), ("relocate", "done")):
            return None
        about = event.get("peer") if kind == "primary_lost" else event.get("node")
        return about == current if kind != "stop" or about == current else None
    if source == MANAGER and kind in ("exit", "hung"):
        return True if event.get("peer") == current else None
    return None


def _of_cluster(event: Event, facts: Facts) -> bool | None:
    kind = event["kind"]
    if kind in ("will_fence", "fence_request", "fence_op_done", "fence_notify"):
        return False
    if kind in ("stop_request", "stopped") and not facts.has_primary:
        return True if attr(event, "daemon") == "pacemakerd" else None
    if kind in ("token_lost", "daemon_exit", "self_fenced", "sbd_reset"):
        return True
    if kind == "initiate" and attr(event, "task") == "demote" and not facts.is_other(event):
        return True
    return True if facts.is_dead_broker(event) else None


def _settled(facts: Facts, group: Incident, until: int | None) -> Event | None:
    """The new primary is active and the DC idle, whichever of them has a log here."""
    done, dead = group.promotions[-1].done if group.promotions else group.seeds[-1], group.dead
    begin = max(min(event["ts_lo"] for event in (done, dead) if event), group.begin - GAP)
    after = [event for event in facts.during(begin, until) if not certainly_before(event, done)]
    after = [event for event in after if dead is None or _ticked(dead, event)]
    moments: list[Event | None] = []
    if group.promotions:
        node = group.promotions[-1].node
        own = (event for event in after if is_state(event, node, "active"))
        moments.append(next(own, None) if node in facts.own else done)
    if facts.has_fsa(group.begin - GAP, until):
        idle = (event for event in after if event["kind"] == "fsa" and event.get("new") == "S_IDLE")
        moments.append(next(idle, None))
    known = [moment for moment in moments if moment is not None]
    return max(known, key=lambda event: event["ts_est"]) if known and len(known) == len(moments) else None


def _ticked(one: Event, other: Event) -> bool:
    """The clock of their logs went on from the one to the other; in one log to the second its order says it."""
    tick = max(one.get("ts_res") or 1, other.get("ts_res") or 1)
    if tick >= SECOND and one.get("file") and one["file"] == other.get("file"):
        return place(one) < place(other)
    return bool(one["ts_est"] + tick // 2 < other["ts_est"])


def _is_death(event: Event, facts: Facts) -> bool:
    """A sign of a failure at this moment."""
    return event["kind"] in ("token_lost", "daemon_exit", "hung", "exit") or facts.is_dead_broker(event)


def _is_routine(incident: Incident, facts: Facts) -> bool:
    """A new cluster is brought up, or all of it is stopped in order."""
    failed = any(event["kind"] == "primary_lost" or _is_death(event, facts) for event in incident.seeds)
    if incident.promotions and incident.old is None and not failed:
        first = incident.promotions[0]
        started = any(_brings_up(event, first, facts) for event in facts.between(None, first.at))
        return (first.term == 1 or (first.term is None and started)) and len(incident.promotions) == 1
    if incident.promotions or incident.outages:
        return False
    stopped = {event.get("node") for event in incident.facts(facts) if event["kind"] == "stop"}
    return bool(stopped) and stopped >= set(facts.own)


def _brings_up(event: Event, first: Promotion, facts: Facts) -> bool:
    if event["kind"] == "start":
        return event.get("source") != MANAGER
    return is_done(event, "start") and subject(event) == first.node and not facts.is_other(event)


# ---- clients --------------------------------------------------------------------------------------------------------


def _by_begin(outages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(outages, key=lambda outage: (outage["begin"], str(outage.get("client"))))


def _named(outage: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of the table `outages`, whose `end` is that of the log if the client never came back."""
    end = None if outage.get("censored") else outage["end"]
    return {**outage, "client": outage.get("client") or outage.get("client_id"), "end": end}


def _attach(groups: list[Incident], outages: Iterable[Mapping[str, Any]], cluster: str) -> list[Incident]:
    """Gives each outage to its incident; those of none are incidents of clients alone."""
    spans = [(group.seeds[0]["ts_est"], group.settled or group.last) for group in groups]
    alone: list[Incident] = []
    for outage in _by_begin(map(_named, outages)):
        # apart from it by that much; of those that it overlaps, the first
        near = [
            (max(0, outage["begin"] - end, 0 if outage["end"] is None else begin - outage["end"]), number)
            for number, (begin, end) in enumerate(spans)
        ]
        apart, number = min(near, default=(GAP + 1, 0))
        if apart <= GAP:
            (groups[number].outages if apart <= NEAR else groups[number].others).append(outage)
        elif alone and outage["begin"] - max(o["end"] or o["begin"] for o in alone[-1].outages) <= GAP:
            alone[-1].outages.append(outage)
        else:
            alone.append(Incident(cluster, outages=[outage], since=outage["begin"] - GAP))
    return alone
