"""From logs to tables: all jobs in order.

    files      logs → events_raw
    facts      all rows about no message
    pairs      what big logs say about clocks → pairs
    clocks     → clock_segments
    order      facts on one time axis → events
    clients    outages of clients, outcome of each message → takings, message_lives, outages
    incidents  → incidents, phases, ..: all of reconstruct.TABLES
    messages   cut by the incidents → message_verdicts, message_summary, outage_union
    gaps       what cannot be known, and which step failed for which cluster → gaps

On Spark tasks do all but the first for clusters that fit into one (`jobs.spread`).

The table `steps` holds for each step a digest of the events and settings of its tables.  A step with an unchanged
digest is skipped; otherwise it runs again and replaces its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Final

from spark_jobs import groups
from spark_jobs.clocks import job as clock
from spark_jobs.engine.base import Engine, Row
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.facts import job as facts
from spark_jobs.facts.query import FEW
from spark_jobs.gaps import job as gaps
from spark_jobs.ingest import job as ingest
from spark_jobs.ingest.local import IngestSettings
from spark_jobs.jobs import incidents, order, part, spread
from spark_jobs.jobs.spread import Spread
from spark_jobs.messages import job as messages
from spark_jobs.options import SHORTEST, Options
from spark_jobs.outages import job as windows
from spark_jobs.progress import QUIET, Progress
from spark_jobs.solve.reconstruct import TABLES
from spark_jobs.workspace import DELTA, Workspace

_OF: Final[dict[str, tuple[str, ...]]] = {
    "facts": ("facts",),
    "pairs": ("pairs",),
    "clocks": ("clock_segments", groups.failures("clocks")),
    "order": ("events", groups.failures("order")),
    "clients": ("takings", "names", "message_lives", "outages"),
    "incidents": (*TABLES, groups.failures("incidents")),
    "messages": ("message_verdicts", "message_summary", "outage_union"),
    "gaps": ("gaps", groups.failures("gaps")),
}
"""Step → tables."""
MADE: Final = tuple(table for tables in _OF.values() for table in tables)
STEPS: Final = ("files", *_OF)
CLUSTERS: Final = "clusters"
"""All steps but the first, if tasks of Spark do them for a cluster each."""
_STEPS: Final = "step string, inputs string"
_FILES: Final = "select name, cluster, state, octets, lines, events, torn, undated from files"
_EVENTS: Final = """
select file, count(*) as lines, max(line_no) as last, sum(case when kind = 'torn' then 1 else 0 end) as torn
from events_raw group by file"""


@dataclass(frozen=True)
class Settings:
    """`zones`: node or "*" → zone of its text logs.  `cluster`: of logs that name none.  `shortest` outage, µs.
    `drained`: see `Options`.  `reference`: the node whose clock is the time axis, in clusters that have it.
    `few`: so many facts of a cluster are not thinned.  `redo`: every step."""

    zones: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""
    shortest: int = SHORTEST
    drained: bool | None = None
    reference: str | None = None
    few: int = FEW
    redo: bool = False

    def digest(self) -> str:
        """Of what decides about the tables."""
        found = {name: value for name, value in vars(self).items() if name != "redo"}
        return repr(sorted((found | {"zones": sorted(self.zones.items())}).items()))


def run(
    engine: Engine,
    workspace: Workspace,
    inputs: Sequence[str],
    settings: Settings = Settings(),
    progress: Progress = QUIET,
    then: Callable[[], Engine] | None = None,
) -> list[Row]:
    """All steps.  Gives the rows of `gaps` of kind `failed`: clusters of which tables are missing.  `then`: gives the
    engine of all steps but the first.

    Raises what `ingest.run` raises for inputs that cannot be read, and WrongVersion."""
    progress.step("files")
    given = IngestSettings(cluster=settings.cluster, zones=settings.zones)
    ingest.run(engine, workspace, inputs, given, progress.at)
    return after_ingest(then() if then else engine, workspace, settings, progress)


def after_ingest(
    engine: Engine, workspace: Workspace, settings: Settings = Settings(), progress: Progress = QUIET
) -> list[Row]:
    """All steps but `files`; needs events_raw."""
    if workspace.format == DELTA:
        return _whole(engine, workspace, settings, progress)
    workspace.begin(engine)
    inputs = _digest(engine, workspace, settings)
    done = set() if settings.redo else _done(engine, workspace, inputs)
    if set(_OF) - done:
        planned = spread.planned(engine, workspace)
        done = set() if planned else done
        _write(engine, workspace, inputs, done)  # an interrupted run leaves no stale table that counts as new
        try:
            if isinstance(engine, SparkEngine) and planned:
                _spread(engine, planned, settings, done, progress)
            else:
                _work(_Work(engine, workspace, settings), done, progress)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                _write(engine, workspace, inputs, done)
            raise
        _write(engine, workspace, inputs, done)
    return _failed(engine, workspace)


def _whole(engine: Engine, workspace: Workspace, settings: Settings, progress: Progress) -> list[Row]:
    """With all that came too late for `watch`."""
    late = ingest.has_late(engine, workspace)
    failed = apart(engine, [part.of(workspace)], replace(settings, redo=settings.redo or late), progress)
    if late:
        ingest.late(engine, workspace, (), None)
    return failed


def apart(
    engine: Engine,
    parts: Sequence[part.Part],
    settings: Settings,
    progress: Progress = QUIET,
    before: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Parts of one workspace, whose tables are put in the place of what that had; `before` that happens."""
    whole = parts[0].whole
    inputs = _digest(engine, whole, settings)
    if settings.redo or _done(engine, whole, inputs) < set(_OF):
        for number, some in enumerate(parts):
            after_ingest(engine, some, settings, progress)
            if not number:
                before()
                _write(engine, whole, inputs, set())
            part.merge(engine, some, MADE)
        _write(engine, whole, inputs, set(_OF))
    return _failed(engine, whole)


def _failed(engine: Engine, workspace: Workspace) -> list[Row]:
    workspace.load(engine, "gaps")
    return engine.rows(f"select * from gaps where kind = '{groups.FAILED}'")


def _spread(engine: SparkEngine, planned: Spread, settings: Settings, done: set[str], progress: Progress) -> None:
    """Everything; `done` is full at the end."""
    progress.step(CLUSTERS)
    spread.run(engine, planned, partial(after_ingest, settings=replace(settings, redo=True)), MADE, progress)
    done |= set(_OF)


def _work(work: _Work, done: set[str], progress: Progress) -> None:
    """What is not done; `done` grows."""
    for step in _OF:
        if step not in done:
            progress.step(step)
            work.steps[step]()
            done.add(step)


class _Work:
    """`steps`: name → what does it."""

    def __init__(self, engine: Engine, workspace: Workspace, settings: Settings) -> None:
        self._engine, self._workspace, self._settings = engine, workspace, settings
        self._timed: Options | None = None
        self.steps: dict[str, Callable[[], None]] = {
            "facts": lambda: facts.run(engine, workspace),
            "pairs": lambda: clock.pairs(engine, workspace),
            "clocks": lambda: clock.run(engine, workspace, settings.reference, settings.few),
            "order": lambda: order.run(engine, workspace, self._options(), settings.few),
            "clients": lambda: windows.clients(engine, workspace, self._options(redo=True)),
            "incidents": lambda: incidents.run(engine, workspace),
            "messages": self._messages,
            "gaps": lambda: gaps.run(engine, workspace),
        }

    def _messages(self) -> None:
        messages.run(self._engine, self._workspace, self._options())
        windows.union(self._engine, self._workspace, self._options())

    def _options(self, redo: bool = False) -> Options:
        """With corrected time."""
        if self._timed is None:
            given = Options(self._settings.shortest, self._settings.drained)
            self._timed = clock.timed(self._engine, self._workspace, given)
        return replace(self._timed, redo=redo)


def _digest(engine: Engine, workspace: Workspace, settings: Settings) -> str:
    known = workspace.has(engine, "files")
    workspace.load(engine, "files" if known else "events_raw")
    rows = sorted(repr(list(row.items())) for row in engine.rows(_FILES if known else _EVENTS))
    return sha256("\n".join([settings.digest(), *rows]).encode()).hexdigest()


def _done(engine: Engine, workspace: Workspace, inputs: str) -> set[str]:
    """Steps whose tables are there, and made of these inputs."""
    if not workspace.has(engine, "steps"):
        return set()
    workspace.load(engine, "steps")
    found = {row["step"] for row in engine.rows("select step, inputs from steps") if row["inputs"] == inputs}
    return {step for step, tables in _OF.items() if step in found and _all(engine, workspace, tables)}


def _all(engine: Engine, workspace: Workspace, tables: Sequence[str]) -> bool:
    return all(workspace.has(engine, table) for table in tables)


def _write(engine: Engine, workspace: Workspace, inputs: str, steps: set[str]) -> None:
    rows = [{"step": step, "inputs": inputs} for step in sorted(steps)]
    engine.keep(workspace.path("steps"), _STEPS, rows)
