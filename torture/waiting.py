"""How long a client stood still, from its own history: waiting, not merely silent.  Pure.

A message waits from its first `invoke` until its first `ok` or `nack`; one that is never answered until something is
that was sent after it.  The client stands still while anything waits and nothing is answered; standstills that touch
are one.  So a client that has nothing to send is not down, and `failover-report` must come to the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

Event = Mapping[str, Any]
ANSWERS = ("ok", "nack")


def stood_still(history: Iterable[Event], shortest: int) -> list[tuple[int, int]]:
    """(begin, end) in µs of CLOCK_MONOTONIC, of at least `shortest`; `history`: of one client, in order."""
    sent: dict[str, int] = {}
    answered: dict[str, int] = {}
    for event in history:
        if event["kind"] == "invoke":
            sent.setdefault(event["id"], event["t"])
        elif event["kind"] in ANSWERS:
            answered.setdefault(event["id"], event["t"])
    answers = sorted(set(answered.values()))
    found: list[tuple[int, int]] = []
    for begin, end in _merged(_waits(sent, answered)):
        inside = answers[bisect_right(answers, begin) : bisect_right(answers, end)]
        found += [piece for piece in pairwise(sorted({begin, *inside, end})) if piece[1] - piece[0] >= shortest]
    return _merged(found)


def _waits(sent: Mapping[str, int], answered: Mapping[str, int]) -> list[tuple[int, int]]:
    """Of each message; `sent` in the order of sending."""
    later: int | None = None
    found = []
    for id, begin in reversed(list(sent.items())):
        end = answered.get(id, later)
        if end is not None:
            found.append((begin, max(begin, end)))
        if id in answered:
            later = answered[id] if later is None else min(later, answered[id])
    return sorted(found)


def _merged(waits: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, end in waits:
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
