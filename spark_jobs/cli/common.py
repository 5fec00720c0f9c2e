"""What the verbs that do long work share: options, progress."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.cli import engines, values
from spark_jobs.cli.errors import UserError
from spark_jobs.progress import QUIET, Line, Quiet

if TYPE_CHECKING:
    from spark_jobs.engine.base import Engine
    from spark_jobs.pipeline import Settings
    from spark_jobs.workspace import Workspace

FORMATS: Final = ("html", "json", "md", "svg", "png")
DEFAULT: Final = "html,json,md,svg"
FORMATS_OF_TABLES: Final = ("parquet", "delta")
DRAINED: Final = {"yes": True, "no": False, "logs": None}
SHORTEST: Final = "100ms"


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Inputs, and how to read them."""
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="folder, tarball, file, or a URL such as s3a://")
    add = parser.add_argument_group("reading").add_argument
    add("--tz", type=values.zone, action="append", default=[], metavar="NODE=ZONE",
        help="time zone of a node's text logs, *=ZONE: of all (as the logs tell, else UTC)")  # fmt: skip
    add("--cluster", default="", metavar="NAME", help="of lines that name none (the input's name)")
    add("--drained", choices=tuple(DRAINED), default="logs",
        help="were all queues taken empty at the end? (%(default)s: as the logs say)")  # fmt: skip
    add("--shortest", type=values.duration, default=values.duration(SHORTEST), metavar="DUR",
        help=f"a client's outages below it are left out ({SHORTEST})")  # fmt: skip


def add_output(parser: argparse.ArgumentParser, formats: bool = True) -> None:
    add = parser.add_argument_group("output").add_argument
    add("-o", "--output", required=True, type=Path, metavar="OUT", help="folder, made if need be")
    if formats:
        add("--format", type=values.words(FORMATS), default=values.words(FORMATS)(DEFAULT), metavar="LIST",
            help=f"some of {','.join(FORMATS)} ({DEFAULT})")  # fmt: skip
    add("--work", metavar="PLACE",
        help="where the tables are kept (OUT/work); on a cluster a place that all of it sees, as s3a://")  # fmt: skip
    add("--table-format", choices=FORMATS_OF_TABLES, metavar="FORMAT",
        help="of new tables: parquet, or delta: snapshots, and only what changed is replaced (parquet)")  # fmt: skip
    add("--json", action="store_true", help="print what was found as JSON")
    add_progress(add)


def add_progress(add: values.Add) -> None:
    add("--progress", action=argparse.BooleanOptionalAction, default=None,
        help="tell what is being done, on standard error (on a terminal)")  # fmt: skip


def settings(options: argparse.Namespace) -> Settings:
    from spark_jobs.pipeline import Settings

    return Settings(
        zones=dict(options.tz),
        cluster=options.cluster,
        drained=DRAINED[options.drained],
        shortest=options.shortest,
        redo=getattr(options, "redo", False),
    )


def folder(path: Path) -> Path:
    """Made if need be.  Raises UserError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be made: {error.strerror or error}") from None
    return path


def workspace(options: argparse.Namespace, engine: Engine) -> Workspace:
    """The place of the tables.  On a cluster a plain path may be another file system for the workers than here, and a
    folder of this machine is unusable if they do not see it: prints a warning."""
    from spark_jobs.workspace import of_format

    return of_format(engine, options.work or _beside(Path(options.output, "work"), engine), options.table_format)


def _beside(place: Path, engine: Engine) -> str:
    if not engines.remote(engine):
        return str(place)
    said = f"tables in {place}: every worker must see this folder; else --work s3a://..."
    print(f"failover-report: {said}", file=sys.stderr)
    return f"file://{place.resolve()}"


def check_inputs(inputs: Sequence[str]) -> None:
    """Checks before an engine is started.  Raises UserError."""
    for name in inputs:
        if "://" not in name and not Path(name).exists():
            raise UserError(f"{name}: no such file or folder, expected what a cluster left behind")


@contextlib.contextmanager
def progress(wanted: bool | None) -> Iterator[Line | Quiet]:
    """Progress is shown on a terminal, or on request."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield QUIET
        return
    line = Line(sys.stderr)
    try:
        yield line
    finally:
        line.close()
