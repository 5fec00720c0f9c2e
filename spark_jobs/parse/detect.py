"""The parser for a file: chosen by its first lines, or by its name if they do not decide (pure).

Content comes first because names are unreliable: inputs are called `messages.1`, `node1.log` or `x.txt`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from spark_jobs.data import table
from spark_jobs.parse import broker_text, crm_mon, event_json, lines
from spark_jobs.parse.context import Context
from spark_jobs.schema import Event

HEAD_LINES: Final = 40
"""So many lines are looked at."""
Parser = Callable[[str, Iterable[bytes], Context], Iterator[Event]]
"""Gives the events of a file: its name, its lines."""
PARSERS: Final[Mapping[str, Parser]] = {
    "broker_json": partial(event_json.parse_file, source="broker"),
    "client_json": partial(event_json.parse_file, source="client"),
    "broker_text": broker_text.parse_file,
    "pacemaker": lines.parse_file,
    "corosync": lines.parse_file,
    "syslog": lines.parse_file,
    "crm_mon": crm_mon.parse_file,
}

_TABLES: Final = table(__package__, "detect")
_NAMES: Final = tuple((parser, re.compile(pattern, re.IGNORECASE)) for parser, pattern in _TABLES["names"])


def _octets(pattern: str) -> re.Pattern[bytes]:
    for name in ("MONTH", "ISO"):
        pattern = pattern.replace(name, _TABLES[name])
    return re.compile(pattern.encode("ascii"))


_CONTENT: Final = tuple((parser, _octets(pattern)) for parser, pattern in _TABLES["content"])


def detect(name: str, head: Sequence[bytes]) -> str | None:
    """One of PARSERS, None for a file that no parser can read.  `head`: its first lines, HEAD_LINES are enough."""
    votes = Counter(parser for parser in map(_of_line, head[:HEAD_LINES]) if parser)
    if votes:
        return max(PARSERS, key=lambda parser: votes[parser])
    if _is_binary(head):
        return None
    return next((parser for parser, pattern in _NAMES if pattern.search(PurePosixPath(name).name)), None)


def _of_line(line: bytes) -> str | None:
    return next((parser for parser, pattern in _CONTENT if pattern.match(line)), None)


def _is_binary(head: Sequence[bytes]) -> bool:
    """Zeros alone are what a power failure leaves at the end of a log."""
    return any(b"\0" in line.strip(b"\0\r\n") for line in head[:HEAD_LINES])
