"""Four lines of a fail-over in the formats of other writers: each file says the same, as it was read by hand.

The files are what rsyslog and `journalctl -o FORMAT` write; `foreign/formats/NAME.log` is named by its format.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.bundle import Bundle
from spark_jobs.gaps import findings as gaps
from spark_jobs.parse import detect
from spark_jobs.parse.heads import head_of
from tests.spark.truth.reading import events

FORMATS = Path(__file__).parent / "foreign" / "formats"
BEGIN = 1_779_328_504_501_000
"""2026-05-21 01:55:04.501 UTC"""
TRUTH = [
    ("token_lost", 0),
    ("membership", 1_208_000),
    ("fence_op_done", 1_660_000),
    ("op_result", 1_832_000),
]
"""Kind, us after BEGIN."""
NAMES = sorted(path.name for path in FORMATS.glob("*.log"))


def said(lines: list[bytes]) -> list[tuple[str, int]]:
    found = events({"journal.log": lines}, modified=BEGIN + 3_600_000_000)
    assert {event["node"] for event in found} == {"node2"}
    return [(event["kind"], event["ts_wall"] - BEGIN) for event in found]


@pytest.mark.parametrize("name", NAMES)
def test_each_format_says_the_same(name: str) -> None:
    assert said((FORMATS / name).read_bytes().splitlines(keepends=True)) == TRUTH


def test_there_are_nine_formats() -> None:
    assert len(NAMES) == 9


@pytest.mark.parametrize("name", NAMES)
def test_the_parser_is_chosen_by_content(name: str) -> None:
    lines = (FORMATS / name).read_bytes().splitlines(keepends=True)
    assert {detect.detect(called, lines) for called in ("pacemaker.log", "x", "qpidd.log", "events.jsonl")} == {
        "syslog"
    }


@pytest.mark.parametrize(("month", "number"), [("Mär", 3), ("Mrz", 3), ("Mai", 5), ("Okt", 10), ("Dez", 12)])
def test_german_months(month: str, number: int) -> None:
    english = ("", "", "", "Mar", "", "May", "", "", "", "", "Oct", "", "Dec")[number]
    german, other = (head_of(f"{name} 03 01:55:04 node2 corosync[1]: x") for name in (month, english))
    assert german is not None and german == other


def test_a_zone_of_several_meanings_gives_no_time_by_itself() -> None:
    head = head_of("Thu 2026-05-21 01:55:04 CST node2 corosync[1]: x")
    assert head is not None and (head.utc, head.offset) == (None, None)


def test_packed_with_zstd_twice_and_in_utf_16(tmp_path: Path) -> None:
    text = (FORMATS / "short-unix.log").read_text()
    half = len(text) // 2
    packed = b"".join(pa.compress(part.encode(), "zstd", asbytes=True) for part in (text[:half], text[half:]))
    (tmp_path / "a.log.zst").write_bytes(packed)
    for number, name in enumerate(("utf-16", "utf-16-be")):
        mark = b"" if name == "utf-16" else b"\xfe\xff"
        (tmp_path / f"b{number}.log").write_bytes(mark + text.encode(name))
    (tmp_path / "c.log.gz").write_bytes(gzip.compress(text.encode("utf-16")))
    with Bundle(tmp_path) as bundle:
        for file in bundle:
            assert said(list(file.lines())) == TRUTH, file.name
        assert bundle.refused == []


def test_a_damaged_zstd_file_is_named(tmp_path: Path) -> None:
    packed = pa.compress((FORMATS / "short-unix.log").read_bytes() * 1000, "zstd", asbytes=True)
    (tmp_path / "a.log.zst").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.log.zst").write_bytes(packed[:4] + b"x" * 20)
    with Bundle(tmp_path) as bundle:
        for file in bundle:
            list(file.lines())
        assert all("damaged" in refused.why for refused in bundle.refused) and len(bundle.refused) == 2


@pytest.mark.parametrize(("known", "found"), [(60, []), (50, []), (49, ["unrecognised"])])
def test_a_log_that_is_mostly_of_no_known_format_is_a_gap(known: int, found: list[str]) -> None:
    file = {"name": "pacemaker.log", "kind": "pacemaker", "lines": 100, "faulty": 0, "continued": 100 - known}
    assert [row["kind"] for row in gaps.find("made", files=[file])] == found


def test_any_cut_of_an_export_is_read_as_far_as_it_goes() -> None:
    data = (FORMATS / "export.log").read_bytes()
    for size in range(0, len(data), 7):
        found = events({"journal.log": data[:size].splitlines(keepends=True)}, modified=BEGIN)
        kinds = [event["kind"] for event in found if event["kind"] != "torn"]
        assert kinds == [kind for kind, _ in TRUTH][: len(kinds)]
