"""A broker's text log says, with less, what its event segments say; and which parser a file needs."""

import logging
import time
from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from ha.model.status import TRANSITIONS
from qpidd_py.config import LogSettings
from qpidd_py.logrules import NOTICE, LineFormatter
from spark_jobs.parse import broker_text
from spark_jobs.parse.broker_text import fact, note
from spark_jobs.parse.context import Context
from spark_jobs.parse.detect import PARSERS, detect
from spark_jobs.schema import KINDS

WHEN = 1_795_252_645_398_250  # 2026-11-21 09:17:25.398250 UTC


def read(*lines: bytes, name: str = "node1.log", context: Context | None = None) -> list[dict]:
    return list(broker_text.parse_file(name, lines, context or Context()))


def test_a_state_change_is_the_event_that_the_segments_have() -> None:
    (event,) = read(b"2026-11-21 09:17:25 [HA] notice: c0a3b9db(ready) ready -> recovering: promoted\n")
    assert event == {
        "source": "text", "cluster": "", "node": "node1", "kind": "state", "old": "ready", "new": "recovering",
        "reason": "promoted", "ts_wall": WHEN // 1_000_000 * 1_000_000, "ts_res": 1_000_000, "file": "node1.log",
        "line_no": 1, "attrs": {"broker": "c0a3b9db", "state": "ready"},
        "raw": "2026-11-21 09:17:25 [HA] notice: c0a3b9db(ready) ready -> recovering: promoted",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("promoted: primary of epoch 3 at 3.62045", {"kind": "promoted", "term": 3, "last_pos": (3 << 48) + 62045}),
        ("backup node3 is ready", {"kind": "membership", "peer": "node3", "result": "ready"}),
        (
            "node3 is no longer in-sync; set version 7",
            {"kind": "membership", "peer": "node3", "result": "removed", "version": "7"},
        ),
        (
            "backup node3 is lost: Connection reset: by peer",
            {"kind": "backup_lost", "peer": "node3", "reason": "Connection reset: by peer"},
        ),
        (
            "the link to the primary node2 is lost: gone",
            {"kind": "primary_lost", "peer": "node2", "reason": "gone"},
        ),
        ("deposed: node2 claims epoch 4", {"kind": "demote", "reason": "node2 claims epoch 4"}),
        ("stepping down: relocation to node2", {"kind": "demote", "reason": "relocation to node2"}),
        ("isolated: no majority; clients are closed", {"kind": "isolated", "result": "begun", "reason": "no majority"}),
        ("no longer isolated: clients are admitted", {"kind": "isolated", "result": "ended"}),
        ("relocation to node2 begins", {"kind": "relocate", "peer": "node2", "result": "begin"}),
        ("relocated to node2", {"kind": "relocate", "peer": "node2", "result": "done"}),
        (
            "relocation to node2 failed: late",
            {"kind": "relocate", "peer": "node2", "result": "failed", "reason": "late"},
        ),
        (
            "salvage: 12 messages that node2 does not have are put aside in s-1 (12 confirmed)",
            {"kind": "salvage", "peer": "node2", "result": "written", "count": "12", "file": "s-1"},
        ),
        (
            "salvage: 2 messages that node2 does not have are lost: there is no place for salvage files (2 x)",
            {"kind": "salvage", "peer": "node2", "result": "lost", "count": "2"},
        ),
    ],
)
def test_what_the_ha_lines_say(text: str, expected: dict) -> None:
    event = fact(f"[HA] notice: 0011aaff(active) {text}")
    assert event is not None
    attrs = event.pop("attrs")
    assert {**event, **{name: attrs[name] for name in attrs if name in expected}} == expected
    assert event["kind"] in KINDS["text"] and attrs["broker"] == "0011aaff"


def test_start_and_stop() -> None:
    assert fact("[System] notice: Broker running on 127.0.0.1:5") == {
        "kind": "start",
        "attrs": {"address": "127.0.0.1:5"},
    }
    assert fact("[System] notice: stopping: SIGTERM") == {"kind": "stop", "reason": "SIGTERM"}
    assert fact("[System] error: SIGTERM is refused: n2 is primary; a second signal within 10 s stops the broker") == {
        "kind": "stop_request", "result": "refused", "reason": "n2 is primary",
    }  # fmt: skip
    assert fact("[Network] warning: a peer says: stopping: SIGTERM") is None


@pytest.mark.parametrize(("old", "new"), TRANSITIONS)
def test_every_transition_that_the_broker_logs_is_read(old: object, new: object) -> None:
    reason = TRANSITIONS[old, new]  # type: ignore[index]
    event = fact(f"[HA] notice: c0a3b9db({new.value}) {old.value} -> {new.value}: {reason}")  # type: ignore[attr-defined]
    assert event is not None
    assert (event["old"], event["new"], event["reason"]) == (old.value, new.value, reason)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"log_hires_timestamp": True},
        {"log_prefix": "broker one: "},
        {"log_function": True, "log_source": True, "log_thread": True},
        {"log_category": False},
        {"log_category": False, "log_level": False},
    ],
)
def test_whatever_the_log_options_are_the_line_is_read(options: dict) -> None:
    record = logging.LogRecord(
        "ha", NOTICE, "/x/node.py", 143, "c0a3b9db(ready) ready -> recovering: promoted", (), None, "f"
    )
    record.created = WHEN / 1e6
    logging.addLevelName(NOTICE, "notice")
    line = LineFormatter(LogSettings(**options)).format(record)
    (event,) = read(line.encode() + b"\n", context=Context(zone=local_zone()))
    assert (event["kind"], event["new"]) == ("state", "recovering")
    assert 0 <= WHEN - event["ts_wall"] < event["ts_res"] + 1
    assert detect("x", [line.encode() + b"\n"]) == "broker_text"


def local_zone() -> timezone:
    return timezone(timedelta(seconds=time.localtime(WHEN // 1_000_000).tm_gmtoff))


def test_the_zone_of_the_machine_is_applied_also_in_summer() -> None:
    context = Context(zone=ZoneInfo("Europe/Berlin"))
    winter, summer = read(
        b"2026-11-21 10:17:25.398250 [HA] notice: c0a3b9db(ready) deposed: x\n",
        b"2026-07-01 12:00:00 [HA] notice: c0a3b9db(ready) deposed: x\n",
        context=context,
    )
    assert (winter["ts_wall"], winter["ts_res"]) == (WHEN, 1)
    assert summer["ts_wall"] == 1_782_900_000_000_000  # 10:00 UTC


def test_lines_that_say_nothing_and_impossible_dates_are_counted() -> None:
    context = Context()
    lines = (
        b"2026-11-21 09:17:21 [HA] notice: c0a3b9db(catchup) connected to primary node2\n",
        b"Traceback (most recent call last):\n",
        b"2026-13-45 09:17:21 [HA] notice: c0a3b9db(ready) deposed: x\n",
        b"\n",
        b"\xff\xfe\n",
    )
    assert read(*lines, context=context) == []
    assert (context.tally.lines, context.tally.unknown, context.tally.events) == (5, 4, 0)


def test_a_torn_last_line_is_kept_as_such() -> None:
    context = Context(node="n7", cluster="c")
    (event,) = read(b"2026-11-21 09:17:25 [HA] notice: c0a3b9db(ready) depo", context=context)
    assert (event["kind"], event["node"], event["cluster"]) == ("torn", "n7", "c")
    assert event["raw"].endswith("depo") and context.tally.torn == 1


@pytest.mark.parametrize(
    ("name", "node"),
    [("node1.log", "node1"), ("logs/node2.log.1", "node2"), ("hostA/qpidd.log", "hostA"), ("qpidd.log", "")],
)
def test_the_node_is_what_the_file_is_called(name: str, node: str) -> None:
    (event,) = read(b"2026-11-21 09:17:25 [HA] notice: c0a3b9db(ready) deposed: x\n", name=name)
    assert event["node"] == node


SUPERVISOR = (
    (
        "state: node1 is active (was recovering), epoch 3",
        {"peer": "node1", "new": "active", "old": "recovering", "term": 3},
    ),
    ("exit: node2 ended: signal 9 (SIGKILL), after 9.4 s", {"peer": "node2", "reason": "signal 9 (SIGKILL)"}),
    ("promoted: node1 is promoted, 17.2 ms after: it died", {"peer": "node1", "reason": "it died"}),
    ("promote_request: promoting node1: ready, epoch 2, position 2.62045", {"peer": "node1"}),
    ("election: a primary is wanted: the primary node1 hangs", {"reason": "the primary node1 hangs"}),
    ("hung: node1 hangs: no answer for 1.02 s (limit 1 s)", {"peer": "node1"}),
    ("down: the cluster is down", {}),
)


@pytest.mark.parametrize(("text", "expected"), SUPERVISOR)
def test_the_supervisors_lines_whose_times_are_utc(text: str, expected: dict) -> None:
    context = Context(zone=ZoneInfo("Asia/Tokyo"))
    (event,) = read(f"2026-11-21 09:17:25.398 {text}\n".encode(), name="supervisor.log", context=context)
    assert {name: event[name] for name in expected} == expected
    assert (event["source"], event["kind"], event["node"]) == ("qpid-cluster", text.split(":")[0], "supervisor")
    assert (event["ts_wall"], event["ts_res"]) == (WHEN // 1000 * 1000, 1000)
    assert event["attrs"]["text"] == text.partition(": ")[2]


def test_another_programs_lines_with_a_colon_are_not_the_supervisors() -> None:
    assert note(" warning: the cluster is down") is None


CONTENT = [
    (b'{"seq":1,"ts_wall":1,"kind":"connect","source":"client"}\n', "client_json"),
    (b'{"cluster":"c","source":"broker","kind":"start"}\n', "broker_json"),
    (b'{"cluster": "c", "source": "qpid-cluster"}\n', "broker_json"),
    (b'{"__REALTIME_TIMESTAMP":"1","MESSAGE":"x"}\n', "syslog"),
    (b'<?xml version="1.0"?>\n', "crm_mon"),
    (b"Nov 21 01:55:06.333 node2 pacemaker-controld  [57] (log_executor_event) \tnotice: Result\n", "pacemaker"),
    (b"Nov 21 01:55:06  IPaddr2(vip)[164]:    INFO: Adding\n", "pacemaker"),
    (b"Nov 21 01:55:30.861 [26] node1 corosync notice  [TOTEM ] A processor failed\n", "corosync"),
    (b"2019-03-22T10:57:27.920258+08:00 15sp1-1 corosync[1649]:   [TOTEM ] A new membership\n", "syslog"),
    (b"Mar 22 10:57:27 15sp1-1 crmd[1649]:  notice: x\n", "syslog"),
    (b"2026-11-21 09:17:16 [System] notice: Broker running on 127.0.0.1:46147\n", "broker_text"),
    (b"2026-11-21 09:17:16.015 starting: node1 is started: x\n", "broker_text"),
]


@pytest.mark.parametrize(("line", "expected"), CONTENT)
def test_content_decides_whatever_the_name_is(line: bytes, expected: str) -> None:
    assert detect("misleading/pacemaker.log.jsonl", [line]) == expected
    assert detect("x", [b"\n", b"### a comment\n", line]) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n1/events/n1-abc-0001.jsonl.open", "broker_json"), ("x/client-1.jsonl", "client_json"),
        ("pacemaker.log-20261121", "pacemaker"), ("corosync.log.2", "corosync"), ("var/log/messages", "syslog"),
        ("qpidd.log", "broker_text"), ("crm_mon-1.xml", "crm_mon"), ("notes.txt", None), ("messages.d/x", None),
    ],
)  # fmt: skip
def test_the_name_decides_where_the_content_says_nothing(name: str, expected: str | None) -> None:
    assert detect(name, [b"??\n"]) == expected
    assert detect(name, []) == expected


def test_a_binary_file_is_not_read_because_of_its_name() -> None:
    assert detect("messages", [b"\x7fELF\x01\0\0\0x\n"]) is None
    assert detect("n1.jsonl", [b"\0\0\0\0"]) == "broker_json"


def test_the_most_lines_win() -> None:
    syslog, pacemaker = CONTENT[9][0], CONTENT[5][0]
    assert detect("x", [pacemaker, syslog, syslog]) == "syslog"
    assert detect("x", [pacemaker, syslog, pacemaker]) == "pacemaker"


def test_every_parser_can_be_had_by_its_name() -> None:
    for name in PARSERS:
        assert callable(PARSERS[name]), name
