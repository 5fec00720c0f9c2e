"""Files of this machine's disk (folders, tarballs, packed and single ones) to Parquet files in a folder.       Shell.

Nothing of the engine is here: both get what this writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spark_jobs.bundle import Bundle, BundleError, File, Progress
from spark_jobs.engine.base import Row
from spark_jobs.ingest import texts
from spark_jobs.ingest.plan import COVERING, SEGMENTS, Found, Task, head_of, inside, logs_to_read, plan
from spark_jobs.ingest.segments import Parts, Segment, read
from spark_jobs.ingest.tables import Cover, Resume, State
from spark_jobs.parse import detect
from spark_jobs.parse.broker_text import node_of
from spark_jobs.parse.context import Context, Fault
from spark_jobs.parse.json_blocks import Names


@dataclass
class Outcome:
    """`replaced`: names of files whose rows in their own `part` do not count any more; `faults`: file → (from line,
    the new ones); `notes`: cluster → all of it; `parts`: names of new Parquet files."""

    states: dict[str, State] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    faults: dict[str, tuple[int, list[Fault]]] = field(default_factory=dict)
    notes: dict[str, list[Row]] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)

    @staticmethod
    def of(tasks: Iterable[Task]) -> Outcome:
        """Before anything of them is read."""
        outcome = Outcome({task.state.name: task.state for task in tasks})
        outcome.replaced = {task.known.name for task in tasks if task.known and task.known.name != task.state.name}
        return outcome

    def enter(self, task: Task, columns: Mapping[str, Any], faults: list[Fault], since: int = 0) -> None:
        """A file has been read; `columns`: of its State."""
        self.states[task.state.name] = replace(task.state, **columns)
        self.replaced.add(task.state.name)
        self.faults[task.state.name] = (since, faults)


class Local:
    """`with Local(labels, progress, scratch) as local`: `found` is what lies there.

    `labels`: path → label.  Raises BundleError for an input that is not there, or holds nothing."""

    def __init__(self, labels: Mapping[str, str], progress: Progress | None, scratch: Path | None) -> None:
        self.found: list[Found] = []
        self._labels = labels
        self._scratch = scratch
        self._stack = ExitStack()
        self._bundles: list[Bundle] = []
        self._progress = _Sum(progress) if progress is not None else None

    def __enter__(self) -> Local:
        try:
            for path, label in self._labels.items():
                report = self._progress.part() if self._progress is not None else None
                bundle = self._stack.enter_context(Bundle(path, report, self._scratch))
                self._bundles.append(bundle)
                self._look(bundle, label)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _look(self, bundle: Bundle, label: str) -> None:
        for refused in bundle.refused:
            self.found.append(Found(label, refused.name, "", 0, 0, why=refused.why))
        self.found += [found_of(file, label) for file in bundle]

    def why(self, name: str) -> str | None:
        """What was found to be damaged while it was read."""
        for bundle in self._bundles:
            for refused in bundle.refused:
                if refused.name == name and refused.why.startswith("damaged behind"):
                    return refused.why
        return None


class _Sum:
    """The progress of several bundles as one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._parts: dict[int, tuple[int, int]] = {}

    def part(self) -> Progress:
        number = len(self._parts)
        self._parts[number] = (0, 0)

        def report(done: int, total: int) -> None:
            self._parts[number] = (done, total)
            self._progress(sum(d for d, _ in self._parts.values()), sum(t for _, t in self._parts.values()))

        return report


def found_of(file: File, label: str) -> Found:
    """What it is, by its first lines."""
    name, is_open = inside(file.name, file.packed)
    try:
        lines = file.head()
    except BundleError as error:
        why = str(error).removeprefix(f"{file.name}: ")
        return Found(label, name, "", file.mtime, file.size, open=is_open, why=why)
    kind = detect.detect(name, lines)
    if kind is None or not any(lines):
        return Found(label, name, "", file.mtime, file.size, open=is_open, why=None)
    head, named = head_of(kind, lines)
    return Found(label, name, kind, file.mtime, file.size, head, named, is_open, place=file)


@dataclass(frozen=True)
class IngestSettings:
    """`cluster`: of all rows that name none.  `zones`: node, or `*`, → zone of its local times.  `now` in µs, only for
    years that no file tells.  `threads`: None is one for each core; more than eight wait for the disk.  `scratch`:
    folder for what is unpacked.  `only`: files that are read now; what is known of the others stays, and for names and
    clusters all files count."""

    cluster: str = ""
    zones: Mapping[str, str] = field(default_factory=dict)
    now: int | None = None
    threads: int | None = None
    scratch: str | None = None
    only: Callable[[Found], bool] | None = None

    def tasks(self, found: Iterable[Found], known: Mapping[str, State]) -> list[Task]:
        tasks = plan(found, known, self.cluster)
        return [task for task in tasks if self.only is None or self.only(task.found)]


def ingest(local: Local, known: Mapping[str, State], wanted: IngestSettings, folder: Path, prefix: str) -> Outcome:
    """Writes the rows that are new into `folder`, as `PREFIX-...parquet`."""
    tasks = wanted.tasks(local.found, known)
    outcome = Outcome.of(tasks)
    threads = wanted.threads or max(1, min(8, len(os.sched_getaffinity(0))))
    with ThreadPoolExecutor(threads) as pool:
        parts = Parts(folder, prefix, pool)
        _segments(tasks, parts, pool, threads, outcome)
        _texts(local, tasks, known, wanted, parts, outcome)
        parts.close()
    outcome.parts = [path.name for path in parts.paths]
    return outcome


# ---- segments -------------------------------------------------------------------------------------------------------


def _segments(tasks: Sequence[Task], parts: Parts, pool: ThreadPoolExecutor, count: int, outcome: Outcome) -> None:
    names = {kind: Names() for kind in SEGMENTS}
    chosen = [(task, _segment(task, names[task.state.kind])) for task in tasks if task.todo == "lines"]
    read((segment for _, segment in chosen), parts, pool, 2 * count + 1)
    for number, (task, segment) in enumerate(chosen):
        columns = segment.columns() | {"part": parts.single(segment.ends, f"end-{number}")}
        outcome.enter(task, columns, segment.context.tally.faults, segment.since)


def _segment(task: Task, names: Names) -> Segment:
    resume = Resume.of(task.known.resume if task.known is not None else None)
    context = Context(task.state.cluster)
    return Segment(task.state.name, task.state.kind, context, resume, task.found.place.open, names)


# ---- text logs ------------------------------------------------------------------------------------------------------


def _texts(
    local: Local,
    tasks: Sequence[Task],
    known: Mapping[str, State],
    wanted: IngestSettings,
    parts: Parts,
    outcome: Outcome,
) -> None:
    for cluster, chosen in sorted(logs_to_read(tasks).items()):
        covers = covers_of({**known, **outcome.states}.values(), cluster)
        listed = [_text(task) for task in chosen]
        found = texts.almanac_of(texts.surveyed(listed), listed, wanted.zones, wanted.now)
        outcome.notes[cluster] = texts.notes_of(found, cluster)
        for number, (task, text) in enumerate(zip(chosen, listed, strict=True)):
            done = texts.read(text, cluster, found, wanted.zones, covers)
            part = parts.single(done.rows, f"text-{len(outcome.notes)}-{number}")
            outcome.enter(task, done.columns(local.why(task.found.place.name)) | {"part": part}, done.tally.faults)


def covers_of(states: Iterable[State], cluster: str) -> list[Cover]:
    """What the segments of a cluster's brokers and supervisors say."""
    chosen = [state for state in states if state.cluster == cluster and state.kind == COVERING and state.resume]
    covers: dict[tuple[str, str, str], Cover] = {}
    for cover in (cover for state in chosen for cover in Resume.of(state.resume).covers):
        covers[cover.key] = cover.joined(covers.get(cover.key))
    return list(covers.values())


def _text(task: Task) -> texts.Text:
    file: File = task.found.place
    return texts.Text(task.state.name, task.found.kind, file.mtime, file.lines, node_for(task))


def node_for(task: Task) -> str:
    """Of lines that name none, if the file's name does not say it either."""
    return task.found.input if node_of(task.state.name) in ("", ".", "/") else ""
