"""Event segments of brokers and of the local supervisor: `NODE-BOOT-NNNN.jsonl`, with `.open` while written (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_jobs.parse import event_json
from spark_jobs.parse.context import Context
from spark_jobs.schema import Event


def parse_file(name: str, lines: Iterable[bytes], context: Context) -> Iterator[Event]:
    """The events of one file; what could not be read is in `context.tally`."""
    return event_json.parse_file(name, lines, context, "broker")
