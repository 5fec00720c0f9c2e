"""`crm_mon --output-as=xml` (2.0.3 and later) and `--as-xml` (before): the cluster as it was at one moment (pure).

    node       new: online, standby, pending, unclean, maintenance, offline; attrs: is_dc, id
    resource   for each node where it runs, or once with new=Stopped; new: role (2.1's words);
               attrs: resource, agent, failed
    fence_op_done   a finished operation of the fencing history; attrs: fence, by, client, origin, as in pacemaker.log

`ts_wall` of nodes and resources is the `last_update`, without a zone in the text before 2.1.6: the zone of the node
that ran crm_mon, as of its other logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from xml.parsers import expat

from spark_jobs.parse.almanac import Almanac, Note
from spark_jobs.parse.context import Context
from spark_jobs.parse.facts.rules import role
from spark_jobs.parse.heads import MONTHS, SECOND, offset_of
from spark_jobs.parse.years import ASSUMED, UTC_ZONE, Zone, zone_named, zone_text
from spark_jobs.schema import Event

_CTIME = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})$")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d+))? ?(Z|[+-]\d\d:?\d\d)?$")
_ROOTS = ("pacemaker-result", "crm_mon")


class _Stop(Exception):
    """The text has something that crm_mon does not write: entities, or another root."""


def parse_file(name: str, lines: Iterable[str | bytes], context: Context) -> Iterator[Event]:
    """Rows of one document, in its order.  What is no XML gives a row `torn` with the line where it breaks."""
    octets = [line.encode() if isinstance(line, str) else line for line in lines]
    context.tally.lines += len(octets)
    reader = _Document(name, context)
    fault = reader.read(b"".join(octets))
    if fault is not None:
        line_no = min(max(1, reader.line_no()), max(1, len(octets)))
        raw = octets[line_no - 1].decode("utf-8", "replace") if octets else ""
        context.tally.torn += 1
        context.tally.fault(name, line_no, raw, f"crm_mon's XML ({fault})")
        reader.events.append({"source": "crm_mon", "kind": "torn", "file": name, "line_no": line_no, "raw": raw})
    for event in reader.rows(octets):
        context.tally.events += 1
        yield event


class _Document:
    """Handlers of expat: elements arrive in order, so `last_update` is known before the nodes."""

    def __init__(self, name: str, context: Context) -> None:
        self.events: list[Event] = []
        self._name = name
        self._context = context
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._depth = 0
        self._writer = context.node
        self._resource: Event | None = None
        self._placed = False
        self._update = ""
        self._times: list[tuple[Event, str]] = []

    def read(self, octets: bytes) -> str | None:
        """What is wrong with the text, None if nothing."""
        try:
            self._parser.Parse(octets, True)
        except (expat.ExpatError, _Stop, ValueError) as error:
            return str(error)
        return None

    def line_no(self) -> int:
        return self._parser.CurrentLineNumber

    def rows(self, octets: list[bytes]) -> list[Event]:
        """Fills in what is known at the end: who ran crm_mon, and so the zone of its times."""
        zone = self._zone()
        for event, text in self._times:
            moment, resolution = moment_of(text, zone)
            if moment is not None:
                event["ts_wall"], event["ts_res"] = moment, resolution
        for event in self.events:
            if self._writer:
                event.setdefault("node", self._writer)
            if self._context.cluster:
                event["cluster"] = self._context.cluster
            if event["kind"] != "torn":
                event["raw"] = octets[event["line_no"] - 1].decode("utf-8", "replace").strip()
        return self.events

    def _zone(self) -> Zone:
        found = self._context.almanac or Almanac()
        if self._writer in found.zones:
            return found.zones[self._writer]
        if self._context.zone is not None:
            return zone_named(zone_text(self._context.zone))
        agreed = set(found.zones.values())
        zone = next(iter(agreed)) if len(agreed) == 1 else UTC_ZONE
        text = f"zone of {self._writer or 'the node that ran crm_mon'} assumed {zone if agreed else 'UTC'}"
        self._context.tally.notes.append(Note(self._name, text, ASSUMED))
        return zone

    def _doctype(self, *_: object) -> None:
        raise _Stop("a document type, crm_mon writes none")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag not in _ROOTS:
            raise _Stop(f"root element {tag!r}, wanted one of {', '.join(_ROOTS)}")
        if tag == "last_update":
            self._update = attributes.get("time", "")
            self._writer = attributes.get("origin", self._writer)
        elif tag == "current_dc":
            # who ran it is written since 2.1.6 only; the DC is the best guess, and its zone as good as another's
            self._writer = self._writer or attributes.get("name", "")
        elif tag == "node":
            self._node(attributes)
        elif tag == "resource":
            self._begin(attributes)
        elif tag == "fence_event":
            self._fencing(attributes)
        else:
            self._context.tally.unknown += tag not in _ROOTS

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "resource" and self._resource is not None:
            if not self._placed:
                self._add(self._resource | {"new": "Stopped"}, self._update)
            self._resource = None

    def _node(self, attributes: dict[str, str]) -> None:
        if self._resource is not None:
            self._placed = True
            self._add(self._resource | {"peer": attributes.get("name", "")}, self._update)
        elif "online" in attributes:
            attrs = _chosen(attributes, "id", "is_dc", "health", "type")
            standby = attributes.get("standby") == "true" or attributes.get("maintenance") == "true"
            event = self._row("node", attrs) | {"peer": attributes.get("name", ""), "new": _state(attributes)}
            self._add(event | ({"planned": True} if standby else {}), self._update)

    def _begin(self, attributes: dict[str, str]) -> None:
        attrs = {
            "resource": attributes.get("id", ""),
            "agent": attributes.get("resource_agent", ""),
            **_chosen(attributes, "failed", "managed", "orphaned"),
        }
        named = attributes.get("role", "")
        self._resource = self._row("resource", attrs) | {"new": role(named) or named or "Stopped"}
        self._placed = False

    def _fencing(self, attributes: dict[str, str]) -> None:
        """2.0: `state`, 2.1: `status`; what is pending has not ended."""
        status = attributes.get("status", attributes.get("state", ""))
        if status not in ("success", "failed"):
            return
        keys = (("fence", "action"), ("by", "delegate"), ("client", "client"), ("origin", "origin"))
        attrs = {key: attributes[name] for key, name in keys if attributes.get(name)}
        event = self._row("fence_op_done", attrs) | {"peer": attributes.get("target", "")}
        event["result"] = "OK" if status == "success" else "failed"
        if attributes.get("exit-reason"):
            event["reason"] = attributes["exit-reason"]
        self._add(event, attributes.get("completed", ""))

    def _row(self, kind: str, attrs: dict[str, str]) -> Event:
        place = {"file": self._name, "line_no": self._parser.CurrentLineNumber}
        return {"source": "crm_mon", "kind": kind, "attrs": attrs} | place

    def _add(self, event: Event, time: str) -> None:
        event = event | {"attrs": dict(event["attrs"])}
        self.events.append(event)
        self._times.append((event, time))


def _chosen(attributes: dict[str, str], *names: str) -> dict[str, str]:
    return {name: attributes[name] for name in names if name in attributes}


def _state(attributes: dict[str, str]) -> str:
    for name in ("unclean", "pending", "maintenance", "standby", "standby_onfail"):
        if attributes.get(name) == "true":
            return name
    return "online" if attributes.get("online") == "true" else "offline"


def moment_of(text: str, zone: Zone) -> tuple[int | None, int]:
    """(us UTC, resolution in us) of crm_mon's times: `Sat Nov 21 02:00:00 2026`, `2026-11-21 02:00:00.123Z`, ..."""
    if match := _CTIME.match(text):
        if match[1] not in MONTHS:
            return None, SECOND
        parts = [int(match[6]), MONTHS.index(match[1]) + 1, *(int(match[number]) for number in (2, 3, 4, 5))]
        fraction, offset = "", None
    elif match := _ISO.match(text):
        parts = [int(match[number]) for number in range(1, 7)]
        fraction, offset = match[7] or "", match[8]
    else:
        return None, SECOND
    try:
        year, month, day, hour, minute, second = parts
        local = int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * SECOND
        local += int((fraction + "000000")[:6])
    except ValueError:
        return None, SECOND
    seconds = offset_of(offset) if offset else zone.offset(local)
    return local - seconds * SECOND, max(1, SECOND // 10 ** min(len(fraction), 6))
