"""Event segments of this machine's disk: several threads parse their blocks and write row groups.        Shell.

Order of work: one thread (the caller's) reads blocks of whole lines; the pool parses them in any order; the caller
takes the results in the order of the blocks, adds what `event_json` makes of the lines that are left (a torn line's row
needs the event before it), and gives row groups back to the pool, which writes them.  Arrow leaves Python's lock while
it parses and writes.  A row group holds clients' rows or others', never both: a query for one kind skips the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs import schema
from spark_jobs.ingest.tables import COUNTS, Cover, Resume
from spark_jobs.parse.context import Context
from spark_jobs.parse.event_json import COMMON
from spark_jobs.parse.json_blocks import LINE_MAX, Block, Names, Reader
from spark_jobs.parse.segments import Joined, table
from spark_jobs.schema import Event
from spark_jobs.unpack import DAMAGE

BLOCK: Final = 8 << 20
"""Octets that are parsed at once."""
GROUP_ROWS: Final = 122_880
"""Rows of one row group: as many as DuckDB takes at once."""
SOURCES: Final = {"client_json": "client", "broker_json": "broker"}
_COVERING: Final = pa.array(["broker", "qpid-cluster"])
_UNLIKE: Final = frozenset({"msg_id", "raw", "attrs"})
WRITING: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [c.name for c in schema.COLUMNS if c.type == "string" and c.name not in _UNLIKE],
    "column_encoding": {c.name: "DELTA_BINARY_PACKED" for c in schema.COLUMNS if c.type == "bigint"},
}
"""Times and numbers grow by little: as differences they are half the file, and read four times as fast."""


@dataclass(frozen=True)
class Piece:
    """Whole lines, or the last one without its end (`whole` is False); `octets`: of the file, up to the piece's end."""

    data: bytes
    first: int
    octets: int
    whole: bool = True


def pieces(file: BinaryIO, resume: Resume, damage: Callable[[int, BaseException], None]) -> Iterator[Piece]:
    """From where an earlier reading ended.  `damage`: told the line and the error where the file cannot be read on."""
    octets, number = resume.octets, resume.counts.get("lines", 0) + 1
    rest, cut = b"", False
    try:
        skip(file, octets)
        for chunk in _chunks(file):
            octets += len(chunk)
            begin = chunk.find(b"\n") if cut else 0
            if begin < 0:
                continue
            data, cut = rest + chunk[begin:], False
            end = data.rfind(b"\n") + 1
            if end:
                yield Piece(data[:end], number, octets - (len(data) - end))
                number += data.count(b"\n", 0, end)
            rest = data[end:]
            if len(rest) > LINE_MAX:
                rest, cut = rest[:LINE_MAX], True
    except DAMAGE as error:
        damage(number - 1, error)
        return
    if rest:
        yield Piece(rest + b"\n" if cut else rest, number, octets, whole=False)


def skip(file: BinaryIO, octets: int) -> None:
    """Packed files cannot be sought in."""
    while octets > 0 and (found := file.read(min(octets, BLOCK))):
        octets -= len(found)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yields the readable part of a damaged file before the error is raised."""
    held: list[bytes] = []
    size, error = 0, None
    while error is None:
        try:
            found = file.read1(BLOCK)  # type: ignore[attr-defined]
        except DAMAGE as damage:
            error, found = damage, b""
        held.append(found)
        size += len(found)
        if size >= BLOCK or not found:
            if size:
                yield b"".join(held)
            if not found:
                break
            held, size = [], 0
    if error is not None:
        raise error


# ---- facts about a segment ------------------------------------------------------------------------------------------


def summed(resume: Resume, rows: pa.Table) -> None:
    """Enters the times of a segment's next rows, and what its processes cover."""
    _numbers(resume, rows.select(["proc", "seq"]))
    ends = pc.min_max(rows["ts_wall"]).as_py()
    if ends["min"] is None:
        return
    resume.first_ts = ends["min"] if resume.first_ts is None else min(resume.first_ts, ends["min"])
    resume.last_ts = ends["max"] if resume.last_ts is None else max(resume.last_ts, ends["max"])
    if pc.all(pc.equal(rows["source"], "client")).as_py():
        return
    timed = pc.and_(pc.is_in(rows["source"], _COVERING), rows["ts_wall"].is_valid())  # a torn line has no time
    chosen = rows.filter(timed).select(["node", "source", "proc", "ts_wall"])
    grouped = chosen.group_by(["node", "source", "proc"]).aggregate([("ts_wall", "min"), ("ts_wall", "max")])
    ids = _broker_ids(rows)
    for row in grouped.to_pylist():
        proc = row["proc"] or ""
        first, last = row["ts_wall_min"], row["ts_wall_max"]
        resume.cover(Cover(row["node"], row["source"], proc, first, last, ids.get(proc, "")))


def _numbers(resume: Resume, rows: pa.Table) -> None:
    name = rows["proc"][0].as_py() if len(rows) else None
    if name is not None and not rows["proc"].null_count and pc.all(pc.equal(rows["proc"], name)).as_py():
        found = [{"proc": name, "seq_min": pc.min(rows["seq"]).as_py(), "seq_max": pc.max(rows["seq"]).as_py()}]
    else:
        found = rows.group_by("proc").aggregate([("seq", "min"), ("seq", "max")]).to_pylist()
    for row in found:
        if row["proc"] and row["seq_min"] is not None:
            first, last = resume.seqs.get(row["proc"], (row["seq_min"], row["seq_max"]))
            resume.seqs[row["proc"]] = min(first, row["seq_min"]), max(last, row["seq_max"])


def _broker_ids(rows: pa.Table) -> dict[str, str]:
    starts = rows.filter(pc.equal(rows["kind"], "start")).select(["proc", "attrs"]).to_pylist()
    return {row["proc"] or "": dict(row["attrs"] or ()).get("broker_id", "")[:8] for row in starts}


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass
class Segment:
    """One to be read.  `context`: its tally goes on with the counts of `resume`, where an earlier reading ended.
    `names`: shared by similar ones.  `after`: where this one ends."""

    name: str
    kind: str
    context: Context
    resume: Resume
    open: Callable[[], BinaryIO]
    names: Names = field(default_factory=Names)
    damaged: str | None = None
    octets: int = 0
    ends: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in COUNTS:
            setattr(self.context.tally, name, self.resume.counts.get(name, 0))
        self.octets = self.resume.octets
        self.after = deepcopy(self.resume)
        first = {"source": SOURCES[self.kind], "cluster": self.context.cluster, "node": self.context.node}
        self._joined = Joined(self.name, self.context, self.resume.common or first)
        self._reader = Reader(self.name, self.context.cluster, self.context.node, self.names)
        self._ended(self.octets)

    @property
    def since(self) -> int:
        """Number of the first line that was read now."""
        return self.resume.counts.get("lines", 0) + 1

    def columns(self) -> dict[str, Any]:
        """Of its State, when it has been read."""
        times = {"first_ts": self.after.first_ts, "last_ts": self.after.last_ts}
        damage = {} if self.damaged is None else {"state": "damaged", "why": self.damaged}
        return {**self._counts(), **times, **damage, "octets": self.octets, "resume": self.after.text()}

    def pieces(self) -> Iterator[Piece]:
        with self.open() as file:
            yield from pieces(file, self.resume, self._damage)

    def parse(self, piece: Piece) -> Block:
        return self._reader.block(piece.data, piece.first)

    def take(self, piece: Piece, block: Block) -> list[pa.Table]:
        """The rows of a piece, in their order; those of an unfinished last line are kept apart."""
        made = self._joined.rows(block)
        tables = [found for found in (block.table, table(made) if made else None) if found is not None and len(found)]
        self.octets = piece.octets
        if not piece.whole:
            self.ends = [row for found in tables for row in rows_of(found)]
            return []
        for found in tables:
            summed(self.after, found)
        self._ended(piece.octets)
        return tables

    def _damage(self, line_no: int, error: BaseException) -> None:
        self.damaged = f"damaged behind line {line_no}: {error}"

    def _counts(self) -> dict[str, int]:
        return {name: getattr(self.context.tally, name) for name in COUNTS}

    def _ended(self, octets: int) -> None:
        self.after.octets, self.after.counts = octets, self._counts()
        self.after.common = {name: value for name, value in self._joined.common.items() if name in COMMON}


def rows_of(found: pa.Table) -> list[Event]:
    """Rows as the parsers give them: what is NULL is absent."""
    rows = []
    for row in found.to_pylist():
        if row["attrs"] is not None:
            row["attrs"] = dict(row["attrs"])
        rows.append({name: value for name, value in row.items() if value is not None})
    return rows


def read(segments: Iterable[Segment], parts: Parts, pool: ThreadPoolExecutor, ahead: int) -> None:
    """Everything that they hold, into `parts`; at most `ahead` blocks are in memory at once."""
    waiting: deque[tuple[Segment, Piece, Future[Block]]] = deque()

    def take() -> None:
        segment, piece, block = waiting.popleft()
        for found in segment.take(piece, block.result()):
            parts.add(found)

    for segment in segments:
        for piece in segment.pieces():
            waiting.append((segment, piece, pool.submit(segment.parse, piece)))
            if len(waiting) >= ahead:
                take()
    while waiting:
        take()


# ---- writing --------------------------------------------------------------------------------------------------------


class Parts:
    """Parquet files in a folder, named `PREFIX-...`; the pool's threads write a row group each."""

    def __init__(self, folder: Path, prefix: str, pool: ThreadPoolExecutor) -> None:
        self.paths: list[Path] = []
        self._folder, self._prefix, self._pool = folder, prefix, pool
        self._held: dict[str, list[pa.Table]] = {"clients": [], "others": []}
        self._rows = {"clients": 0, "others": 0}
        self._free: dict[str, SimpleQueue[Any]] = {name: SimpleQueue() for name in self._held}
        self._open: list[pq.ParquetWriter] = []
        self._numbers = count()
        self._jobs: list[Future[None]] = []

    def add(self, found: pa.Table) -> None:
        client = pc.equal(found["source"], "client")
        for name, mask in (("clients", client), ("others", pc.invert(client))):
            rows = found if pc.all(mask).as_py() else found.filter(mask)
            if not len(rows):
                continue
            self._held[name].append(rows)
            self._rows[name] += len(rows)
            if self._rows[name] >= GROUP_ROWS:
                self._flush(name)

    def single(self, rows: Iterable[Event], name: str) -> str | None:
        """A file of its own; None if there are no rows."""
        found = table(rows)
        if not len(found):
            return None
        path = self._folder / f"{self._prefix}-{name}.parquet"
        pq.write_table(found, path, **WRITING)
        self.paths.append(path)
        return path.name

    def close(self) -> None:
        for name in self._held:
            self._flush(name)
        for job in self._jobs:
            job.result()
        for writer in self._open:
            writer.close()

    def _flush(self, name: str) -> None:
        if self._held[name]:
            group = pa.concat_tables(self._held[name])
            self._held[name], self._rows[name] = [], 0
            self._jobs.append(self._pool.submit(self._write, name, group))

    def _write(self, name: str, group: pa.Table) -> None:
        free = self._free[name]
        try:
            writer = free.get_nowait()
        except Empty:
            writer = self._writer(name)
        writer.write_table(group, row_group_size=len(group))
        free.put(writer)

    def _writer(self, name: str) -> pq.ParquetWriter:
        path = self._folder / f"{self._prefix}-{name}-{next(self._numbers)}.parquet"
        self.paths.append(path)
        writer = pq.ParquetWriter(path, schema.arrow(), **WRITING)
        self._open.append(writer)
        return writer
