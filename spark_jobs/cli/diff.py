"""`failover-report diff`: two incidents, phase by phase.  Shell around `compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_jobs.cli import compare, output
from spark_jobs.cli.documents import Document, one
from spark_jobs.cli.errors import OK
from spark_jobs.cli.values import number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="PATH", type=Path, help="A: an incident-N.json, or OUT of a report")
    parser.add_argument("b", metavar="PATH", type=Path, help="B")
    parser.add_argument("--incident", type=number, metavar="N", help="of A, if that is a folder")
    parser.add_argument("--with", type=number, metavar="N", dest="other", help="of B, if that is a folder")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> int:
    a, b = one(options.a, options.incident), one(options.b, options.other)
    output.show([as_json(a, b)] if options.json else compare.told(a, b))
    return OK


def as_json(a: Document, b: Document) -> str:
    return output.as_json(
        {
            "changes": [row.row() for row in compare.changes(a, b)],
            "messages": {name: {"a": one, "b": other} for name, one, other in compare.counts(a, b)},
            "incident": {name: {"a": one, "b": other} for name, one, other in compare.words(a, b)},
        }
    )
