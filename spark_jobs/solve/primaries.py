"""The times at which each node was primary, and whether two could confirm at once (pure).

A span is [from_lo, from_hi, to_lo, to_hi] in us for each promotion: it began between the first two, and ended between
the others.  The end is what comes first of

    its own line (demote, stop)                          a moment, known as well as the line's time
    a fencing done, an exit, `not running`, a restart    it had ended by then; it lived at its last line before

to_hi is None if nothing says that it ended: then nothing is excluded.  A sign of death is not believed if the broker
goes on writing after it.

Two spans of two nodes:
    roles     excluded: the one had ended before the other began, by bounds or because one node's clock saw both in this
              order (fencing done, then promotion asked for); certain: both held the role for some time; else possible
    verdict   what could be confirmed: excluded as the roles, or if the new one held all that the old one ever confirmed
              (its line `demote` says up to where); certain if both held the role and the old one certainly
              confirmed after the new one was promoted; else possible

    margin_ms     from the old one's end to the new one's begin, as best known; negative: so long did they overlap
    error_ms      of the clocks and the logs' resolution in it
    margin_lo_ms, margin_hi_ms    what is certain

Confirms: a broker's `confirm_sent` samples how far it has confirmed, so two samples with a difference are a confirm
between them; one with first_pos is a confirm.  No confirm seen proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from spark_jobs.schema import Event
from spark_jobs.solve.signs import (
    MANAGER,
    OWN,
    SEQUENCE,
    Facts,
    Promotion,
    attr,
    by_hand,
    is_fenced,
    is_loss,
    place,
    places,
    select,
    sequence,
    subject,
)

EXCLUDED, POSSIBLE, CERTAIN = "excluded", "possible", "certain"
Row = dict[str, Any]
Confirm = tuple[int, int, Event]
"""(earliest, latest, line) of what was certainly confirmed."""


@dataclass(frozen=True)
class Span:
    """`ends`: every line that says it had ended, the first one first."""

    promotion: Promotion
    to_lo: int | None
    to_hi: int | None
    to_est: int | None
    end: Event | None
    ends: tuple[Event, ...]
    confirms: tuple[Confirm, ...] = field(default=(), repr=False)

    @property
    def node(self) -> str:
        return self.promotion.node

    @property
    def term(self) -> int | None:
        return self.promotion.term


def spans(facts: Facts) -> list[Span]:
    """By time; one for each promotion."""
    return [_span(facts, number) for number in range(len(facts.promotions))]


def span_rows(found: Iterable[Span]) -> list[Row]:
    """As the table `primary_spans` has them."""
    return [_span_row(span) for span in found]


def _span_row(span: Span) -> Row:
    begin, end = place(span.promotion.done), place(span.end) if span.end else ("", 0)
    return {
        "node": span.node,
        "term": span.term,
        "from_lo": span.promotion.lo,
        "from_est": span.promotion.at,
        "from_hi": span.promotion.hi,
        "to_lo": span.to_lo,
        "to_est": span.to_est,
        "to_hi": span.to_hi,
        "from_kind": span.promotion.done["kind"],
        "from_file": begin[0],
        "from_line": begin[1],
        "to_kind": span.end["kind"] if span.end else None,
        "to_file": end[0],
        "to_line": end[1],
        "confirms": len(span.confirms),
        "first_confirm": span.confirms[0][0] if span.confirms else None,
        "last_confirm": span.confirms[-1][1] if span.confirms else None,
    }


# ---- one span -------------------------------------------------------------------------------------------------------


def _span(facts: Facts, number: int) -> Span:
    promotion = facts.promotions[number]
    node = promotion.node
    rows = [*_later(facts, number)]
    own = [row for row in rows if row.get("source") in OWN and row.get("node") == node]
    # a broker that still wrote afterwards: that fencing was none
    ends = [e for e in rows if _ends(e, promotion, facts) and (e.get("source") in OWN or not _lives_after(e, own))]
    confirms = tuple(_confirms(rows, promotion))
    if not ends:
        return Span(promotion, _lived(promotion, own, None), None, None, None, (), confirms)
    end = ends[0]
    exact = end.get("node") == node and end["kind"] in ("demote", "stop", "log_end", "state")
    exact = exact and end.get("source") in OWN
    to_lo = end["ts_lo"] if exact else min(_lived(promotion, own, end), end["ts_hi"])
    return Span(promotion, to_lo, end["ts_hi"], end["ts_est"], end, tuple(ends), confirms)


def _later(facts: Facts, number: int) -> Iterable[Event]:
    """Lines since the promotion.  Those of the node that tells of it have its clock's order; others may be of an
    earlier time as primary, if it had one, unless they are later by their estimates, too."""
    promotion = facts.promotions[number]
    again = next((other.at for other in facts.promotions[number + 1 :] if other.node == promotion.node), None)
    held = any(other.node == promotion.node for other in facts.promotions[:number])
    done, begun = promotion.done, False
    for row in facts.between(promotion.since, again):
        begun = begun or row is done
        if row.get("node") == done.get("node"):
            later = begun
        else:
            later = row["ts_lo"] > promotion.since and (row["ts_est"] >= promotion.at or not held)
        if later:
            yield row


def _ends(event: Event, promotion: Promotion, facts: Facts) -> bool:
    """True if it shows that the node is no longer primary."""
    kind, source, node = event["kind"], event.get("source"), promotion.node
    if source in OWN:
        stepped = kind == "state" and event.get("old") in ("active", "recovering") and event.get("new") == "joining"
        return event.get("node") == node and (kind in ("demote", "stop", "log_end", "start", "fenced_self") or stepped)
    if source == MANAGER:
        return event.get("peer") == node and kind in ("exit", "start")
    if is_fenced(event):
        return event.get("peer") == node and not by_hand(event)
    return _ended_by_agent(event, node, facts)


def _ended_by_agent(event: Event, node: str, facts: Facts) -> bool:
    """`demote` is only there for the broker; a `stop` may be that of any resource, so it does not count."""
    if subject(event) != node or facts.is_other(event):
        return False
    if event["kind"] in ("op_result", "op_confirmed") and attr(event, "task") == "demote":
        return event.get("result") in ("ok", "not running")
    return facts.is_dead_broker(event) and event.get("result") == "not running"


def _lives_after(end: Event, own: Iterable[Event]) -> bool:
    life = takewhile(lambda row: row["kind"] != "start", own)
    return any(row["ts_lo"] > end["ts_hi"] for row in life)


def _lived(promotion: Promotion, own: Iterable[Event], end: Event | None) -> int:
    """The last that it wrote as this primary, certainly before the end."""
    signs = (row["ts_lo"] for row in own if end is None or row["ts_hi"] <= end["ts_hi"])
    return int(max([promotion.done["ts_lo"], *signs]))


def _confirms(rows: Iterable[Event], promotion: Promotion) -> Iterable[Confirm]:
    own = [
        row
        for row in select(rows, "confirm_sent", node=promotion.node)
        if row.get("last_pos") is not None and promotion.term in (None, row.get("term"))
    ]
    for before, row in zip([None, *own], own, strict=False):
        if row.get("first_pos") is not None:
            yield row["ts_lo"], row["ts_hi"], row
        elif before is not None and row["last_pos"] > before["last_pos"]:
            yield before["ts_lo"], row["ts_hi"], row


# ---- two spans ------------------------------------------------------------------------------------------------------


def duals(found: Sequence[Span], facts: Facts) -> list[Row]:
    """As the table `dual` has them: each span with the one before it, and all pairs that are not excluded."""
    rows = []
    for number, new in enumerate(found):
        for index, old in enumerate(found[:number]):
            if old.node == new.node:
                continue
            row = _dual(old, new, facts)
            if index == number - 1 or row["roles"] != EXCLUDED:
                rows.append(row)
    return rows


def _dual(old: Span, new: Span, facts: Facts) -> Row:
    order = _seen_in_order(old, new)
    roles = _roles(old, new, order is not None)
    late = [confirm for confirm in old.confirms if confirm[0] > new.promotion.hi]
    beside = sum(old.to_lo is not None and latest <= old.to_lo for _, latest, _ in new.confirms)
    evidence = [*(order or ()), *([old.end] if old.end else []), new.promotion.done]
    if roles != EXCLUDED:
        evidence += [event for _, _, event in late[:3]]
    verdict = CERTAIN if roles == CERTAIN and late else EXCLUDED if roles == EXCLUDED else POSSIBLE
    held = None if late or roles == EXCLUDED else _held(old, new, facts)
    if held is not None:
        verdict = EXCLUDED
        evidence.append(held)
    return {
        "old_node": old.node,
        "old_term": old.term,
        "new_node": new.node,
        "new_term": new.term,
        "at": new.promotion.at,
        "roles": roles,
        "verdict": verdict,
        **_margins(old, new),
        "why": _why(old, new, roles, order, late, held) or _open(old, facts),
        "confirms_by_old": len(late) if roles != EXCLUDED else 0,
        "confirms_by_new": beside if roles != EXCLUDED else 0,
        "signs": _independent(old, new, facts),
        "evidence": list(dict.fromkeys(places(evidence))),
    }


def _held(old: Span, new: Span, facts: Facts) -> Event | None:
    """The old one's last line as primary, if all that it ever confirmed is held by the new one, a backup of it until
    then: whenever it confirmed, nothing contradicts the new one."""
    base = sequence(new.promotion.done)
    if old.term is None or base is None or attr(new.promotion.done, "forced"):
        return None
    rows = facts.between(old.promotion.at, None)
    end = next((e for e in select(rows, "demote", node=old.node) if _confirmed(e) is not None), None)
    if end is None or end.get("proc") != old.promotion.done.get("proc"):
        return None
    followed = any(
        (e.get("last_pos") or 0) >> 48 == old.term for e in rows if e.get("node") == new.node and e.get("source") in OWN
    )
    return end if followed and (_confirmed(end) or 0) <= base else None


def _confirmed(event: Event) -> int | None:
    """Its sequence; None if the line does not say it."""
    said = attr(event, "confirmed")
    return int(said) & SEQUENCE if said.isdecimal() and len(said) <= 20 else None


def _roles(old: Span, new: Span, in_order: bool) -> str:
    begin = new.promotion.lo
    if in_order or (old.to_hi is not None and begin is not None and old.to_hi <= begin):
        return EXCLUDED
    if old.to_lo is not None and old.to_lo > new.promotion.hi:
        return CERTAIN
    return POSSIBLE


def _seen_in_order(old: Span, new: Span) -> tuple[Event, Event] | None:
    """One node's clock saw the old one's end before the new one's promotion was asked for: no error of clocks in it."""
    asked = new.promotion.asked
    if asked is None:
        return None
    for end in old.ends:
        same = end.get("node") == asked.get("node") and end["ts_wall"] < asked["ts_wall"]
        # a clock that was set back in between would show them in the wrong order
        if same and not _set_between(end, asked):
            return end, asked
    return None


def _set_between(first: Event, second: Event) -> bool:
    if first.get("boot_id") != second.get("boot_id") or None in (first.get("ts_mono"), second.get("ts_mono")):
        return False
    return bool(first["ts_mono"] >= second["ts_mono"])


def _margins(old: Span, new: Span) -> Row:
    begin = new.promotion
    if old.to_est is None or old.to_hi is None or old.end is None:
        return dict.fromkeys(("margin_ms", "error_ms", "margin_lo_ms", "margin_hi_ms"))
    error = (begin.done["ts_hi"] - begin.done["ts_lo"] + old.end["ts_hi"] - old.end["ts_lo"]) / 2
    return {
        "margin_ms": (begin.at - old.to_est) / 1000,
        "error_ms": error / 1000,
        "margin_lo_ms": None if begin.lo is None else (begin.lo - old.to_hi) / 1000,
        "margin_hi_ms": None if old.to_lo is None else (begin.hi - old.to_lo) / 1000,
    }


def _why(
    old: Span, new: Span, roles: str, order: tuple[Event, Event] | None, late: Sequence[Confirm], held: Event | None
) -> str:
    if held is not None:
        upto = f"{old.node} had confirmed up to {_confirmed(held)} when it stepped down"
        return f"{upto}, and {new.node} was promoted with all of it"
    if order is not None:
        return f"{order[0].get('node')} saw {_called(order[0])} before it asked for the promotion of {new.node}"
    if old.end is None:
        return ""
    if roles == EXCLUDED:
        return f"{_called(old.end)} before {new.node} was promoted"
    if roles == CERTAIN:
        both = "and confirmed meanwhile" if late else "no confirm of it is seen meanwhile"
        return f"{old.node} held the role until {_called(old.end)}, {both}"
    if new.promotion.lo is None:
        return f"no line here says since when {new.node} was primary"
    return "the bounds of the two times overlap"


def _open(old: Span, facts: Facts) -> str:
    """Of one without an end that counts."""
    rows = facts.between(old.promotion.since, None)
    if any(is_fenced(e) and e.get("peer") == old.node and by_hand(e) for e in rows):
        return f"only an administrator said that {old.node} was down"
    maybe = [e for e in rows if _ends(e, old.promotion, facts)]
    if maybe:
        return f"{_called(maybe[0])}, and whether it ended by that is not known"
    return f"no line here says when {old.node} ended"


def _called(event: Event) -> str:
    about = subject(event)
    names = {
        "fence_op_done": f"{about} was fenced",
        "fence_notify": f"{about} was fenced",
        "exit": f"{about} had ended",
        "op_unexpected": f"{about} was not running",
        "op_confirmed": f"{about} was demoted",
        "op_result": f"{about} was demoted",
        "start": f"{about} was started anew",
        "demote": f"{about} stepped down",
    }
    return names.get(event["kind"], f"{about}: {event['kind']}")


def _independent(old: Span, new: Span, facts: Facts) -> list[str]:
    """Signs of two primaries that need no times."""
    found = []
    if old.term is not None and old.term == new.term:
        found.append(f"term {old.term} on {old.node} and {new.node}")
    rings: dict[str, set[str]] = {}
    begin = old.promotion.at
    for event in filter(is_loss, facts.during(max(begin, new.promotion.at - 120_000_000), new.promotion.at + 1)):
        if attr(event, "ring_seq"):
            rings.setdefault(attr(event, "ring_seq"), set()).add(attr(event, "ring"))
    found += [f"rings {' and '.join(sorted(names))}" for names in rings.values() if len(names) > 1]
    return found


def worst(rows: Iterable[Row]) -> str | None:
    """The verdict over several pairs; None without any."""
    ranks = {EXCLUDED: 0, POSSIBLE: 1, CERTAIN: 2}
    return max((row["verdict"] for row in rows), key=ranks.__getitem__, default=None)
