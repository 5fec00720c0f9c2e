"""Event segments: what a sound line becomes, and what a broken one costs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.detect import PARSERS
from spark_jobs.parse.event_json import split_id

BROKER = {
    "cluster": "c", "node": "n1", "source": "broker", "proc": "qpidd:7", "boot_id": "b", "seq": 3, "ts_wall": 1_000_000,
    "ts_mono": 500, "ts_res": 1, "kind": "state", "term": 2, "old": "ready", "new": "recovering", "reason": "promoted",
}  # fmt: skip
RUN = {
    "cluster": "c", "node": "h1", "source": "client", "proc": "p1:7:ab", "boot_id": "b", "seq": 1, "ts_wall": 2_000_000,
    "ts_mono": 900, "ts_res": 1, "kind": "publish", "client_id": "p1", "queue": "q", "msg_id": "p1:5",
    "attrs": {"last": "p1:9", "count": "5", "last_ts_mono": "1300"},
}  # fmt: skip


def line(event: Any) -> bytes:
    return json.dumps(event).encode() + b"\n"


def read(*lines: bytes, parser: str = "broker_json", context: Context | None = None) -> tuple[list[dict], Tally]:
    context = context or Context()
    return list(PARSERS[parser]("n1/x.jsonl", lines, context)), context.tally


def test_a_line_becomes_a_row_with_its_place() -> None:
    rows, tally = read(b"\n", line(BROKER))
    assert rows == [{**BROKER, "file": "n1/x.jsonl", "line_no": 2}]
    assert (tally.lines, tally.events, tally.faulty, tally.unknown, tally.torn) == (2, 1, 0, 0, 0)


def test_a_run_stays_one_row_and_names_its_messages() -> None:
    (row,), tally = read(line(RUN), parser="client_json")
    assert (row["producer"], row["pub_first"], row["pub_last"]) == ("p1", 5, 9)
    assert row["attrs"] == RUN["attrs"] and tally.faulty == 0


@pytest.mark.parametrize(
    ("msg_id", "expected"),
    [
        ("p1:7", ("p1", 7)), ("a:b:0", ("a:b", 0)), ("p:007", ("p:007", 0)), ("uuid-1", ("uuid-1", 0)),
        ("p:", ("p:", 0)), (":3", ("", 3)), ("p:٣", ("p:٣", 0)), ("p:" + "9" * 19, ("p:" + "9" * 19, 0)),
    ],
)  # fmt: skip
def test_an_id_is_a_producer_and_a_number(msg_id: str, expected: tuple[str, int]) -> None:
    assert split_id(msg_id) == expected


def test_what_the_schema_does_not_know_goes_into_attrs() -> None:
    (row,), tally = read(line({**BROKER, "colour": "red", "depth": 3, "raw": "x", "attrs": {"a": "b"}}))
    assert row["attrs"] == {"colour": "red", "depth": "3", "raw": "x", "a": "b"}
    assert "colour" not in row and "raw" not in row and tally.faulty == 0


def test_a_value_of_another_type_is_kept_as_text_and_counted() -> None:
    (row,), tally = read(line({**BROKER, "term": "2", "planned": 1, "seq": 2**63, "node": None}))
    assert row["attrs"] == {"term": "2", "planned": "1", "seq": str(2**63)}
    assert not {"term", "planned", "seq"} & row.keys()
    assert tally.faulty == 3
    assert str(tally.faults[1]) == "n1/x.jsonl:1: found \"term='2'\", expected term as bigint"


def test_the_context_fills_what_the_line_does_not_say() -> None:
    (row,), _ = read(line({**BROKER, "cluster": "", "node": None}), context=Context(cluster="prod", node="n9"))
    assert (row["cluster"], row["node"]) == ("prod", "n9")


@pytest.mark.parametrize("column", ["source", "kind", "ts_wall"])
def test_a_line_without_a_required_column_is_counted_and_named(column: str) -> None:
    rows, tally = read(line(BROKER), line({name: value for name, value in BROKER.items() if name != column}))
    assert len(rows) == 1
    assert tally.faulty == 1
    assert (tally.faults[0].file, tally.faults[0].line_no) == ("n1/x.jsonl", 2)
    assert tally.faults[0].wanted == f"columns {column}"


@pytest.mark.parametrize("value", ["17", 1.5, 2**63, True])
def test_a_time_that_is_no_time_costs_the_line(value: Any) -> None:
    rows, tally = read(line({**BROKER, "ts_wall": value}))
    assert rows == [] and tally.faulty == 1 and repr(value) in tally.faults[0].value


@pytest.mark.parametrize("text", [b"{not json}\n", b"[1]\n", b"3\n", b"\xff\xfe\n", b'{"a":' * 5000 + b"\n"])
def test_a_line_that_is_no_event_is_counted_and_named(text: bytes) -> None:
    rows, tally = read(text, line(BROKER))
    assert len(rows) == 1 and rows[0]["line_no"] == 2
    assert tally.faulty == 1 and tally.torn == 0 and tally.faults[0].line_no == 1


def test_a_torn_last_line_is_a_row_that_knows_whose_it_was() -> None:
    torn = line(RUN)[:69]
    rows, tally = read(line(RUN), torn, parser="client_json")
    assert rows[1] == {
        "kind": "torn", "source": "client", "cluster": "c", "node": "h1", "proc": "p1:7:ab", "boot_id": "b",
        "client_id": "p1", "attrs": {"octets": "69"}, "file": "n1/x.jsonl", "line_no": 2, "raw": torn.decode(),
    }  # fmt: skip
    assert tally.torn == 1 and tally.faulty == 0


def test_a_file_that_is_one_torn_line_has_the_source_of_its_parser() -> None:
    for parser, source in (("broker_json", "broker"), ("client_json", "client")):
        (row,), _ = read(b'{"seq":1,"ts_w', parser=parser)
        assert (row["kind"], row["source"]) == ("torn", source)


def test_a_complete_last_line_without_its_line_feed_is_not_torn() -> None:
    rows, tally = read(line(BROKER).rstrip())
    assert [row["kind"] for row in rows] == ["state"] and tally.torn == 0


def test_zeros_of_a_power_failure_are_no_event() -> None:
    rows, tally = read(line(BROKER), b"\0" * 4096)
    assert len(rows) == 1
    assert tally.faults[0].value == "4096 octets of zero"


def test_a_line_that_was_appended_to_a_torn_one_is_found() -> None:
    rows, tally = read(line(RUN)[:90] + line(BROKER), line(BROKER))
    assert [row["kind"] for row in rows] == ["torn", "state", "state"]
    assert [row["line_no"] for row in rows] == [1, 1, 2]
    assert tally.torn == 1 and tally.faulty == 0


def test_an_appended_run_is_found_although_it_has_an_object_inside() -> None:
    rows, tally = read(line(BROKER)[:40] + line(RUN), parser="client_json")
    assert [row["kind"] for row in rows] == ["torn", "publish"] and rows[1]["pub_last"] == 9
    assert tally.torn == 1 and tally.faulty == 0


def test_an_object_inside_a_broken_line_is_no_event() -> None:
    rows, tally = read(b'{"a":{"source":"broker"}\n')
    assert rows == [] and tally.faulty == 1


def test_a_kind_of_a_newer_writer_is_kept_and_counted() -> None:
    rows, tally = read(line({**BROKER, "kind": "teleported"}))
    assert rows[0]["kind"] == "teleported" and tally.unknown == 1


def test_a_run_that_contradicts_itself_is_one_message_and_a_fault() -> None:
    for last in ("p2:9", "p1:3", "p1:x"):
        (row,), tally = read(line({**RUN, "attrs": {"last": last}}), parser="client_json")
        assert (row["pub_first"], row["pub_last"]) == (5, 5) and tally.faulty == 1


def test_only_the_first_faults_are_kept_and_all_are_counted() -> None:
    _, tally = read(*[b"x\n"] * 250)
    assert tally.faulty == 250 and len(tally.faults) == 100


def test_a_long_value_is_cut_in_its_message() -> None:
    _, tally = read(b"y" * 10_000 + b"\n")
    assert len(tally.faults[0].value) == 120


@given(st.lists(st.binary(max_size=60).map(lambda text: text + b"\n") | st.sampled_from([line(BROKER), line(RUN)])))
def test_no_line_is_fatal_and_every_line_is_counted(lines: list[bytes]) -> None:
    rows, tally = read(*lines)
    whole = [text for line in lines for text in line.split(b"\n") if text]
    sound = sum(line in (globals()["line"](BROKER), globals()["line"](RUN)) for line in lines)
    assert tally.lines == len(lines)
    assert len([row for row in rows if row["kind"] != "torn"]) == sound
    assert sound + tally.faulty + tally.torn <= max(len(whole), len(lines))


@given(st.integers(0, len(line(BROKER)) - 2))
def test_wherever_a_file_is_cut_the_lines_before_are_whole(cut: int) -> None:
    rows, tally = read(line(BROKER), line(BROKER)[:cut])
    assert rows[0]["kind"] == "state"
    assert [row["kind"] for row in rows[1:]] == (["torn"] if cut else [])
    assert tally.torn == (1 if cut else 0)
