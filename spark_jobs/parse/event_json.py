"""Event segments as the brokers, the clients and the supervisor write them: JSON lines (pure).

A field that the schema does not know goes into `attrs`, as text; so does one whose value has another type than its
column, which is counted as a fault as well.  A run (a line that stands for several messages, see
`spark_jobs.solve.runs`) stays one row.

After a crash: a last line without its end is a row of kind `torn`; where the next process has appended to it, its line
is found behind the torn one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from spark_jobs import schema
from spark_jobs.parse.context import Context, torn
from spark_jobs.schema import Event

REQUIRED: Final = ("source", "kind", "ts_wall")
LONG_MAX: Final = 2**63 - 1

_WRITTEN: Final = {column.name: column.type for column in schema.COLUMNS if column.written}
_TYPES: Final = {"string": str, "bigint": int, "int": int, "boolean": bool, schema.TEXTS: dict}
_EXACT: Final = {name: _TYPES[kind] for name, kind in _WRITTEN.items() if name != "attrs"}
_LARGEST: Final = {
    name: LONG_MAX if kind == "bigint" else 2**31 - 1 for name, kind in _WRITTEN.items() if _TYPES[kind] is int
}
_PLAIN: Final = {**_EXACT, "attrs": dict}
_LEAST_MAX: Final = 2**62
"""A number beyond it is looked at more closely."""
_INSIDE_MAX: Final = 8
COMMON: Final = ("cluster", "node", "source", "proc", "boot_id", "client_id")
"""What a torn line has of the event before it."""


def split_id(msg_id: str) -> tuple[str, int]:
    """`PRODUCER:n` → (PRODUCER, n); an id of another form is its own producer, with number 0."""
    producer, colon, digits = msg_id.rpartition(":")
    plain = colon and digits.isascii() and digits.isdigit() and (digits[0] != "0" or digits == "0")
    if not plain or len(digits) > 18:
        return msg_id, 0
    return producer, int(digits)


def parse_file(name: str, lines: Iterable[bytes], context: Context, source: str) -> Iterator[Event]:
    """The events of one file, in its order.  `source` is that of a torn line in a file without any other."""
    common: Event = {"source": source, "cluster": context.cluster, "node": context.node}
    tally = context.tally
    for line_no, line in enumerate(lines, 1):
        tally.lines += 1
        for event in events(name, line_no, line, context, common):
            common = event
            tally.events += 1
            yield event


def events(name: str, line_no: int, line: bytes, context: Context, common: Event) -> Iterable[Event]:
    """Those of one line: none, one, or a torn one and what was appended to it.  `common`: the event before it."""
    text = line.strip(b"\0 \t\r\n")
    if not text:
        if b"\0" in line:
            context.tally.fault(name, line_no, f"{len(line)} octets of zero", "an event")
        return ()
    found = load(text)
    if found is None:
        return _broken(name, line_no, line, text, context, common)
    event = _checked(found, name, line_no, context)
    return (event,) if event is not None else ()


def load(text: bytes) -> dict[str, Any] | None:
    """The object of a line; None if it is none."""
    try:
        found = json.loads(text.decode())  # of bytes it would look for UTF-16 first
    except (ValueError, RecursionError):
        return None
    if rb"\ud" in text.lower():
        found = _writable(found)
    return found if isinstance(found, dict) else None


def _writable(value: Any) -> Any:
    """Half a surrogate pair is no text that a table could hold."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_writable(item) for item in value]
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return value


def _broken(name: str, line_no: int, line: bytes, text: bytes, context: Context, common: Event) -> Iterator[Event]:
    behind = _appended(text)
    if not line.endswith(b"\n") or behind is not None:
        context.tally.torn += 1
        # Whose line it was is known from the line before.
        yield torn(name, line_no, text, {column: common[column] for column in COMMON if common.get(column)})
    else:
        context.tally.fault(name, line_no, text, "a JSON object")
    event = behind and _checked(behind, name, line_no, context)
    if event:
        yield event


def _appended(text: bytes) -> dict[str, Any] | None:
    """The event at the end of a line that begins with a torn one; objects nested in it are tried first and fail."""
    at = len(text)
    for _ in range(_INSIDE_MAX):
        at = text.rfind(b'{"', 1, at)
        if at < 0:
            break
        found = load(text[at:])
        if found is not None and all(column in found for column in REQUIRED):
            return found
    return None


def _checked(found: dict[str, Any], name: str, line_no: int, context: Context) -> Event | None:
    if not _sound(found):
        repaired = _repaired(found, name, line_no, context)
        if repaired is None:
            return None
        found = repaired
    found["file"], found["line_no"] = name, line_no
    if not found.get("cluster"):
        found["cluster"] = context.cluster
    if not found.get("node"):
        found["node"] = context.node
    if found["kind"] not in schema.KINDS.get(found["source"], ()):
        context.tally.unknown += 1
    if found.get("msg_id"):
        _identify(found, context)
    return found


def _sound(event: Event) -> bool:
    """True if the line matches the schema.  Nearly every line does, so this path must be fast."""
    for column, value in event.items():
        type_ = type(value)
        if type_ is not _PLAIN.get(column) or (type_ is int and not -_LEAST_MAX <= value <= _LEAST_MAX):
            return False
    if not (event.get("source") and event.get("kind") and event.get("ts_wall")):
        return False
    if abs(event.get("ts_res", 0)) > _LARGEST["ts_res"]:
        return False
    attrs = event.get("attrs")
    return attrs is None or all(type(value) is str for value in attrs.values())


def _repaired(found: dict[str, Any], name: str, line_no: int, context: Context) -> Event | None:
    """As much of it as can be used; None if that is nothing."""
    missing = [column for column in REQUIRED if not found.get(column)]
    if missing:
        context.tally.fault(name, line_no, ", ".join(sorted(found)), f"columns {', '.join(missing)}")
        return None
    wrong = [column for column in REQUIRED if type(found[column]) is not _EXACT[column]]
    if wrong or abs(found["ts_wall"]) > LONG_MAX:
        values = ", ".join(f"{column}={found[column]!r}" for column in wrong or ("ts_wall",))
        context.tally.fault(name, line_no, values, "; ".join(f"{c} as {_WRITTEN[c]}" for c in wrong or ("ts_wall",)))
        return None
    return _columns(found, name, line_no, context)


def _columns(found: dict[str, Any], name: str, line_no: int, context: Context) -> Event:
    event: Event = {}
    rest: dict[str, Any] = {}
    for column, value in found.items():
        if type(value) is _EXACT.get(column) and _fits(value, _LARGEST.get(column)):
            event[column] = value
        elif value is not None and column != "attrs":
            rest[column] = value
            if column in _EXACT:
                context.tally.fault(name, line_no, f"{column}={value!r}", f"{column} as {_WRITTEN[column]}")
    attrs = found.get("attrs")
    if isinstance(attrs, dict):
        rest = {**rest, **attrs}
    elif attrs is not None:
        context.tally.fault(name, line_no, f"attrs={attrs!r}", "attrs as an object")
    if rest or isinstance(attrs, dict):
        event["attrs"] = {key: _text(value) for key, value in rest.items() if value is not None}
    return event


def _fits(value: Any, largest: int | None) -> bool:
    return largest is None or abs(value) <= largest


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _identify(event: Event, context: Context) -> None:
    """The columns producer, pub_first and pub_last."""
    producer, first = split_id(event["msg_id"])
    event["producer"], event["pub_first"], event["pub_last"] = producer, first, first
    last = (event.get("attrs") or {}).get("last")
    if last is None:
        return
    same, number = split_id(last)
    if same != producer or number < first or (number == 0 and last != event["msg_id"]):
        context.tally.fault(event["file"], event["line_no"], f"{event['msg_id']} to {last}", "a run of one producer")
    else:
        event["pub_last"] = number
