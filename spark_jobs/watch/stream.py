"""Closed segments that came since the last time, from Spark's file stream.                              Shell.

The stream keeps in its checkpoint which files it has given, and gives none twice: a file that still grows is nothing
for it.  So it sees only names that segments get when they are complete (`.open` is gone then); a batch counts as given
when what was to be done with it is done, else the next run gives it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.engine.spark import SparkEngine

CLOSED: Final = "*.jsonl{,.gz,.bz2,.xz,.zst}"
BATCH: Final = 1000
"""Files: what is lost if it is interrupted."""
_FOR_EVER: Final = "36500d"
"""By default files that are a week older than the newest one are silently left out: a node's logs come late after just
those failures that are worth a report."""
_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"


def run(session: SparkSession, place: str, checkpoint: str, take: Callable[[Sequence[str]], None], batch: int) -> int:
    """`take` the paths of each batch of new segments below the folder `place`; how many there were.

    `take` is called again with the same paths if it was interrupted.  Raises what it raises."""
    given: list[int] = []
    failed: list[Exception] = []

    def taken(frame: Any, _: int) -> None:
        try:
            paths = [plain(row["path"]) for row in frame.select("path").collect()]
            take(paths)
            given.append(len(paths))
        except Exception as error:
            failed.append(error)
            raise

    reader = session.readStream.format("binaryFile").schema(_FILE)
    for name, value in (("recursiveFileLookup", "true"), ("pathGlobFilter", CLOSED), ("maxFileAge", _FOR_EVER)):
        reader = reader.option(name, value)
    frame = reader.option("maxFilesPerTrigger", batch).load(url(place))
    writer = frame.writeStream.foreachBatch(taken).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{url(checkpoint)}/{_name(place)}").start()
    try:
        query.awaitTermination()
    except Exception:
        if failed:
            raise failed[0] from None
        raise
    finally:
        query.stop()
    return sum(given)


def is_folder(engine: SparkEngine, place: str) -> bool:
    """Raises FileNotFoundError."""
    if "://" not in place:
        return Path(place).is_dir()
    system, path = engine.hadoop(place)
    if not system.exists(path):
        raise FileNotFoundError(f"{place}: no such file or folder")
    return bool(system.getFileStatus(path).isDirectory())


def url(place: str) -> str:
    """A plain path is one of this machine, whatever file system is Hadoop's default."""
    return place.rstrip("/") if "://" in place else f"file://{Path(place).resolve()}"


def plain(path: str) -> str:
    """`file:/srv/x` and `file:///srv/x` are /srv/x."""
    return re.sub(r"^file:/+", "/", path)


def _name(place: str) -> str:
    """Of the input's own checkpoint."""
    return sha256(url(place).encode()).hexdigest()[:16]
