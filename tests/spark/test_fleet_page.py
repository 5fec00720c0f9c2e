"""The fleet page: what it says, that it fits, and that it needs nothing else."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.fleet.record import record
from spark_jobs.fleet.summary import FleetSettings, summary
from spark_jobs.report import fleet as page
from spark_jobs.report.fleet_words import sentences, tables
from tests.spark.fleet_documents import made, never_recovered

VOID = {"meta", "br", "hr", "col"}


def fleet(*more: dict[str, Any]) -> dict[str, Any]:
    documents = [made(n, cluster=f"eu-{n % 3}") for n in range(12)]
    documents += [made(n, cluster=f"eu-{n % 3}", slower=2.5, version="1.1") for n in range(12, 24)]
    documents += [never_recovered(24, cluster="us"), *more]
    return summary(map(record, documents), FleetSettings(resamples=100, shuffles=1000)) | {"refused": []}


class Outline(HTMLParser):
    """Open elements, those that load something, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")]  # type: ignore[misc]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_it_says_what_matters_first() -> None:
    lossy = made(30, cluster="bad")
    lossy["messages"]["total"]["lost"] = 2
    lossy["dual"][0] |= {"margin_ms": -900.0, "margin_lo_ms": -905.0, "margin_hi_ms": -895.0}
    lossy["incident"]["dual"] = "certain"
    said = sentences(fleet(lossy))
    assert said[0].startswith("26 incidents of 5 clusters from 2026-06-01 to 2026-07-01")
    assert "1 of 26 had not recovered when the logs ended." in said
    text = " ".join(said)
    assert "certain 1, possible 0, excluded 25" in text
    assert re.search(r"at worst not at all: 900 ms late \(bad, [0-9a-f]+\)", text)
    assert "2 lost, 52 unaccounted" in text
    assert re.search(r"Promotion became worse from 1\.0 to 1\.1: \d+ ms to \d+ ms \(p = 0\.\d+, n = 12 and 12\)", text)
    assert tables(fleet(lossy))["Clusters"].rows[0][0] == "bad"


@pytest.mark.parametrize("width", [80, 60, 132])
def test_the_table_fits_a_terminal(width: int) -> None:
    lines = page.table(fleet(), width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("–" in line for line in lines) and not any(line != line.rstrip() for line in lines)


def test_the_page_is_whole_and_loads_nothing() -> None:
    found = fleet(made(40, cluster="<script>alert(1)</script>&|"))
    html = page.html(found)
    outline = Outline()
    outline.feed(html)
    assert outline.open == [] and outline.loads == []
    assert "<script>alert" not in html and "<script>alert(1)</script>&|" in "".join(outline.text)
    assert html.count("<circle") == 26 and html.count('class="curve"') == 2
    assert page.html(found) == html


def test_markdown_keeps_its_columns() -> None:
    text = page.markdown(fleet(made(40, cluster="<i>a|b")))
    assert "\\<i\\>a\\|b" in text and not re.search(r"(?<!\\)<", text.replace("< 0.001", ""))
    for grid in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in grid.splitlines()}) == 1


def test_an_empty_fleet_has_a_page() -> None:
    found = summary([]) | {"refused": [{"file": "incident-1.json", "why": "no JSON"}]}
    assert "No incident." in page.html(found) and "no JSON" in page.table(found)


def test_files(tmp_path: Path) -> None:
    found = fleet()
    written = page.write(found, tmp_path / "out")
    assert [path.name for path in written] == ["fleet.html", "fleet.json", "fleet.md"]
    assert json.loads(written[1].read_text())["count"] == 25
    assert page.write(found, tmp_path / "x" / "f.md") == [tmp_path / "x" / "f.md"]
    assert (tmp_path / "x" / "f.md").read_text() == written[2].read_text()
