"""`failover-report export`: an incident for other programs.  Shell around `report.perfetto`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from spark_jobs.cli import documents, values
from spark_jobs.cli.errors import OK, UserError

PERFETTO: Final = "perfetto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", type=Path, help="an incident-N.json, or OUT of a report")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="what is written")
    parser.add_argument("--format", type=values.words((PERFETTO,)), metavar="FORMAT", help=f"of the file ({PERFETTO})")
    parser.add_argument("--incident", type=values.number, metavar="N", help="which, if PATH is a folder with several")


def run(options: argparse.Namespace) -> int:
    from spark_jobs.report import perfetto

    found = documents.one(options.path, options.incident)
    try:
        written = json.dumps(perfetto.trace(found.data), separators=(",", ":"))
    except (KeyError, TypeError) as error:
        raise UserError(f"{found.path}: no whole document of an incident: {error!r}") from None
    try:
        options.output.write_text(written + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{options.output}: cannot be written: {error.strerror or error}") from None
    return OK
