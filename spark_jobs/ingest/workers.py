"""What Spark's tasks do with the files that `tasks` gives them: each is opened as a bundle on the worker's disk.

What is told of a file comes back through the accumulator `Told`, by its name.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Protocol

from spark_jobs.bundle import Bundle, BundleError, File
from spark_jobs.engine import session
from spark_jobs.ingest import texts
from spark_jobs.ingest.local import found_of
from spark_jobs.ingest.plan import Found
from spark_jobs.ingest.segments import Segment
from spark_jobs.ingest.tables import Resume
from spark_jobs.parse.context import Context
from spark_jobs.parse.json_blocks import Names
from spark_jobs.parse.segments import table

if TYPE_CHECKING:
    import pyarrow as pa

LOOK: Final = (
    "url string, inner string, mtime bigint, size bigint, kind string, head string, named string, open boolean, "
    "why string, survey binary"
)
BATCH_ROWS: Final = 20_000


def us(moment: Any) -> int:
    return int(moment.timestamp() * 1_000_000)


class Told:
    """An accumulator of dictionaries (`pyspark.AccumulatorParam`, which need not be inherited)."""

    def zero(self, value: dict[str, Any]) -> dict[str, Any]:
        return {}

    def addInPlace(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        one.update(other)
        return one


@contextmanager
def _opened(row: Mapping[str, Any]) -> Iterator[tuple[Bundle, Path]]:
    """The file of a row, on this worker's disk.  Raises BundleError."""
    with tempfile.TemporaryDirectory(prefix="failover-report-", dir=session.scratch()) as folder:
        path = Path(folder) / (PurePosixPath(row["path"]).name or "file")
        path.write_bytes(row["content"])
        os.utime(path, ns=(0, us(row["modificationTime"]) * 1000))
        (Path(folder) / "scratch").mkdir()
        with Bundle(path, scratch=Path(folder) / "scratch") as bundle:
            yield bundle, path


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _inner(file: File, path: Path) -> str:
    """Its place in a tarball; empty if the file is none."""
    return "" if file.path == path else file.name


def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What each file is; of text logs what they tell about clocks."""
    from spark_jobs.engine.base import arrow

    for row in _rows(batches):
        found: list[dict[str, Any]] = []
        try:
            with _opened(row) as (bundle, path):
                found += [_seen(file, _inner(file, path)) for file in bundle]
                found += [_refused(refused.name, refused.why) for refused in bundle.refused]
        except BundleError as error:
            found.append(_refused("", str(error)))
        yield from arrow(LOOK, ({**one, "url": row["path"]} for one in found)).to_batches()


def _refused(inner: str, why: str) -> dict[str, Any]:
    return vars(Found("", "", "", 0, 0, why=why)) | {"inner": inner}


def _seen(file: File, inner: str) -> dict[str, Any]:
    found = found_of(file, "")
    surveys = texts.surveyed([texts.Text(file.name, found.kind, file.mtime, file.lines)])
    return vars(found) | {"inner": inner, "survey": pickle.dumps(surveys[0]) if surveys else None}


class Reading(Protocol):
    """`files`: url → place inside → what to do."""

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]: ...

    def rows(self, bundle: Bundle, file: File, task: Any, tell: dict[str, Any]) -> Iterator[pa.Table]: ...


def read(function: Reading, told: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for row in _rows(batches):
        wanted = function.files[row["path"]]
        with _opened(row) as (bundle, path):
            for file in bundle:
                task = wanted.get(_inner(file, path))
                if task is None:
                    continue
                tell: dict[str, Any] = {}
                for found in function.rows(bundle, file, task, tell):
                    yield from found.to_batches(max_chunksize=BATCH_ROWS)
                told.add({task[0]: tell})


@dataclass(frozen=True)
class Lines:
    files: Mapping[str, Mapping[str, Any]]
    names: Names = field(default_factory=Names)

    def rows(self, bundle: Bundle, file: File, task: Any, tell: dict[str, Any]) -> Iterator[pa.Table]:
        name, kind, cluster, resume = task
        segment = Segment(name, kind, Context(cluster), Resume.of(resume), file.open, self.names)
        for piece in segment.pieces():
            yield from segment.take(piece, segment.parse(piece))
        tell |= {
            "state": segment.columns(), "ends": segment.ends, "faults": segment.context.tally.faults,
            "since": segment.since,
        }  # fmt: skip


@dataclass(frozen=True)
class Texts:
    files: Mapping[str, Mapping[str, Any]]
    almanacs: Mapping[str, Any]
    covers: Mapping[str, Any]
    zones: Mapping[str, str]

    def rows(self, bundle: Bundle, file: File, task: Any, tell: dict[str, Any]) -> Iterator[pa.Table]:
        name, kind, cluster, mtime, node = task
        text = texts.Text(name, kind, mtime, file.lines, node)
        done = texts.read(text, cluster, self.almanacs[cluster], self.zones, self.covers[cluster])
        damage = next((one.why for one in bundle.refused if one.name == file.name), None)
        tell |= {"state": done.columns(damage), "faults": done.tally.faults}
        yield table(done.rows)
