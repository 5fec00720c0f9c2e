"""The parser for a file: chosen by its first lines, or by its name if they do not decide (pure).

Content comes first because names are unreliable: inputs are called `messages.1`, `node1.log` or `x.txt`.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol, cast

from spark_jobs.parse.context import Context
from spark_jobs.schema import Event

HEAD_LINES: Final = 40
"""So many lines are looked at."""
PARSERS: Final = ("broker_json", "client_json", "broker_text", "pacemaker", "corosync", "syslog", "crm_mon")

_MONTH: Final = rb"[A-Z](?:[a-z]|\xc3\xa4){2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
_ISO: Final = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_CONTENT: Final = tuple(
    (parser, re.compile(pattern))
    for parser, pattern in (
        ("client_json", rb'\{".*"source": ?"client"'),
        ("broker_json", rb'\{".*"source": ?"(?:broker|qpid-cluster|pacemaker)"'),
        ("syslog", rb'(?:data: |\x1e)?\{.*"__REALTIME_TIMESTAMP"'),
        ("syslog", rb"__(?:CURSOR|REALTIME_TIMESTAMP)="),
        ("crm_mon", rb"<(?:\?xml|pacemaker-result|crm_mon)\b"),
        ("pacemaker", _MONTH + rb" \S+ [\w-]+ *\[\d+\] \("),
        ("pacemaker", _MONTH + rb"  [\w.-]+\([^)]*\)\[\d+\]:"),  # a resource agent's line
        ("pacemaker", _MONTH + rb" \[\d+\] \S+ +[\w-]+: +\w+: "),
        ("corosync", _MONTH + rb" \[\d+\] \S+ corosync ?\w+ +\["),
        ("syslog", rb"(?:<\d{1,3}>1? ?)?(?:" + _MONTH + rb"|" + _ISO + rb") \S+ [^\s\[:]+(?:\[\d+\])?:"),
        ("syslog", rb"<\d{1,3}>1 " + _ISO + rb" \S+ \S+ \S+ \S+ [-\[]"),
        (
            "syslog",
            rb"(?:\w{2,4}\.? \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \S+|\d{9,10}\.\d+) \S+ [^\s\[:]+(?:\[\d+\])?:",
        ),
        (
            "broker_text",
            rb".{0,40}?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{6})? (?:\[(?:[A-Z]\w+)\] |.*[0-9a-f]{8}\(\w+\) )",
        ),
        ("broker_text", rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [a-z_]+: "),  # the local supervisor
    )
)
_NAMES: Final = tuple(
    (parser, re.compile(pattern, re.IGNORECASE))
    for parser, pattern in (
        ("client_json", r"client.*\.jsonl(\.open)?$"),
        ("broker_json", r"\.jsonl(\.open)?$"),
        ("pacemaker", r"pacemaker.*log"),
        ("corosync", r"corosync.*log"),
        ("crm_mon", r"crm_mon.*\.xml$"),
        ("syslog", r"^(messages|syslog|journal|ha-log)"),
        ("broker_text", r"qpidd.*log"),
    )
)


class LogParser(Protocol):
    """A module of this package."""

    def parse_file(self, name: str, lines: Iterable[bytes], context: Context) -> Iterator[Event]: ...


def detect(name: str, head: Sequence[bytes]) -> str | None:
    """One of PARSERS, None for a file that no parser can read.  `head`: its first lines, HEAD_LINES are enough."""
    votes = Counter(parser for parser in map(_of_line, head[:HEAD_LINES]) if parser is not None)
    if votes:
        return max(PARSERS, key=lambda parser: votes[parser])
    if _is_binary(head):
        return None
    return _of_name(PurePosixPath(name).name)


def parser(name: str) -> LogParser:
    """The module of one of PARSERS."""
    return cast(LogParser, importlib.import_module(f"spark_jobs.parse.{name}"))


def _of_line(line: bytes) -> str | None:
    return next((parser for parser, pattern in _CONTENT if pattern.match(line)), None)


def _of_name(name: str) -> str | None:
    return next((parser for parser, pattern in _NAMES if pattern.search(name)), None)


def _is_binary(head: Sequence[bytes]) -> bool:
    """Zeros alone are what a power failure leaves at the end of a log."""
    return any(b"\0" in line.strip(b"\0\r\n") for line in head[:HEAD_LINES])
