"""`failover-report explain`: a message's life over all nodes, who held it; phases and hints with their lines."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.cli.life import holdings, moments, of_queue, position, verdict_words
from spark_jobs.clocks.segments import Clocks, ClockSegment
from spark_jobs.engine.base import Engine
from spark_jobs.schema import COLUMNS, Event
from spark_jobs.workspace import Workspace
from tests.spark.cli_documents import T0, Program, incident, phase, written
from tests.support.slow import both_engines

MS = 1000


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


def at(ms: float) -> int:
    return T0 + round(ms * MS)


def row(kind: str, ms: float, node: str = "p7", seq: int = 1, **more: Any) -> Event:
    """A client's row about p7:123."""
    names = {
        "cluster": "made",
        "source": "client",
        "node": node,
        "client_id": node,
        "proc": f"{node}:1",
        "boot_id": "b",
    }
    place = {"file": f"{node}.jsonl", "line_no": seq}
    known = {"msg_id": "p7:123", "producer": "p7", "pub_first": 123, "pub_last": 123, "queue": "orders"}
    return {
        **names,
        "kind": kind,
        "seq": seq,
        "ts_wall": at(ms),
        "ts_mono": at(ms),
        "ts_res": 1,
        **known,
        **place,
        **more,
    }


def sample(kind: str, ms: float, node: str, last_pos: int, term: int = 1, error: float = 0.0, **more: Any) -> Event:
    """A broker's row with its corrected time."""
    bounds = {"ts_est": at(ms), "ts_lo": at(ms - error), "ts_hi": at(ms + error), "ts_wall": at(ms)}
    names = {"cluster": "made", "source": "broker", "node": node, "kind": kind, "term": term}
    return {**names, **bounds, "last_pos": term << 48 | last_pos, "file": f"{node}.jsonl", "line_no": 9, **more}


def clocks(error: float = 1.0, **offsets: float) -> Clocks:
    """ms; of nodes that are not named: 0."""
    knots = {
        node: ((at(0), (offset - error) * MS, (offset + error) * MS),)
        for node, offset in {"p7": 0.0, "c1": 0.0, **offsets}.items()
    }
    return Clocks(
        "", {node: [ClockSegment(node, 0, at(-(10**6)), at(10**6), knot, 0.0)] for node, knot in knots.items()}
    )


# ---- order and time


def test_rows_are_in_corrected_order() -> None:
    """The consumer's clock is 500 ms behind: as written it gets the message before it is sent."""
    rows = [row("deliver", -390, "c1"), row("publish", 100), row("confirm", 103, seq=2)]
    found = moments(rows, clocks(c1=-500), 123)
    assert [(one.event["kind"], one.est, one.hi - one.est) for one in found] == [
        ("publish", at(100), 1001), ("confirm", at(103), 1001), ("deliver", at(110), 1001),
    ]  # fmt: skip


def test_no_client_sees_it_before_it_was_sent() -> None:
    """By the estimates it is delivered 1 ms before, and the bounds allow that it was not."""
    found = moments([row("deliver", 99, "c1"), row("publish", 100)], clocks(), 123)
    assert [(one.event["kind"], one.est) for one in found] == [("publish", at(100)), ("deliver", at(100))]


def test_what_the_bounds_forbid_is_shown_as_it_is() -> None:
    found = moments([row("deliver", 90, "c1"), row("publish", 100)], clocks(), 123)
    assert [(one.event["kind"], one.est) for one in found] == [("deliver", at(91) + 1), ("publish", at(99))]


def test_inside_a_process_its_own_order_holds() -> None:
    """Its clock was set back by 50 ms between two lines; the run of the acks was written before that of deliveries."""
    rows = [row("ack", 62, "c1", seq=1, ts_mono=at(112)), row("deliver", 110, "c1", seq=2)]
    assert [one.event["kind"] for one in moments(rows, clocks(), 123)] == ["deliver", "ack"]


def test_message_inside_of_a_run_is_between_its_ends() -> None:
    run: dict[str, Any] = {"msg_id": "p7:121", "pub_first": 121, "pub_last": 125}
    attrs = {"last": "p7:125", "last_ts_mono": str(at(140)), "count": "5"}
    (found,) = moments([row("publish", 100, attrs=attrs, **run)], clocks(), 123)
    assert (found.lo, found.est, found.hi, found.count) == (
        at(99),
        at(120),
        at(141) + 1,
        5,
    )  # a stamp is cut to whole us


# ---- where it was in the broker's log

SENT = [row("publish", 100), row("confirm", 110, seq=2)]
PRIMARY = [
    sample("promoted", 0, "node1", 10),
    sample("repl_send", 50, "node1", 40),
    sample("repl_send", 105, "node1", 55),  # may be before or behind the message
    sample("confirm_sent", 150, "node1", 60),
    sample("repl_send", 200, "node1", 90),
]


def test_position_is_between_samples_that_are_certainly_before_and_behind_it() -> None:
    found = position(moments(SENT, clocks(), 123), PRIMARY)
    assert found is not None
    assert (found.primary, found.term, found.after, found.upto) == ("node1", 1, 40, 60)


SECOND = sample("repl_send", 400, "node2", 70, term=2)


@pytest.mark.parametrize(
    ("rows", "samples"),
    [
        (SENT[:1], PRIMARY),  # no client was told of it, no client got it: it may never have arrived
        (SENT, PRIMARY[:3]),  # the primary wrote nothing behind it
        (SENT, PRIMARY[1:]),  # who was primary?
        (SENT, [*PRIMARY[:3], SECOND]),  # numbers of another term
        (SENT, [PRIMARY[0], sample("repl_send", 50, "node1", 70), *PRIMARY[2:4]]),  # numbers that go back
        (
            SENT,
            [*PRIMARY, sample("promoted", 110, "node2", 55, term=2, error=5), SECOND],
        ),  # before or behind this promotion?
        (SENT, [*PRIMARY, sample("promoted", 110, "node2", 55, term=2, error=0.5), SECOND]),
    ],
)
def test_position_is_not_guessed(rows: list[Event], samples: list[Event]) -> None:
    assert position(moments(rows, clocks(), 123), samples) is None


def test_who_held_it() -> None:
    where = position(moments(SENT, clocks(), 123), PRIMARY)
    assert where is not None
    backups = [
        sample("repl_recv", 90, "node2", 40),
        sample("repl_recv", 160, "node2", 61),
        sample("repl_recv", 120, "node3", 40),
        sample("backup_lost", 170, "node1", 50, peer="node4"),
        sample("promoted", 300, "node2", 61, term=2),
        sample("promoted", 900, "node3", 40, term=3),
    ]
    found = holdings(where, [*PRIMARY, *backups])
    assert [(one.role, one.node, one.held, one.position) for one in found] == [
        ("backup", "node2", True, 61), ("backup", "node3", False, 40), ("backup", "node4", None, 50),
        ("new primary", "node2", True, 61), ("new primary", "node3", False, 40),
    ]  # fmt: skip


def test_samples_of_its_queue_are_not_mixed_with_those_of_others() -> None:
    """Some brokers count by queue; a number of another queue, or of all of the log, says nothing about it."""
    found = moments(SENT, clocks(), 123)
    own = [sample("repl_send", 50, "node1", 4, queue="orders"), sample("confirm_sent", 150, "node1", 6, queue="orders")]
    others = [sample("repl_send", ms, "node1", 900, queue="bills") for ms in (50, 150)]
    where = position(found, of_queue([*PRIMARY, *own, *others], found))
    assert where is not None and (where.after, where.upto) == (4, 6)
    later = sample("promoted", 300, "node2", 900, term=2)  # of the whole log
    assert holdings(where, of_queue([*PRIMARY, *own, later], found)) == []
    assert of_queue([*PRIMARY, *others], found) == PRIMARY


@given(st.data())
def test_what_is_concluded_is_true(data: st.DataObject) -> None:
    """A log that grows, samples of it by clocks with errors: position and holdings hold the truth, or are unknown."""
    error, times = 3, st.integers(0, 60)
    grows = sorted(data.draw(st.lists(times, min_size=1, max_size=30)))  # when each position was appended
    index = data.draw(st.integers(0, len(grows) - 1))
    true, appended = index + 1, grows[index]
    lag = data.draw(st.integers(0, 50))

    def seen(kind: str, when: int, node: str, late: int = 0) -> Event:
        wrong = data.draw(st.integers(-error, error))
        return sample(kind, when + wrong, node, bisect_right(grows, when - late), error=error)

    samples = [sample("promoted", -10, "node1", 0, error=error)]
    samples += [seen("repl_send", when, "node1") for when in data.draw(st.lists(times, max_size=8))]
    samples += [seen("repl_recv", when, "node2", lag) for when in data.draw(st.lists(times, max_size=8))]
    ends = data.draw(st.integers(0, 20))
    rows = [row("publish", appended - data.draw(st.integers(0, 20))), row("confirm", appended + ends, seq=2)]
    where = position(moments(rows, clocks(error=1), 123), samples)
    if where is None:
        return
    assert where.after < true <= where.upto
    for one in holdings(where, samples):
        assert one.held is None or one.held == (one.position >= true)


def test_verdicts_are_whole_sentences() -> None:
    assert verdict_words("explained", "expire").endswith("a log line says why: its time to live was over")
    assert verdict_words("unaccounted", "c1 wrote no log_end").endswith("to say that it is lost: c1 wrote no log_end")


# ---- the verb, on tables of both engines

LOST = {
    "incident": "x", "cluster": "made", "producer": "p7", "pub": 123, "verdict": "lost", "cause": "", "missing": 1,
    "duplicates": 0, "recovered": 0,
}  # fmt: skip
_SILVER = ", ".join(f"{column.name} {column.type}" for column in COLUMNS)
_SEGMENTS = (
    "cluster string, node string, segment int, t0 bigint, t1 bigint, offset_us bigint, drift_ppm double, "
    "err_us bigint, evidence map<string,string>, notes string, band string, max_drift_ppm double"
)
TABLES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "events_raw": (_SILVER, [*SENT, row("publish", 100, cluster="other")]),
    "events": (f"{_SILVER}, ts_est bigint, ts_lo bigint, ts_hi bigint",
               [*PRIMARY, sample("repl_recv", 120, "node2", 40), sample("promoted", 300, "node2", 40, term=2)]),
    "clock_segments": (_SEGMENTS, [segment.row() | {"cluster": "made"} for segment in clocks().segments["p7"]]),
    "message_lives": ("cluster string, producer string, pub bigint",
                      [{"cluster": name, "producer": "p7", "pub": 123} for name in ("made", "other")]),
    "message_verdicts": ("incident string, cluster string, producer string, pub bigint, verdict string, cause string, "
                         "missing bigint, duplicates bigint, recovered bigint", [LOST]),
}  # fmt: skip


@pytest.fixture
def out(engine: Engine, tmp_path: Path) -> Path:
    workspace = Workspace(str(tmp_path / "work"))
    for name, (columns, rows) in TABLES.items():
        engine.table("made", columns, rows)
        engine.save("select * from made", workspace.path(name))
    return written(tmp_path, incident())


@both_engines
def test_life_of_a_message(program: Program, out: Path, engine: Engine) -> None:
    said = program("explain", out / "incident-1.json", "msg", "p7:123", "--engine", engine.name)
    assert said.err == "" and said.code == 0
    assert (
        said.out
        == """\
p7:123 in cluster made

time (UTC)      +-  who  what
12:00:00.100  1 ms  p7   sends it to orders
12:00:00.110  1 ms  p7   is told that it is safe

lines:
  p7.jsonl:1
  p7.jsonl:2

in the log of node1 (term 1) behind 40, up to 60:
  backup node2 did not have it: it was at 40, 12:00:00.120, node2.jsonl:9
  new primary node2 began without it: it was at 40, 12:00:00.300, node2.jsonl:9

verdict: lost: confirmed, never delivered, and all logs that could say otherwise
    are complete
"""
    )


def test_message_in_several_clusters(program: Program, out: Path) -> None:
    """Asked of all, each is told; the clock of an unknown node has no bounds."""
    said = program("explain", out, "msg", "p7:123", "--json")
    made, other = json.loads(said.out)
    assert (made["cluster"], made["verdict"]["verdict"]) == ("made", "lost")
    assert made["position"] == {"term": 1, "node": "node1", "after": 40, "upto": 60}
    assert [(one["node"], one["role"], one["held"]) for one in made["holdings"]] == [
        ("node2", "backup", False), ("node2", "new primary", False),
    ]  # fmt: skip
    assert (other["cluster"], other["verdict"], other["position"]) == ("other", {"verdict": "ok", "cause": ""}, None)


def test_message_that_is_unknown(program: Program, out: Path) -> None:
    said = program("explain", out, "msg", "p7:124")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "failover-report: no line names the message 'p7:124'; producers with their numbers: p7:123 to 123\n"
    )


IDS_OF_ANY_FORM = ("it's", 'say "x"', "back\\slash", "%s", "p7:0123", "é:1")


@pytest.mark.parametrize(
    ("engine", "ids"),
    [
        ("duck", IDS_OF_ANY_FORM),
        ("spark", ["".join(IDS_OF_ANY_FORM)]),
        pytest.param("spark", IDS_OF_ANY_FORM, marks=pytest.mark.slow),
    ],
    ids=["duck", "spark-all in one", "spark"],
    indirect=["engine"],
)
def test_ids_of_any_form_are_taken_as_they_are(program: Program, out: Path, engine: Engine, ids: Sequence[str]) -> None:
    for msg_id in ids:
        said = program("explain", out, "msg", msg_id, "--engine", engine.name)
        assert said.code == 2 and f"no line names the message {msg_id!r}" in said.err


def test_tables_that_are_not_there(program: Program, tmp_path: Path) -> None:
    said = program("explain", written(tmp_path, incident()), "msg", "p7:123", "--engine", "duckdb")
    assert said.code == 2 and "no table events_raw, expected the folder `work`" in said.err


# ---- phases and hints

ENDS = {
    "begin": at(0), "begin_lo": at(-0.5), "begin_hi": at(0.5), "begin_what": "fence_request", "begin_node": "node3",
    "begin_file": "node3/pacemaker.log", "begin_line": 16,
    "end": at(352), "end_lo": at(351.5), "end_hi": at(352.5), "end_what": "fence_op_done", "end_node": "node3",
    "end_file": "events.jsonl", "end_line": 2,
}  # fmt: skip
EVENTS = [
    {"file": "node3/pacemaker.log", "line_no": 16, "raw": "Jun 01 12:00:00 node3 Requesting fencing"},
    {"file": "events.jsonl", "line_no": 2, "raw": None, "node": "node3", "kind": "fence_op_done", "result": "OK"},
]


def test_phase_with_its_lines(program: Program, tmp_path: Path) -> None:
    document = incident(phases=[phase("fencing", 352, 1) | ENDS], events=EVENTS)
    said = program("explain", written(tmp_path, document), "phase", "fencing")
    assert (
        said.out
        == """\
fencing: 352 ms, between 351 ms and 353 ms
begin  12:00:00.000 +-500 µs  fence_request on node3
  node3/pacemaker.log:16
    Jun 01 12:00:00 node3 Requesting fencing
end  12:00:00.352 +-500 µs  fence_op_done on node3
  events.jsonl:2
    node=node3 kind=fence_op_done result=OK
"""
    )


def test_phase_that_is_not_known_says_why(program: Program, tmp_path: Path) -> None:
    row = phase("path", None) | {"begin": None, "end": None}
    said = program("explain", written(tmp_path, incident(phases=[row])), "phase", "path")
    assert said.out == "path: not known\n  no line says it\n"


def test_hints_with_their_lines(program: Program, tmp_path: Path) -> None:
    hint = {"rule": "watchdog", "text": "node1 learned of it", "confidence": "certain", "evidence": ["events.jsonl:2"]}
    out = written(tmp_path, incident(hints=[hint], events=EVENTS))
    said = program("explain", out, "hint")
    wanted = ["node1 learned of it (watchdog, certain)", "  events.jsonl:2"]
    assert said.out.splitlines()[:2] == wanted
    assert program("explain", out, "hint", "watchdog").out == said.out
    assert "no hint 'clocks', known: watchdog" in program("explain", out, "hint", "clocks").err
    assert json.loads(program("explain", out, "hint", "--json").out) == [hint]
