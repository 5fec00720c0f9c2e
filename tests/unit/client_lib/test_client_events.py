"""The event format: gap-free, exact runs, segments."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_lib import events
from client_lib.events import EventLog, Runs, split_id

COLUMNS = set(
    "cluster node source proc boot_id seq ts_wall ts_mono ts_res kind term queue first_pos last_pos peer client_id "  # noqa: SIM905
    "conn_id channel msg_id old new reason result resend redelivered planned attrs".split()
)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(directory.iterdir()) for line in path.read_text().splitlines()]


def expand(event: dict[str, Any]) -> list[str]:
    """All message ids that a line stands for."""
    last = event.get("attrs", {}).get("last")
    if last is None:
        return [event["msg_id"]]
    prefix, first = event["msg_id"].rsplit(":", 1)
    ids = [f"{prefix}:{n}" for n in range(int(first), int(last.rsplit(":", 1)[1]) + 1)]
    assert len(ids) == int(event["attrs"]["count"])
    return ids


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("p:1", ("p", 1)),
        ("a:b:0", ("a:b", 0)),
        ("p:01", None),
        ("p", None),
        ("p:", None),
        ("p:-1", None),
        (":7", ("", 7)),
    ],
)
def test_split_id(text: str, parts: tuple[str, int] | None) -> None:
    assert split_id(text) == parts


def test_format(tmp_path: Path) -> None:
    log = EventLog("c1", tmp_path, cluster="lab")
    log.fact("connect", peer="a:1", attrs={"delay_s": 0.5})
    for number in range(1, 4):
        log.message("publish", "q", f"p:{number}")
    log.message("publish", "q", "odd")
    log.fact("disconnected", reason="x", planned=None)
    log.message("resend", "q", "p:3", flag=True)
    assert [path.suffix for path in tmp_path.iterdir()] == [".open"]
    log.close(attrs={"unsettled": 1})
    found = lines(tmp_path)
    assert [e["kind"] for e in found] == ["connect", "publish", "publish", "disconnected", "resend", "log_end"]
    assert [e["seq"] for e in found] == list(range(1, 7))
    assert all(set(e) <= COLUMNS and e["kind"] in events.KINDS for e in found)
    assert all(e["source"] == "client" and e["cluster"] == "lab" and e["boot_id"] == log.boot_id for e in found)
    assert found[0]["attrs"] == {"delay_s": "0.5"}
    assert found[4]["resend"] is True
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]


def test_runs_end_before_another_fact(tmp_path: Path) -> None:
    log = EventLog("c1", tmp_path)
    log.message("publish", "q", "p:1")
    log.message("publish", "q", "p:2")
    log.fact("disconnected")
    log.message("publish", "q", "p:3")
    log.close()
    assert [(e["kind"], e.get("msg_id")) for e in lines(tmp_path)] == [
        ("publish", "p:1"), ("disconnected", None), ("publish", "p:3"), ("log_end", None),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(["publish", "confirm"]), st.sampled_from("ab"), st.integers(0, 5))))
def test_runs_name_every_message_exactly(calls: list[tuple[str, str, int]]) -> None:
    runs, done = Runs(), []
    for time, (kind, prefix, number) in enumerate(calls):
        ended = runs.add(kind, "q", prefix, number, False, time, time)
        done += [ended] if ended is not None else []
    done += runs.take()
    found = [(run.kind, run.prefix, n) for run in done for n in range(run.first, run.last + 1)]
    assert sorted(found) == sorted(calls)
    assert runs.take() == []


def test_a_run_is_bounded() -> None:
    runs = Runs()
    ended = [runs.add("publish", "q", "p", n, False, n, n) for n in range(events.RUN_MAX + 1)]
    assert [run.last for run in ended if run is not None] == [events.RUN_MAX - 1]


def test_segments_are_closed_and_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SEGMENT_BYTES", 1000)
    log = EventLog("c1", tmp_path)
    for _ in range(20):
        log.fact("connect")
    log.close()
    assert len(list(tmp_path.glob("*.jsonl"))) > 2 and not list(tmp_path.glob("*.open"))
    assert [e["seq"] for e in lines(tmp_path)] == list(range(1, 22))


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
    ids = [i for e in seen if e["kind"] == "publish" for i in expand(e)]
    assert sorted(ids) == sorted(f"{name}:{n}" for name in "abc" for n in range(500))


def test_a_callback_that_raises_harms_nobody() -> None:
    log = EventLog("c1", callback=lambda event: next(iter(())))
    log.fact("connect")
    log.close()


def test_nothing_is_written_without_sink() -> None:
    log = EventLog("c1")
    assert not log.enabled
    log.fact("connect")
    log.close()
