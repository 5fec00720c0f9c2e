"""The report as files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spark_jobs.data import Row
from spark_jobs.engine.base import Engine
from spark_jobs.report import document, html, markdown, png, ticket
from spark_jobs.workspace import Workspace

FORMATS: Final = ("html", "json", "md", "svg", "png")
DEFAULT: Final = ("html", "json", "md", "svg")
_OURS: Final = re.compile(r"incident-(\d+)\.(json|svg|png)$")


class NoSuchIncident(ValueError):
    """The user asked for the documents of an incident that there is not."""


def write(
    engine: Engine,
    workspace: Workspace,
    out: Path,
    formats: Collection[str] = DEFAULT,
    only: int | None = None,
) -> list[Path]:
    """Write OUT/report.{json,html,md} and OUT/incident-N.{json,svg,png}; gives what was written.

    The JSON is always written: it is what `check`, `explain` and `diff` read.  `only`: pages and drawings of this
    incident alone.  What an earlier run left of incidents that are no more is removed.  Raises ValueError for an
    unknown format, NoSuchIncident, png.MissingTool.
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise ValueError(f"format {', '.join(unknown)}, wanted some of {', '.join(FORMATS)}")
    where = {"workspace": _relative(workspace.place, out)}
    report = document.Report(engine, workspace)
    made = [one | where for one in report.documents()]
    overview = report.overview(made) | where
    if only is not None and not 1 <= only <= len(made):
        raise NoSuchIncident(f"incident {only}, wanted a number from 1 to {len(made)}")
    out.mkdir(parents=True, exist_ok=True)
    _tidy(out, len(made))
    written = [_save(out / "report.json", text(overview))]
    written += [_save(out / f"incident-{one['number']}.json", text(one)) for one in made]
    chosen = [one for one in made if only in (None, one["number"])]
    return written + _pages(out, overview, chosen, formats) + _drawings(out, chosen, formats)


def _relative(place: str, out: Path) -> str:
    """A URL stays as it is; a folder is named as it is seen from the documents, so that both can be moved together."""
    return place if "://" in place else os.path.relpath(place, out)


def _pages(out: Path, overview: Row, chosen: Sequence[Row], formats: Collection[str]) -> list[Path]:
    written = []
    if "html" in formats:
        written.append(_save(out / "report.html", html.page(overview, chosen)))
    if "md" in formats:
        written.append(_save(out / "report.md", markdown.page(overview, chosen)))
    return written


def _drawings(out: Path, chosen: Sequence[Row], formats: Collection[str]) -> list[Path]:
    written = []
    for one in chosen if {"svg", "png"} & set(formats) else ():
        drawn = ticket.ticket(one)
        if "svg" in formats:
            written.append(_save(out / f"incident-{one['number']}.svg", drawn))
        if "png" in formats:
            path = out / f"incident-{one['number']}.png"
            path.write_bytes(png.png(drawn))
            written.append(path)
    return written


def text(value: Mapping[str, Any]) -> str:
    """Equal values, equal octets."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _tidy(out: Path, number: int) -> None:
    for path in out.iterdir():
        match = _OURS.match(path.name)
        if match and int(match[1]) > number:
            path.unlink()


def _save(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8", newline="\n")
    return path
