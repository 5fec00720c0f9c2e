"""Facts that only a system log has (pure): that it dropped lines, and what sbd does.

rsyslog and journald limit the rate of their writers and drop exactly in incidents.  Texts: rsyslog's
runtime/ratelimit.c and plugins/imuxsock, systemd's src/journal/journald-server.c and journald-syslog.c.
"""

from __future__ import annotations

import re
from typing import Final

from spark_jobs.parse.facts.rules import Fact, read, rules

_RULES: Final = rules("syslog")


def fact_of(daemon: str, body: str) -> Fact | None:
    """What the log's own daemon says about it; None if it is nothing that we know."""
    # old releases of rsyslog write the number of the message behind their name
    name = re.sub(r"-\d+$", "", daemon)
    return read(_RULES.get(f"{name}d" if name == "systemd-journal" else name, ()), body)
