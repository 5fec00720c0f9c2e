"""Heads of lines: what is one, and what only looks like one."""

import pytest

from spark_jobs.parse.heads import dated, head_of, nominal, offset_of
from tests.spark.parse_lab import us

CONTROLD = "pacemaker-controld"


@pytest.mark.parametrize(
    ("line", "format_", "node", "daemon", "pid", "level"),
    [
        ("Nov 21 01:55:06.333 n2 pacemakerd  [57] (f) \tnotice: A b", "pacemaker", "n2", "pacemakerd", "57", "notice"),
        ("Mar  2 10:57:27 n2 crmd          [57] (f) \tinfo: A b", "pacemaker", "n2", CONTROLD, "57", "info"),
        ("Mar  2 10:57:27 [57] n2       crmd:   info: f:\tA b", "pacemaker", "n2", CONTROLD, "57", "info"),
        ("Nov 21 01:55:06  IPaddr2(vip)[164]:    INFO: A b", "agent", "", "IPaddr2", "164", "INFO"),
        ("Nov 21 01:55:30.861 [26] n1 corosync notice  [TOTEM ] A b", "corosync", "n1", "corosync", "26", "notice"),
        ("Nov 21 01:55:30 [26] n1 corosync notice  [TOTEM ] A b", "corosync", "n1", "corosync", "26", "notice"),
        ("Nov 21 01:55:30 n1 corosync[26]:   [TOTEM ] A b", "syslog", "n1", "corosync", "26", ""),
        ("Nov 21 01:55:30.861123 n1 corosync[2]: notice  [KNET ] A b", "syslog", "n1", "corosync", "2", "notice"),
        ("Nov 21 01:55:30 n1 pacemakerd[26]:  warning: f_g: A b", "syslog", "n1", "pacemakerd", "26", "warning"),
        ("2026-11-21T01:55:30,5Z n1 kernel: A b", "rfc3339", "n1", "kernel", "", ""),
        ("2026-11-21 01:55:30+00:00 n1 x[1]: A b", "rfc3339", "n1", "x", "1", ""),
    ],
)  # fmt: skip
def test_parts(line, format_, node, daemon, pid, level):
    head = head_of(line)
    assert (head.format, head.node, head.daemon, head.pid) == (format_, node, daemon, pid)
    assert (head.level, head.body) == (level, "A b")


@pytest.mark.parametrize(
    ("clock", "resolution", "clock_us"),
    [
        ("Nov 21 01:55:06", 1_000_000, "01:55:06"),
        ("Nov 21 01:55:06.3", 100_000, "01:55:06.3"),
        ("Nov 21 01:55:06.333", 1000, "01:55:06.333"),
        ("Nov 21 01:55:06.333444", 1, "01:55:06.333444"),
        ("Nov 21 01:55:06.333444999", 1, "01:55:06.333444"),
    ],
)
def test_resolution(clock, resolution, clock_us):
    head = head_of(f"{clock} n x: y")
    assert (head.resolution, dated(head.local, 2026)) == (resolution, us(f"2026-11-21T{clock_us}+00:00"))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   continued text",
        "Nov 31 01:55:06 n1 x: y",
        "Feb 30 01:55:06 n1 x: y",
        "Foo 21 01:55:06 n1 x: y",
        "Nov 21 25:55:06 n1 x: y",
        "Nov 21 01:60:06 n1 x: y",
        "Nov  0 01:55:06 n1 x: y",
        "2026-02-29T01:55:06Z n1 x: y",
        "2026-13-01T01:55:06Z n1 x: y",
        "0000-01-01T01:55:06Z n1 x: y",
        "2026-11-21T01:55:06 n1 x: y",
        "-- Boot 0123 --",
        "{}",
        "{not json",
        '{"__REALTIME_TIMESTAMP": "soon"}',
        '{"__REALTIME_TIMESTAMP": "99999999999999999999"}',
        "[" * 5000,
        "{" * 5000,
    ],
)
def test_no_head(line):
    assert head_of(line) is None


def test_leap_day_has_a_place():
    head = head_of("Feb 29 00:00:00 n x: y")
    assert dated(head.local, 2024) == us("2024-02-29T00:00:00+00:00")
    assert dated(head.local, 2026) is None
    assert nominal(us("2024-02-29T00:00:00+00:00")) == head.local


@pytest.mark.parametrize(("text", "seconds"), [("Z", 0), ("+08:00", 28800), ("-0330", -12600), ("+0545", 20700)])
def test_offsets(text, seconds):
    assert offset_of(text) == seconds
