"""Lines of logs as evidence (pure): text and place of a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import facts
from spark_jobs.report.markup import Markup, joined, tag
from spark_jobs.report.units import UNKNOWN, clock, error
from spark_jobs.report.words import sentence
from spark_jobs.schema import COLUMNS

LINES_SHOWN: Final = 400
"""Of one incident, at most; fewer if there are many incidents."""
LONGEST: Final = 600
"""Characters of a line."""
_WRITTEN: Final = tuple(column.name for column in COLUMNS if column.written)


def raw(event: Row) -> str:
    """The line; of a log in JSON what was read of it."""
    text = event.get("raw")
    if text is None:
        found = {name: event[name] for name in _WRITTEN if event.get(name) not in (None, {}, "")}
        text = json.dumps(found, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


@dataclass(frozen=True)
class Cell:
    """`text`: what a cell of a table says; `html`: how a page shows it; `places`: of the lines that say it."""

    text: str
    html: Markup
    places: Sequence[str] = ()


class Lines:
    """The lines that one incident shows.  `links`: place → id of the element that shows it."""

    def __init__(self, document: Row, links: Mapping[str, str], most: int = LINES_SHOWN) -> None:
        self.prefix = f"i{document['number']}"
        self._events = {event["place"]: event for event in reversed(document["events"])}
        self.shown = listed(document, most)
        self.links = {event["place"]: f"{self.prefix}-e{index}" for index, event in enumerate(self.shown)} | dict(links)

    def get(self, place: str) -> Row | None:
        return self._events.get(place)

    def text(self, place: str) -> str:
        """The line; empty if it was not kept."""
        event = self.get(place)
        return "" if event is None else raw(event)

    def cell(self, text: str, places: Sequence[str]) -> Cell:
        """With the lines in a fold below."""
        return Cell(text, joined([text, self.places(places)]), places)

    def places(self, places: Iterable[str]) -> Markup | None:
        """A fold with the lines; None without any."""
        found = list(dict.fromkeys(places))
        if not found:
            return None
        label = found[0] if len(found) == 1 else f"{len(found)} lines"
        items = [tag("li", self.line(place)) for place in found]
        return tag("details", tag("summary", label), tag("ol", *items), class_="lines")

    def line(self, place: str) -> Markup:
        event = self.get(place)
        where = tag("span", place, class_="place")
        if event is None:
            return joined([where, " ", tag("span", "this line is not among the facts that were kept", class_="note")])
        return joined([where, tag("span", raw(event), class_="line")])


def listed(document: Row, most: int) -> list[Row]:
    """The lines of the list at an incident's end: all, or the more important ones."""
    events: Sequence[Row] = document["events"]
    kept = facts.thinned([dict(event) for event in events], most)
    return sorted(kept, key=lambda event: (event["ts_est"], event.get("node") or "", event["place"]))


def entry(event: Row, id: str, about: str = "") -> Markup:
    """One line with its time and what it means."""
    when = tag("span", clock(event["ts_est"], 6 if (event.get("ts_res") or 1) < 1000 else 3), class_="time")
    unsure = bounds(event["ts_est"], event["ts_lo"], event["ts_hi"])
    head = joined([when, f" {unsure}" if unsure else "", " ", tag("strong", about or sentence(event))])
    place = tag("div", event["place"], class_="place")
    return tag("li", head, place, tag("span", raw(event), class_="line"), id=id)


def bounds(at: int, low: int, high: int) -> str:
    """`±1.2 ms`; in words if the clock is unknown."""
    return "(its clock is unknown)" if high - low > UNKNOWN else error(at, low, high)
