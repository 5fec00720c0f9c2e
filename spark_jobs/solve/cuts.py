"""The time that is an incident's own, for what is counted by time: messages and clients' outages (pure).

It begins BEFORE the earliest moment at which the failure may have happened (a message that was lost with the old
primary was sent before anybody noticed), and ends with the incident.  Two do not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from spark_jobs.solve.bounds import Phase
from spark_jobs.solve.incidents import GAP, Incident
from spark_jobs.solve.signs import SECOND

BEFORE: Final = 5 * SECOND
FOREVER: Final = 1 << 62
Cut = tuple[int, int]
"""[begin, end), us on the common axis."""


def of(found: Sequence[Incident], phases: Mapping[str, Sequence[Phase]]) -> list[Cut]:
    """`found`: all of one cluster, by time; `phases`: by incident.  One that has not ended goes on until the next."""
    begins = [_first(incident, phases[incident.id]) for incident in found]
    for number, (before, incident) in enumerate(pairwise(found), 1):
        over = incident.begin if before.end is None else min(before.end + 1, incident.begin)
        begins[number] = max(begins[number - 1], begins[number], over)
    ends = [FOREVER if incident.end is None else incident.end + 1 for incident in found]
    limits = zip(ends, [*begins[1:], FOREVER], strict=False)
    return [(begin, max(begin, min(limit))) for begin, limit in zip(begins, limits, strict=True)]


def _first(incident: Incident, phases: Sequence[Phase]) -> int:
    """The last sign of life may be hours old: what was sent then has nothing to do with it."""
    bounds = [phase.begin.lo for phase in phases if phase.name == "fault" and phase.begin is not None]
    return max(min([incident.begin, *bounds]), incident.begin - GAP) - BEFORE
