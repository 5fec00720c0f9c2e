"""The JSON documents of a report, read back: one for each incident, and the overview of all.

A document of another major version, or without a part that is asked for, is an error that names the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_jobs.cli.errors import UserError
from spark_jobs.data import Row

FORMAT: Final = "failover-report 1."
OVERVIEW: Final = "report.json"
_NAME: Final = re.compile(r"incident-(\d+)\.json")


@dataclass(frozen=True)
class Document:
    """`about`: its name in what is printed."""

    path: Path
    data: Row

    @property
    def is_overview(self) -> bool:
        return "incidents" in self.data

    @property
    def about(self) -> str:
        return "all" if self.is_overview else f"incident {self.data.get('number', '?')}"

    @property
    def incident(self) -> Row:
        return self.row("incident") or {}

    @property
    def workspace(self) -> str:
        """Where the tables are that it was made of."""
        place = str(self.data.get("workspace") or "work")
        return place if "://" in place else str(self.path.parent / place)

    def row(self, name: str) -> Row | None:
        """None if it is not known.  Raises UserError."""
        found: Row | None = self._part(name, Mapping)
        return found

    def rows(self, name: str) -> list[Row]:
        """Raises UserError."""
        found = self._part(name, list) or []
        if not all(isinstance(row, Mapping) for row in found):
            raise UserError(f"{self.path}: {name!r} holds something that is no object")
        return list(found)

    def _part(self, name: str, type_: Any) -> Any:
        found = self.data.get(name)
        if found is not None and not isinstance(found, type_):
            wanted = "a list" if type_ is list else "an object"
            raise UserError(f"{self.path}: {name!r} is {type(found).__name__}, expected {wanted}")
        return found


def load(path: Path) -> Document:
    """Raises UserError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: octet {error.start} is no UTF-8, expected a document of a report (JSON)") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: {error.msg}, expected a document of a report (JSON)") from None
    version = found.get("format") if isinstance(found, dict) else None
    if not isinstance(version, str) or not version.startswith(FORMAT):
        raise UserError(f"{path}: format {version!r}, expected {FORMAT}x, as `failover-report report` writes it")
    if not {"incident", "incidents"} & found.keys():
        raise UserError(f"{path}: neither 'incident' nor 'incidents', expected {OVERVIEW} or an incident-N.json")
    return Document(path, found)


def of_place(place: Path) -> list[Document]:
    """A folder: the overview and all incidents; a file: that one.  Raises UserError."""
    if not place.is_dir():
        return [load(place)]
    overview = place / OVERVIEW
    found = [load(overview)] if overview.exists() else []
    found += [load(path) for _, path in incident_files(place)]
    if not found:
        raise UserError(f"{place}: no {OVERVIEW} and no incident-N.json, expected what `failover-report report` wrote")
    return found


def of_places(places: Iterable[Path]) -> list[Document]:
    """Raises UserError."""
    return [document for place in places for document in of_place(place)]


def one(place: Path, number: int | None = None) -> Document:
    """The document of one incident: the file, or of a folder the one with the number, or its only one.

    Raises UserError."""
    if not place.is_dir():
        found = load(place)
        if found.is_overview:
            raise UserError(f"{place}: the overview of all incidents, expected an incident-N.json")
        return found
    numbers = dict(incident_files(place))
    if number is None and len(numbers) != 1:
        known = ", ".join(map(str, numbers)) or "none"
        raise UserError(f"{place}: which incident? expected an incident-N.json or --incident N (known: {known})")
    wanted = next(iter(numbers)) if number is None else number
    if wanted not in numbers:
        raise UserError(f"{place}: no incident {wanted}, known: {', '.join(map(str, numbers)) or 'none'}")
    return load(numbers[wanted])


def incident_files(place: Path) -> list[tuple[int, Path]]:
    found = [(match, path) for path in place.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted((int(match[1]), path) for match, path in found)
