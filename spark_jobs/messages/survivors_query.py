"""Removals of messages that did not survive a promotion, as SQL; `messages.survivors` has the rule (pure text)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_jobs.messages.survivors import DIGITS, REMOVALS, Undone
from spark_jobs.sql.rows import NONE, quoted

_KINDS: Final = quoted(REMOVALS)


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
