"""The meaning of facts of brokers, their manager, Pacemaker and Corosync (pure).

A fact is an event that is about no message, with `ts_est`, `ts_lo`, `ts_hi` (us) from the clock solver.  Whatever is
compared between two nodes is compared by these bounds; two lines of one node by what its own clock says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from spark_jobs.parse.survey import age
from spark_jobs.schema import MESSAGE_KINDS, Event

OWN: Final = ("broker", "text")
"""Sources in which a broker speaks of itself."""
MANAGER: Final = "qpid-cluster"
CLUSTER: Final = ("pacemaker", "corosync", "syslog")
SECOND: Final = 1_000_000
MERGE: Final = 10 * SECOND
"""us between what a broker, its manager and Pacemaker say about one promotion, at most."""
UNKNOWN: Final = 1 << 60
"""us: wider bounds are those of an unknown clock."""
SEQUENCE: Final = (1 << 48) - 1


def place(event: Event) -> tuple[str, int]:
    """(file, line)"""
    return event.get("file") or "", event.get("line_no") or 0


def places(events: Iterable[Event]) -> list[str]:
    """`FILE:LINE` of each, as tables have evidence."""
    return [f"{file}:{line}" for file, line in map(place, events)]


def key(event: Event) -> tuple[Any, ...]:
    """An order that does not depend on that of the files, nor on where a log was rotated."""
    return (
        event["ts_est"],
        event.get("node") or "",
        event.get("seq") or 0,
        event.get("source") or "",
        age(event.get("file") or ""),
        event.get("line_no") or 0,
        event["kind"],
    )


def certainly_before(one: Event, other: Event) -> bool:
    """By their bounds, or two lines of one node by its own clock; where a clock is not known, by what is written."""
    if not (is_known(one) and is_known(other)):
        return bool(one["ts_est"] < other["ts_est"])
    return bool(one["ts_hi"] < other["ts_lo"]) or _on_one_clock(one, other)


def _on_one_clock(one: Event, other: Event) -> bool:
    """A clock that was set in between shows no order, nor do the stamps of logs to the second."""
    if not one.get("node") or one["node"] != other.get("node") or other["ts_hi"] < one["ts_lo"]:
        return False
    if one.get("boot_id") == other.get("boot_id") and None not in (one.get("ts_mono"), other.get("ts_mono")):
        return bool(one["ts_mono"] < other["ts_mono"])
    return bool(one["ts_wall"] + (one.get("ts_res") or 1) <= other["ts_wall"])


def is_known(event: Event) -> bool:
    """Its clock."""
    return bool(event["ts_hi"] - event["ts_lo"] <= UNKNOWN)


def matches(event: Event, *kinds: str, **columns: object) -> bool:
    """True if it is of one of these kinds and has these values."""
    return event["kind"] in kinds and all(event.get(name) == value for name, value in columns.items())


def select(rows: Iterable[Event], *kinds: str, **columns: object) -> list[Event]:
    """Those that match."""
    return [event for event in rows if matches(event, *kinds, **columns)]


def attr(event: Mapping[str, Any], name: str, default: str = "") -> str:
    return str((event.get("attrs") or {}).get(name, default))


def sequence(event: Event) -> int | None:
    """A position without its epoch: it goes on from one primary to the next."""
    return None if event.get("last_pos") is None else event["last_pos"] & SEQUENCE


def is_failed_monitor(event: Event) -> bool:
    """The manager looked, and the resource is not there or does not answer."""
    if event["kind"] not in ("op_unexpected", "op_result") or attr(event, "task") != "monitor":
        return False
    # a probe (interval 0) expects nothing, and finds what runs: no failure
    if attr(event, "op").endswith("_0"):
        return False
    return (event.get("result") or "").lower() not in ("", "ok", "promoted", "cancelled")


def is_fenced(event: Event) -> bool:
    """The fencing of its peer succeeded, as the fencing daemon says, or (later) the controller."""
    return matches(event, "fence_op_done", "fence_notify", result="OK") and bool(event.get("peer"))


def by_hand(event: Event) -> bool:
    """An administrator said that the node is down: nothing was done to it."""
    return attr(event, "by") == "a human"


def is_request(event: Event) -> bool:
    """Somebody asked for a change of what runs where.  In maintenance nothing is moved: that is none."""
    return bool(event.get("planned")) and "maintenance" not in f"{attr(event, 'by')} {attr(event, 'name')}"


def is_done(event: Event, task: str) -> bool:
    """The resource's agent did it: as its own node says, or the DC, which was told."""
    return matches(event, "op_result", "op_confirmed", result="ok") and attr(event, "task") == task


def is_state(event: Event, node: str, new: str) -> bool:
    """The broker of the node says that it is in this state now."""
    return event.get("source") in OWN and matches(event, "state", node=node, new=new)


def is_loss(event: Event) -> bool:
    """A ring without a node of the one before."""
    return event["kind"] == "membership" and attr(event, "left") != ""


def lines_dropped(event: Event) -> str:
    """In words."""
    return f"{event.get('node')}: {attr(event, 'count') or 'some'} lines were dropped by the system log"


_ABOUT_PEER: Final = ("relocate", "will_fence", "fence_request", "fence_op_done", "fence_notify")


def subject(event: Event) -> str:
    """The node that a fact is about; empty if it does not say."""
    if event["kind"] in ("op_result", "op_unexpected", "op_confirmed", "initiate", "op_request", "plan"):
        here = "" if event["kind"] == "op_unexpected" else event.get("node")
        return attr(event, "target") or event.get("peer") or here or ""
    if event.get("source") == MANAGER or event["kind"] in _ABOUT_PEER:
        return event.get("peer") or ""
    return event.get("node") or ""


@dataclass(frozen=True)
class Promotion:
    """`done`: the best line that says it; `asked`: it was requested; `lines`: all that show it.

    `lo`, `hi`: us; `lo` is None if nothing says since when at the earliest."""

    node: str
    term: int | None
    asked: Event | None
    done: Event
    lines: tuple[Event, ...]

    @property
    def at(self) -> int:
        return int(self.done["ts_est"])

    @property
    def since(self) -> int:
        """us: it was primary from then on, or from later."""
        return self.at if self.lo is None else self.lo

    @property
    def hi(self) -> int:
        return int(self.done["ts_hi"])

    @property
    def lo(self) -> int | None:
        own = [event["ts_lo"] for event in self.lines if (_rank(event) or 0) < _RANK_TOLD]
        if own:
            return int(min(own))
        return None if self.asked is None else int(self.asked["ts_lo"])


_RANK_TOLD: Final = 2


def _rank(event: Event) -> int | None:
    """How well a line says that its subject has been promoted; None if it does not."""
    kind, source = event["kind"], event.get("source")
    if source in OWN and (kind == "promoted" or (kind == "state" and event.get("new") == "recovering")):
        return (0 if kind == "promoted" else 1) if source == "broker" else _RANK_TOLD + (kind != "promoted")
    if is_done(event, "promote"):
        return 4 if kind == "op_result" else 5
    if source == MANAGER and kind == "promoted":
        return 6
    if source in OWN and kind == "relocate" and event.get("result") == "done":
        return 7
    if source in OWN and kind == "state" and event.get("new") == "active":
        return 8
    return None


@dataclass(frozen=True)
class Facts:
    """All facts of one cluster, in order, and what is read from them."""

    rows: tuple[Event, ...]
    times: tuple[int, ...] = field(repr=False)
    torn: tuple[str, ...] = ()
    """Files whose last line has no end."""

    @staticmethod
    def of(events: Iterable[Event]) -> Facts:
        given = list(events)
        timely = (e for e in given if e["kind"] not in MESSAGE_KINDS and e.get("ts_wall") is not None and "ts_est" in e)
        rows = tuple(sorted(timely, key=key))
        torn = tuple(sorted({str(event.get("file")) for event in given if event["kind"] == "torn"}))
        return Facts(rows, tuple(event["ts_est"] for event in rows), torn)

    def between(self, begin: int | None, end: int | None) -> Sequence[Event]:
        """Those that may be in [begin, end), by their bounds; where a clock is not known, by what is written."""
        low = 0 if begin is None else bisect_left(self.times, begin - self._reach)
        high = len(self.rows) if end is None else bisect_left(self.times, end + self._reach)
        rows = self.rows[low:high]
        rows = rows if begin is None else tuple(e for e in rows if e["ts_hi" if is_known(e) else "ts_est"] >= begin)
        return rows if end is None else tuple(e for e in rows if e["ts_lo" if is_known(e) else "ts_est"] < end)

    def during(self, begin: int | None, end: int | None) -> Sequence[Event]:
        """With ts_est in [begin, end): of adjacent times each fact is in one."""
        low = 0 if begin is None else bisect_left(self.times, begin)
        return self.rows[low : len(self.rows) if end is None else bisect_left(self.times, end)]

    def around(self, rows: Sequence[Event]) -> Sequence[Event]:
        """All that may have been while these were."""
        known = [event for event in rows if is_known(event)]
        if not known:
            return rows
        return self.between(min(event["ts_lo"] for event in known), max(event["ts_hi"] for event in known) + 1)

    @cached_property
    def _reach(self) -> int:
        """us: no bound that is known is further from its estimate."""
        apart = (max(e["ts_hi"] - e["ts_est"], e["ts_est"] - e["ts_lo"]) for e in self.rows if is_known(e))
        return int(max(apart, default=0))

    def back_from(self, event: Event) -> Iterator[Event]:
        """Those before it in their order, the last one first."""
        return (self.rows[index] for index in range(bisect_left(self.times, event["ts_est"]) - 1, -1, -1))

    @cached_property
    def kinds(self) -> dict[str, list[Event]]:
        return _grouped((event["kind"], event) for event in self.rows)

    @cached_property
    def own(self) -> dict[str, list[Event]]:
        """Node -> what its broker wrote."""
        return _grouped((event.get("node") or "", event) for event in self.rows if event.get("source") in OWN)

    @cached_property
    def written(self) -> set[str]:
        """Nodes of which there is a log, of a broker or of the cluster's software."""
        return {event.get("node") or "" for event in self.rows if event.get("source") in (*OWN, *CLUSTER)}

    @cached_property
    def daemons(self) -> dict[str, set[str]]:
        """Software of the cluster -> nodes with a log of it, be it in the system's; Pacemaker's says when they end."""
        found: dict[str, set[str]] = {"pacemaker": set(), "corosync": set()}
        for event in self.rows:
            name = attr(event, "daemon", "pacemaker") if event.get("source") == "syslog" else event.get("source")
            found.get(str(name).partition("-")[0].removesuffix("d"), set()).add(event.get("node") or "")
        return found

    @cached_property
    def members(self) -> set[str]:
        """Nodes that logs of Pacemaker are of, or name."""
        kinds = ("peer_state", "fence_op_done", "initiate", "op_result", "op_confirmed")
        named = {str(event["peer"]) for event in self.rows if event["kind"] in kinds and event.get("peer")}
        return self.daemons["pacemaker"] | named

    @cached_property
    def clients(self) -> bool:
        """True if there is a log of a client."""
        return any(event.get("source") == "client" for event in self.rows)

    @cached_property
    def promotions(self) -> list[Promotion]:
        """By time; what several logs say about one is one."""
        groups: list[list[Event]] = []
        last: dict[str, list[Event]] = {}
        for event in self.rows:
            if _rank(event) is None or self.is_other(event):
                continue
            node = subject(event)
            group = last.get(node)
            if group is not None and groups[-1] is group and _same(group, event):
                group.append(event)
            elif event["kind"] != "state" or event.get("new") != "active" or not self._promoted_before(last, event):
                last[node] = [event]
                groups.append(last[node])
        return [self._promotion(group) for group in groups]

    def _promoted_before(self, last: dict[str, list[Event]], event: Event) -> bool:
        """True if an `active` long after its promotion is not a promotion of its own."""
        group = last.get(subject(event))
        return group is not None and (event.get("term") in {row.get("term") for row in group} or not event.get("term"))

    def _promotion(self, group: list[Event]) -> Promotion:
        done = min(group, key=lambda event: (_rank(event), key(event)))
        terms = [term for event in group if (term := _term(event))]
        return Promotion(subject(done), max(terms, default=None), self._asked(done, group), done, tuple(group))

    def _asked(self, done: Event, group: list[Event]) -> Event | None:
        """The last request before it, of those who ask: DC, target, manager, the broker itself."""
        node, first = subject(done), min(group, key=lambda event: int(event["ts_hi" if is_known(event) else "ts_est"]))
        until = first["ts_hi" if is_known(first) else "ts_est"]
        asked = [
            event
            for event in self.between(until - 5 * 60 * SECOND, until + 1)
            if subject(event) == node
            and _asks(event)
            and not self.is_other(event)
            and not certainly_before(first, event)
        ]
        begins = [event for event in asked if event["kind"] == "initiate"]
        return begins[-1] if begins else asked[-1] if asked else None

    def primary_at(self, moment: int) -> Promotion | None:
        """The primary after the last promotion before that moment."""
        before = [promotion for promotion in self.promotions if promotion.at < moment]
        return before[-1] if before else None

    @cached_property
    def promotable(self) -> frozenset[str]:
        """Of Pacemaker: resources that are promoted or demoted here, or of which a monitor expects that they are."""
        named = (e for e in self.rows if attr(e, "task") in ("promote", "demote") or attr(e, "target_rc") == "8")
        return frozenset(map(_resource, named)) - {""}

    @cached_property
    def resources(self) -> frozenset[str]:
        """Of them the broker's, or that of another server with one primary.  Of several only that of which a broker or
        its manager tells, too: the others may be primary where they like."""
        if len(self.promotable) < 2:
            return self.promotable
        own = [e for e in self.kinds.get("promoted", ()) if e.get("source") in (*OWN, MANAGER)]
        done = [e for kind in ("op_result", "op_confirmed") for e in self.kinds.get(kind, ()) if is_done(e, "promote")]
        told = {_resource(e) for e in done for o in own if subject(e) == subject(o) and _apart(e, o) <= MERGE}
        return frozenset(told) if len(told) == 1 else frozenset()

    def is_other(self, event: Event) -> bool:
        """About another resource than the broker's."""
        return _resource(event) not in (self.resources | {""}) and bool(self.promotable)

    @cached_property
    def devices(self) -> frozenset[str]:
        """Of Pacemaker: resources that fence, and serve nobody else."""
        named = (*self.kinds.get("fence_device", ()), *self.kinds.get("fence_delay", ()))
        return frozenset(attr(event, "device") for event in named)

    @cached_property
    def has_primary(self) -> bool:
        """False if no log here knows of a primary: the cluster may run other resources only."""
        return bool(self.own or self.promotions or self.resources)

    def is_dead_broker(self, event: Event) -> bool:
        """A failed monitor of the broker's own resource, as far as one can tell."""
        return is_failed_monitor(event) and (not self.has_primary or _resource(event) in (self.resources or {""}))

    @cached_property
    def brokers(self) -> list[str]:
        names = set(self.own) | {promotion.node for promotion in self.promotions}
        for event in self.rows:
            if event.get("source") == MANAGER and event["kind"] == "start" and event.get("peer"):
                names.add(event["peer"])
            elif event["kind"] in ("backup_connected", "membership") and event.get("source") in OWN:
                names.add(event.get("peer") or "")
        return sorted(names - {""})

    def has_fsa(self, begin: int, end: int | None) -> bool:
        """True if a controller told its state in [begin, end)."""
        found = self.kinds.get("fsa", [])
        index = bisect_left(found, begin, key=lambda event: event["ts_est"])
        return index < len(found) and (end is None or found[index]["ts_est"] < end)


def _grouped(pairs: Iterable[tuple[str, Event]]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for name, event in pairs:
        found[name].append(event)
    return dict(found)


def _term(event: Event) -> int | None:
    """Of the promotion that a line tells of; the old primary's word has the old one's."""
    return event.get("term") or None if event.get("source") in OWN and event["kind"] != "relocate" else None


def _asks(event: Event) -> bool:
    if event["kind"] in ("initiate", "op_request"):
        return attr(event, "task") == "promote"
    return event["kind"] == "promote_request" and event.get("result") != "refused"


def _same(group: list[Event], event: Event) -> bool:
    terms = {_term(row) for row in [*group, event]} - {None}
    return len(terms) <= 1 and _apart(group[0], event) <= MERGE


def _apart(one: Event, other: Event) -> int:
    """us between them, at the least; below 0 if they may be one moment."""
    return int(max(one["ts_lo"] - other["ts_hi"], other["ts_lo"] - one["ts_hi"]))


def _resource(event: Event) -> str:
    """Without the number of its instance."""
    return attr(event, "resource").partition(":")[0]
