"""What the schema does not allow in a written event."""

from __future__ import annotations

from typing import Any

from spark_jobs.schema import COLUMNS, KINDS, TEXTS, Event

_PYTHON = {"string": (str,), "bigint": (int,), "int": (int,), "boolean": (bool,), TEXTS: (dict,)}


def faults(event: Event) -> list[str]:
    """What is wrong with a written event, in words; empty if nothing."""
    found = [f"no {name}" for name in ("source", "kind") if not event.get(name)]
    source, kind = event.get("source"), event.get("kind")
    if source in KINDS and kind not in KINDS[source] | {"torn"}:  # parsers say that themselves
        found.append(f"kind {kind!r} is unknown for source {source!r}")
    elif source and source not in KINDS:
        found.append(f"source {source!r}, wanted one of {', '.join(sorted(KINDS))}")
    written = {column.name: column for column in COLUMNS if column.written}
    for name, value in event.items():
        if name not in written:
            found.append(f"no column {name!r}")
        elif value is not None and not _fits(value, written[name].type):
            found.append(f"{name}: {value!r}, wanted {written[name].type}")
    return found


def _fits(value: Any, type_: str) -> bool:
    if isinstance(value, bool) != (type_ == "boolean") or not isinstance(value, _PYTHON[type_]):
        return False
    return not isinstance(value, dict) or all(isinstance(item, str) for pair in value.items() for item in pair)
