"""Clusters that fit into a task of Spark, each computed there as on a machine of its own.

Theory.  No step looks at two clusters at once (`jobs.part`), and what DuckDB computes of a cluster costs a fraction of
what Spark's own queries do: these pay off when a cluster is larger than one core should have.  So if every cluster
has at most `fits` events, Spark has one plan for all steps:

    cut      a Parquet file of events → its rows of each bin (`bins`), as Parquet again; a file of one bin stays whole
    solve    what a bin has → all its tables, by DuckDB in a folder of the task's own
    join     here: the tables of all bins → tables of the workspace, in files of some size

Rows are never Spark's: it moves whole files, as octets, so that any file system will do.  When all tables are finished
they are put in the place of older ones, one by one: who calls knows that none counts before `run` has ended.
"""

from __future__ import annotations

import importlib.util
import io
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine, Row, arrow
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.session import remote, scratch
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.jobs.bins import EACH, packed
from spark_jobs.jobs.part import Part, near
from spark_jobs.progress import Progress
from spark_jobs.schema import ddl
from spark_jobs.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD

EVENTS: Final = "events_raw"
BESIDES: Final = ("files", "notes")
"""Of ingest, small."""
MEMORY: Final = 2_000_000_000
"""Octets of a task's DuckDB at most; the rest of what it needs goes to a disk."""
LARGEST: Final = 256 * 1024 * 1024
"""Octets of a file that Spark reads from a URL in one piece."""
_DUCKDB: Final = "duckdb"
JOINED: Final = 16 * 1024 * 1024
"""Octets of a file of a finished table: some 100 MB of memory while it is made."""
TICK: Final = 0.5
"""Seconds."""
Source = str | bytes
Piece = tuple[int, tuple[str, bytes]]
"""(bin, (table, Parquet))"""
Work = Callable[[Engine, Workspace], object]
"""All steps, of a workspace on this machine."""


@dataclass(frozen=True)
class Spread:
    """`files` of events, with `octets` together; `bins`: cluster → its bin, of those that are known before."""

    workspace: Workspace
    files: tuple[str, ...]
    octets: int
    bins: Mapping[str, int]

    @property
    def count(self) -> int:
        return max(self.bins.values()) + 1

    def bin_of(self, cluster: str) -> int | None:
        """None: nothing of it is wanted.  Any line of a file may name a cluster that the file's first one does not."""
        wanted = self.workspace.clusters if isinstance(self.workspace, Part) else None
        if wanted is not None and cluster not in wanted:
            return None
        found = self.bins.get(cluster)
        return crc32(cluster.encode(errors="surrogatepass")) % self.count if found is None else found


def planned(engine: Engine, workspace: Workspace) -> Spread | None:
    """None if a cluster is too large for a task, if events lie where ingest did not write them, or if workers have no
    DuckDB."""
    if not isinstance(engine, SparkEngine) or not engine.fits or _has_given(engine, workspace):
        return None
    if remote(engine.context) and not all(engine.context.parallelize([_DUCKDB], 1).map(_there).collect()):
        return None
    sizes, events = _sizes(engine, workspace), _events(engine, workspace)
    if not events or max(events.values()) > engine.fits:
        return None
    if any(size > LARGEST and not engine.is_here(file) for file, size in sizes.items()):
        return None
    bins = packed(events, engine.context.defaultParallelism)
    return Spread(workspace, tuple(sorted(sizes)), sum(sizes.values()), bins)


def run(engine: SparkEngine, spread: Spread, work: Work, tables: Sequence[str], progress: Progress) -> None:
    """All `tables` of the workspace."""
    context, count = engine.context, spread.count
    told = context.accumulator(0)
    threads = 1 if remote(context) else max(1, context.defaultParallelism // count)
    cut = _sources(engine, spread.files).mapPartitions(partial(_pieces, spread))
    pieces = cut.union(context.parallelize(_besides(engine, spread), 1))
    pieces = pieces.partitionBy(count, int) if count > 1 else pieces.coalesce(1)
    solved = partial(_solved, spread, work, tuple(tables), threads, told)
    with _ticking(lambda: progress.at(told.value * spread.octets, count * spread.octets)):
        made = pieces.mapPartitions(solved).persist(_disk())
        try:
            made._jrdd.count()  # in the JVM: no octet comes to Python for this
            _join(engine, spread.workspace, tables, made.toLocalIterator())
        finally:
            made.unpersist()


def _disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY


def _there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@contextmanager
def _ticking(tell: Callable[[], None]) -> Iterator[None]:
    done = threading.Event()

    def tick() -> None:
        while not done.wait(TICK):
            tell()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# ---- what there is --------------------------------------------------------------------------------------------------


def _place(workspace: Workspace) -> Workspace:
    return workspace.whole if isinstance(workspace, Part) else workspace


def _has_given(engine: Engine, workspace: Workspace) -> bool:
    place = _place(workspace)
    if not place.has(engine, "given"):
        return False
    place.load(engine, "given")
    return bool(engine.rows("select 1 as n from given limit 1"))


def _sizes(engine: SparkEngine, workspace: Workspace) -> dict[str, int]:
    """Of the files of events, in octets."""
    path = _place(workspace).path(EVENTS)
    sizes = {file.path: file.size for file in engine.written(path)}
    if not delta.is_table(path):
        return {f"{path}/{name}": size for name, size in sizes.items()}
    eras = workspace.eras if isinstance(workspace, Part) else ()
    return {f"{path}/{name}": sizes[name] for name in (near(path, eras) if eras else delta.files(path))}


def _events(engine: SparkEngine, workspace: Workspace) -> dict[str, int]:
    """Cluster → how many events it has, about."""
    found: dict[str, int] = defaultdict(int)
    known = [table for table in BESIDES if _place(workspace).has(engine, table)]
    workspace.load(engine, *(known if "files" in known else [EVENTS, *known]))
    counted = "sum(events) as n from files" if "files" in known else f"count(*) as n from {EVENTS}"
    queries = [f"select coalesce(cluster, '') as cluster, {counted} group by coalesce(cluster, '')"]
    queries += ["select distinct coalesce(cluster, '') as cluster, 0 as n from notes"] if "notes" in known else []
    for query in queries:
        for row in engine.rows(query):
            found[row["cluster"]] += row["n"] or 0
    return dict(found)


# ---- cut ------------------------------------------------------------------------------------------------------------


def _sources(engine: SparkEngine, files: Sequence[str]) -> RDD[Source]:
    """Of a disk that workers see the paths, else what is in the files."""
    if all(map(engine.is_here, files)):
        tasks = min(len(files), EACH * engine.context.defaultParallelism)
        return engine.context.parallelize(files, max(1, tasks))
    found = engine.reader.format("binaryFile").load(list(files))
    return found.select("content").rdd.map(lambda row: bytes(row["content"]))


def _pieces(spread: Spread, sources: Iterable[Source]) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for source in sources:
        with pq.ParquetFile(source if isinstance(source, str) else pa.BufferReader(source)) as file:
            only = _only(file)
            if only is None:
                for group in range(file.num_row_groups):
                    yield from _by_bin(spread, file.read_row_group(group))
            elif (number := spread.bin_of(only)) is not None:
                yield number, (EVENTS, Path(source).read_bytes() if isinstance(source, str) else source)


def _only(file: Any) -> str | None:
    """The cluster of all of its rows, if the file's statistics tell."""
    found = set()
    for group in range(file.num_row_groups):
        columns = (file.metadata.row_group(group).column(number) for number in range(file.metadata.num_columns))
        stats = next((column.statistics for column in columns if column.path_in_schema == "cluster"), None)
        if stats is None or stats.null_count or not stats.has_min_max or stats.min != stats.max:
            return None
        found.add(stats.min)
    return found.pop() if len(found) == 1 else None


def _by_bin(spread: Spread, rows: pa.Table) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pc.fill_null(rows.column("cluster"), "")
    bins: dict[int, list[str]] = defaultdict(list)
    for name in pc.unique(names).to_pylist():
        if (number := spread.bin_of(name)) is not None:
            bins[number].append(name)
    for number, of in bins.items():
        yield number, (EVENTS, _parquet(rows.filter(pc.is_in(names, pa.array(of)))))


def _parquet(rows: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    return sink.getvalue()


def _besides(engine: SparkEngine, spread: Spread) -> Iterator[Piece]:
    """What ingest wrote besides events, for each bin."""
    for table in BESIDES:
        if not _place(spread.workspace).has(engine, table):
            continue
        rows: dict[int, list[Row]] = {number: [] for number in range(spread.count)}
        for row in engine.rows(f"select * from {table}"):
            rows[spread.bins[row["cluster"] or ""]].append(row)
        for number, of in rows.items():
            yield number, (table, _parquet(arrow(engine.ddl(table), of)))


# ---- solve ----------------------------------------------------------------------------------------------------------


def _solved(
    spread: Spread, work: Work, tables: Sequence[str], threads: int, told: Any, pieces: Iterable[Piece]
) -> Iterator[tuple[str, bytes]]:
    """(table, Parquet) of the bin that has the pieces."""
    with TemporaryDirectory(prefix="failover-report-", dir=scratch()) as folder:
        numbers = {_unpacked(Path(folder), name, piece) for name, piece in enumerate(pieces)}
        for number in numbers:
            with closing(DuckEngine(threads, f"{_memory()}B", Path(folder, "scratch"))) as engine:
                workspace = _of_bin(spread, number, folder)
                if not engine.exists(Workspace(folder).path(EVENTS)):
                    engine.keep(Workspace(folder).path(EVENTS), ddl(), [])
                work(engine, workspace)
                for table in tables:
                    path = Path(workspace.path(table))
                    for name in engine.parts(str(path)):
                        yield table, (path / name).read_bytes()
            told.add(1)


def memory(environ: Mapping[str, str], machine: int, cores: int) -> int:
    """Octets: half of what Spark allows a worker, else of what each core of the machine can have."""
    allowed = int(environ.get("PYSPARK_EXECUTOR_MEMORY_MB", 0)) << 20
    return min(MEMORY, (allowed or machine // cores) // 2)


def _memory() -> int:
    return memory(os.environ, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), os.cpu_count() or 1)


def _unpacked(folder: Path, name: int, piece: Piece) -> int:
    """Puts it where it will be found; its bin."""
    number, (table, content) = piece
    (folder / table).mkdir(exist_ok=True)
    (folder / table / f"{name}.parquet").write_bytes(content)
    return number


def _of_bin(spread: Spread, number: int, folder: str) -> Workspace:
    found = spread.workspace
    if not isinstance(found, Part):
        return Workspace(folder)
    eras = tuple(era for era in found.eras if spread.bins.get(era.cluster) == number)
    return replace(found, place=f"{folder}/part", whole=Workspace(folder), clusters=None, eras=eras, gone=())


# ---- join -----------------------------------------------------------------------------------------------------------


def _join(
    engine: SparkEngine, workspace: Workspace, tables: Iterable[str], made_of: Iterable[tuple[str, bytes]]
) -> None:
    """In place of what was there."""
    old = {table: engine.parts(workspace.path(table)) for table in tables}
    made: dict[str, list[str]] = {table: [] for table in old}
    held: dict[str, list[bytes]] = defaultdict(list)
    with TemporaryDirectory(prefix="failover-report-") as folder:

        def put(table: str) -> None:
            file = Path(folder, f"bins-{len(made[table]):05d}.parquet")
            _together(held.pop(table), file)
            engine.put([file], workspace.path(table))
            made[table].append(file.name)

        for table, content in made_of:
            held[table].append(content)
            if sum(map(len, held[table])) >= JOINED:
                put(table)
        for table in list(held):
            put(table)
    for table, names in old.items():
        engine.drop(workspace.path(table), [name for name in names if name not in made[table]])


def _together(contents: Sequence[bytes], file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(pa.BufferReader(content)) for content in contents]
    columns = pa.schema([field.with_nullable(True) for field in tables[0].schema])  # NULLs that one bin has not
    pq.write_table(pa.concat_tables(table.cast(columns) for table in tables), file, compression="zstd")
