"""The drawing of one incident as a file of its own, for a ticket: SVG with headline, legend and the moments (pure)."""

from __future__ import annotations

import textwrap
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import headline, scene, svg
from spark_jobs.report.canvas import LINE, WIDE, shortened
from spark_jobs.report.evidence import bounds
from spark_jobs.report.markup import Markup, joined, shape
from spark_jobs.report.style import FONT, LIGHT, drawing_rules
from spark_jobs.report.units import clock, date

MARGIN: Final = 20.0
_COLUMNS: Final = 150
"""Characters in a line of text."""


def ticket(document: Row) -> str:
    """SVG, light, with its own style; the same octets for the same document."""
    parts: list[Markup] = []
    y = _head(parts, document)
    canvases = []
    for panel in scene.panels(document):
        canvases.append(svg.stretch(document, panel, WIDE, "t", {}, y))
        y = canvases[-1].y + 14
        parts += canvases[-1].parts
    note = svg.left_out(document, canvases)
    y = _legend(parts, document, y + 8)
    y = _moments(parts, document, note, y + 12)
    width, height = WIDE.width + 2 * MARGIN, y + 2 * MARGIN
    style = f"svg{{font-family:{FONT}}}text{{font-size:12px}}.d-title{{font-size:17px}}{drawing_rules(LIGHT)}"
    inner = shape("g", joined(parts), transform=f"translate({MARGIN:.0f} {MARGIN:.0f})")
    about = [shape("title", title(document)), shape("desc", svg.described(document))]
    content = [*about, shape("style", Markup(style)), svg.patterns("t")]
    content += [shape("rect", width=width, height=height, fill=LIGHT["back"]), inner]
    size = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "width": width, "height": height}
    return f"{shape('svg', joined(content), xmlns='http://www.w3.org/2000/svg', **size, role='img')}\n"


def title(document: Row) -> str:
    begin = document["incident"]["begin"]
    return f"{headline.named(document)}, {date(begin)} {clock(begin)} UTC"


def _text(parts: list[Markup], x: float, y: float, text: str, class_: str = "d-text") -> None:
    parts.append(shape("text", text, x=x, y=y, class_=class_))


def _head(parts: list[Markup], document: Row) -> float:
    _text(parts, 0, 14, title(document), "d-text d-bold d-title")
    y = 22.0
    for sentence in document["words"]:
        for line in textwrap.wrap(sentence, _COLUMNS):
            y += LINE
            _text(parts, 0, y, line)
    return y + 20


def _legend(parts: list[Markup], document: Row, y: float) -> float:
    """From left to right, in as many lines as it takes."""
    x = 0.0
    for drawn, text in svg.keys(document, "t", "primary (hatched: possibly)"):
        size = 46 + len(text) * 6.6
        if x + size > WIDE.width:
            x, y = 0.0, y + 20
        parts.append(shape("g", drawn, transform=f"translate({x:.0f} {y:.0f})"))
        _text(parts, x + 32, y + 11, text, "d-muted")
        x += size
    return y + 20


def _moments(parts: list[Markup], document: Row, note: str, y: float) -> float:
    for moment in scene.moments(document):
        y += 17
        when = f"{clock(moment.at.at)} {bounds(moment.at.at, moment.at.low, moment.at.high)}"
        _text(parts, 0, y, str(moment.number), "d-text d-bold")
        _text(parts, 26, y, when)
        _text(parts, 230, y, shortened(f"{moment.text} ({', '.join(moment.phases)})", WIDE.width - 230))
    if note:
        y += 20
        _text(parts, 0, y, note, "d-muted")
    return y
