"""The drawing of one incident: lanes over time, as SVG (pure).

Lane names stand at the left; on a phone above the lanes.  A drawing is text, paths and patterns with classes
(`style.drawing_rules`), so the page gives it its colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_jobs.data import Row
from spark_jobs.report import bands, lanes, scene, words
from spark_jobs.report.canvas import LINE, WIDE, Axis, Canvas, CanvasLayout, spread, titled
from spark_jobs.report.markup import Markup, joined, shape
from spark_jobs.report.style import DEFS, PATTERNS, STATE_COLOURS
from spark_jobs.report.units import date, plural


def drawing(
    document: Row, panel: scene.Panel, layout: CanvasLayout, prefix: str, links: Mapping[str, str] | None = None
) -> tuple[Markup, Canvas]:
    """An element `svg`, and what it was drawn on.

    `prefix`: of its ids; `links`: place → id of the element that shows the line."""
    canvas = stretch(document, panel, layout, prefix, links or {})
    title, text = f"{prefix}-title", f"{prefix}-desc"
    name = f"What happened over time{': ' if panel.title else ''}{panel.title}"
    parts = [shape("title", name, id=title), shape("desc", described(document), id=text)]
    made = shape(
        "svg",
        joined([*parts, patterns(prefix), *canvas.parts]),
        viewBox=f"0 0 {layout.width:.0f} {canvas.y + 6:.0f}",
        role="img",
        aria_labelledby=title,
        aria_describedby=text,
        class_=layout.name,
    )
    return made, canvas


def described(document: Row) -> str:
    """The same in words, for readers who cannot see the drawing."""
    made = [f"{moment.number}: {moment.text}" for moment in scene.moments(document)]
    return f"{' '.join(document['words'])} Numbered moments: {'; '.join(made)}."


def left_out(document: Row, drawn: Sequence[Canvas]) -> str:
    """In words; empty if nothing was."""
    merged, lines = sum(canvas.merged for canvas in drawn), sum(canvas.lines for canvas in drawn)
    notes = [f"{plural(merged, 'mark stands', 'marks stand')} for {lines} lines that are too near to be drawn apart."]
    notes = notes if merged else []
    if document["events_more"]:
        shown = len(document["events"])
        notes.append(f"{shown} of {shown + document['events_more']} lines are drawn.")
    return " ".join(notes)


def stretch(
    document: Row, panel: scene.Panel, layout: CanvasLayout, prefix: str, links: Mapping[str, str], top: float = 0
) -> Canvas:
    """What is drawn of one stretch of time; its `y` is where it ends."""
    axis = Axis(panel.begin, panel.end, layout.left + (4 if layout.narrow else 0), layout.width - 10)
    canvas = Canvas(layout, axis, prefix, links, top)
    _panel(canvas, document, panel)
    return canvas


def _panel(canvas: Canvas, document: Row, panel: scene.Panel) -> None:
    if panel.title:
        canvas.text(0, canvas.y + 13, panel.title, "d-text d-bold")
        canvas.y += 20
    top = canvas.y
    moments = [moment for moment in scene.moments(document) if canvas.axis.shows(moment.at.at)]
    _axis(canvas)
    _badges(canvas, moments)
    below = canvas.y
    lanes.phases(canvas, document)
    states, roles = bands.bands(document), bands.roles(document)
    for name, found in states.items():
        lanes.node(canvas, document, name, found, roles.get(name, []))
    lanes.cluster(canvas, document)
    lanes.clients(canvas, document)
    canvas.parts[:0] = [*_grid(canvas, top), *_lines(canvas, moments, below)]


# ---- time -----------------------------------------------------------------------------------------------------------


def _axis(canvas: Canvas) -> None:
    axis = canvas.axis
    if not canvas.layout.narrow:
        canvas.text(0, canvas.y + 11, f"{date(axis.begin)} UTC", "d-muted d-small")
    else:
        canvas.text(0, canvas.y + 11, f"{date(axis.begin)}, UTC", "d-muted d-small")
        canvas.y += LINE
    for at, label in axis.ticks(canvas.layout.ticks):
        x = axis.x(at)
        half = len(label) * 3
        if x - half >= (0 if canvas.layout.narrow else axis.left - 20) and x + half <= canvas.layout.width:
            canvas.text(x, canvas.y + 11, label, "d-muted d-small", "middle")
    canvas.y += 18


def _grid(canvas: Canvas, top: float) -> list[Markup]:
    axis, begin = canvas.axis, top + (16 + LINE if canvas.layout.narrow else 16)
    found = [f"M{axis.x(at):.1f} {begin:.0f}V{canvas.y:.0f}" for at, _ in axis.ticks(canvas.layout.ticks)]
    return [shape("path", d="".join(found), class_="l-line", stroke_width=".6")]


def _badges(canvas: Canvas, moments: Sequence[scene.Moment]) -> None:
    """Numbers over the lanes, each tied to its moment."""
    size, places = 17.0, [canvas.axis.x(moment.at.at) for moment in moments]
    y = canvas.y + 8
    for moment, x, at in zip(moments, spread(places, size, 9, canvas.layout.width - 9), places, strict=True):
        badge = joined(
            [
                titled(f"{moment.number}: {moment.text}"),
                shape("path", d=f"M{x:.1f} {y:.0f}L{at:.1f} {y + 20:.0f}", class_="l-leader"),
                shape("rect", x=x - 8, y=y - 7, width=16.0, height=14.0, rx=7.0, class_="d-badge"),
                shape("text", moment.number, x=x, y=y + 3.6, class_="d-badge-text", text_anchor="middle"),
            ]
        )
        canvas.parts.append(canvas.linked(moment.at.place, shape("g", badge)))
    canvas.y += 28


def _lines(canvas: Canvas, moments: Iterable[scene.Moment], top: float) -> list[Markup]:
    found = [f"M{canvas.axis.x(moment.at.at):.1f} {top:.0f}V{canvas.y:.0f}" for moment in moments]
    return [shape("path", d="".join(found), class_="d-moment")] if found else []


# ---- small things ---------------------------------------------------------------------------------------------------


def patterns(prefix: str) -> Markup:
    """Patterns and marks, which a drawing refers to."""
    found = [pattern.replace("PREFIX", prefix) for pattern in DEFS]
    found += [f'<path id="{prefix}-{name}" d="{path}"/>' for name, path in scene.PATHS.items()]
    return shape("defs", Markup("".join(found)))


def visible(document: Row) -> set[str]:
    """States that the drawing shows."""
    found: set[str] = set()
    for panel in scene.panels(document):
        canvas = Canvas(WIDE, Axis(panel.begin, panel.end, WIDE.left, WIDE.width), "", {}, 0)
        found |= {band.state for of in bands.bands(document).values() for band in of if lanes.seen(canvas, band)}
    return found


def keys(document: Row, prefix: str, role: str) -> list[tuple[Markup, str]]:
    """Of the legend, only what is in the drawing; `role`: what the bar of a primary is called."""
    states, used = visible(document), {scene.shape(event) for event in document["events"]}
    found = [(_swatch(prefix, state), text) for state, text in words.STATES.items() if state in states]
    found += [
        (shape("use", href=f"#{prefix}-{name}", x=13.0, y=7.0, class_=f"d-{name}"), text)
        for name, text in scene.SHAPES.items()
        if name in used
    ]
    return [*found, (shape("rect", x=0.5, y=4.5, width=25.0, height=5.0, class_="d-role"), role)]


def _swatch(prefix: str, state: str) -> Markup:
    known = STATE_COLOURS.get(state, "unknown")
    parts = [shape("rect", x=0.5, y=0.5, width=25.0, height=13.0, class_=f"s-{known}")]
    if state in PATTERNS:
        pattern = f"url(#{prefix}-{PATTERNS[state]})"
        parts.append(shape("rect", x=0.5, y=0.5, width=25.0, height=13.0, fill=pattern))
    return joined(parts)
