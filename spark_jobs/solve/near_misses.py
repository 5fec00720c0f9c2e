"""Near misses: promoted without being ready, confirmed before it was replicated (pure).

Positions are compared without their epoch (`signs.sequence`): they go on from one primary to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from spark_jobs.schema import Event
from spark_jobs.solve.primaries import Span
from spark_jobs.solve.signs import Facts, attr, places, sequence

Row = dict[str, Any]
_NEVER_READY: Final = ("joining", "catchup", "standalone")


def rows(found: Sequence[Span], facts: Facts, cluster: str = "") -> list[Row]:
    """Near misses: kind, node, at, text, evidence."""
    made = [
        row for span in found for row in (*_not_ready(span, facts), *_beyond(span, found), *_unreplicated(span, facts))
    ]
    return [{"cluster": cluster, **row} for row in made]


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


def _unreplicated(span: Span, facts: Facts) -> Iterable[Row]:
    """A backup that counted held less, later than it was confirmed."""
    counted: set[str] = set()
    waiting: deque[Event] = deque()
    sure: Event | None = None
    for event in facts.during(span.promotion.at, span.to_hi):
        if event["kind"] == "membership" and event.get("node") == span.node and event.get("peer"):
            counted = counted | {event["peer"]} if event.get("result") == "ready" else counted - {event["peer"]}
        elif event["kind"] == "confirm_sent" and event.get("node") == span.node:
            waiting.append(event)
        elif event["kind"] == "repl_recv" and event.get("node") in counted:
            # of the confirms that were certainly earlier, the last
            while waiting and waiting[0]["ts_hi"] < event["ts_lo"]:
                sure = waiting.popleft()
            if sure and sure.get("term") == event.get("term") and (sequence(sure) or 0) > (sequence(event) or 0):
                text = f"confirmed up to {sequence(sure)} while {event['node']} held {sequence(event)}"
                yield _near("confirmed-before-replicated", span, text, sure, event)
                return
