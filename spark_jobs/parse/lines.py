"""One text log of the cluster's software, line by line, to events (pure).

Two passes over a bundle: `survey` each file (small results), put them together in one `almanac`, `parse_file` each
file with it in the context.  The almanac is what makes the events of a rotated log the same as those of the whole:
year, zone, pass of a repeated hour, the transition that runs.  A file that it has not seen is surveyed alone.

States of a reader, per node in the file: a `LineClock`; the transition that each pid of controld runs (its
"Initiating" lines do not say which); the plan lines of a schedulerd that wait for their transition's number, which
comes behind them.  Events leave in the order of the lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from spark_jobs.parse import broker_text
from spark_jobs.parse.almanac import ALL_NODES, Almanac, Start, almanac
from spark_jobs.parse.context import Context
from spark_jobs.parse.facts import corosync, pacemaker, syslog
from spark_jobs.parse.facts.rules import Fact
from spark_jobs.parse.heads import Head, head_of
from spark_jobs.parse.survey import survey, texts
from spark_jobs.parse.years import UTC_ZONE, LineClock, zone_text
from spark_jobs.schema import Event

SOURCES = {"pacemaker": "pacemaker", "corosync": "corosync"}
"""Source of an event by the format of its line; all others are `syslog`, a broker's own lines in it `text`."""
MAX_WAITING = 500
"""A plan's number follows its lines at once; behind so many other events it will not come any more."""


def parse_file(name: str, lines: Iterable[str | bytes], context: Context) -> Iterator[Event]:
    """The events of one file, in the order of its lines; never raises for what a line holds.

    `lines` are UTF-8 and keep their ends; `context.tally` is filled on the way.
    """
    found = context.almanac
    if found is None or name not in found.files:
        lines = list(lines)
        found = _alone(name, lines, context)
    reader = _Reader(name, context, found)
    for number, text, torn in texts(lines):
        reader.line(number, text, torn)
        yield from reader.ready()
    yield from reader.end()
    nodes = reader.nodes()
    context.tally.notes += [note for note in found.notes if note.about == name or note.about in nodes]


def _alone(name: str, lines: list[str | bytes], context: Context) -> Almanac:
    zones: Mapping[str, str] = {ALL_NODES: zone_text(context.zone)} if context.zone is not None else {}
    modified = {name: context.mtime} if context.mtime else {}
    return almanac([survey(name, lines)], zones, modified, None)


class _Node:
    """The state of one node's lines in one file."""

    def __init__(self, start: Start, clock: LineClock) -> None:
        self.clock = clock
        self.transition = dict(start.transition)
        self.following = start.planned


class _Reader:
    def __init__(self, name: str, context: Context, found: Almanac) -> None:
        self._name = name
        self._context = context
        self._almanac = found
        self._tally = context.tally
        self._line_no = 0
        self._nodes: dict[str, _Node] = {}
        self._queue: deque[Event] = deque()
        self._waiting: list[tuple[str, str, Event]] = []
        self._last: Head | None = None

    def nodes(self) -> set[str]:
        return set(self._nodes)

    def line(self, number: int, text: str, torn: bool) -> None:
        self._tally.lines += number != self._line_no
        self._line_no = number
        if torn:
            self._torn(number, text)
            return
        head = head_of(text)
        if head is None:
            self._continued(number, text)
            return
        self._last = head
        utc = self._utc(head)
        fact = _fact(head)
        if fact is None:
            self._tally.unknown += 1
            self._tally.unknown_by[head.daemon] += 1
            return
        self._fact(number, text, head, utc, fact)

    def ready(self) -> Iterator[Event]:
        """Events that wait for nothing any more."""
        if len(self._queue) > MAX_WAITING:
            self._waiting.clear()
        first = self._waiting[0][2] if self._waiting else None
        while self._queue and self._queue[0] is not first:
            yield self._out(self._queue.popleft())

    def end(self) -> Iterator[Event]:
        for node, pid, event in self._waiting:
            number = self._nodes[node].following.get(pid)
            if number is not None:
                event["attrs"]["trans"] = number
        self._waiting.clear()
        while self._queue:
            yield self._out(self._queue.popleft())

    def _out(self, event: Event) -> Event:
        self._tally.events += 1
        return event

    def _fact(self, number: int, text: str, head: Head, utc: int | None, fact: Fact) -> None:
        self._tally.undated += utc is None
        self._tally.dropped += int(fact.attrs.get("count", "0")) if fact.kind == "lines_dropped" else 0
        event = self._event(number, text, head, utc)
        event |= {"kind": fact.kind} | fact.columns | fact.more
        if fact.source:
            event["source"] = fact.source
        if fact.planned:
            event["planned"] = True
        # `pid` and `daemon` of the writer: no text has keys of these names
        event["attrs"] = self._named(fact) | {"daemon": head.daemon} | ({"pid": head.pid} if head.pid else {})
        self._transitions(head, fact.kind, event)
        self._queue.append(event)

    def _event(self, number: int, text: str, head: Head, utc: int | None) -> Event:
        event: Event = {
            "source": SOURCES.get(head.format, "syslog"),
            "ts_res": max(head.resolution, self._almanac.resolutions.get((head.node, head.format), 1)),
            "file": self._name,
            "line_no": number,
            "raw": text,
        }
        optional = {
            "cluster": self._context.cluster,
            "node": head.node or self._context.node,
            "ts_wall": utc,
            "ts_mono": head.mono,
            "boot_id": head.boot_id,
        }
        return event | {name: value for name, value in optional.items() if value not in ("", None)}

    def _named(self, fact: Fact) -> dict[str, str]:
        """Corosync's numbers under the nodes' names, where a line of Pacemaker has told them."""
        host = fact.attrs.get("host")
        if host is not None and host in self._almanac.numbers:
            return fact.attrs | {"host_name": self._almanac.numbers[host]}
        return fact.attrs

    def _transitions(self, head: Head, kind: str, event: Event) -> None:
        if not head.node:
            return
        state = self._node(head.node)
        attrs = event["attrs"]
        if kind == "graph":
            state.transition[head.pid] = attrs["trans"]
        elif kind in ("initiate", "fence_request") and head.pid in state.transition:
            attrs["trans"] = state.transition[head.pid]
        elif kind == "plan":
            self._waiting.append((head.node, head.pid, event))
        elif kind == "calculated":
            self._planned(head, attrs["trans"])

    def _planned(self, head: Head, number: str) -> None:
        for node, pid, event in self._waiting:
            if (node, pid) == (head.node, head.pid):
                event["attrs"]["trans"] = number
        self._waiting = [item for item in self._waiting if item[:2] != (head.node, head.pid)]

    def _continued(self, number: int, text: str) -> None:
        """A line without a head: a plan's next line if it reads like one, else the rest of a longer text."""
        before = self._last
        if before is not None and before.daemon == "pacemaker-schedulerd":
            fact = pacemaker.fact_of(before.daemon, text.strip())
            if fact is not None and fact.kind == "plan":
                self._fact(number, text, before, self._again(before), fact)
                return
        self._tally.continued += 1

    def _torn(self, number: int, text: str) -> None:
        self._tally.torn += 1
        head = head_of(text)
        utc = self._utc(head) if head is not None and head.node else None
        event = self._event(number, text, head or Head("", 0, 1, "", "", ""), utc)
        if utc is None:
            del event["ts_res"]
        self._queue.append(event | {"kind": "torn", "attrs": {"octets": str(len(text.encode()))}})

    def _node(self, node: str) -> _Node:
        state = self._nodes.get(node)
        if state is None:
            start = self._almanac.starts.get((self._name, node), Start())
            clock = LineClock(self._almanac.zones.get(node, UTC_ZONE), start.year, start.fold)
            state = self._nodes[node] = _Node(start, clock)
        return state

    def _utc(self, head: Head) -> int | None:
        if head.utc is not None:
            if head.offset is not None:
                self._node(head.node).clock.seen(head.local, head.utc, head.offset)
            return head.utc
        # lines of agents have no node, and no events
        return self._node(head.node).clock.utc(head.local) if head.node else None

    def _again(self, head: Head) -> int | None:
        return head.utc if head.utc is not None else self._node(head.node).clock.utc(head.local)


def _fact(head: Head) -> Fact | None:
    if head.daemon == "corosync":
        return corosync.fact_of(head.body)
    if head.daemon.startswith("pacemaker"):
        return pacemaker.fact_of(head.daemon, head.body)
    if head.daemon.startswith("qpidd"):
        return _broker(head.body)
    return syslog.fact_of(head.daemon, head.body)


def _broker(body: str) -> Fact | None:
    """A broker's own line in a system log."""
    event = broker_text.fact(body)
    if event is None:
        return None
    more = {name: value for name, value in event.items() if name not in ("kind", "attrs", "source")}
    return Fact(event["kind"], {}, dict(event.get("attrs", {})), source="text", more=more)
