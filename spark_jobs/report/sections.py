"""The parts of the page about one incident (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_jobs.data import Row
from spark_jobs.report import claims, figures, headline, losses, scene, svg, words
from spark_jobs.report.canvas import MEDIUM, NARROW, WIDE
from spark_jobs.report.elements import Block, Heading, Points, Table, Text, figure_list, shown, time, tone, unknown
from spark_jobs.report.evidence import LINES_SHOWN, Cell, Lines, entry
from spark_jobs.report.markup import Markup, joined, shape, tag
from spark_jobs.report.units import clock, date, duration, moment, percent, signed, with_error


def incident(document: Row, most: int = LINES_SHOWN) -> Markup:
    """The whole section of one incident, with at most so many lines of logs in its list."""
    prefix = f"i{document['number']}"
    links = {item.at.place: f"{prefix}-m{item.number}" for item in scene.moments(document) if item.at.place}
    lines = Lines(document, links, most)
    about = document["incident"]
    parts = [
        tag("h2", f"{document['number']}. {headline.named(document)}", id=f"{prefix}-title"),
        tag("p", f"{moment(about['begin'])}, incident {about['incident']}", class_="muted"),
        figure_list(figures.figures(document)),
        tag("ul", *(tag("li", text) for text in document["words"]), class_="words"),
        drawing(document, lines),
        shown(told(document, lines)),
        _lines(document, lines),
    ]
    return tag("section", *parts, class_="incident", id=prefix, aria_labelledby=f"{prefix}-title")


def told(document: Row, lines: Lines) -> list[Block]:
    """What all forms of a page say."""
    found = scene.moments(document)
    return [
        *_moments(document, found, lines),
        *_phases(document, found),
        *_budget(document),
        *claims.resources(document, lines),
        *claims.primaries(document, lines),
        *(Heading("Messages"), *losses.messages(document["messages"], "sent in this incident")),
        *claims.near_misses(document, lines),
        *claims.hints(document, lines),
        *losses.stood_still(document),
        *_unknown(document, lines),
    ]


# ---- the drawing ----------------------------------------------------------------------------------------------------


def drawing(document: Row, lines: Lines) -> Markup:
    """Each stretch of time by itself, so that it may stand on a page of its own."""
    drawn, canvases = [], []
    for index, panel in enumerate(scene.panels(document)):
        for layout in (WIDE, MEDIUM, NARROW):
            prefix = f"{lines.prefix}{layout.name[0]}{index}"
            made, canvas = svg.drawing(document, panel, layout, prefix, lines.links)
            drawn.append(made)
            canvases += [canvas] if layout is WIDE else []
    text = f"{_HOW_TO_READ} {svg.left_out(document, canvases)}"
    caption = tag("figcaption", legend(document, f"{lines.prefix}k"), tag("p", text))
    return tag("figure", *drawn, caption)


_HOW_TO_READ: Final = "Numbers are the moments in the table below. Hatched: the clocks do not say it more exactly."


def legend(document: Row, prefix: str) -> Markup:
    """Only what is in the drawing.  It has patterns of its own: those of a drawing that is hidden are hidden, too."""
    role = "holds the role of primary (hatched: possibly)"
    items = [_key(drawn, text) for drawn, text in svg.keys(document, prefix, role)]
    own = shape(
        "svg", svg.patterns(prefix), width="0", height="0", class_="defs", aria_hidden="true", focusable="false"
    )
    return joined([own, tag("ul", *items, class_="legend")])


def _key(drawn: Markup, text: str) -> Markup:
    return tag("li", shape("svg", drawn, viewBox="0 0 26 14", aria_hidden="true", focusable="false"), text)


# ---- moments and phases ---------------------------------------------------------------------------------------------


def _moments(document: Row, found: Sequence[scene.Moment], lines: Lines) -> list[Block]:
    origin = headline.phase(document, "fault")["end"]
    rows = []
    for item in found:
        badge = tag("span", item.number, class_="badge", id=f"i{document['number']}-m{item.number}")
        apart = "" if origin is None else signed(item.at.at - origin)
        phases, places = ", ".join(item.phases), [item.at.place] if item.event is not None else []
        html = joined([tag("strong", item.text), tag("div", phases, class_="note"), lines.places(places)])
        what = Cell(f"{item.text} ({phases})", html, places)
        rows.append((Cell(str(item.number), badge), time(item.at.at, item.at.low, item.at.high), apart, what))
    when = "" if not found else f" on {date(found[0].at.at)}, UTC"
    caption = f"Bounds of the phases{when}; since: from the first sign of death"
    return [Heading("In this order"), Table(caption, ("No", "Time", "Since", "What"), rows, ("Since",))]


def _phases(document: Row, found: Sequence[scene.Moment]) -> list[Block]:
    """None without any; those of which nothing is known are one line."""
    told, silent = headline.told(document)
    if not told:
        return []
    numbers = {(item.at.place or item.at.at): item.number for item in found}
    rows = []
    for row in told:
        name, meaning = words.PHASES.get(row["phase"], (words.plain(row["phase"]), ""))
        about = [tag("div", meaning, class_="note"), tag("div", row["note"]) if row["note"] else None]
        sides = [_side(document, row, side, numbers) for side in ("begin", "end")]
        rows.append((name, *sides, _took(row), Cell(row["note"], joined(about))))
    made = Table("Phases may overlap", ("Phase", "From", "To", "Took", "Meaning"), rows, ("Took",), cut="Meaning")
    return [Heading("Phases"), made, *([Text(silent, "note")] if silent else [])]


def _took(row: Row) -> Cell | str:
    if row["known"]:
        return with_error(row["duration_us"], row["duration_lo_us"], row["duration_hi_us"])
    return tone("unknown", "doubt")


def _side(document: Row, row: Row, side: str, numbers: Mapping[Any, int]) -> Cell:
    if row[side] is None:
        return Cell("not known", tag("span", "not known", class_="note"))
    at = scene.bound(row, side)
    index = numbers.get(at.place or at.at)
    badge = tag("a", index, href=f"#i{document['number']}-m{index}", class_="badge") if index else None
    return Cell(clock(at.at), joined([badge, " ", time(at.at, at.low, at.high).html]))


def _budget(document: Row) -> list[Block]:
    if not document["budget"] or not headline.told(document)[0]:
        return []
    rows = []
    for row in document["budget"]:
        bar = tag("span", class_="share", style=f"width:{max(0.0, row['share']) * 6:.2f}rem", aria_hidden="true")
        setting = row["setting"] or "no setting"
        value = duration(row["setting_us"]) if row["setting_us"] is not None else ""
        value = value or ("the logs do not say it" if row["setting"] else "")
        share = percent(row["share"])
        cell = Cell(share, joined([share, " ", bar]))
        rows.append((words.PHASES[row["phase"]][0], duration(row["duration_us"]), cell, setting, value))
    heads = ("Phase", "Took", "Share", "Depends on", "Set to")
    text = "What clients waited for, the longest first, and the setting that it depends on"
    advice = Text(headline.advice(document["budget"]))
    return [Heading("Where the time went"), advice, Table(text, heads, rows, ("Took",))]


def _unknown(document: Row, lines: Lines) -> list[Block]:
    items = [lines.cell(text, places) for text, places in unknown(document, 50)]
    return [Heading("What cannot be known"), Points(items)] if items else []


def _lines(document: Row, lines: Lines) -> Markup | None:
    if not lines.shown:
        return None
    items = [entry(event, f"{lines.prefix}-e{index}") for index, event in enumerate(lines.shown)]
    many = len(document["events"]) + document["events_more"]
    note = f" ({len(items)} of {many} shown)" if many > len(items) else f" ({len(items)})"
    summary = tag("summary", f"All lines of logs behind this{note}")
    return joined([tag("h3", "Log lines"), tag("details", summary, tag("ol", *items), class_="lines")])
