"""The page in a real browser: nothing is wider than the screen, in light and dark, on paper; pictures of it are kept
if REPORT_PICTURES names a folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path

import pytest

from spark_jobs.report import html, png, ticket
from tests.spark import report_world
from tests.spark.truth import nodes, processes
from tests.support.system import missing


def browser() -> str | None:
    try:
        return png.browser()
    except png.MissingTool:
        return None


CHROMIUM = browser()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=missing("chromium"))
SIZES = (1440, 820, 390, 360)
# what reaches over the right edge, and is in no box that scrolls by itself
PROBE = """
<script>addEventListener('load',()=>{
const wide=[...document.querySelectorAll('body *')].filter(e=>{const r=e.getBoundingClientRect();
if(!r.width||r.right<=innerWidth+1||e.closest('svg')&&e.tagName!=='svg')return false;
for(let p=e.parentElement;p;p=p.parentElement)if(getComputedStyle(p).overflowX==='auto')return false;return true});
parent.postMessage({inner:innerWidth,scroll:document.documentElement.scrollWidth,
wide:wide.slice(0,5).map(e=>e.tagName+'.'+e.className),dark:matchMedia('(prefers-color-scheme:dark)').matches,
back:getComputedStyle(document.body).backgroundColor,
drawn:[...document.querySelectorAll('figure>svg')].filter(e=>e.getBoundingClientRect().width).length},'*')})</script>
"""
# a window is at least 500 px wide, a frame is as wide as one likes
FRAMES = """<!doctype html><meta name="color-scheme" content="light dark"><title>nothing</title><script>
const found=[];
addEventListener('message',e=>{found.push(e.data);document.title='found:'+JSON.stringify(found)})</script>
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "crash": report_world.story_tables(nodes.crash()),
        "never": report_world.story_tables(processes.never()),
        "lab": report_world.lab_tables(),
        "none": {},
    }
    for name, tables in made.items():
        overview, found = report_world.documents(tables, folder / f"{name}-work")
        text = html.page(overview, found)
        (folder / f"{name}.html").write_text(text)
        # the probe may not run under the page's own policy
        bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text, count=1)
        (folder / f"{name}-probe.html").write_text(bare.replace("</body>", f"{PROBE}</body>"))
        frames = [f'<iframe width="{width}" height="900" style="border:0" src="{name}-probe.html">' for width in SIZES]
        (folder / f"{name}-frames.html").write_text(FRAMES + "</iframe>".join([*frames, ""]))
    return folder


def _chromium(folder: Path, *options: str) -> str:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={folder}/profile", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def _probed(pages: Path, name: str, *options: str) -> dict[int, dict]:
    """Width → what the page found of itself."""
    page = (pages / f"{name}-frames.html").as_uri()
    text = _chromium(pages, "--window-size=1600,1000", "--virtual-time-budget=5000", *options, "--dump-dom", page)
    found = re.search(r"<title>found:(.*?)</title>", text)
    assert found, text[:500]
    return {one["inner"]: one for one in json.loads(unescape(found[1]))}


@pytest.mark.parametrize("name", ["crash", "never", "lab", "none"])
def test_nothing_is_wider_than_the_screen(pages, name):
    found = _probed(pages, name)
    assert set(found) == set(SIZES)
    for width, one in found.items():
        assert one["wide"] == [], width
        assert one["scroll"] <= width
        # two stretches of time in the story: the wide drawings or the narrow ones
        assert name != "crash" or one["drawn"] == 2
        assert (one["dark"], one["back"]) == (False, "rgb(255, 255, 255)")


def test_the_dark_page_is_dark(pages):
    for one in _probed(pages, "crash", "--force-dark-mode").values():
        assert (one["dark"], one["back"]) == (True, "rgb(18, 22, 28)")


def test_on_paper_it_has_pages_and_all_that_was_folded(pages):
    pdf = pages / "crash.pdf"
    _chromium(pages, "--no-pdf-header-footer", f"--print-to-pdf={pdf}", (pages / "crash.html").as_uri())
    content = pdf.read_bytes()
    assert content[:5] == b"%PDF-"
    unfolded = (pages / "crash.html").read_text().replace("<details", "<div").replace("</details", "</div")
    (pages / "unfolded.html").write_text(unfolded)
    other = pages / "unfolded.pdf"
    _chromium(pages, "--no-pdf-header-footer", f"--print-to-pdf={other}", (pages / "unfolded.html").as_uri())
    assert _sheets(content) == pytest.approx(_sheets(other.read_bytes()), abs=1)
    assert _sheets(content) > 5


def _sheets(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", SIZES[:3] if "REPORT_PICTURES" in os.environ else SIZES[:1])
def test_a_picture_of_the_page_can_be_taken(pages, width, dark):
    folder = Path(os.environ.get("REPORT_PICTURES") or pages)
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"crash-{width}{'-dark' * dark}.png"
    options = ["--force-dark-mode"] * dark + [f"--window-size={width},2400", f"--screenshot={picture}"]
    _chromium(pages, *options, (pages / "crash.html").as_uri())
    content = picture.read_bytes()
    assert int.from_bytes(content[16:20]) == width
    assert len(content) > 50_000


def test_a_ticket_becomes_a_picture_by_the_browser_too(pages):
    _, (one,) = report_world.documents(report_world.story_tables(nodes.crash()), pages / "ticket")
    content = png.by_browser(ticket.ticket(one), str(CHROMIUM))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(content[16:20]) == png.SCALE * 1040
