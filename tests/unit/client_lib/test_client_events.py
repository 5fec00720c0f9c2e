"""The event format: the columns of the incident analysis, gap-free numbers, exact and ordered runs, failing disks."""

import errno
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from itertools import accumulate, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ha.shell.events
from client_lib import event_runs, event_sink, events
from client_lib.event_runs import Run, Runs, split_id
from client_lib.events import ALWAYS, FIELDS, KINDS, EventLog, Where

LONG, TEXT, FLAG = int, str, bool
# Written by hand, from the schema of the incident analysis.
COLUMNS = {
    "cluster": TEXT, "node": TEXT, "source": TEXT, "proc": TEXT, "boot_id": TEXT, "seq": LONG, "ts_wall": LONG,
    "ts_mono": LONG, "ts_res": LONG, "kind": TEXT, "term": LONG, "queue": TEXT, "first_pos": LONG, "last_pos": LONG,
    "peer": TEXT, "client_id": TEXT, "conn_id": TEXT, "channel": TEXT, "msg_id": TEXT, "old": TEXT, "new": TEXT,
    "reason": TEXT, "result": TEXT, "resend": FLAG, "redelivered": FLAG, "planned": FLAG, "attrs": dict,
}  # fmt: skip
CLIENT_KINDS = {
    "connect", "connect_refused", "connected", "disconnected", "publish", "resend", "confirm", "nack", "return",
    "deliver", "ack", "reject", "drain_begin", "drain_end", "log_end", "blocked", "unblocked", "recovered", "release",
}  # fmt: skip


def lines(place: Path) -> list[dict[str, Any]]:
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def check(event: Mapping[str, Any]) -> None:
    """A line that the incident analysis can load without a cast."""
    assert event.keys() >= ALWAYS
    for name, value in event.items():
        assert type(value) is COLUMNS[name], f"{name}={value!r}"
    assert all(type(key) is type(value) is str for key, value in event.get("attrs", {}).items())
    assert event["source"] == "client" and event["kind"] in CLIENT_KINDS


def expand(event: Mapping[str, Any]) -> list[str]:
    """All message ids that a line stands for."""
    last = event.get("attrs", {}).get("last")
    if last is None:
        return [event["msg_id"]]
    prefix, first = event["msg_id"].rsplit(":", 1)
    ids = [f"{prefix}:{n}" for n in range(int(first), int(last.rsplit(":", 1)[1]) + 1)]
    assert len(ids) == int(event["attrs"]["count"])
    return ids


def kinds(place: Path) -> list[tuple[str, str | None]]:
    return [(event["kind"], event.get("msg_id")) for event in lines(place)]


@pytest.fixture(autouse=True, scope="module")
def clock() -> Iterator[None]:
    """One that stands still: a pause of the machine would end a run."""
    with pytest.MonkeyPatch.context() as patch:
        still = SimpleNamespace(time_ns=lambda: 1_800_000_000_000_000_000, monotonic_ns=lambda: 7_000_000_000)
        patch.setattr(events, "time", still)
        yield


# ---- columns and kinds


def test_columns_are_those_of_the_incident_analysis() -> None:
    assert dict(FIELDS) == COLUMNS
    assert KINDS == CLIENT_KINDS


def test_broker_and_client_use_the_same_columns(tmp_path: Path) -> None:
    log = ha.shell.events.EventLog(tmp_path, "node1", lambda: 7, "lab")
    every = dict.fromkeys(("peer", "queue", "old", "new", "reason", "result"), "x")
    log.write("state", **every, first_pos=1, last_pos=2, attrs={"a": 1})
    log.close()
    for event in lines(tmp_path):
        assert {name: type(value) for name, value in event.items()}.items() <= COLUMNS.items()
        assert event.keys() >= ALWAYS - {"client_id"}
    assert set(ha.shell.events._FIELDS) <= FIELDS.keys()
    assert lines(tmp_path)[0]["boot_id"] == events.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text()[:-1]


def test_every_kind_of_line_fits_the_schema(tmp_path: Path) -> None:
    log, where = EventLog("c1", tmp_path, cluster="lab"), Where("node1:5672", "c1#1", "3")
    for kind in sorted(KINDS - {"log_end"}):
        log.message(kind, "q", "p:1", True, where)
        log.message(kind, "q", "odd", True, where)
        log.fact(
            kind, peer="a:1", conn_id=7, result=320, reason=ValueError("x"), planned=True, attrs={"delay_s": 0.5, 3: 4}
        )  # fmt: skip
    log.close(attrs={"unsettled": 1})
    found = lines(tmp_path)
    for event in found:
        check(event)
    assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
    assert len({event["proc"] for event in found}) == 1
    assert {event["kind"] for event in found} == KINDS
    assert found[2]["attrs"] == {"delay_s": "0.5", "3": "4"} and found[2]["result"] == "320"


def test_fields_of_a_message(tmp_path: Path) -> None:
    log, where = EventLog("c1", tmp_path), Where("node1:5672", "c1#1", "3")
    log.message("publish", "q", "p:1", where=where)
    log.message("resend", "q", "p:1", True, where)
    log.message("deliver", "q", "p:1", True, where)
    log.message("deliver", "q", None)
    log.close()
    publish, resend, deliver, nameless, _ = lines(tmp_path)
    place = {"peer": "node1:5672", "conn_id": "c1#1", "channel": "3"}
    for event in (publish, resend, deliver):
        assert event.items() >= {**place, "queue": "q", "msg_id": "p:1", "client_id": "c1"}.items()
    assert "resend" not in publish and resend["resend"] is True and deliver["redelivered"] is True
    assert not {"msg_id", "peer", "redelivered", "attrs"} & nameless.keys()


def test_two_logs_of_one_process_are_two(tmp_path: Path) -> None:
    for _ in range(2):
        EventLog("c1", tmp_path / "log.jsonl").close()
    first, second = lines(tmp_path / "log.jsonl")
    assert first["proc"] != second["proc"] and (first["seq"], second["seq"]) == (1, 1)
    assert first["proc"].startswith(f"c1:{os.getpid()}:")


# ---- runs


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("p:1", ("p", 1)),
        ("a:b:0", ("a:b", 0)),
        ("p:01", None),
        ("p", None),
        ("p:", None),
        ("p:-1", None),
        ("p:²", None),
        (":7", ("", 7)),
    ],
)
def test_split_id(text: str, parts: tuple[str, int] | None) -> None:
    assert split_id(text) == parts


def test_a_run_is_one_line_and_ends_before_another_fact(tmp_path: Path) -> None:
    log = EventLog("c1", tmp_path)
    log.message("publish", "q", "p:1")
    log.message("publish", "q", "p:2")
    log.fact("disconnected")
    log.messages("publish", "q", ["p:3", "p:4", "p:6"])
    log.close()
    assert kinds(tmp_path) == [
        ("publish", "p:1"), ("disconnected", None), ("publish", "p:3"), ("publish", "p:6"), ("log_end", None),
    ]  # fmt: skip
    assert [expand(event) for event in lines(tmp_path) if "msg_id" in event] == [
        ["p:1", "p:2"],
        ["p:3", "p:4"],
        ["p:6"],
    ]


def test_a_channel_of_its_own_is_a_run_of_its_own(tmp_path: Path) -> None:
    log, one, other = EventLog("c1", tmp_path), Where(channel="1"), Where(channel="2")
    for number, where in enumerate((one, one, other, other)):
        log.message("ack", "q", f"p:{number}", where=where)
    log.close()
    assert [(e["msg_id"], e["channel"], e["attrs"]["count"]) for e in lines(tmp_path)[:2]] == [
        ("p:0", "1", "2"), ("p:2", "2", "2"),
    ]  # fmt: skip


CALLS = st.tuples(st.sampled_from(["publish", "confirm"]), st.sampled_from("ab"), st.integers(0, 5))


@given(st.lists(CALLS))
def test_runs_name_every_message_exactly_and_in_the_order_of_their_beginning(calls: list[tuple[str, str, int]]) -> None:
    runs, done = Runs(), []
    for time, (kind, prefix, number) in enumerate(calls):
        done += runs.add(kind, "q", prefix, number, False, time, time)[1]
    done += runs.take()
    found = [(run.kind, run.prefix, n) for run in done for n in range(run.first, run.last + 1)]
    assert sorted(found) == sorted(calls)
    assert [run.mono for run in done] == sorted(run.mono for run in done)
    assert runs.take() == []


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, 5000), st.integers(0, 100_000)), max_size=60))
def test_equal_steps_are_wrong_by_a_millisecond_at_most(gaps: list[int]) -> None:
    """A gap of nothing is a chunk's."""
    times = list(accumulate([0, *gaps]))
    one, other = Runs(), Runs()
    done = [run for n, at in enumerate(times) for run in one.add("publish", "q", "p", n, False, at, at)[1]] + one.take()
    chunked = _in_chunks(other, times)
    for runs in (done, chunked):
        assert [n for run in runs for n in range(run.first, run.last + 1)] == list(range(len(times)))
        for run in runs:
            steps = max(1, run.last - run.first)
            for n in range(run.first, run.last + 1):
                said = run.mono + (run.last_mono - run.mono) * (n - run.first) / steps
                assert abs(said - times[n]) <= event_runs.EVEN + 1e-6
    assert [(run.first, run.last) for run in done] == [(run.first, run.last) for run in chunked]


def _in_chunks(runs: Runs, times: list[int]) -> list[Run]:
    done: list[Run] = []
    for at, numbers in groupby(range(len(times)), times.__getitem__):
        ids = [f"p:{n}" for n in numbers]
        index = 0
        while index < len(ids):
            run, ended = runs.add("publish", "q", "p", int(ids[index][2:]), False, at, at)
            done += ended
            index = run.follow(ids, index + 1, at)
    return done + runs.take()


def test_a_pause_ends_a_run() -> None:
    """300 messages each millisecond, nothing for 20 ms, and more: a reader sees the gap where it was."""
    runs, done = Runs(), []
    for n, at in enumerate([*range(0, 300_000, 1000), *range(320_000, 620_000, 1000)]):
        done += runs.add("publish", "q", "p", n, False, at, at)[1]
    assert [(run.first, run.last, run.mono, run.last_mono) for run in [*done, *runs.take()]] == [
        (0, 299, 0, 299_000), (300, 599, 320_000, 619_000),
    ]  # fmt: skip


def test_a_run_is_bounded() -> None:
    runs = Runs()
    ended = [run for n in range(event_runs.RUN_MAX + 1) for run in runs.add("publish", "q", "p", n, False, n, n)[1]]
    assert [run.last for run in ended] == [event_runs.RUN_MAX - 1]


CHUNKS = st.lists(st.sampled_from(["p:1", "p:2", "p:3", "p:4", "q:1", "q:2", "p:04", "odd", None]), max_size=8)


@given(st.lists(CHUNKS, max_size=6))
def test_a_chunk_is_what_its_messages_are_one_by_one(chunks: list[list[str | None]]) -> None:
    one: list[Any] = []
    other: list[Any] = []
    chunked, single = EventLog("c1", callback=one.append), EventLog("c1", callback=other.append)
    for chunk in chunks:
        chunked.messages("publish", "q", chunk)
        for message_id in chunk:
            single.message("publish", "q", message_id)
    chunked.close()
    single.close()
    names = [[(e["kind"], expand(e) if "msg_id" in e else None) for e in seen] for seen in (one, other)]
    assert names[0] == names[1]


EVENTS = st.tuples(
    st.sampled_from(["publish", "confirm"]),
    st.sampled_from("qr"),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from("ab"),
)


@given(st.lists(EVENTS, max_size=30))
def test_a_log_names_every_message_exactly(calls: list[tuple[str, str, int, bool, str]]) -> None:
    seen: list[Any] = []
    log, places = EventLog("c1", callback=seen.append), {"a": Where(channel="a"), "b": Where(channel="b")}
    for kind, queue, number, flag, channel in calls:
        log.message(kind, queue, f"p:{number}", flag, places[channel])
    log.close()
    found = [
        (e["kind"], e["queue"], int(name[2:]), e.get("resend", False), e["channel"])
        for e in seen[:-1] for name in expand(e)
    ]  # fmt: skip
    assert sorted(found) == sorted(calls)
    assert [e["ts_mono"] for e in seen] == sorted(e["ts_mono"] for e in seen)


def test_nothing_goes_on_with_a_line_that_was_written_for_the_sake_of_another() -> None:
    seen: list[Any] = []
    log = EventLog("c1", callback=seen.append)
    for kind, number in (("publish", 1), ("confirm", 1), ("confirm", 5), ("publish", 2)):
        log.message(kind, "q", f"p:{number}")
    log.close()
    assert [(e["kind"], expand(e)) for e in seen[:-1]] == [
        ("publish", ["p:1"]), ("confirm", ["p:1"]), ("confirm", ["p:5"]), ("publish", ["p:2"]),
    ]  # fmt: skip


def test_a_line_of_single_messages_is_bounded() -> None:
    seen: list[Any] = []
    log = EventLog("c1", callback=seen.append)
    for number in range(1500):
        log.message("publish", "q", f"p:{number}")
    log.close()
    assert [int(event["attrs"]["count"]) for event in seen[:2]] == [1000, 500]


def test_a_chunk_may_be_longer_than_a_run() -> None:
    seen: list[Any] = []
    log = EventLog("c1", callback=seen.append)
    log.messages("publish", "q", [f"p:{n}" for n in range(2500)])
    log.close()
    assert [int(event["attrs"]["count"]) for event in seen[:3]] == [1000, 1000, 500]


# ---- files


def test_one_file_is_appended_to_and_begun_anew_when_it_was_renamed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(event_sink, "LOOK_SECONDS", 0.0)
    path = tmp_path / "sub" / "events.jsonl"
    path.parent.mkdir()
    path.write_text('{"of": "others"}\n')
    log = EventLog("c1", path)
    log.fact("connect")
    path.rename(tmp_path / "old")
    log.fact("connected")
    log.close()
    assert [event.get("kind") for event in lines(tmp_path / "old")] == [None, "connect"]
    assert kinds(path) == [("connected", None), ("log_end", None)]


@pytest.mark.parametrize(
    ("name", "made", "is_file"),
    [("log", "", False), ("log.jsonl", "", True), ("log", "file", True), ("d.d", "dir", False)],
)
def test_file_or_directory(tmp_path: Path, name: str, made: str, is_file: bool) -> None:
    path = tmp_path / name
    if made:
        path.touch() if made == "file" else path.mkdir()
    EventLog("c1", path).close()
    assert (path.is_file(), path.is_dir()) == (is_file, not is_file)


def test_segments_are_closed_and_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_sink, "SEGMENT_BYTES", 1000)
    log = EventLog("a/b", tmp_path / "new")
    for _ in range(20):
        log.fact("connect")
    assert len(list(tmp_path.glob("new/*.open"))) == 1
    log.close()
    assert len(list(tmp_path.glob("new/a_b-*.jsonl"))) > 2 and not list(tmp_path.glob("new/*.open"))
    assert [e["seq"] for e in lines(tmp_path / "new")] == list(range(1, 22))


def test_messages_are_in_the_file_after_flush_runs_and_facts_at_once(tmp_path: Path) -> None:
    log, path = EventLog("c1", tmp_path / "log.jsonl"), tmp_path / "log.jsonl"
    log.fact("connect")
    assert kinds(path) == [("connect", None)]
    log.message("publish", "q", "p:1")
    assert kinds(path) == [("connect", None)]
    log.flush_runs()
    assert kinds(path)[1:] == [("publish", "p:1")]
    log.close()


class Disk:
    """Takes `room` octets, then is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self._write = room, os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        count = min(self.room, len(data))
        if count == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= count
        return self._write(fd, bytes(data[:count]))


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this thread has logged: those that connections of earlier tests have left may still say something."""
    return [record.message for record in caplog.records if record.thread == threading.get_ident()]


def test_a_disk_that_was_full_for_a_while_loses_nothing(tmp_path: Path, monkeypatch, caplog) -> None:
    disk, path = Disk(monkeypatch, 500), tmp_path / "log.jsonl"
    log = EventLog("c1", path)
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            log.fact("connect")
    assert len(path.read_bytes()) == 500  # in the middle of a line
    assert [line.split(":")[0] for line in ours(caplog)] == [f"events cannot be written to {path}"]
    disk.room = 1 << 20
    log.close()
    assert [event["seq"] for event in lines(path)] == list(range(1, 12))
    assert "dropped" not in lines(path)[-1].get("attrs", {})


def test_a_line_is_ended_where_it_was_begun(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(event_sink, "LOOK_SECONDS", 0.0)
    disk, path, old = Disk(monkeypatch, 500), tmp_path / "log.jsonl", tmp_path / "old"
    log = EventLog("c1", path)
    for _ in range(3):
        log.fact("connect")
    path.rename(old)
    disk.room = 1 << 20
    log.fact("connect")
    log.close()
    assert [event["seq"] for event in lines(old) + (lines(path) if path.exists() else [])] == list(range(1, 6))
    assert old.read_bytes().endswith(b"}\n")


def test_a_disk_that_stays_full_costs_lines_and_says_how_many(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(event_sink, "BACKLOG_MAX", 2000)
    disk, path = Disk(monkeypatch, 500), tmp_path / "log.jsonl"
    log = EventLog("c1", path)
    for _ in range(50):
        log.fact("connect")
    dropped = log.dropped
    assert dropped > 30
    disk.room = 1 << 20
    log.close(attrs={"unsettled": 0})
    found = lines(path)
    assert found[-1]["attrs"] == {"unsettled": "0", "dropped": str(dropped)}
    assert len(found) == found[-1]["seq"] - dropped == 51 - dropped
    assert [line.split(" ")[2] for line in ours(caplog)] == ["be", "written"]


def test_a_log_that_cannot_be_opened_does_no_harm(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").touch()
    log = EventLog("c1", tmp_path / "file" / "log.jsonl")
    for _ in range(3):
        log.fact("connect")
        log.message("publish", "q", "p:1")
    log.close()
    assert len(ours(caplog)) == 1 and log.dropped == 7


# ---- threads and callbacks


def test_many_threads_leave_no_gap() -> None:
    seen: list[Any] = []
    log = EventLog("c1", callback=seen.append)

    def work(name: str) -> None:
        for number in range(500):
            log.message("publish", "q", f"{name}:{number}")
            if number % 50 == 0:
                log.fact("connect")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert [e["seq"] for e in seen] == list(range(1, len(seen) + 1))
    assert [e["ts_mono"] for e in seen] == sorted(e["ts_mono"] for e in seen)
    ids = [i for e in seen if e["kind"] == "publish" for i in expand(e)]
    assert sorted(ids) == sorted(f"{name}:{n}" for name in "abc" for n in range(500))


def test_a_callback_may_cause_events() -> None:
    seen: list[Any] = []

    def callback(event: Mapping[str, Any]) -> None:
        if event["kind"] == "connected":
            log.message("publish", "q", "odd")
            log.fact("drain_begin")
        seen.append(event["kind"])

    log = EventLog("c1", callback=callback)
    log.fact("connected")
    log.close()
    assert seen == ["connected", "publish", "drain_begin", "log_end"]


def test_a_callback_that_raises_does_no_harm(caplog) -> None:
    log = EventLog("c1", callback=lambda event: next(iter(())))
    log.fact("connect")
    log.close()
    assert [line.split(" raised ")[1] for line in ours(caplog)] == [
        "for the event connect", "for the event log_end",
    ]  # fmt: skip


def test_a_listener_gets_facts_and_makes_messages_no_dearer() -> None:
    first: list[Any] = []
    second: list[Any] = []
    log = EventLog("c1")
    log.fact("connect")
    log.listen(first.append)
    log.fact("connected", peer="a:1")
    log.message("publish", "q", "odd")
    log.listen(second.append)
    log.fact("blocked", reason="memory")
    log.close()
    assert not log.enabled
    assert [(e["kind"], e["seq"]) for e in first] == [("connected", 1), ("blocked", 2), ("log_end", 3)]
    assert second == first[1:]


def test_a_listener_next_to_a_callback() -> None:
    every: list[Any] = []
    facts: list[Any] = []
    log = EventLog("c1", callback=lambda event: every.append(event["kind"]))
    log.listen(lambda event: facts.append(event["kind"]))
    log.message("publish", "q", "odd")
    log.message("publish", "q", "p:1")
    log.fact("connected")
    assert (every, facts) == (["publish", "publish", "connected"], ["connected"])


def test_nothing_is_written_without_sink_or_after_the_end(tmp_path: Path) -> None:
    log = EventLog("c1")
    assert not log.enabled
    log.fact("connect")
    log.close()
    log = EventLog("c1", tmp_path)
    log.close()
    log.close()
    log.fact("connect")
    log.message("publish", "q", "p:1")
    log.flush_runs()
    assert kinds(tmp_path) == [("log_end", None)]
