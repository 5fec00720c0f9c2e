"""The parts of the page about one incident (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_jobs.data import Row
from spark_jobs.report import claims, figures, headline, losses, scene, svg, words
from spark_jobs.report.canvas import MEDIUM, NARROW, WIDE
from spark_jobs.report.elements import figure_list, heading, table, time, tone, unknown
from spark_jobs.report.evidence import LINES_SHOWN, Lines, entry
from spark_jobs.report.markup import Markup, joined, shape, tag
from spark_jobs.report.units import date, duration, moment, percent, signed, with_error


def incident(document: Row, most: int = LINES_SHOWN) -> Markup:
    """The whole section of one incident, with at most so many lines of logs in its list."""
    prefix = f"i{document['number']}"
    found = scene.moments(document)
    links = {item.at.place: f"{prefix}-m{item.number}" for item in found if item.at.place}
    lines = Lines(document, links, most)
    about = document["incident"]
    parts = [
        tag("h2", f"{document['number']}. {headline.named(document)}", id=f"{prefix}-title"),
        tag("p", f"{moment(about['begin'])}, incident {about['incident']}", class_="muted"),
        figure_list(figures.figures(document)),
        tag("ul", *(tag("li", text) for text in document["words"]), class_="words"),
        drawing(document, lines),
        _moments(document, found),
        _phases(document, found),
        _budget(document),
        claims.resources(document, lines),
        claims.primaries(document, lines),
        _messages(document),
        claims.near_misses(document, lines),
        claims.hints(document, lines),
        losses.stood_still(document),
        _unknown(document, lines),
        _lines(document, lines),
    ]
    return tag("section", *parts, class_="incident", id=prefix, aria_labelledby=f"{prefix}-title")


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


def _moments(document: Row, found: Sequence[scene.Moment]) -> Markup:
    origin = headline.phase(document, "fault")["end"]
    rows = []
    for item in found:
        badge = tag("span", item.number, class_="badge", id=f"i{document['number']}-m{item.number}")
        apart = "" if origin is None else signed(item.at.at - origin)
        what: list[Markup | None] = [tag("strong", item.text), tag("div", ", ".join(item.phases), class_="note")]
        if item.event is not None:
            what.append(Lines(document, {}).places([item.at.place]))
        rows.append((badge, time(item.at.at, item.at.low, item.at.high), apart, joined(what)))
    when = "" if not found else f" on {date(found[0].at.at)}, UTC"
    caption = f"Bounds of the phases{when}; since: from the first sign of death"
    return joined([heading("In this order"), table(caption, ("No", "Time", "Since", "What"), rows, ("Since",))])


def _phases(document: Row, found: Sequence[scene.Moment]) -> Markup | None:
    """None without any; those of which nothing is known are one line."""
    told, silent = headline.told(document)
    if not told:
        return None
    numbers = {(item.at.place or item.at.at): item.number for item in found}
    rows = []
    for row in told:
        name, meaning = words.PHASES.get(row["phase"], (words.plain(row["phase"]), ""))
        about = [tag("div", meaning, class_="note"), tag("div", row["note"]) if row["note"] else None]
        sides = [_side(document, row, side, numbers) for side in ("begin", "end")]
        rows.append((name, *sides, _took(row), joined(about)))
    return joined(
        [
            heading("Phases"),
            table("Phases may overlap", ("Phase", "From", "To", "Took", "Meaning"), rows, ("Took",)),
            tag("p", silent, class_="note") if silent else None,
        ]
    )


def _took(row: Row) -> Markup | str:
    if row["known"]:
        return with_error(row["duration_us"], row["duration_lo_us"], row["duration_hi_us"])
    return tone("unknown", "doubt")


def _side(document: Row, row: Row, side: str, numbers: Mapping[Any, int]) -> Markup:
    if row[side] is None:
        return tag("span", "not known", class_="note")
    at = scene.bound(row, side)
    index = numbers.get(at.place or at.at)
    badge = tag("a", index, href=f"#i{document['number']}-m{index}", class_="badge") if index else None
    return joined([badge, " ", time(at.at, at.low, at.high)])


def _budget(document: Row) -> Markup | None:
    if not document["budget"] or not headline.told(document)[0]:
        return None
    rows = []
    for row in document["budget"]:
        bar = tag("span", class_="share", style=f"width:{max(0.0, row['share']) * 6:.2f}rem", aria_hidden="true")
        setting = row["setting"] or "no setting"
        value = duration(row["setting_us"]) if row["setting_us"] is not None else ""
        value = value or ("the logs do not say it" if row["setting"] else "")
        share = joined([percent(row["share"]), " ", bar])
        rows.append((words.PHASES[row["phase"]][0], duration(row["duration_us"]), share, setting, value))
    heads = ("Phase", "Took", "Share", "Depends on", "Set to")
    text = "What clients waited for, the longest first, and the setting that it depends on"
    advice = headline.advice(document["budget"])
    made = table(text, heads, rows, ("Took",))
    return joined([heading("Where the time went"), tag("p", advice) if advice else None, made])


def _messages(document: Row) -> Markup:
    return joined([heading("Messages"), losses.messages(document["messages"], "sent in this incident")])


def _unknown(document: Row, lines: Lines) -> Markup | None:
    rows = [tag("li", text, lines.places(places)) for text, places in unknown(document, 50)]
    if not rows:
        return None
    return joined([heading("What cannot be known"), tag("ul", *rows, class_="words")])


def _lines(document: Row, lines: Lines) -> Markup | None:
    if not lines.shown:
        return None
    items = [entry(event, f"{lines.prefix}-e{index}") for index, event in enumerate(lines.shown)]
    many = len(document["events"]) + document["events_more"]
    note = f" ({len(items)} of {many} shown)" if many > len(items) else f" ({len(items)})"
    summary = tag("summary", f"All lines of logs behind this{note}")
    return joined([heading("Log lines"), tag("details", summary, tag("ol", *items), class_="lines")])
