"""A file's evidence about clocks, read before its events: small, and combined by `almanac` (pure).

A survey holds, for each node that writes into the file, the first and the last line, the jumps between neighbouring
lines, and the *references*: lines with a Unix epoch or an offset in addition to their local time text.

    `ref=pe_calc-pacemaker-controld-1795226132-199`   written by the DC's own clock, at most a calculation earlier
    `last-rc-change="1795226157"` in a change of the CIB   another node's clock, and any age: only many of them count
    RFC 3339 and `short-iso` times                    exact
    `was recorded for .. at Nov 21 01:55:12 2026`     the year only
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice

from spark_jobs.parse.heads import SECOND, Head, dated, head_of
from spark_jobs.parse.journal import is_export, records
from spark_jobs.parse.years import HALF_YEAR, JUMP, nearest_year, rounded, wrap, year_of

_GRAPH = re.compile(r"\(ref=\S*?-(\d{9,11})-\d+\)")
_CHANGE = re.compile(r'last-rc-change="(\d{9,11})"')
_DATED = re.compile(r"at [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (\d{4})\b")
_TRANSITION = re.compile(r"(?:Processing graph|Calculated transition) (\d+)")
_NODE_ID = re.compile(r"Node (\S+) state is now \w+ \| .*?nodeid=(\d+)")
_PARTS = re.compile(r"\.\d{1,4}|-\d{8}(?:-\d+)?")
_ENDS = re.compile(r"(?:\.(?:gz|bz2|xz|zst|\d{1,4})|-\d{8}(?:-\d+)?)$")
CHANGE_EARLY, CHANGE_LATE = -30 * SECOND, 60 * SECOND
"""How far from a quarter of an hour a change's age may be (us) to count as fresh."""


@dataclass
class LineSpan:
    """Neighbouring references that agree: `year` is that of the file's first line, `offset` in seconds."""

    first: tuple[int, int]
    last: tuple[int, int]
    offset: int
    year: int
    count: int = 1


@dataclass
class Stream:
    """One node's lines in one file.  A place is (years passed since the first line, nominal local us)."""

    file: str
    node: str
    first: int
    last: int
    lines: int = 0
    wraps: int = 0
    sure: list[LineSpan] = field(default_factory=list)
    fresh: Counter[tuple[int, int]] = field(default_factory=Counter)
    years: Counter[int] = field(default_factory=Counter)
    jumps: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    ticks: dict[str, Counter[int]] = field(default_factory=dict)
    transition: dict[str, str] = field(default_factory=dict)
    planned: dict[str, str] = field(default_factory=dict)
    _tick: dict[str, int] = field(default_factory=dict)

    def line(self, head: Head) -> None:
        """The next line of this node."""
        if self.lines:
            self._step(head.local)
        self.lines += 1
        self.last = head.local
        if head.format in ("pacemaker", "corosync"):
            self._fraction(head)
        if head.offset is not None and head.utc is not None:
            real = head.utc + head.offset * SECOND
            self._sure(head.local, head.offset, year_of(real) - self.wraps)
        self._text(head)

    def _step(self, local: int) -> None:
        before = (self.wraps, self.last)
        self.wraps += wrap(self.last, local)
        if not -JUMP <= local - self.last <= JUMP and abs(local - self.last) < HALF_YEAR:
            self.jumps.append((before, (self.wraps, local)))

    def _fraction(self, head: Head) -> None:
        """Counts by how many ms neighbouring lines differ: a coarse clock knows only multiples of its tick."""
        ms = head.local // 1000
        before = self._tick.get(head.format)
        self._tick[head.format] = ms
        if head.resolution == 1000 and before is not None and before != ms:
            count = self.ticks.setdefault(head.format, Counter())
            difference = abs(ms - before)
            count.update({1: 1, 4: difference % 4 == 0, 10: difference % 10 == 0})

    def _text(self, head: Head) -> None:
        body = head.body
        if head.daemon == "pacemaker-based":
            if head.utc is None and body.startswith("+") and (match := _CHANGE.search(body)):
                self._fresh(head.local, int(match[1]))
        elif head.daemon == "pacemaker-controld":
            if match := _TRANSITION.match(body):
                self.transition[head.pid] = match[1]
            if head.utc is None and (match := _GRAPH.search(body)):
                self._reference(head.local, int(match[1]))
        elif head.daemon == "pacemaker-schedulerd":
            if match := _TRANSITION.match(body):
                self.planned.setdefault(head.pid, match[1])
            if match := _DATED.search(body):
                self.years[int(match[1]) - self.wraps] += 1

    def _reference(self, local: int, epoch: int) -> None:
        year = nearest_year(local, epoch * SECOND)
        real = dated(local, year) if year is not None else None
        if year is not None and real is not None:
            self._sure(local, rounded(real - epoch * SECOND), year - self.wraps)

    def _sure(self, local: int, offset: int, year: int) -> None:
        place = (self.wraps, local)
        if self.sure and (self.sure[-1].offset, self.sure[-1].year) == (offset, year):
            self.sure[-1].last = place
            self.sure[-1].count += 1
        else:
            self.sure.append(LineSpan(place, place, offset, year))

    def _fresh(self, local: int, epoch: int) -> None:
        year = nearest_year(local, epoch * SECOND)
        real = dated(local, year) if year is not None else None
        if year is None or real is None:
            return
        offset = rounded(real - epoch * SECOND)
        late = real - (epoch + offset) * SECOND
        if CHANGE_EARLY <= late <= CHANGE_LATE and -12 * 3600 <= offset <= 14 * 3600:
            self.fresh[(offset, year - self.wraps)] += 1


@dataclass
class Survey:
    """One file: a stream for each node in it, and the nodes' numbers in Corosync."""

    file: str
    streams: dict[str, Stream] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)


def survey(name: str, lines: Iterable[str | bytes]) -> Survey:
    """Reads a file's lines once.  Never raises: a line without a head says nothing."""
    found = Survey(name)
    for _, text, torn in texts(lines):
        head = None if torn else head_of(text)
        if head is None or not head.node or head.format == "journal":
            continue
        stream = found.streams.get(head.node)
        if stream is None:
            stream = found.streams[head.node] = Stream(name, head.node, head.local, head.local)
        stream.line(head)
        if "state is now" in head.body and (match := _NODE_ID.match(head.body)):
            found.numbers[match[2]] = match[1]
    return found


def texts(lines: Iterable[str | bytes]) -> Iterator[tuple[int, str, bool]]:
    """(number from 1, text without its end, torn).  Lines come with their ends, as a file gives them.

    Torn is a last line without an end, if not all lines came without.  NULs that a crash left in front of a line
    (blocks that were never written) are not the line's: the caller sees them as a torn line of the same number.
    """
    bare, number, held = 0, 0, None
    ahead = iter(lines)
    head = list(islice(ahead, 1))
    if any(map(is_export, head)):
        yield from records(chain(head, ahead))
        return
    for number, line in enumerate(chain(head, ahead), 1):
        if held is not None:
            yield number - 1, held, False
            held = None
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        if text.endswith("\n"):
            yield from _without_nuls(number, text.rstrip("\r\n"))
        else:
            bare += 1
            held = text
    if held is not None:
        yield number, held, bare == 1


def _without_nuls(number: int, text: str) -> Iterator[tuple[int, str, bool]]:
    if "\0" not in text:
        yield number, text, False
        return
    broken, _, rest = text.rpartition("\0")
    yield number, broken.strip("\0"), True
    if rest:
        yield number, rest, False


def rotation(name: str) -> tuple[bool, str, int, str]:
    """Sorts the parts of one log by age: dates as they are, `.2` before `.1`, and last what is written now."""
    parts = [match[0] for match in _PARTS.finditer(name[len(stem(name)) :])]
    dates = "".join(part for part in parts if part.startswith("-"))
    numbers = [int(part[1:]) for part in parts if part[1:].isdigit() and not part.startswith("-")]
    return not (dates or numbers), dates, -numbers[0] if numbers else 0, name


Age = tuple[str, bool, str, int]


@lru_cache(maxsize=4096)
def age(name: str) -> Age:
    """The log, and how old this part of it is: lines of one log, wherever it was rotated, sort by (age, line)."""
    return stem(name), *rotation(name)[:3]


def stem(name: str) -> str:
    """The log that a file is a part of: `a/pacemaker.log-20261121.gz` and `a/pacemaker.log.1` are `a/pacemaker.log`."""
    while (shorter := _ENDS.sub("", name)) != name:
        name = shorter
    return name
