"""Where the incidents of a fleet are: documents (`incident-N.json`) and workspaces in folders, local or by URL.

The incidents in the folder of a report are read from its documents, or from the workspace if there are none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spark_jobs.engine.base import Engine, Row
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.fleet.record import NoDocument, record

PATTERN: Final = "incident-*.json"
DEPTHS: Final = ("", "/*", "/*/*", "/*/*/*")
"""Of a workspace below a URL that is given: object stores have no folders to walk through."""


class FleetError(ValueError):
    """Nothing can be read where incidents were looked for."""


@dataclass
class FleetInputs:
    """`documents`, `workspaces`: paths; `urls`: what Spark looks through for documents itself; `reports`: how many
    there are: one may have no incident."""

    documents: list[str] = field(default_factory=list)
    workspaces: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    reports: int = 0


@dataclass(frozen=True)
class RefusedInput:
    """`place`: the file."""

    place: str
    why: str


def look(engine: Engine, places: Iterable[str]) -> FleetInputs:
    """Raises FileNotFoundError, FleetError."""
    found = FleetInputs()
    for place in places:
        if "://" in place:
            _look_by_url(engine, place.rstrip("/"), found)
        elif os.path.isdir(place):
            _look_below(place, found)
        elif os.path.exists(place):
            found.documents.append(place)
        else:
            raise FileNotFoundError(f"{place}: no such file or folder, wanted folders or documents of reports")
    return found


def _look_below(place: str, found: FleetInputs) -> None:
    for folder, below, files in os.walk(place):
        below.sort()
        documents = sorted(str(path) for path in Path(folder).glob(PATTERN)) if files else []
        found.documents += documents
        found.reports += "report.json" in files
        if documents and "work" in below:
            below.remove("work")
        if "about" in below:
            found.workspaces.append(folder)
            below.clear()


def _look_by_url(engine: Engine, place: str, found: FleetInputs) -> None:
    if not isinstance(engine, SparkEngine):
        raise FleetError(f"{place}: a URL, wanted a path (URLs are read with --engine spark)")
    if place.endswith(".json"):
        found.urls.append(place)
        return
    system, root = engine.hadoop(place)
    if not system.exists(root):
        raise FileNotFoundError(f"{place}: no such folder, wanted folders or documents of reports")
    documents, workspaces = (
        [str(at.getPath().getParent()) for depth in DEPTHS for at in engine.glob(f"{place}{depth}/{name}")]
        for name in (PATTERN, "about")
    )
    found.workspaces += [at for at in workspaces if not {at, at.rpartition("/")[0]} & set(documents)]
    found.urls += sorted(set(documents))


# ---- reading --------------------------------------------------------------------------------------------------------


def read(place: str) -> Row | RefusedInput:
    """The row of a local document."""
    try:
        with open(place, "rb") as file:
            return parsed(place, file.read())
    except OSError as error:
        return RefusedInput(place, error.strerror or type(error).__name__)


def parsed(place: str, octets: bytes) -> Row | RefusedInput:
    try:
        document = json.loads(octets)
        return record(document if isinstance(document, dict) else {})
    except NoDocument as error:
        return RefusedInput(place, str(error))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        return RefusedInput(place, f"no JSON: {error}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return RefusedInput(place, f"not as a document is: {type(error).__name__}: {error}")


def by_spark(engine: SparkEngine, urls: list[str]) -> Iterator[Row | RefusedInput]:
    """The rows of documents that Spark's tasks read."""
    places = ",".join(url if url.endswith(".json") else f"{url}/{PATTERN}" for url in urls)
    for text, place, why in engine.context.binaryFiles(places).map(_record).collect():
        yield RefusedInput(place, why) if text is None else json.loads(text)


def _record(file: tuple[str, bytes]) -> tuple[str | None, str, str]:
    """In a task: (JSON of the row, place, why there is none)."""
    made = parsed(*file)
    return (None, made.place, made.why) if isinstance(made, RefusedInput) else (json.dumps(made), file[0], "")
