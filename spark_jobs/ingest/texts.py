"""The text logs of one cluster to rows: two passes, and what segments say as well is left out (pure but for reading).

All text logs of a cluster are read again when one of them has changed: zones, years and running transitions are known
from all of them together (`parse.almanac`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from spark_jobs.engine.base import Row
from spark_jobs.ingest.tables import COUNTS, Cover
from spark_jobs.parse import detect
from spark_jobs.parse.almanac import ALL_NODES, Almanac, almanac
from spark_jobs.parse.broker_text import node_of
from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.survey import Survey, survey
from spark_jobs.parse.years import Zone, zone_named
from spark_jobs.schema import Event

SURVEYED: Final = ("pacemaker", "corosync", "syslog")
SLACK: Final = 1_000_000
"""µs before and behind what a segment covers: a line may be written a little after its event, and the last one may be
the broker's farewell."""
_SAYS: Final = {"text": "broker", "qpid-cluster": "qpid-cluster"}
"""Source of a text log's row → source of the segments that say the same."""


@dataclass(frozen=True)
class Text:
    """A text log.  `node`: for lines that name none, if its name does not say it."""

    name: str
    kind: str
    mtime: int
    lines: Callable[[], Iterable[bytes]]
    node: str = ""


@dataclass
class Read:
    """What came of one: `covered` rows were left out."""

    rows: list[Event]
    tally: Tally
    octets: int = 0
    covered: int = 0
    times: list[int] = field(default_factory=list)

    def columns(self, damage: str | None) -> dict[str, Any]:
        """Of its State."""
        counts = {name: getattr(self.tally, name) for name in COUNTS}
        times = {"first_ts": min(self.times, default=None), "last_ts": max(self.times, default=None)}
        state = {"state": "read" if damage is None else "damaged", "why": damage}
        return {**counts, **times, **state, "octets": self.octets, "covered": self.covered}


def surveyed(texts: Iterable[Text]) -> list[Survey]:
    return [survey(text.name, text.lines()) for text in texts if text.kind in SURVEYED]


def almanac_of(surveys: Iterable[Survey], texts: Iterable[Text], zones: Mapping[str, str], now: int | None) -> Almanac:
    """Raises ZoneError."""
    return almanac(surveys, zones, {text.name: text.mtime for text in texts if text.mtime}, now)


def notes_of(found: Almanac, cluster: str) -> list[Row]:
    return [
        {"cluster": cluster, "about": note.about, "text": note.text, "certainty": note.certainty}
        for note in found.notes
    ]


def read(text: Text, cluster: str, found: Almanac, zones: Mapping[str, str], covers: Sequence[Cover]) -> Read:
    context = Context(cluster, text.node, text.mtime, _zone(text, found, zones), found)
    counted = _Counted(text.lines())
    rows = list(detect.PARSERS[text.kind](text.name, counted, context))
    kept = [row for row in rows if not covered(row, covers)]
    times = [row["ts_wall"] for row in kept if row.get("ts_wall") is not None]
    return Read(kept, context.tally, counted.octets, len(rows) - len(kept), times)


def covered(row: Event, covers: Iterable[Cover]) -> bool:
    """True if a segment of the same broker, or of the same supervisor, has it."""
    says, ts = _SAYS.get(row["source"]), row.get("ts_wall")
    if says is None or ts is None:
        return False
    slack = SLACK + row.get("ts_res", 0)
    broker = (row.get("attrs") or {}).get("broker")
    return any(
        cover.source == says
        and (cover.node == row.get("node") or (broker is not None and broker == cover.broker))
        and cover.first - slack <= ts <= cover.last + slack
        for cover in covers
    )


class _Counted:
    """Lines, and their octets."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.octets = 0
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.octets += len(line)
            yield line


def _zone(text: Text, found: Almanac, zones: Mapping[str, str]) -> tzinfo | None:
    """Of a broker's own log: its lines name no node."""
    if text.kind != "broker_text":
        return None
    node = text.node or node_of(text.name)
    given = zones.get(node, zones.get(ALL_NODES, ""))
    zone = zone_named(given) if given else found.zones.get(node)
    return None if zone is None else _python(zone)


def _python(zone: Zone) -> tzinfo:
    """Of several successive offsets the first, since a broker's log proves none of them."""
    if zone.key:
        return ZoneInfo(zone.key)
    seconds = zone.steps[0][1]
    return timezone(timedelta(seconds=seconds)) if seconds else UTC
