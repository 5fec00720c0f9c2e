"""The report as one page of HTML that needs nothing else (pure)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence, Set
from hashlib import sha256
from typing import Final

from spark_jobs import data
from spark_jobs.data import Row
from spark_jobs.report import dual, headline, losses, sections, words
from spark_jobs.report.elements import Block, Fold, Heading, Table, Text, elsewhere, gap, shown, timed, tone
from spark_jobs.report.evidence import LINES_SHOWN, Cell
from spark_jobs.report.markup import Markup, tag
from spark_jobs.report.style import page_rules
from spark_jobs.report.units import duration, moment, number, octets, offset, plural

GAPS_SHOWN: Final = 100
FILES_SHOWN: Final = 200
LINKS_SHOWN: Final = 20
LINES_OF_ALL, LINES_LEAST = 4000, 40
"""Lines of logs on one page, and of one incident at the least."""
SCRIPT: Final = data.text(__package__, "page.js").replace("\n", "")
"""An addition only: opens what is folded for printing, and around the line that a link goes to."""


def page(overview: Row, documents: Sequence[Row]) -> str:
    """The whole page."""
    most = max(LINES_LEAST, min(LINES_SHOWN, LINES_OF_ALL // max(1, len(documents))))
    title = f"Failover report: {', '.join(name for name in overview['clusters'] if name) or 'one cluster'}"
    body = [
        tag("a", "To the report", href="#main", class_="skip"),
        tag("header", tag("h1", title), _summary(overview), _sections(documents)),
        tag(
            "main",
            shown(index(overview, {one["number"] for one in documents})),
            *(sections.incident(one, most) for one in documents),
            *(_section(*one) for one in rest(overview)),
            id="main",
        ),
        tag("footer", tag("p", _FOOT)),
    ]
    return framed(title, body)


_FOOT: Final = (
    "Times are UTC, on one axis: the clocks of all nodes are corrected by what their logs say, and ± is what "
    "remains of their error. Durations of two lines of one node are by its own clock."
)


def framed(title: str, body: Sequence[object]) -> str:
    """A page with our style and script, and a policy under which it can load and run nothing else."""
    digest = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(page_rules())),
    ]
    whole = tag("html", tag("head", *head), tag("body", *body, tag("script", Markup(SCRIPT))), lang="en")
    return f"<!doctype html>\n{whole}\n"


def _summary(overview: Row) -> Markup:
    texts = headline.summary(overview)
    if len(overview["incidents"]) == 1:
        return tag("p", headline.counted(overview["incidents"]))
    return tag("ul", *(tag("li", text) for text in texts), class_="words")


def _sections(documents: Sequence[Row]) -> Markup:
    links = [(f"#i{one['number']}", f"Incident {one['number']}") for one in documents[:LINKS_SHOWN]]
    links += [("#messages", "Messages"), ("#clocks", "Clocks"), ("#gaps", "Gaps"), ("#read", "What was read")]
    items = [tag("li", tag("a", text, href=target)) for target, text in links]
    return tag("nav", tag("ul", *items), class_="sections", aria_label="Sections")


def index(overview: Row, here: Set[int] = frozenset()) -> list[Block]:
    """A row for each incident, if there are several; `here`: those that are on this page."""
    if len(overview["incidents"]) < 2:
        return []
    several = len(overview["clusters"]) > 1
    about = ("Begin", "What", "No service for", "Clients stood", "Lost", "Two primaries")
    heads = ("No", *(("Cluster",) if several else ()), *about)
    rows = []
    for row in overview["incidents"]:
        lost = "unknown" if row["lost"] is None else number(row["lost"])
        stood = "unknown" if row["any_down"] is None else duration(row["any_down"])
        name, target = headline.title(row), f"#i{row['number']}"
        link = Cell(name, tag("a", name, href=target)) if row["number"] in here else name
        begin = Cell(moment(row["begin"], 0)[5:].removesuffix(" UTC"), timed(moment(row["begin"])).html)
        cells = (begin, link, _service(row), stood, lost, _dual(row["dual"]))
        rows.append((row["number"], *((row["cluster"],) if several else ()), *cells))
    return [Heading("Incidents", 2), Table("By time", heads, rows, page=("Clients stood",), cut="What")]


def _service(row: Row) -> str:
    if row["total_us"] is not None:
        return duration(row["total_us"])
    if row.get("away_us"):
        return f"resources {duration(row['away_us'])}"
    return "not interrupted" if row["type"] in words.STAYED else "unknown"


def _dual(verdict: str | None) -> Cell:
    if verdict is None:
        return Cell("-", Markup("none is known of"))
    return tone(dual.WORDS[verdict].lower(), dual.TONES[verdict])


# ---- what is about all of it ----------------------------------------------------------------------------------------


def rest(overview: Row) -> list[tuple[str, str, list[Block]]]:
    """id, title, content"""
    return [
        ("messages", "All messages", _messages(overview)),
        ("clocks", "Clocks", _clocks(overview)),
        ("gaps", "Gaps in the evidence", _gaps(overview)),
        ("read", "What was read", _ingest(overview["ingest"])),
    ]


def _section(id: str, title: str, content: list[Block]) -> Markup:
    head = tag("h2", title, id=f"{id}-title")
    return tag("section", head, shown(content), class_="more", id=id, aria_labelledby=f"{id}-title")


def _messages(overview: Row) -> list[Block]:
    parts = losses.messages(overview["messages"], "in all that was read, in incidents and outside of them")
    found = overview["outages"]
    if found["count"]:
        text = f"{plural(found['count'], 'outage')} of {plural(found['clients'], 'client')}, "
        text += f"the longest {duration(found['longest_us'])}"
        text += f"; {plural(found['never_back'], 'client')} never came back." if found["never_back"] else "."
        parts += [Heading("Clients that stood still"), Text(text), losses.outages("The longest", found["slowest"])]
    return parts


def _clocks(overview: Row) -> list[Block]:
    found = overview["clocks"]
    if not found:
        return [Text("No clocks were compared.")]
    several = len({row.get("cluster") for row in found}) > 1
    rows = []
    for row in found:
        names = f"{row['cluster']}: {row['node']}" if several else row["node"]
        known = row["err_us"] is not None
        ahead = offset(row["offset_us"], row["err_us"]) if known else tone("unknown", "doubt")
        drift = f"{row['drift_ppm']:+.1f} ppm" if known and row["drift_ppm"] is not None else ""
        seen = ", ".join(f"{count} × {words.plain(kind)}" for kind, count in sorted((row["evidence"] or {}).items()))
        rows.append((names, moment(row["t0"]), moment(row["t1"]), ahead, drift, seen or "nothing", row["notes"] or ""))
    heads = ("Node", "From", "To", "Ahead by", "Drift", "Compared by", "Notes")
    text = "How far each clock was ahead of the reference, as its logs say; a new row begins where it was set"
    return [Table(text, heads, rows, ("Ahead by", "Drift"), "", ("To", "Compared by"), "Notes")]


def _gaps(overview: Row) -> list[Block]:
    found = elsewhere(overview["gaps"])
    if not found:
        return [Text("None was found.")]
    kinds = sorted({row.get("kind") or "gap" for row in found})
    rows = [
        (words.plain(row.get("kind") or "gap"), row.get("node") or "", gap(row), ", ".join(row.get("evidence") or []))
        for row in found[:GAPS_SHOWN]
    ]
    note = f"{len(rows)} of {number(len(found))} shown" if len(found) > len(rows) else ""
    text = f"What the logs lack: {', '.join(map(words.plain, kinds))}"
    return [Table(text, ("Kind", "Node", "What is missing", "Lines"), rows, (), note)]


def _ingest(found: Row) -> list[Block]:
    text = f"{plural(found['files'], 'file')} ({octets(found['octets'])}), {plural(found['lines'], 'line')}, "
    text += f"{plural(found['events'], 'event')}; {plural(found['unknown'], 'line')} that say nothing we know"
    text += f", {plural(found['covered'], 'line')} that another log says better" if found["covered"] else ""
    parts: list[Block] = [Text(f"{text}."), _files(found["read"])]
    if found["refused"]:
        listed = [(row["name"], row["state"], row["why"] or "") for row in found["refused"]]
        parts.append(Table("Logs that could not be read, or not to their end", ("File", "State", "Why"), listed))
    if found["removed"]:
        parts.append(Text(f"{'; '.join(found['removed'][:FILES_SHOWN])}.", "note"))
    if found["others"]:
        names = ", ".join(found["others"][:FILES_SHOWN])
        parts.append(Text(f"No logs, so not read: {plural(len(found['others']), 'file')} ({names}).", "note"))
    if found["faults"]:
        faults = [
            (f"{row['file']}:{row['line_no']}", Cell(row["value"], tag("code", row["value"])), row["wanted"])
            for row in found["faults"]
        ]
        note = f"{len(faults)} of {number(found['faulty'])} shown" if found["faulty"] > len(faults) else ""
        parts.append(Table("Lines that could not be used", ("Line", "Found", "Expected"), faults, (), note))
    if found["notes"]:
        notes = [(row["about"], row["text"], row["certainty"]) for row in found["notes"][:FILES_SHOWN]]
        parts.append(Table("How the times of text logs were read", ("About", "Taken", "How sure"), notes))
    return parts


def _files(read: Sequence[Row]) -> Markup:
    """A ticket does without."""
    names = ("octets", "lines", "events", "unknown", "faulty", "torn", "covered")
    heads = ("File", "Kind", "Octets", "Lines", "Events", "Unknown", "Faulty", "Torn", "Covered")
    rows = [(row["name"], row["kind"], *(number(row.get(name) or 0) for name in names)) for row in read[:FILES_SHOWN]]
    note = f"{len(rows)} of {number(len(read))} shown" if len(read) > len(rows) else ""
    return shown([Fold("The files", Table("Files", heads, rows, heads[2:], note))] if read else [])
