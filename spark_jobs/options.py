"""The options of the jobs over big tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHORTEST: Final = 100_000
"""µs"""


@dataclass(frozen=True)
class Options:
    """`shortest`: outages below it are left out, µs.  `drained`: all queues were taken empty at the end, or not; None:
    as the logs say.  `events`, `facts`: views of all rows, and of those about no message; `clock`: SQL expression of a
    row's time in them, µs.  `redo`: compute tables that are there already."""

    shortest: int = SHORTEST
    drained: bool | None = None
    events: str = "events_raw"
    facts: str = "facts"
    clock: str = "ts_wall"
    redo: bool = False
