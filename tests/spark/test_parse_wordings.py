"""Each kind in each wording: Pacemaker 2.0.1 and 2.1.5, Corosync 2.4 and 3.1, in a file and in a system log."""

import json

import pytest

from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.lines import parse_file
from spark_jobs.schema import CLUSTER_KINDS
from tests.spark.parse_lab import DATA, almanac_of, lines_of, one, parsed, us, wrong

OLDEST = "Mar 22 10:57:27 [1649] n1 {:>10}:   notice: made:\t{}"
OLD = "Mar 22 10:57:27 n1 {} [1649] (f)\tnotice: {}"
NEW = "Nov 21 01:55:06.333 n1 {} [57] (f) \tnotice: {}"
SYSLOG = "Nov 21 01:55:06 n1 {}[57]:  notice: {}"
HEADS = {
    "pacemaker": {"file 1.1": OLDEST, "file 2.0": OLD, "file 2.1": NEW, "syslog": SYSLOG},
    "corosync": {
        "file 2.4": "Mar 22 10:57:27 [1649] n1 {} notice  {}",
        "file 3.1": "Nov 21 01:55:30.861 [26] n1 {} notice  {}",
        "syslog": "Nov 21 01:55:30 n1 {}[26]:   {}",
    },
}
CASES = [json.loads(line) for line in (DATA.parent / "wordings.jsonl").read_text().splitlines()]
"""kind, daemon, head (one of HEADS), body, and the columns and attrs that are wanted (null: there is none)."""
DAEMON, FENCED = "pacemakerd", "pacemaker-fenced"


def check(event, kind, wanted):
    assert event["kind"] == kind
    said = event | event["attrs"]
    assert {name: said.get(name) for name in wanted} == wanted
    assert wrong([event]) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']} {case['head']}")
def test_wording(case):
    heads = HEADS["corosync" if case["daemon"] == "corosync" else "pacemaker"]
    event = one(heads[case["head"]].format(case["daemon"], case["body"]))
    check(event, case["kind"], case["wanted"] | {"daemon": case["daemon"], "node": "n1"})


SILENT = (
    ("pacemakerd", "pacemaker-controld[55] exited with status 0 (OK)"),
    ("pacemakerd", "The crmd process (888) exited: OK (0)"),
    ("pacemakerd", "pacemaker-controld[55] is unresponsive to ipc after 1 tries"),
    ("pacemakerd", "Subdaemon pacemaker-attrd[55] is unresponsive to IPC after 2 attempts (will recheck later)"),
    ("pacemaker-controld", "Requesting fencing (on) targeting node n2 | action=4 timeout=150000"),
    ("pacemaker-controld", "Node n2[2] - expected state is now down (was member)"),
    (FENCED, "Operation 'on' targeting n2 by n1 for pacemaker-controld.5@n1: OK (complete) | id=939413ad"),
    (FENCED, "Operation 'reboot' targeting n2 by n1 for c.5@n1: Result arrived too late | id=939413ad"),
    (FENCED, "Operation 'off' [157846] targeting n2 using Fencing returned 1"),
)


@pytest.mark.parametrize(("daemon", "body"), SILENT, ids=lambda text: text[:40])
def test_what_is_no_fact(daemon, body):
    assert parsed({"p.log": lines_of(NEW.format(daemon, body))}) == []


@pytest.mark.parametrize("head", ["corosyncnotice ", "corosyncwarning", "corosync notice "])
def test_corosync_writes_its_level_with_and_without_a_blank(head):
    event = one(f"Mar 22 10:57:27 [1649] n1 {head} [TOTEM ] A processor failed, forming new configuration.")
    assert (event["kind"], event["source"], event["node"]) == ("token_lost", "corosync", "n1")


def test_every_kind_has_a_case():
    """`node` and `resource` are crm_mon's, `lines_dropped` is below."""
    assert {case["kind"] for case in CASES} == CLUSTER_KINDS - {"node", "resource", "lines_dropped"}


@pytest.mark.parametrize(
    ("head", "source", "resolution"),
    [
        (OLD, "pacemaker", 1_000_000),
        (NEW, "pacemaker", 1000),
        (SYSLOG, "syslog", 1_000_000),
        ("2026-11-21T01:55:06.333123+08:00 n1 {}[57]:  notice: {}", "syslog", 1),
        ("2026-11-21T01:55:06+0800 n1 {}[57]:  notice: {}", "syslog", 1_000_000),
        ("<29>Nov 21 01:55:06 n1 {}[57]: notice: {}", "syslog", 1_000_000),
        ("<29>1 2026-11-21T01:55:06.333Z n1 {}[57]: notice: {}", "syslog", 1000),
    ],
)
def test_heads(head, source, resolution):
    event = one(head.format(DAEMON, "Shutdown complete"))
    assert (event["source"], event["ts_res"], event["node"]) == (source, resolution, "n1")


def test_offsets_of_rfc3339():
    event = one("2026-11-21T01:55:06.333123+08:00 n1 pacemakerd[57]:  notice: Shutdown complete")
    assert event["ts_wall"] == us("2026-11-20T17:55:06.333123+00:00")


def test_daemons_of_old_names():
    event = one(
        "2019-03-22T10:57:27+08:00 n1 stonith-ng[1]:  notice: Operation reboot of n2 by n1 for crmd.2@n3.00c0ffee: OK"
    )
    check(event, "fence_op_done", {"peer": "n2", "event": "00c0ffee", "daemon": FENCED})


def test_journal_json():
    record = {
        "__REALTIME_TIMESTAMP": "1795226106333001",
        "__MONOTONIC_TIMESTAMP": "77",
        "_BOOT_ID": "b0",
        "_HOSTNAME": "n1",
        "SYSLOG_IDENTIFIER": "corosync",
        "_PID": "26",
        "PRIORITY": "5",
        "MESSAGE": "  [QUORUM] Members[1]: 1".strip(),
    }
    event = one(json.dumps(record))
    check(event, "members", {"node": "n1", "ts_wall": 1795226106333001, "ts_mono": 77, "boot_id": "b0", "ts_res": 1})
    assert one(json.dumps(record | {"MESSAGE": list(b"[QUORUM] Members[2]: 1 2")}))["attrs"]["count"] == "2"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("rsyslogd: imuxsock lost 123 messages from pid 456 due to rate-limiting", 123),
        ("rsyslogd-2177: imuxsock lost 123 messages from pid 456 due to rate-limiting", 123),
        ("rsyslogd[9]: imjournal: 236 messages lost due to rate-limiting", 236),
        ("rsyslogd: imuxsock[pid: 51, name: /a/b]: 48 messages lost due to rate-limiting (9 allowed within 3 s)", 48),
        ("rsyslogd: imjournal: begin to drop messages due to rate-limiting", 0),
        ("systemd-journald[4]: Suppressed 917 messages from pacemaker.service", 917),
        ("systemd-journald[4]: Forwarding to syslog missed 8 messages.", 8),
        ("systemd-journald[4]: Missed 1427 kernel messages", 1427),
    ],
)  # fmt: skip
def test_dropped_lines(text, count):
    tally = Tally()
    (event,) = parse_file("messages", [f"Nov 21 01:55:06 n1 {text}\n"], Context(tally=tally))
    assert event["kind"] == "lines_dropped"
    assert tally.dropped == count == int(event["attrs"].get("count", 0))


def test_a_brokers_line_in_syslog():
    event = one("Nov 21 01:55:06 n1 qpidd[1]: [HA] notice: c0a3b9db(ready) ready -> recovering: promoted")
    assert (event["source"], event["kind"], event["node"]) == ("text", "state", "n1")
    assert wrong([event]) == []


def test_lines_of_a_plan_belong_together():
    text = """
    Nov 21 01:55:06.001 n1 pacemaker-schedulerd[5] (f) \tnotice: Actions: Fence (reboot) n2 'gone'
    Nov 21 01:55:06.001 n1 pacemaker-based     [6] (f) \tinfo: Completed
    Nov 21 01:55:06.001 n1 pacemaker-schedulerd[5] (f) \tnotice: Actions: Promote  d1:0  ( Unpromoted -> Promoted n1 )
    * Start      vip     ( n1 )
    Nov 21 01:55:06.005 n1 pacemaker-schedulerd[5] (f) \twarning: Calculated transition 8, saving inputs in /x
    Nov 21 01:55:06.009 n1 pacemaker-controld[7] (f) \tinfo: Processing graph 8 (ref=pe_calc-c-1795226106-78)
    Nov 21 01:55:06.009 n1 pacemaker-controld  [7] (f) \tnotice: Requesting fencing (reboot) of node n2 | action=1
    """
    events = parsed({"p.log": lines_of(text)})
    assert [(event["kind"], event["attrs"]["trans"], event["line_no"]) for event in events] == [
        ("plan", "8", 1),
        ("plan", "8", 3),
        ("plan", "8", 4),
        ("calculated", "8", 5),
        ("graph", "8", 6),
        ("fence_request", "8", 7),
    ]


def test_a_plan_without_its_number_does_not_hold_the_rest_for_ever():
    read = 0

    def lines():
        nonlocal read
        plan = NEW.format("pacemaker-schedulerd", "Actions: Stop d1 ( n1 )")
        for text in [plan, *([NEW.format(DAEMON, "Shutdown complete")] * 2000)]:
            read += 1
            yield text + "\n"

    found = almanac_of({"p.log": list(lines())})
    read = 0
    first = next(parse_file("p.log", lines(), Context(almanac=found)))
    assert first["kind"] == "plan"
    assert "trans" not in first["attrs"]
    assert read < 600


def test_tallies_add_up():
    line = NEW.format(DAEMON, "Pacemaker daemon successfully started") + "\n"
    dropped = "Nov 21 01:55:06 n1 rsyslogd: imuxsock lost 3 messages from pid 4 due to rate-limiting\n"
    total = Tally()
    for _ in range(2):
        list(parse_file("p.log", [line, "continued\n", dropped, "torn"], Context(tally=total)))
    assert (total.lines, total.events, total.unknown, total.continued, total.torn) == (8, 4, 2, 2, 2)
    assert (total.dropped, total.undated, dict(total.unknown_by)) == (6, 2, {DAEMON: 2})
    assert len(set(total.notes)) == 2


def test_torn_lines():
    """A last line without its end may be cut inside a number: it is no fact.  NULs: blocks never written."""
    good = NEW.format(DAEMON, "Shutdown complete").encode() + b"\n"
    tally = Tally()
    events = list(
        parse_file(
            "p.log", [good, b"\0\0\0" + good, good[:-1]], Context(mtime=us("2026-11-21T02:00+00:00"), tally=tally)
        )
    )
    assert [(event["kind"], event["line_no"]) for event in events] == [
        ("stopped", 1),
        ("torn", 2),
        ("stopped", 2),
        ("torn", 3),
    ]
    assert (tally.lines, tally.events, tally.torn) == (3, 4, 2)
    assert events[3]["ts_wall"] == events[0]["ts_wall"]
    assert wrong(events) == []


def test_lines_given_without_ends_are_whole():
    text = NEW.format(DAEMON, "Shutdown complete")
    assert [event["kind"] for event in parse_file("p.log", [text, text], Context())] == ["stopped", "stopped"]
