"""Two small drawings of the fleet page as SVG (pure): the margins of all fail-overs, and what had not recovered yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from spark_jobs import data
from spark_jobs.data import Row
from spark_jobs.report.canvas import Axis
from spark_jobs.report.markup import Markup, escaped, joined, shape, tag
from spark_jobs.report.units import DAY, date, duration

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64.0, 708.0, 12.0, 190.0
MARKS: Final = 2000
"""Dots of a drawing; the narrowest margins are drawn whatever their number."""
_TICKS_MS: Final = (-10_000, -1_000, -100, -10, 0, 10, 100, 1_000, 10_000)
_VERDICTS: Final = ("excluded", "possible", "certain")


def margins(rows: Sequence[Row], near_ms: float) -> Markup:
    """A dot for each fail-over, by time; empty if none is known."""
    known = [row for row in rows if row["margin_ms"] is not None]
    if not known:
        return Markup("")
    drawn = sorted(sorted(known, key=lambda row: row["margin_ms"])[:MARKS], key=lambda row: row["begin"])
    axis = Axis(drawn[0]["begin"] - DAY, drawn[-1]["begin"] + DAY, LEFT, RIGHT)
    reach = max(10.0, *(abs(row["margin_ms"]) for row in drawn))
    parts = [*_days(axis), *_levels(reach), _level("near", near_ms, reach)]
    parts += [_dot(row, axis, reach) for row in drawn]
    return _drawing("Margin of each fail-over", parts)


def _days(axis: Axis) -> list[Markup]:
    return [_label(axis.x(at), BOTTOM + 16, text, "middle") for at, text in axis.ticks(110)]


def _levels(reach: float) -> list[Markup]:
    found = []
    for value in _TICKS_MS:
        if abs(value) <= reach:
            found += [_level("zero" if value == 0 else "grid", value, reach)]
            found += [_label(LEFT - 6, _y(value, reach) + 4, duration(value * 1000) if value else "0", "end")]
    return found


def _level(kind: str, value: float, reach: float) -> Markup:
    y = _y(value, reach)
    return shape("line", class_=kind, x1=LEFT, x2=RIGHT, y1=y, y2=y)


def _dot(row: Row, axis: Axis, reach: float) -> Markup:
    verdict = row["dual"] if row["dual"] in _VERDICTS else "unknown"
    x, y = axis.x(row["begin"]), _y(row["margin_ms"], reach)
    text = f"{row['cluster']}, {row['incident']}, {date(row['begin'])}: {duration(round(row['margin_ms'] * 1000))}"
    title = tag("title", f"{text}, dual primary {verdict}")
    whisker = None
    if row["margin_lo_ms"] is not None and row["margin_hi_ms"] is not None:
        low, high = (_y(row[name], reach) for name in ("margin_lo_ms", "margin_hi_ms"))
        whisker = shape("line", class_="error", x1=x, x2=x, y1=low, y2=high)
    return joined([whisker, shape("circle", title, class_=f"dot {verdict}", cx=x, cy=y, r=3.5)])


def _y(value: float, reach: float) -> float:
    """Logarithmic on both sides of 0, straight within 1 ms."""
    share = math.copysign(math.log1p(abs(value)), value) / math.log1p(reach)
    middle = (TOP + BOTTOM) / 2
    return middle - min(1.0, max(-1.0, share)) * (BOTTOM - TOP) / 2


def survival(row: Row) -> Markup:
    """The share that is not over yet, with its limits; empty if nothing is known."""
    steps = row["steps"]
    if not steps:
        return Markup("")
    least, most = math.log10(max(1, steps[0][0]) / 2), math.log10(max(2, steps[-1][0]) * 1.5)
    line, band = _stairs(steps, least, most)
    parts = [*_shares(), *_decades(least, most), shape("path", class_="limits", d=band)]
    return _drawing("Share that is not over yet, by time", [*parts, shape("path", class_="curve", d=line)])


def _stairs(steps: Sequence[Sequence[float]], least: float, most: float) -> tuple[str, str]:
    """(the curve, the area between its limits)"""
    points, upper, lower = [(LEFT, 1.0)], [(LEFT, 1.0)], [(LEFT, 1.0)]
    for at, share, low, high, _ in steps:
        x = LEFT + (math.log10(max(1, at)) - least) * (RIGHT - LEFT) / (most - least)
        for way, value in ((points, share), (upper, high), (lower, low)):
            way += [(x, way[-1][1]), (x, value)]
    for way in (points, upper, lower):
        way.append((RIGHT, way[-1][1]))
    return _path(points), _path([*upper, *reversed(lower)])


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{BOTTOM - share * (BOTTOM - TOP):.1f}" for x, share in points)


def _shares() -> list[Markup]:
    found = []
    for percent in (0, 25, 50, 75, 100):
        y = BOTTOM - percent / 100 * (BOTTOM - TOP)
        found += [shape("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)]
        found += [_label(LEFT - 6, y + 4, f"{percent} %", "end")]
    return found


def _decades(least: float, most: float) -> list[Markup]:
    """Ticks at 1, 2 and 5 times the powers of 10, as far as there is room."""
    found = []
    factors = (1, 2, 5) if most - least < 3 else (1,)
    for at in (factor * 10**power for power in range(math.floor(least), math.ceil(most) + 1) for factor in factors):
        if least <= math.log10(at) <= most:
            x = LEFT + (math.log10(at) - least) * (RIGHT - LEFT) / (most - least)
            line = shape("line", class_="grid", x1=x, x2=x, y1=TOP, y2=BOTTOM)
            found += [line, _label(x, BOTTOM + 16, duration(at), "middle")]
    return found


def _label(x: float, y: float, text: str, anchor: str) -> Markup:
    return shape("text", text, class_="tick", x=x, y=y, text_anchor=anchor)


def _drawing(title: str, parts: Sequence[Markup]) -> Markup:
    content = joined([tag("title", title), tag("style", Markup(_RULES)), *parts])
    return tag("svg", content, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=escaped(title))


_RULES: Final = data.text(__package__, "fleet.css").replace("\n", "")
"""Colours of the page."""
