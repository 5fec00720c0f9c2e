"""How much of each epoch's log survived the promotions after it, and so which removals of messages happened (pure).

A primary that is deposed and does not know it goes on deciding: it drops, expires, purges.  What it decided above the
position with which the next epoch began (`attrs.base` of `promoted`) is in no other log: for the cluster it has not
happened.  The newest epoch survives; it holds of an older one what lay below its base, and of those between its base's
epoch and itself nothing.  A promotion that held not everything has no base; then nothing is known of what is older.

A row of a removal has `attrs.at`, the end of the log when its batch was complete; one that was gathered over some time
has `attrs.since`, the end of the log when gathering began.  A row of which a part may have survived counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.sql.rows import NONE, quoted

EPOCH_BITS: Final = 48
DIGITS: Final = 18
"""Of a position: what a bigint holds in any case."""
REMOVALS: Final = ("expire", "drop", "dead_letter", "purge")
_KINDS: Final = quoted(REMOVALS)

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Undone:
    """Removals of this epoch from this position on have not happened."""

    term: int
    position: int

    def has(self, row: Event) -> bool:
        attrs = row.get("attrs") or {}
        at, since = number(attrs.get("at")), number(attrs.get("since"))
        if row["kind"] not in REMOVALS or row.get("term") != self.term or not at:
            return False
        return (since or at - 1) >= self.position


def number(text: object) -> int:
    """A position as a row has it; 0 if it has none that is one."""
    digits = str(text or "")
    return int(digits) if digits.isdecimal() and len(digits) <= DIGITS else 0


def undone(promotions: Iterable[Event]) -> list[Undone]:
    """Of the rows `promoted` of one cluster; of each epoch that did not survive as a whole."""
    bases: dict[int, int] = {}
    for row in promotions:
        term, base = row.get("term") or 0, number((row.get("attrs") or {}).get("base"))
        bases[term] = base if bases.get(term, base) == base else 0  # two brokers began it, and one of them lost
    found: list[Undone] = []
    after = max(bases, default=0)
    while bases.get(after) and (survivor := bases[after] >> EPOCH_BITS) < after:
        found += [Undone(term, 0) for term in sorted(bases) if survivor < term < after]
        found.append(Undone(survivor, bases[after]))
        after = survivor
    return sorted(found, key=lambda one: one.term)


# ---- the same as SQL -------------------------------------------------------------------------------------------------


def _position(name: str) -> str:
    text = f"attrs['{name}']"
    fine = f"length({text}) <= {DIGITS} and translate({text}, '0123456789', '') = ''"
    return f"case when {fine} then nullif(try_cast({text} as bigint), 0) end"


def _first() -> str:
    """The lowest position above which all removals of a row lie; NULL if it says none."""
    at = _position("at")
    return f"case when {at} is not null then coalesce({_position('since')}, {at} - 1) end"


def promotions(events: str = "events_raw") -> str:
    """cluster, term, base (text): few rows."""
    return f"""
select distinct coalesce(cluster, '') as cluster, term, attrs['base'] as base
from {events} where kind = 'promoted' and source <> 'client' and term is not null"""


def latest(events: str = "events_raw") -> str:
    """cluster, term, first: how far a primary of each epoch has removed; few rows."""
    return f"""
select coalesce(cluster, '') as cluster, term, max({_first()}) as first
from {events} where kind in ({_KINDS}) and source <> 'client' and term is not null
group by coalesce(cluster, ''), term"""


def condition(found: Iterable[tuple[str, Undone]]) -> str:
    """True if a row is a removal that has not happened.  `found`: (cluster, what)."""
    cases = [
        f"(coalesce(cluster, '') = {quoted([cluster])} and term = {one.term} and {_first()} >= {one.position})"
        for cluster, one in found
    ]
    return f"(kind in ({_KINDS}) and coalesce({' or '.join(cases)}, false))" if cases else NONE
