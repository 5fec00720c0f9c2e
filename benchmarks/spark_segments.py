"""The events of a made-up cluster as what its brokers and clients leave behind: a folder of segments of JSON lines."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import pyarrow as pa

from spark_jobs import schema

SEGMENT: Final = 8 << 20
"""Octets of a segment, as the writers have it."""
_CHUNK: Final = 200_000
Line = tuple[str, str, str, str]
"""(node, source, proc, text)"""


def write(table: pa.Table, folder: Path, together: bool = False) -> int:
    """`NODE/events/...` of a broker, `events/...` of a client; returns the octets.  `table`: processes in order.
    `together`: clients of a machine, as a shipper of logs may do it."""
    octets = 0
    listed = _lines(table)
    if together:
        named = [(n, s, p if s != "client" else f"clients-{n}", text) for n, s, p, text in listed]
        listed = iter(sorted(named, key=itemgetter(0, 1, 2)))
    for (node, source, proc), lines in groupby(listed, key=itemgetter(0, 1, 2)):
        place = folder / "events" if source == "client" else folder / node / "events"
        place.mkdir(parents=True, exist_ok=True)
        for number, segment in enumerate(_segments(text for *_, text in lines), 1):
            octets += (place / f"{proc}-{number:04d}.jsonl").write_bytes(segment)
    return octets


def pack(folder: Path, path: Path) -> None:
    """A .tar.gz of a folder, quickly."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=folder.name)


def _segments(lines: Iterator[str]) -> Iterator[bytes]:
    segment = io.BytesIO()
    for line in lines:
        segment.write(line.encode() + b"\n")
        if segment.tell() >= SEGMENT:
            yield segment.getvalue()
            segment = io.BytesIO()
    if segment.tell():
        yield segment.getvalue()


def _lines(table: pa.Table) -> Iterator[Line]:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("events", table)
        found = connection.execute(f"select node, source, proc, {_text()} from events order by proc, seq")
        while chunk := found.fetchmany(_CHUNK):
            yield from chunk


def _text() -> str:
    """Expression of a row's line; a column that is empty is left out."""
    written = [(column.name, column.type) for column in schema.COLUMNS if column.written]
    fields = ", ".join(_field(name, kind) for name, kind in written)
    return f"'{{' || concat_ws(',', {fields}) || '}}'"


def _field(name: str, kind: str) -> str:
    value = f"{name}::varchar" if kind in ("bigint", "int", "boolean") else f"to_json({name})::varchar"
    return f"'\"{name}\":' || case when {name} is not null then {value} end"
