"""The fleet page: one HTML file, Markdown, JSON, and a table for a terminal (pure but for `write`)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

from spark_jobs.report import fleet_drawing
from spark_jobs.report.elements import Heading, Table, shown
from spark_jobs.report.fleet_words import METRICS, Fleet, sentences, tables
from spark_jobs.report.html import framed
from spark_jobs.report.markdown import Writer, bullets
from spark_jobs.report.markup import Markup, tag
from spark_jobs.report.units import aligned, plural

FORMATS: Final = ("html", "json", "md")
TITLE: Final = "Fail-overs of the fleet"
IN_TERMINAL: Final = 12
"""Rows of a table there."""
_LIMITS: Final = re.compile(r" \([^)]*\)")


def text(fleet: Fleet) -> str:
    """JSON."""
    return json.dumps(fleet, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write(fleet: Fleet, out: Path, formats: Collection[str] = FORMATS) -> list[Path]:
    """OUT/fleet.FORMAT each; an `out` that ends in .html, .json or .md is that one file.  Raises OSError."""
    makers = {"html": html, "json": text, "md": markdown}
    if out.suffix.removeprefix(".") in makers:
        wanted = {out: out.suffix.removeprefix(".")}
    else:
        wanted = {out / f"fleet.{name}": name for name in FORMATS if name in formats}
    for path, name in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(makers[name](fleet), encoding="utf-8")
    return list(wanted)


def markdown(fleet: Fleet) -> str:
    parts = [f"# {TITLE}", bullets(sentences(fleet))]
    parts += [_WHOLE.text([Heading(title, 2), one]) for title, one in tables(fleet).items()]
    return "\n\n".join(parts) + "\n"


_WHOLE: Final = Writer(width=sys.maxsize, most=sys.maxsize)


# ---- a terminal -----------------------------------------------------------------------------------------------------


def table(fleet: Fleet, width: int = 80) -> str:
    """What fits into `width` columns: the first rows of each table, without columns for which there is no room."""
    lines = [part for sentence in sentences(fleet) for part in wrap(sentence, width)]
    for title, one in tables(fleet).items():
        lines += ["", f"{title}:", *_fitted(one, width)]
    return "\n".join(lines) + "\n"


def _fitted(one: Table, width: int) -> list[str]:
    rows, texts = one.rows[:IN_TERMINAL], len(one.heads) - len(one.numbers)
    columns = [[*map(str, column)] for column in zip(one.heads, *rows, strict=True)]
    if _width(columns) > width:  # the limits stay for the first of the quantiles only
        columns = [
            [_LIMITS.sub("", cell) for cell in column] if column[0] != "median" else column for column in columns
        ]
    while _width(columns) > width and len(columns) > 2:
        del columns[_least(columns, texts)]
    lines = aligned([*zip(*columns, strict=True)], [index >= texts for index in range(len(columns))])
    more = len(one.rows) - len(rows)
    return [*(line[:width].rstrip() for line in lines), *([f"and {plural(more, 'more row')}"] if more else [])]


def _least(columns: Sequence[Sequence[str]], texts: int) -> int:
    """The column that is missed least: the last one whose figures are all alike, else the last one."""
    alike = [index for index, column in enumerate(columns) if index >= texts and len(set(column[1:])) == 1]
    return alike[-1] if alike else len(columns) - 1


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1)


# ---- HTML -----------------------------------------------------------------------------------------------------------


def html(fleet: Fleet) -> str:
    """One file that needs nothing else."""
    said = tag("ul", *(tag("li", sentence) for sentence in sentences(fleet)), class_="words")
    parts = [_section(number, *one) for number, one in enumerate(tables(fleet).items())]
    body = [
        tag("a", "To the figures", href="#main", class_="skip"),
        tag("header", tag("h1", TITLE), said, _links(fleet)),
        tag("main", *_drawings(fleet), *parts, id="main"),
        tag("footer", tag("p", _FOOT)),
    ]
    return framed(TITLE, body)


_FOOT: Final = (
    "Times are UTC. A length of time is counted with what the clocks of the nodes leave open: two of them differ only "
    "if they do so for certain."
)


def _links(fleet: Fleet) -> Markup:
    links = [tag("li", tag("a", title, href=f"#s{number}")) for number, title in enumerate(tables(fleet))]
    return tag("nav", tag("ul", *links), class_="sections", aria_label="Sections")


def _drawings(fleet: Fleet) -> list[Markup]:
    near = fleet["margins"]["near_ms"]
    found = [("Margin of each fail-over against two primaries", fleet_drawing.margins(fleet["incidents"], near))]
    for row in fleet["survival"]:
        if row["group"] == "unplanned" and row["metric"] in ("service", "to_redundancy"):
            found.append((f"{METRICS[row['metric']][0]}: what is not over yet", fleet_drawing.survival(row)))
    return [tag("figure", drawing, tag("figcaption", caption)) for caption, drawing in found if drawing]


def _section(number: int, title: str, one: Table) -> Markup:
    return tag("section", tag("h2", title, id=f"s{number}"), shown([one]), class_="more")
