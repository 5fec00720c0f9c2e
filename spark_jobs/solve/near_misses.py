"""Near misses: promoted without being ready, confirmed before it was replicated (pure).

Positions are compared without their epoch (`signs.sequence`): they go on from one primary to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from spark_jobs.schema import Event
from spark_jobs.solve.primaries import Span
from spark_jobs.solve.signs import Facts, attr, certainly_before, places, select, sequence

Row = dict[str, Any]
_NEVER_READY: Final = ("joining", "catchup", "standalone")


def rows(found: Sequence[Span], facts: Facts) -> list[Row]:
    """Near misses: kind, node, at, text, evidence."""
    return [
        row for span in found for row in (*_not_ready(span, facts), *_beyond(span, found), *_unreplicated(span, facts))
    ]


def _near(kind: str, span: Span, text: str, *evidence: Event) -> Row:
    return {"kind": kind, "node": span.node, "at": evidence[-1]["ts_est"], "text": text, "evidence": places(evidence)}


def _not_ready(span: Span, facts: Facts) -> Iterable[Row]:
    """Promoted out of another state than `ready`; the first promotion of all is always so."""
    first = facts.promotions and facts.promotions[0] is span.promotion
    for event in span.promotion.lines:
        if event["kind"] == "state" and event.get("old") in _NEVER_READY and not (first and span.term in (None, 1)):
            yield _near("not-ready", span, f"{span.node} was promoted while {event['old']}", event)
        for name in ("forced", "total_failure"):
            if attr(event, name) in ("true", "True"):
                yield _near(name, span, f"{span.node} was promoted by {name.replace('_', ' ')}", event)


def _beyond(span: Span, found: Sequence[Span]) -> Iterable[Row]:
    """The promoted one lacks what another had confirmed before."""
    begin = next((row for row in span.promotion.lines if row.get("last_pos") is not None), None)
    if begin is None:
        return
    for other in found:
        if other.node == span.node or other.promotion.at > span.promotion.at:
            continue
        for _, latest, row in reversed(other.confirms):
            if latest <= span.promotion.hi and (sequence(row) or 0) > (sequence(begin) or 0):
                text = (
                    f"{other.node} had confirmed up to {sequence(row)}, {span.node} was promoted at {sequence(begin)}"
                )
                yield _near("behind-confirmed", span, text, row, begin)
                break


def _counts(members: Sequence[Event], event: Event) -> bool:
    """The primary had its node among those that are ready, and may not have removed it by then."""
    mine = [member for member in members if member["peer"] == event.get("node")]
    before = [member for member in mine if certainly_before(member, event)]
    open_ = [member for member in mine[len(before) :] if not certainly_before(event, member)]
    return bool(before) and all(member.get("result") == "ready" for member in (before[-1], *open_))


def _unreplicated(span: Span, facts: Facts) -> Iterable[Row]:
    """A backup that counted held less, later than it was confirmed."""
    rows = facts.during(span.promotion.at, span.to_hi)
    members = [event for event in select(rows, "membership", node=span.node) if event.get("peer")]
    waiting: deque[Event] = deque()
    sure: Event | None = None
    for event in rows:
        if event["kind"] == "confirm_sent" and event.get("node") == span.node:
            waiting.append(event)
        elif event["kind"] == "repl_recv" and event.get("node") != span.node:
            # of the confirms that were certainly earlier, the last
            while waiting and waiting[0]["ts_hi"] < event["ts_lo"]:
                sure = waiting.popleft()
            less = sure and sure.get("term") == event.get("term") and (sequence(sure) or 0) > (sequence(event) or 0)
            if sure and less and _counts(members, event):
                text = f"confirmed up to {sequence(sure)} while {event['node']} held {sequence(event)}"
                yield _near("confirmed-before-replicated", span, text, sure, event)
                return
