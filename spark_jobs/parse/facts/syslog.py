"""Facts that only a system log has (pure): that it dropped lines, and what sbd does.

rsyslog and journald limit the rate of their writers and drop exactly in incidents.  Texts: rsyslog's
runtime/ratelimit.c and plugins/imuxsock, systemd's src/journal/journald-server.c and journald-syslog.c.
"""

from __future__ import annotations

import re

from spark_jobs.parse.facts.rules import Fact, Rule, read, rule

_RSYSLOG = (
    rule(
        "lines_dropped",
        " lost ",
        r"(?P<module>\w+)(?:\[[^\]]*\])?:? lost (?P<count>\d{1,9}) messages from pid (?P<writer_pid>\d+)",
    ),
    rule(
        "lines_dropped",
        " messages lost due to rate-limiting",
        r"(?P<module>\w+)(?:\[pid: (?P<writer_pid>\d+)(?:, name: (?P<writer>[^\]]+))?\])?(?: from <[^>]*>)?: "
        r"(?P<count>\d{1,9}) messages lost due to rate-limiting",
    ),
    rule(
        "lines_dropped",
        "begin to drop messages",
        r"(?P<module>\w+)(?:\[pid:? (?P<writer_pid>\d+)(?:, name: (?P<writer>[^\]]+))?\])?(?: from <[^>]*>)?: "
        r"begin to drop messages",
    ),
)
_JOURNALD = (
    rule("lines_dropped", "Suppressed ", r"Suppressed (?P<count>\d{1,9}) messages from (?P<writer>\S+)"),
    rule("lines_dropped", "Missed ", r"Missed (?P<count>\d{1,9}) kernel messages"),
    rule("lines_dropped", "missed ", r"Forwarding to syslog missed (?P<count>\d{1,9}) messages"),
)
_SBD = (
    rule(
        "self_fenced",
        "Received command ",
        r"(?:\S+: +)*Received command (?P<fence>reset|off|crashdump) from (?P<by>\S+)",
    ),
)
RULES: dict[str, tuple[Rule, ...]] = {
    "sbd": _SBD,
    "rsyslogd": _RSYSLOG,
    "systemd-journald": _JOURNALD,
    "systemd-journal": _JOURNALD,
}


def fact_of(daemon: str, body: str) -> Fact | None:
    """What the log's own daemon says about it; None if it is nothing that we know."""
    # old releases of rsyslog write the number of the message behind their name
    return read(RULES.get(re.sub(r"-\d+$", "", daemon), ()), body)
