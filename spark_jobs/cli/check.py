"""`failover-report check`: a report as a gate after a chaos test.  Shell around `limits`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark_jobs.cli import output
from spark_jobs.cli.documents import of_places
from spark_jobs.cli.errors import BREACH, OK, UserError
from spark_jobs.cli.limits import MESSAGES, Finding, Limits, failed, findings
from spark_jobs.cli.values import count, duration, limit_of
from spark_jobs.solve.phases import NAMES as PHASES

_MESSAGES: Final = {
    "lost": "confirmed, never delivered, and all logs that could say otherwise are complete",
    "unaccounted": "confirmed, not seen again, outcome unknown",
    "unexpected": "delivered, but never sent",
    "unmarked": "delivered twice without a mark",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("documents", nargs="+", metavar="PATH", type=Path, help="OUT of a report, or a document of it")
    add = parser.add_argument_group("limits, of each incident").add_argument
    add("--max-outage", type=duration, metavar="DUR", help="that a client stood still")
    add("--max-all-down", type=duration, metavar="DUR", help="that all clients stood still at once")
    add("--max-total", type=duration, metavar="DUR", help="from the first sign of death until service is back")
    add("--max-phase", type=limit_of(PHASES, "phase"), action="append", default=[], metavar="NAME=DUR",
        help=f"of one phase: {', '.join(PHASES)}")  # fmt: skip
    add("--no-dual-primary", action="store_true", help="never two primaries that could confirm at once")
    add = parser.add_argument_group("limits, of messages (in all, if OUT is given)").add_argument
    for name in MESSAGES:
        add(f"--max-{name}", type=count, metavar="N", help=_MESSAGES[name])
    add = parser.add_argument_group("more").add_argument
    add("--max-incidents", type=count, metavar="N", help="in OUT")
    add("--strict", action="store_true", help="what is only possible fails, too")
    add("--allow-unknown", action="store_true", help="what the logs do not say does not fail")
    add("--json", action="store_true", help="every comparison, for programs")


def run(options: argparse.Namespace) -> int:
    limits = limits_of(options)
    if not limits:
        raise UserError("check: no limit is given, expected one or more, as --max-lost 0 --no-dual-primary")
    found = findings(of_places(options.documents), limits)
    if not found:
        raise UserError("check: none of the limits is about these documents: --max-incidents wants OUT or report.json")
    bad = [finding for finding in found if failed(finding, options.strict, options.allow_unknown)]
    if options.json:
        output.show([output.as_json({"failed": len(bad), "findings": [finding.row() for finding in found]})])
    else:
        output.show(told(found, bad))
    return BREACH if bad else OK


def limits_of(options: argparse.Namespace) -> Limits:
    counts = {name: getattr(options, f"max_{name}") for name in MESSAGES}
    return Limits(
        outage=options.max_outage,
        all_down=options.max_all_down,
        total=options.max_total,
        incidents=options.max_incidents,
        dual=options.no_dual_primary,
        phases=dict(options.max_phase),
        messages={name: value for name, value in counts.items() if value is not None},
    )


def told(found: Sequence[Finding], bad: Sequence[Finding]) -> list[str]:
    """The findings that are not within their limits, and their number."""
    lines = [str(finding) for finding in found if finding.level != "ok"]
    return [*lines, f"{len(bad) or 'none'} of {len(found)} comparisons failed"]
