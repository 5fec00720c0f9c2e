"""The time axis and the canvas of a drawing, and helpers for all lanes (pure).  Times are us UTC, places px."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.report.bands import Edge
from spark_jobs.report.markup import Markup, escaped, joined, shape
from spark_jobs.report.units import DAY, HOUR, MINUTE, MS, SECOND, clock, date

LINE: Final = 15.0
"""px from one line of text to the next."""

SEEN: Final = 1.5
"""px: what is narrower is a line."""

CHARACTER: Final = 6.3
"""px: about as wide is one in 12 px."""


_STEPS: Final = (
    *(step * MS for step in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(step * SECOND for step in (1, 2, 5, 10, 20, 30)),
    *(step * MINUTE for step in (1, 2, 5, 10, 20, 30)),
    *(step * HOUR for step in (1, 2, 3, 6, 12)),
    *(step * DAY for step in (1, 2, 5, 10, 30, 100, 365)),
)


@dataclass(frozen=True)
class Axis:
    begin: int
    end: int
    left: float
    right: float

    @property
    def width(self) -> float:
        return self.right - self.left

    def x(self, us: int) -> float:
        """At most the ends."""
        inside = min(max(us, self.begin), self.end)
        return self.left + (inside - self.begin) * self.width / max(1, self.end - self.begin)

    def shows(self, us: int) -> bool:
        return self.begin <= us <= self.end

    def ticks(self, apart: float) -> list[tuple[int, str]]:
        """Times at round values, at least `apart` px from each other, with labels that name no more than they need."""
        least = (self.end - self.begin) * apart / self.width
        step = next((step for step in _STEPS if step >= least), _STEPS[-1])
        first = -(-self.begin // step) * step
        return [(at, _label(at, step)) for at in range(first, self.end + 1, step)]


def _label(us: int, step: int) -> str:
    if step >= DAY:
        return date(us)
    if step >= MINUTE:
        return clock(us, 0)[:5]
    digits = 0 if step >= SECOND else 1 if step >= 100 * MS else 2 if step >= 10 * MS else 3
    return clock(us, digits)


@dataclass(frozen=True)
class CanvasLayout:
    """px.  `left`: room for the lanes' names; 0: they stand above."""

    name: str
    width: float
    left: float
    ticks: float

    @property
    def narrow(self) -> bool:
        return self.left == 0


WIDE: Final = CanvasLayout("wide", 1000.0, 128.0, 92.0)
MEDIUM: Final = CanvasLayout("medium", 740.0, 104.0, 92.0)
"""For half a screen, and for paper."""
NARROW: Final = CanvasLayout("narrow", 360.0, 0.0, 84.0)
"""For a phone."""


class Canvas:
    """Collects the parts of one panel from top to bottom; `y`: where the next part goes."""

    def __init__(self, layout: CanvasLayout, axis: Axis, prefix: str, links: Mapping[str, str], y: float) -> None:
        self.layout, self.axis, self.prefix, self.links, self.y = layout, axis, prefix, links, y
        self.parts: list[Markup] = []
        self.merged = self.lines = 0
        """Marks that stand for several lines; for how many."""

    def text(self, x: float, y: float, content: str, class_: str = "d-text", anchor: str | None = None) -> None:
        self.parts.append(shape("text", content, x=x, y=y, class_=class_, text_anchor=anchor))

    def rect(self, x: float, y: float, width: float, height: float, **more: Any) -> Markup:
        return shape("rect", x=x, y=y, width=max(width, 0.5), height=height, **more)

    def name(self, content: str, height: float, note: str = "") -> None:
        """Of a lane, whose band is `height` high."""
        if self.layout.narrow:
            self.text(0, self.y + 10, shortened(content, 340), "d-text d-bold")
            if note:
                self.text(min(340, 8 + CHARACTER * 1.1 * len(content)), self.y + 10, note, "d-muted d-small")
            self.y += LINE
            return
        middle = self.y + height / 2 + (4 if not note else -1)
        shown = shortened(content, self.layout.left - 10)
        label = shape("text", joined([escaped(shown), titled(content) if shown != content else None]), x=0.0, y=middle,
                      class_="d-text d-bold")  # fmt: skip
        self.parts.append(label)
        if note:
            self.text(0, middle + 12, shortened(note, self.layout.left - 8), "d-muted d-small")

    def linked(self, place: str, part: Markup) -> Markup:
        """To the line that says it.  Not by the tabulator: the tables give the same links."""
        target = self.links.get(place)
        return part if target is None else shape("a", part, href=f"#{target}", tabindex="-1")


def titled(text: str) -> Markup:
    """What a pointer shows."""
    return shape("title", text)


def shortened(text: str, width: float) -> str:
    """Its middle left out if it is too long: what differs is often at the end."""
    room = int(width / (CHARACTER * 1.08))
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def spread(places: Sequence[float], size: float, low: float, high: float) -> list[float]:
    """Places at least `size` apart, as near to the given ones (in order) as that allows, between two limits."""
    groups: list[list[float]] = []
    for index, place in enumerate(places):
        groups.append([place - index * size])
        while len(groups) > 1 and _mean(groups[-2]) > _mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    wanted = [_mean(group) for group in groups for _ in group]
    last = len(places) - 1
    return [min(max(low, place), high - last * size) + index * size for index, place in enumerate(wanted)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def hatched(canvas: Canvas, edge: Edge, y: float, height: float) -> list[Markup]:
    """How far a bound is uncertain, if that can be seen."""
    low, high = canvas.axis.x(edge.low), canvas.axis.x(edge.high)
    if high - low <= SEEN:
        return []
    return [canvas.rect(low, y, high - low, height, fill=f"url(#{canvas.prefix}-hatch)")]
