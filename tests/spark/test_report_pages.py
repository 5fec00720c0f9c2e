"""The page, the Markdown and the drawings: whole, safe, bounded, the same each time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise

import pytest

from spark_jobs.report import elements, evidence, html, lanes, markdown, png, scene, style, svg, ticket
from spark_jobs.report.canvas import MEDIUM, NARROW, WIDE
from spark_jobs.solve import reconstruct
from tests.spark import report_world
from tests.spark.truth import nodes, processes, watches
from tests.spark.truth.world import START

STORIES = [*nodes.STORIES, *processes.STORIES, *watches.STORIES]
HOSTILE = "</span></pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'`|*_[a](javascript:x)\x1b[31m\u202egnp"
_VOID = {"meta", "br", "hr", "img", "col"}


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects what links and loads."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.targets, self.loads = [], Counter(), set(), []
        self.tags, self.headings, self.words = Counter(), [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags[tag] += 1
        if tag not in _VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids[given["id"]] += 1
        for name in ("href", "aria-labelledby", "aria-describedby"):
            if name in given:
                self.targets.add(given[name])
        self.loads += [given[name] for name in ("src", "srcset", "action", "data") if name in given]
        self.loads += [name for name in given if name.startswith("on")]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append((int(self.open[-1][1]), data))

    @property
    def text(self):
        return " ".join(self.words)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return report_world.documents(report_world.lab_tables(), tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def crash(tmp_path_factory):
    return report_world.documents(report_world.story_tables(nodes.crash()), tmp_path_factory.mktemp("crash"))


def _sound(text):
    page = Page(text)
    assert [name for name, count in page.ids.items() if count > 1] == []
    missing = {target for target in page.targets if target.removeprefix("#") not in page.ids}
    assert missing == set()
    assert page.loads == []
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - level <= 1 for level, later in pairwise(levels))
    return page


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_each_story_gives_sound_pages(story, tmp_path):
    overview, found = report_world.documents(report_world.story_tables(story()), tmp_path)
    page = _sound(html.page(overview, found))
    for one in found:
        for text in one["words"]:
            assert text in page.text
        shown = one["phases"] if one["incident"]["failover"] or one["incident"]["old_primary"] else ()
        for row in shown:
            assert not row["note"] or row["note"] in page.text
        ET.fromstring(ticket.ticket(one))
    text = markdown.page(overview, found)
    assert max(len(line) for line in text.splitlines() if line.startswith("|")) <= 100


def test_nothing_comes_from_elsewhere(lab):
    text = html.page(*lab)
    assert re.findall(r"(?:https?:)?//[a-z]", text) == []
    assert "@import" not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {f"#{name}" for name in re.findall(r'id="([^"]*)"', text)}
    assert "default-src 'none'".replace("'", "&#39;") in text


def test_nine_incidents_have_an_index_and_a_section_each(lab):
    overview, found = lab
    page = _sound(html.page(overview, found))
    assert len(found) == 9
    assert {f"#i{number}" for number in range(1, 10)} <= page.targets
    assert [text for level, text in page.headings if level == 2][:2] == [
        "Incidents",
        "1. lab: node crash, node2 → node1",
    ]


def test_one_of_several_incidents_alone_is_a_sound_page(lab):
    overview, found = lab
    page = _sound(html.page(overview, found[3:4]))
    assert page.ids["i4"] == 1
    assert "i3" not in page.ids


def test_without_an_incident_the_rest_is_shown(tmp_path, crash):
    tables = {"clock_segments": [row | {"cluster": "made"} for row in crash[0]["clocks"]]}
    tables["gaps"] = [{"cluster": "made", "kind": "torn", "node": "node1", "text": "its last line is torn"}]
    overview, found = report_world.documents(tables, tmp_path)
    page = _sound(html.page(overview, found))
    assert "No incident was found in what was read." in page.text
    assert "its last line is torn" in page.text
    assert "24 × clock" in page.text
    text = markdown.page(overview, found)
    assert "No incident was found in what was read." in text
    assert "its last line is torn" in text


def test_a_torn_line_without_a_time_that_is_named_as_evidence_has_no_place_on_the_axis(tmp_path):
    tables = report_world.story_tables(nodes.crash())
    torn = {"cluster": "made", "source": "broker", "kind": "torn", "node": "node1", "file": "torn.jsonl", "line_no": 9}
    tables["events"] = [*tables["events"], torn]
    tables["hints"] = [{**row, "evidence": ["torn.jsonl:9"]} for row in tables["hints"]]
    tables["phases"] = [{**row, "begin_file": "torn.jsonl", "begin_line": 9} for row in tables["phases"]]
    overview, found = report_world.documents(tables, tmp_path)
    assert "node crash" in _sound(html.page(overview, found)).text
    assert "node crash" in markdown.page(overview, found)


def test_clients_alone_are_an_incident_without_a_cluster(tmp_path):
    """No log of any broker: nothing is known but how long they stood, not even that there was no fail-over."""
    outages = [{"client": "c1", "begin": START, "end": START + 5_000_000}]
    tables = reconstruct.tables([], outages, "made")
    row = {"cluster": "made", "client_id": "c1", "ts_begin": START, "ts_end": START + 5_000_000, "why": "connection"}
    tables["outages"] = [row | {"censored": False}]
    overview, found = report_world.documents(tables, tmp_path)
    page = _sound(html.page(overview, found))
    assert "1 of 1 clients stood still, the longest for 5 s (c1)." in page.text
    assert "no log of any broker" in page.text
    assert "unknown cause" in markdown.page(overview, found)
    ET.fromstring(ticket.ticket(found[0]))


def test_evidence_is_in_the_page_as_it_was_written(crash):
    overview, found = crash
    page = Page(html.page(overview, found))
    for row in found[0]["phases"]:
        for side in ("begin", "end"):
            if row[f"{side}_file"]:
                assert f"{row[f'{side}_file']}:{row[f'{side}_line']}" in page.text
    assert "A processor failed, forming new configuration: token timed out (1000ms), waiting 1200ms" in page.text
    # of a JSON line what was read of it
    assert '"kind": "promoted", "term": 2' in page.text


def test_each_mark_leads_to_its_line(crash):
    """Without a script: by a link to an element of the page."""
    text = html.page(*crash)
    links = re.findall(r'<a href="#(i1-[em]\d+)" tabindex="-1">', text)
    assert len(links) > 20
    for target in set(links):
        assert f'id="{target}"' in text


def _hostile(documents):
    """Everything that was read from logs says something bad."""
    overview, found = documents
    events = [event | {"raw": HOSTILE, "node": HOSTILE, "reason": HOSTILE} for event in found[0]["events"]]
    phases = [row | {"note": HOSTILE, "end_node": HOSTILE} for row in found[0]["phases"]]
    hints = [{"rule": "x", "text": HOSTILE, "confidence": "likely", "evidence": [f"{HOSTILE}:1", events[0]["place"]]}]
    gaps = [
        {"kind": HOSTILE, "node": HOSTILE, "text": HOSTILE, "file": HOSTILE, "line_no": 3, "begin": None, "end": None}
    ]
    spans = [row | {"node": HOSTILE} for row in found[0]["primary_spans"]]
    outages = [row | {"client_id": HOSTILE} for row in found[0]["outages"]]
    more = {
        "events": events,
        "phases": phases,
        "hints": hints,
        "gaps": gaps,
        "primary_spans": spans,
        "cluster": HOSTILE,
    }
    return overview | {"gaps": gaps, "clusters": [HOSTILE]}, [
        found[0] | more | {"outages": outages, "words": [HOSTILE]}
    ]


def test_a_hostile_line_stays_text(crash):
    overview, found = _hostile(crash)
    text = html.page(overview, found)
    page = _sound(text)
    assert page.tags["script"] == 1
    assert page.tags["img"] == 0
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m\\u202egnp" in page.text
    root = ET.fromstring(ticket.ticket(found[0]))
    assert not [element for element in root.iter() if element.tag.endswith(("script", "img"))]


def test_a_hostile_line_stays_text_in_markdown(crash):
    overview, found = _hostile(crash)
    text = markdown.page(overview, found)
    assert "\x1b" not in text
    assert "\u202e" not in text
    # outside of code no bracket, tag or bar is left that means something
    outside = re.sub(r"(`+) ?.*?\1", "", text)
    assert not re.search(r"(?<!\\)<", outside)
    assert not re.search(r"(?<!\\)\]\(", outside)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert tables
    assert max(map(len, tables)) <= 100


def test_a_table_without_room_is_a_list_in_markdown_and_nothing_is_cut():
    rows = [("n1", None, "x" * 60, elements.tone("y" * 60, "bad")), ("n2", "z", "", "")]
    wide = elements.Table("All", ("Node", "Kind", "What", "Why"), rows, note="the end")
    said = markdown.Writer().text([elements.Heading("Title", 2), wide])
    assert said.split() == f"## Title All * n1; what: {'x' * 60}; why: {'y' * 60} * n2; kind: z the end".split()
    cut = markdown.Writer().text([replace(wide, cut="What", page=("Why",))])
    assert max(map(len, cut.splitlines())) <= 100 and cut.count("|") == 4 * 4
    assert len(markdown.Writer(most=1).text([wide]).split("\n* ")) == 2


def test_lines_of_logs_make_a_list_in_markdown(crash):
    _, (one, *_) = crash
    lines = evidence.Lines(one, {})
    place = next(event["place"] for event in one["events"] if event.get("raw"))
    cell = lines.cell("it failed", [place])
    (said, line) = markdown.Writer(lines).text([elements.Points([cell])]).splitlines()
    assert (said, line) == ("* it failed", f"  * `{place}` {markdown.code(lines.text(place))}")


def _big(one):
    """20,000 facts, 5,000 of which come to the document with 10,000 messages that are not ok."""
    begin = one["incident"]["begin"]
    events = []
    for n in range(5000):
        kind = ("token_lost", "op_result", "membership", "fence_op_done", "peer_state")[n % 5]
        at = begin + n * 640
        event = {
            "kind": kind,
            "node": f"node{n % 3 + 1}",
            "peer": "node1",
            "source": "pacemaker",
            "file": f"{n % 3}.log",
        }
        times = {"ts_est": at, "ts_lo": at - 500, "ts_hi": at + 500, "ts_res": 1000, "line_no": n}
        raw = f"Jun 01 12:00:{n % 60:02} node pacemaker-controld[10] (made) notice: something that is said {n} " * 2
        events.append(event | times | {"place": f"{n % 3}.log:{n}", "raw": raw})
    verdict = {"producer": "p", "verdict": "duplicated", "cause": "redelivered", "queue": "q"}
    times = {"sent": begin, "confirmed": begin, "delivered": None}
    total = {"confirmed": 100_000, "attempts": 100_000, "lost": 0, "duplicated": 10_000, "redelivered": 10_000}
    messages = {
        "summary": [total | {"queue": f"q{n}"} for n in range(500)],
        "total": total | {"unaccounted": 0},
        "causes": [],
        "verdicts": [verdict | times | {"pub": n} for n in range(1, 1001)],
        "more": 9000,
    }
    outages = [one["outages"][0] | {"client_id": f"client-{n}"} for n in range(1000)]
    more = {"events": events, "events_more": 15_000, "messages": messages, "outages": outages, "outages_more": 4000}
    return one | more


def test_a_big_incident_stays_a_small_page(crash):
    overview, found = crash
    text = html.page(overview, [_big(found[0])])
    assert len(text.encode()) < 500 * 1024
    page = _sound(text)
    for note in (
        "400 of 20000 shown",
        "5000 of 20000 lines are drawn",
        "100 of 10\u202f000 shown",
        "20 of 5\u202f000 outages",
    ):
        assert note in page.text, note
    assert len(ticket.ticket(_big(found[0]))) < 150 * 1024


def test_marks_that_are_too_near_are_one_and_all_are_counted():
    canvas = svg.stretch(_TINY, scene.Panel("", 0, 1_000_000), WIDE, "t", {})
    event = {"kind": "token_lost", "node": "n", "source": "corosync", "place": "a:1"}
    events = [event | {"ts_est": n, "ts_lo": n, "ts_hi": n} for n in range(0, 1_000_000, 1000)]
    canvas.merged = canvas.lines = 0
    placed = lanes.apart(canvas, scene.marks(events))
    assert sum(len(mark.texts) for mark in placed) == 1000
    assert len(placed) <= canvas.axis.width / 7 + 1
    assert canvas.lines == sum(len(mark.texts) for mark in placed if len(mark.texts) > 1)


_TINY = {
    "incident": {"begin": 0, "end": 1, "old_primary": "a", "new_primary": None},
    "phases": [],
    "events": [],
    "primary_spans": [],
    "lane": {"clients": 0, "steps": []},
    "outage_union": None,
    "events_more": 0,
    "words": [],
}


def test_the_hang_shows_both_in_the_role(tmp_path):
    """The bars of both nodes overlap from the promotion of the one until the other stepped down."""
    _, (one,) = report_world.documents(report_world.story_tables(processes.hang()), tmp_path)
    panel = scene.panels(one)[-1]
    made, _ = svg.drawing(one, panel, WIDE, "t")
    root = ET.fromstring(f"<x xmlns:xlink='x'>{made}</x>")
    bars = [
        (float(r.get("x", "")), float(r.get("x", "")) + float(r.get("width", "")))
        for r in root.iter("rect")
        if r.get("class") == "d-role"
    ]
    assert len(bars) == 2
    (old_begin, old_end), (new_begin, new_end) = bars
    assert old_begin < new_begin < old_end < new_end


@pytest.mark.parametrize("layout", [WIDE, MEDIUM, NARROW], ids=lambda layout: layout.name)
def test_a_drawing_names_itself_and_keeps_inside(crash, layout):
    one = crash[1][0]
    for panel in scene.panels(one):
        made, _ = svg.drawing(one, panel, layout, "t")
        root = ET.fromstring(made)
        assert root.get("role") == "img"
        names = {element.get("id"): element.text for element in root if element.tag in ("title", "desc")}
        assert names[root.get("aria-labelledby")].startswith("What happened over time")
        assert "1: the token was still there" in str(names[root.get("aria-describedby")])
        for rect in root.findall("g/rect"):
            assert float(rect.get("x", "")) >= -0.1
            assert float(rect.get("x", "")) + float(rect.get("width", "")) <= layout.width + 0.6


def test_a_drawing_for_a_ticket_needs_nothing(crash):
    text = ticket.ticket(crash[1][0])
    root = ET.fromstring(text)
    assert "var(" not in text
    used = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text))
    assert {one or other for one, other in used} <= {element.get("id") for element in root.iter()}
    assert ticket.ticket(crash[1][0]) == text


def test_a_picture_is_one(crash):
    pytest.importorskip("resvg_py", reason="no resvg-py: PNG is not tested")
    found = png.png(ticket.ticket(crash[1][0]))
    assert found[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(found[16:20]) == 2 * (WIDE.width + 40)


def test_without_a_tool_a_picture_says_what_to_install(crash, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "resvg_py", None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(png.MissingTool, match=r"resvg-py .*or Chromium .*neither is installed"):
        png.png("<svg/>")


# ---- colours --------------------------------------------------------------------------------------------------------


def _light(colour):
    values = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    parts = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def _contrast(one, other):
    """As WCAG 2 defines it."""
    low, high = sorted((_light(one), _light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_text_and_shapes_can_be_told_from_what_is_behind(colours):
    texts = [
        ("text", "back"),
        ("text", "soft"),
        ("muted", "back"),
        ("muted", "soft"),
        ("link", "back"),
        ("text", "mark"),
    ]
    texts += [(name, back) for name in ("good", "bad", "doubt") for back in ("back", f"{name}-soft")]
    texts += [("muted", f"{name}-soft") for name in ("bad", "doubt")]
    texts += [(f"{name}-text", name) for name in set(style.STATE_COLOURS.values())]
    low = {pair: _contrast(colours[pair[0]], colours[pair[1]]) for pair in texts}
    assert {pair: value for pair, value in low.items() if value < 4.5} == {}
    shapes = ["phase", "client", "token", "ring", "fencing", "good", "bad", "active", "ready", "hung"]
    faint = {name for name in shapes if _contrast(colours[name], colours["back"]) < 3}
    assert faint == set()


@pytest.mark.parametrize("colours", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_states_differ_without_colour(colours):
    """By lightness, or by a pattern; `down` has a border of dashes.  What looks the same is told by its name."""
    looks = {(colour, style.PATTERNS.get(state)) for state, colour in style.STATE_COLOURS.items()} - {("down", None)}
    assert len(looks) == 6
    for one, other in combinations(sorted(looks, key=str), 2):
        assert one[1] != other[1] or _contrast(colours[one[0]], colours[other[0]]) > 1.8, (one, other)
