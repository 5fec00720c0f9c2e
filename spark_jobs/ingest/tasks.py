"""Files by Hadoop's URLs (s3a://, hdfs://, file:// that all workers see), read in Spark's tasks.

Each file is one row of Spark's `binaryFile`; a task opens it as a bundle of its own, so tarballs and packed files are
what they are on a disk.  Three passes, and only small rows come to the driver: what each file is, and what the text
logs tell about clocks (`_look`); the segments' rows, written by the tasks; the text logs' rows, likewise.  Counts come
back through an accumulator, by the file's name: a repeated task reports the same counts again.

A file that has not changed is not opened.  One file is read by one task: segments are rotated by their writers.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from spark_jobs import schema
from spark_jobs.bundle import Bundle, BundleError, File
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.ingest import texts
from spark_jobs.ingest.given import IngestError
from spark_jobs.ingest.local import Outcome, Wanted, covers_of, found_of, node_for
from spark_jobs.ingest.plan import SEGMENTS, UNREAD, Found, Task, inside, logs_to_read, plan
from spark_jobs.ingest.segments import Segment
from spark_jobs.ingest.tables import Resume, State
from spark_jobs.parse.context import Context
from spark_jobs.parse.json_blocks import Names
from spark_jobs.parse.segments import table
from spark_jobs.parse.survey import Survey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_LOOK: Final = (
    "url string, inner string, mtime bigint, size bigint, kind string, head string, named string, open boolean, "
    "why string, survey binary"
)
_OPTIONS: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.files.maxPartitionBytes": str(512 << 20),
}
"""A row is a whole file, so a batch of one; half a gigabyte of JSON is a Parquet file of some 20 MB."""
_BATCH_ROWS: Final = 20_000
_CONTENT: Final = ("path", "modificationTime", "content")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Listed:
    """A file below a URL, not opened yet.  `inner`: its place below; empty if the URL is the file."""

    label: str
    url: str
    inner: str
    mtime: int
    size: int

    def name(self, member: str) -> str:
        """Of the file, or of a member of it."""
        return "/".join(part for part in (self.inner, member) if part) or PurePosixPath(self.url).name


@dataclass(frozen=True)
class Place:
    """`inner`: inside of `url` if that is a tarball, else empty."""

    url: str
    inner: str


class Tasks:
    """Reads what is below some URLs (→ labels).  Raises IngestError for one that is not there."""

    def __init__(self, engine: SparkEngine, named: Mapping[str, str], wanted: Wanted, events: str, prefix: str) -> None:
        self._engine, self._named, self._wanted = engine, named, wanted
        self._events, self._prefix = events, prefix
        self.found: list[Found] = []

    def ingest(self, known: Mapping[str, State], progress: Progress | None) -> Outcome:
        """`found` is what lies there, afterwards."""
        report = progress or (lambda done, total: None)
        with self._engine.configured(_OPTIONS):
            listed = [file for url, label in self._named.items() for file in self._listed(url, label)]
            total = sum(file.size for file in listed)
            report(0, total)
            surveys = self._looked(listed, known)
            tasks = self._wanted.tasks(self.found, known)
            outcome = Outcome({task.state.name: task.state for task in tasks})
            outcome.replaced = {t.known.name for t in tasks if t.known is not None and t.known.name != t.state.name}
            self._segments(tasks, outcome)
            self._texts(tasks, known, surveys, outcome)
            report(total, total)
        return outcome

    # ---- what lies there --------------------------------------------------------------------------------------------

    def _listed(self, url: str, label: str) -> list[Listed]:
        if not self._engine.exists(url):
            raise IngestError(f"{url}: there is nothing")
        base = self._engine.qualified(url)
        rows = self._files([url]).select("path", "modificationTime", "length").toArrow().to_pylist()
        return [
            Listed(label, row["path"], _below(row["path"], base), _us(row["modificationTime"]), row["length"])
            for row in sorted(rows, key=lambda row: str(row["path"]))
        ]  # fmt: skip

    def _files(self, urls: Sequence[str]) -> DataFrame:
        reader = self._engine.session.read.format("binaryFile").option("recursiveFileLookup", "true")
        return reader.load(list(urls))

    def _looked(self, listed: Sequence[Listed], known: Mapping[str, State]) -> dict[Place, Survey]:
        """Fills `found`; the text logs' surveys, where one of the cluster has changed of all of them."""
        same = {file.url: (file, state) for file in listed if (state := _unchanged(file, known)) is not None}
        surveys = self._look([file for file in listed if file.url not in same])
        fresh = plan([*self.found, *(_same(*one) for one in same.values())], known, self._wanted.cluster)
        changed = {task.state.cluster for task in fresh if task.todo in ("lines", "text")}
        again = {url: file for url, (file, state) in same.items() if _text_of(state, changed)}
        surveys |= self._look(list(again.values()))
        self.found += [_same(*one) for url, one in same.items() if url not in again]
        return surveys

    def _look(self, files: Sequence[Listed]) -> dict[Place, Survey]:
        if not files:
            return {}
        named = {file.url: file for file in files}
        frame = self._files(list(named)).select(*_CONTENT)
        surveys: dict[Place, Survey] = {}
        for row in self._engine.map_in_arrow(frame, _look, _LOOK).toArrow().to_pylist():
            outer = named[row["url"]]
            name, is_open = inside(outer.name(row["inner"]), packed=True)
            place = Place(row["url"], row["inner"])
            columns = {column: row[column] for column in ("kind", "mtime", "size", "head", "named", "why")}
            is_open = is_open or row["open"]
            self.found.append(Found(outer.label, name, **columns, open=is_open, place=place if row["kind"] else None))
            if row["survey"]:
                surveys[place] = pickle.loads(row["survey"])
        return surveys

    # ---- segments ---------------------------------------------------------------------------------------------------

    def _segments(self, tasks: Sequence[Task], outcome: Outcome) -> None:
        ends: list[schema.Event] = []
        ending: list[str] = []
        for kind in SEGMENTS:  # apart: a row group holds clients' rows or others'
            chosen = [task for task in tasks if task.todo == "lines" and task.state.kind == kind]
            told = self._write(chosen, _Lines(_by_url(chosen, _line_task)), kind.removesuffix("_json"), outcome, False)
            for task in chosen:
                done = told[task.state.name]
                outcome.states[task.state.name] = replace(task.state, **done["state"])
                outcome.faults[task.state.name] = (done["since"], done["faults"])
                outcome.replaced.add(task.state.name)
                ends += done["ends"]
                ending += [task.state.name] if done["ends"] else []
        if ends:
            frame = self._engine.session.createDataFrame(table(ends)).coalesce(1)
            (part,) = self._engine.append_frame(frame, self._events, f"{self._prefix}-ends")
            outcome.parts.append(part)
            outcome.states |= {name: replace(outcome.states[name], part=part) for name in ending}

    def _write(
        self, tasks: Sequence[Task], function: _Reading, name: str, outcome: Outcome, single: bool
    ) -> dict[str, Any]:
        """Runs it over the tasks' files; what it told of each by name."""
        if not tasks:
            return {}
        told = self._engine.session.sparkContext.accumulator({}, _Told())
        frame = self._files(sorted({task.found.place.url for task in tasks})).select(*_CONTENT)
        rows = self._engine.map_in_arrow(frame, partial(_read, function, told), schema.ddl())
        rows = rows.repartition(1) if single else rows
        outcome.parts += self._engine.append_frame(rows, self._events, f"{self._prefix}-{name}")
        return dict(told.value)

    # ---- text logs --------------------------------------------------------------------------------------------------

    def _texts(
        self, tasks: Sequence[Task], known: Mapping[str, State], surveys: Mapping[Place, Survey], outcome: Outcome
    ) -> None:
        clusters = logs_to_read(tasks)
        chosen = [task for mine in clusters.values() for task in mine]
        almanacs = {}
        for cluster, mine in sorted(clusters.items()):
            pairs = [(surveys.get(task.found.place), task.state.name) for task in mine]
            named = [_renamed(survey, name) for survey, name in pairs if survey is not None]
            listed = [texts.Text(task.state.name, task.found.kind, task.found.mtime, list) for task in mine]
            almanacs[cluster] = texts.almanac_of(named, listed, self._wanted.zones, self._wanted.now)
            outcome.notes[cluster] = texts.notes_of(almanacs[cluster], cluster)
        every = {**known, **outcome.states}.values()
        covers = {cluster: covers_of(every, cluster) for cluster in clusters}
        function = _Texts(_by_url(chosen, _text_task), almanacs, covers, dict(self._wanted.zones))
        told = self._write(chosen, function, "text", outcome, True)
        part = outcome.parts[-1] if told else None
        for task in chosen:
            done = told[task.state.name]
            mine_part = part if done["state"]["events"] > done["state"]["covered"] else None
            outcome.states[task.state.name] = replace(task.state, **done["state"], part=mine_part)
            outcome.faults[task.state.name] = (0, done["faults"])
            outcome.replaced.add(task.state.name)


def _below(path: str, base: str) -> str:
    """The place of a file below a URL."""
    return path.removeprefix(base).lstrip("/")


def _us(moment: Any) -> int:
    return int(moment.timestamp() * 1_000_000)


def _unchanged(file: Listed, known: Mapping[str, State]) -> State | None:
    name, is_open = inside(file.name(""), packed=True)
    for one in (name, f"{file.label}/{name}"):
        state = known.get(one)
        if state is not None and (state.input, state.size, state.mtime) == (file.label, file.size, file.mtime):
            return state if is_open == (state.state == "open") and state.state != "copy" else None
    return None


def _text_of(state: State, clusters: set[str]) -> bool:
    return state.cluster in clusters and state.kind not in SEGMENTS and state.state not in UNREAD


def _same(file: Listed, state: State) -> Found:
    name, is_open = inside(file.name(""), packed=True)
    kind = "" if state.state in UNREAD else state.kind
    named = state.cluster if state.kind in SEGMENTS else ""
    why = state.why if state.state == "refused" else None
    place = Place(file.url, "")
    return Found(file.label, name, kind, file.mtime, file.size, state.head, named, is_open, why, place)


def _renamed(survey: Survey, name: str) -> Survey:
    """Tasks do not know yet how a file will be called."""
    survey.file = name
    for stream in survey.streams.values():
        stream.file = name
    return survey


def _by_url(tasks: Iterable[Task], made: Callable[[Task], Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for task in tasks:
        found[task.found.place.url][task.found.place.inner] = made(task)
    return dict(found)


def _line_task(task: Task) -> tuple[str, str, str, str | None]:
    return task.state.name, task.state.kind, task.state.cluster, task.known.resume if task.known is not None else None


def _text_task(task: Task) -> tuple[str, str, str, int, str]:
    return task.state.name, task.found.kind, task.state.cluster, task.found.mtime, node_for(task)


# ---- in the tasks ---------------------------------------------------------------------------------------------------


class _Told:
    """An accumulator of dictionaries (`pyspark.AccumulatorParam`, which need not be inherited)."""

    def zero(self, value: dict[str, Any]) -> dict[str, Any]:
        return {}

    def addInPlace(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        one.update(other)
        return one


@contextmanager
def _opened(row: Mapping[str, Any]) -> Iterator[tuple[Bundle, Path]]:
    """The file of a row, on this worker's disk.  Raises BundleError."""
    with tempfile.TemporaryDirectory(prefix="failover-report-") as folder:
        path = Path(folder) / (PurePosixPath(row["path"]).name or "file")
        path.write_bytes(row["content"])
        os.utime(path, ns=(0, _us(row["modificationTime"]) * 1000))
        (Path(folder) / "scratch").mkdir()
        with Bundle(path, scratch=Path(folder) / "scratch") as bundle:
            yield bundle, path


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _inner(file: File, path: Path) -> str:
    """Its place in a tarball; empty if the file is none."""
    return "" if file.path == path else file.name


def _look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What each file is; of text logs what they tell about clocks."""
    from spark_jobs.engine.base import arrow

    for row in _rows(batches):
        found: list[dict[str, Any]] = []
        try:
            with _opened(row) as (bundle, path):
                found += [_seen(file, _inner(file, path), row["path"]) for file in bundle]
                found += [_refused(row["path"], refused.name, refused.why) for refused in bundle.refused]
        except BundleError as error:
            found.append(_refused(row["path"], "", str(error)))
        yield from arrow(_LOOK, found).to_batches()


def _refused(url: str, inner: str, why: str) -> dict[str, Any]:
    return {
        "url": url, "inner": inner, "mtime": 0, "size": 0, "kind": "", "head": "", "named": "", "open": False,
        "why": why,
    }  # fmt: skip


def _seen(file: File, inner: str, url: str) -> dict[str, Any]:
    found = found_of(file, "")
    text = texts.Text(file.name, found.kind, file.mtime, file.lines)
    surveys = texts.surveyed([text])
    return {
        "url": url, "inner": inner, "mtime": found.mtime, "size": found.size, "kind": found.kind, "head": found.head,
        "named": found.named, "open": found.open, "why": found.why,
        "survey": pickle.dumps(surveys[0]) if surveys else None,
    }  # fmt: skip


class _Reading:
    """`files`: url → place inside → what to do."""

    files: Mapping[str, Mapping[str, Any]]

    def rows(self, bundle: Bundle, file: File, task: Any, tell: dict[str, Any]) -> Iterator[pa.Table]:
        raise NotImplementedError


def _read(function: _Reading, told: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for row in _rows(batches):
        wanted = function.files[row["path"]]
        with _opened(row) as (bundle, path):
            for file in bundle:
                task = wanted.get(_inner(file, path))
                if task is None:
                    continue
                tell: dict[str, Any] = {}
                for found in function.rows(bundle, file, task, tell):
                    yield from found.to_batches(max_chunksize=_BATCH_ROWS)
                told.add({task[0]: tell})


@dataclass(frozen=True)
class _Lines(_Reading):
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
class _Texts(_Reading):
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
