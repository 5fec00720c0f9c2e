"""One event segment, in blocks, to tables: the fast reader, and `event_json` for the lines that it leaves (pure).

Blocks may be read in any order (`json_blocks.Reader.block` knows nothing of the others), but are put together in the
order of the file: the row of a torn line says who wrote the line before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from spark_jobs import schema
from spark_jobs.parse import event_json
from spark_jobs.parse.context import Context
from spark_jobs.parse.json_blocks import Block
from spark_jobs.schema import Event


@dataclass
class Joined:
    """Puts the blocks of one file together.  `common`: what a torn line has of the event before it."""

    name: str
    context: Context
    common: Event
    _at: int = field(default=0)

    def rows(self, block: Block) -> list[Event]:
        """Those of the lines that are left; the block's own are counted."""
        tally = self.context.tally
        tally.lines += block.lines
        tally.unknown += block.unknown
        tally.events += block.table.num_rows
        made: list[Event] = []
        for odd in block.odd:
            self._seen(odd.before)
            for event in event_json.events(self.name, odd.line_no, odd.line, self.context, self.common):
                tally.events += 1
                self._seen((odd.line_no, event))
                made.append(event)
        self._seen(block.last)
        return made

    def _seen(self, event: tuple[int, Event] | None) -> None:
        if event is not None and event[0] >= self._at:
            self._at, self.common = event


def table(rows: Iterable[Event]) -> pa.Table:
    """Rows of parsers with schema.NAMES."""
    listed = list(rows)
    columns = []
    for column in schema.COLUMNS:
        values = [row.get(column.name) for row in listed]
        if column.type == schema.TEXTS:
            values = [None if value is None else list(value.items()) for value in values]
        columns.append(pa.array(values, schema.arrow_type(column.type)))
    return pa.table(columns, schema=schema.arrow())
