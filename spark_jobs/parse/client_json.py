"""Event segments of clients: `CLIENT-TOKEN-NNNN.jsonl`, with `.open` while written (pure).

A line about messages may be a run: `msg_id` is the first, `attrs.last` the last, `attrs.count` how many, and
`attrs.last_ts_mono` when the last one happened.  It stays one row, with `producer`, `pub_first` and `pub_last`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_jobs.parse import event_json
from spark_jobs.parse.context import Context
from spark_jobs.schema import Event


def parse_file(name: str, lines: Iterable[bytes], context: Context) -> Iterator[Event]:
    """The events of one file; what could not be read is in `context.tally`."""
    return event_json.parse_file(name, lines, context, "client")
