"""Files by Hadoop's URLs (s3a://, hdfs://, file:// that all workers see), read in Spark's tasks.

Each file is one row of Spark's `binaryFile`; a task opens it as a bundle of its own, so tarballs and packed files are
what they are on a disk (`workers`).  Three passes, and only small rows come to the driver: what each file is, and what
the text logs tell about clocks; the segments' rows, written by the tasks; the text logs' rows, likewise.  Counts come
back through an accumulator, by the file's name: a repeated task reports the same counts again.

A file that has not changed is not opened.  One file is read by one task: segments are rotated by their writers.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from spark_jobs import schema
from spark_jobs.bundle import Progress
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.ingest import texts, workers
from spark_jobs.ingest.given import IngestError
from spark_jobs.ingest.local import IngestSettings, Outcome, covers_of, node_for
from spark_jobs.ingest.plan import SEGMENTS, UNREAD, Found, Task, inside, logs_to_read, plan
from spark_jobs.ingest.tables import State
from spark_jobs.parse.segments import table
from spark_jobs.parse.survey import Survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPTIONS: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.files.maxPartitionBytes": str(512 << 20),
}
"""A row is a whole file, so a batch of one; half a gigabyte of JSON is a Parquet file of some 20 MB."""
_CONTENT: Final = ("path", "modificationTime", "content")


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

    def __init__(
        self, engine: SparkEngine, named: Mapping[str, str], wanted: IngestSettings, events: str, prefix: str
    ) -> None:
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
            outcome = Outcome.of(tasks)
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
            Listed(label, url, url.removeprefix(base).lstrip("/"), workers.us(row["modificationTime"]), row["length"])
            for url, row in sorted({str(row["path"]): row for row in rows}.items())
        ]

    def _files(self, urls: Sequence[str]) -> DataFrame:
        reader = self._engine.reader.format("binaryFile").option("recursiveFileLookup", "true")
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
        for row in self._engine.map_in_arrow(frame, workers.look, workers.LOOK).toArrow().to_pylist():
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
            lines = workers.Lines(_by_url(chosen, _line_task))
            told = self._write(chosen, lines, kind.removesuffix("_json"), outcome, False)
            for task in chosen:
                done = told[task.state.name]
                outcome.enter(task, done["state"], done["faults"], done["since"])
                ends += done["ends"]
                ending += [task.state.name] if done["ends"] else []
        if ends:
            frame = self._engine.session.createDataFrame(table(ends)).coalesce(1)
            (part,) = self._engine.append_frame(frame, self._events, f"{self._prefix}-ends")
            outcome.parts.append(part)
            outcome.states |= {name: replace(outcome.states[name], part=part) for name in ending}

    def _write(
        self, tasks: Sequence[Task], function: workers.Reading, name: str, outcome: Outcome, single: bool
    ) -> dict[str, Any]:
        """Runs it over the tasks' files; what it told of each by name."""
        if not tasks:
            return {}
        told = self._engine.context.accumulator({}, workers.Told())
        frame = self._files(sorted({task.found.place.url for task in tasks})).select(*_CONTENT)
        rows = self._engine.map_in_arrow(frame, partial(workers.read, function, told), schema.ddl())
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
        function = workers.Texts(_by_url(chosen, _text_task), almanacs, covers, dict(self._wanted.zones))
        told = self._write(chosen, function, "text", outcome, True)
        part = outcome.parts[-1] if told else None
        for task in chosen:
            done = told[task.state.name]
            mine_part = part if done["state"]["events"] > done["state"]["covered"] else None
            outcome.enter(task, done["state"] | {"part": mine_part}, done["faults"])


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
