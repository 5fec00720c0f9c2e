"""Reading the event logs of clients (written by `client_lib.events`, which says what a line means)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO


def read(directory: Path) -> Iterator[dict[str, Any]]:
    """All events below a directory, runs of messages taken apart; a torn last line is normal after a crash.  Files may
    be closed, and renamed, meanwhile."""
    still_open = [path.with_suffix("") for path in directory.rglob("*.jsonl.open")]
    for path in sorted({*still_open, *directory.rglob("*.jsonl")}):
        with _opened(path) as file:
            for line in file:
                if line.endswith("}\n"):
                    yield from expand(json.loads(line))


def _opened(path: Path) -> TextIO:
    try:
        return Path(f"{path}.open").open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return path.open(encoding="utf-8", errors="replace")


def expand(event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One event a message.  A client's run names its first and last id and the moments of both; the others are spread
    evenly.  A broker's run (`ha/primary/removals.py`) has one moment and stays as it is."""
    attrs = event.get("attrs") or {}
    if "last_ts_mono" not in attrs or "msg_id" not in event:
        yield dict(event)
        return
    prefix, _, number = str(event["msg_id"]).rpartition(":")
    first, count = int(number), int(attrs["count"])
    span = int(attrs["last_ts_mono"]) - int(event["ts_mono"])
    for index in range(count):
        moment = int(event["ts_mono"]) + span * index // max(1, count - 1)
        yield {**event, "msg_id": f"{prefix}:{first + index}", "ts_mono": moment, "attrs": {}}
