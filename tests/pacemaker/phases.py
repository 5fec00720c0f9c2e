"""What a fail-over spent its time on: from the event to the first confirm, by the logs.  Pure.

Times are seconds since 1970, lengths are seconds after the event.  A phase that did not occur is not there: no node is
fenced when a process dies, and no token is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from tests.pacemaker.primaries import Span
from tests.pacemaker.timeline import Entry

BROKER, VIP = "qpidd", "vip"
"""Names of the resources."""
CALM: Final = ("ok", "promoted", "Cancelled")
"""Results of monitors that say nothing new."""

ORDER: Final = (
    "token", "membership", "noticed", "decided", "fencing", "fenced", "promote asked", "claim", "primary", "promoted",
    "address asked", "address", "confirm, list", "confirm, address",
)  # fmt: skip
"""All phases, in the order in which they usually end."""


@dataclass(frozen=True)
class Phases:
    """Name → seconds after the event."""

    moments: Mapping[str, float] = field(default_factory=dict)
    transitions: int = 0
    """That Pacemaker calculated until the address was up, or nothing more was to be done."""
    aborts: tuple[str, ...] = ()
    """Why it began anew."""

    def lines(self) -> list[str]:
        return [f"{name:<18} {self.moments[name] * 1000:7.0f} ms" for name in ORDER if name in self.moments]


def phases(
    entries: Sequence[Entry], event: float, until: float, broker: str = BROKER, vip: str = VIP,
    others: Mapping[str, float] | None = None,
) -> Phases:  # fmt: skip
    """Of the event at `event`; what is later than `until` belongs to something else.  `others`: moments that are known
    from elsewhere, the clients or the brokers."""
    window = [entry for entry in entries if event <= entry.at <= until]
    found = {name: entry.at for name, entry in _firsts(window, broker, vip).items()}
    found |= {name: at for name, at in (others or {}).items() if event <= at <= until}
    end = max((at for name, at in found.items() if name in ("promoted", "address")), default=until)
    busy = [entry for entry in window if entry.at <= end]
    aborts = tuple(entry["by"] or entry["why"].strip() for entry in busy if entry.kind == "aborted")
    return Phases(
        {name: found[name] - event for name in ORDER if name in found},
        sum(entry.kind == "decided" for entry in busy),
        aborts,
    )


def _firsts(window: Sequence[Entry], broker: str, vip: str) -> dict[str, Entry]:
    """The last promotion counts, if there were several, and the first decision for one."""
    promoted = _last(window, lambda entry: _done(entry, "promote", broker))
    asked = _last(window, lambda entry: _asked(entry, "promote", broker), promoted)
    address = _first(window, lambda entry: _done(entry, "start", vip))
    found = {
        "token": _first(window, lambda entry: entry.kind == "token_lost"),
        "membership": _first(window, lambda entry: entry.kind == "membership" and "left" in entry["change"]),
        "noticed": _first(window, lambda entry: _noticed(entry, broker)),
        "decided": _first(window, lambda entry: entry.kind == "planned" and entry["verb"] == "Promote"),
        "fencing": _first(window, lambda entry: entry.kind == "fence_asked"),
        "fenced": _first(window, lambda entry: entry.kind == "fenced"),
        "promote asked": asked,
        "promoted": promoted,
        "address asked": _last(window, lambda entry: _asked(entry, "start", vip), address),
        "address": address,
    }
    return {name: entry for name, entry in found.items() if entry is not None}


def _noticed(entry: Entry, broker: str) -> bool:
    """The first moment at which Pacemaker knew that something has to be done."""
    if entry.kind == "result":
        return entry["resource"] == broker and entry["task"] == "monitor" and entry["result"] not in CALM
    if entry.kind == "state":
        return (entry["old"], entry["new"]) == ("S_IDLE", "S_POLICY_ENGINE")
    return entry.kind in ("peer_lost", "daemon_died")


def _done(entry: Entry, task: str, resource: str) -> bool:
    return (entry.kind, entry["task"], entry["resource"], entry["result"]) == ("result", task, resource, "ok")


def _asked(entry: Entry, task: str, resource: str) -> bool:
    return (entry.kind, entry["task"], entry["resource"]) == ("requested", task, resource)


def _first(window: Iterable[Entry], fits: Callable[[Entry], bool]) -> Entry | None:
    return next((entry for entry in window if fits(entry)), None)


def _last(window: Sequence[Entry], fits: Callable[[Entry], bool], before: Entry | None = None) -> Entry | None:
    known = (entry for entry in reversed(window) if before is None or entry.at <= before.at)
    return next((entry for entry in known if fits(entry)), None)


def promoted_spans(entries: Sequence[Entry], ends: Iterable[Span], now: float, broker: str = BROKER) -> list[Span]:
    """When each node was promoted in the eyes of its own Pacemaker: from the result of the promotion to that of a
    demotion or a stop, to a monitor that found something else, or to its end by fencing.  `ends`: nodes that were dead,
    and from when on."""
    facts = [(entry.at, entry["target"], _change(entry, broker)) for entry in entries]
    facts += [(span.begin, span.node, False) for span in ends]
    begun: dict[str, float] = {}
    found: list[Span] = []
    for at, node, change in sorted((fact for fact in facts if fact[2] is not None), key=lambda fact: fact[0]):
        if change:
            begun.setdefault(node, at)
        elif node in begun:
            found.append(Span(node, begun.pop(node), at))
    return [*found, *(Span(node, at, now) for node, at in begun.items())]


def _change(entry: Entry, broker: str) -> bool | None:
    """True: promoted from now on; False: not any more; None: nothing about this."""
    if entry.kind == "fenced" and entry["result"] == "OK":
        return False
    if entry.kind != "result" or entry["resource"] != broker:
        return None
    if entry["task"] == "promote" and entry["result"] == "ok":
        return True
    ended = entry["task"] in ("demote", "stop") or (entry["task"] == "monitor" and entry["result"] not in CALM)
    return False if ended else None


def throttled(entries: Sequence[Entry], at: float) -> dict[str, str]:
    """Node → how loaded its controller thought that the node was, if that made it do one action at a time."""
    modes = {entry.node: entry["mode"] for entry in entries if entry.kind == "throttled" and entry.at <= at}
    return {node: mode for node, mode in modes.items() if mode in ("high", "extreme")}


def medians(found: Sequence[Phases]) -> dict[str, float]:
    """Of each phase, over the repetitions that have it."""
    names = [name for name in ORDER if any(name in one.moments for one in found)]
    return {name: median(one.moments[name] for one in found if name in one.moments) for name in names}
