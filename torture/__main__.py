"""`python -m torture`: a campaign of faults on real brokers.

Exit codes: 0 nothing lost, nothing unexpected, no contradiction; 1 any of these was found; 2 the campaign could not
run.  Logs and histories are kept in the directory unless all went well.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from demo.events import read as read_events
from ha.salvage.lines import decode_record, is_end
from testkit import record
from testkit.judge import History
from torture import evidence, second_judge
from torture.arrivals import Arrivals
from torture.brokers import url
from torture.campaign import Campaign, Outcome
from torture.faults import KINDS
from torture.lab import CLIENT, MODES, Lab, Plan
from torture.loaders import Loaders, LoadFailed
from torture.network import NetworkError, problem
from torture.report import failures, summary, table

MARK: Final = "torture.txt"  # a directory with this file in it is an old run of ours and may be replaced
ENDLESS: Final = 1_000_000


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    plan = Plan(
        arguments.mode, arguments.brokers, arguments.seed, Path(arguments.directory).resolve(),
        tuple(arguments.kind), tuple(arguments.option), arguments.journals,
        arguments.routes, arguments.power_cuts,
    )  # fmt: skip
    reason = problem()
    if reason:
        print(f"no torture here: {reason}", file=sys.stderr)
        return 2
    try:
        _prepare(plan.directory)
        found = _torture(plan, arguments)
    except (LoadFailed, NetworkError) as error:
        print(f"the campaign could not go on: {error}\nlogs: {plan.directory}", file=sys.stderr)
        return 2
    (plan.directory / "result.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2) if arguments.json else table(found))
    if failures(found) or arguments.keep:
        print(f"logs, histories, result: {plan.directory}", file=sys.stderr)
    else:
        shutil.rmtree(plan.directory)
    return 1 if failures(found) else 0


def _torture(plan: Plan, arguments: argparse.Namespace) -> dict[str, Any]:
    with (plan.directory / MARK).open("w") as log:
        say = _narrator(log.write, arguments.json)
        say(f"{plan.mode}, {plan.brokers} brokers, seed {plan.seed}")
        lab = Lab(plan, say)
        loaders = Loaders(
            plan.directory, lab.clients, url(lab.brokers), arguments.rate, decided=True, login=CLIENT,
            far=url(lab.far),
        )  # fmt: skip
        try:
            outcome = Campaign(plan, lab, loaders, say).run(arguments.minutes * 60, arguments.faults)
        finally:
            loaders.kill()
            lab.close()
        say("reading the histories")
    return _judge(plan, lab, outcome)


def _judge(plan: Plan, lab: Lab, outcome: Outcome) -> dict[str, Any]:
    history = History().add(record.read(plan.directory / "history"))
    arrivals = Arrivals().add(record.read(plan.directory / "history"))
    events = [event for path in plan.directory.glob("node*/events") for event in read_events(path)]
    contradictions = [
        line
        for process in (*lab.brokers, *lab.far, *(lab.routes.shovels if lab.routes else ()))
        for line in evidence.bad_lines(process.name, process.log_file.read_text(errors="replace").splitlines())
    ]
    if plan.mode != "availability":
        contradictions += arrivals.broken(outcome.drained)
        contradictions += evidence.confirmed_at_once(events)
    verdict = History().add(record.read(plan.directory / "history", apart=False)).verdict(outcome.drained)
    contradictions += second_judge.contradictions(plan.directory, plan.mode, verdict, outcome.drained)
    return summary(plan, outcome, history, lab.exits, contradictions, _salvaged(plan.directory), arrivals)


def _salvaged(directory: Path) -> set[str]:
    """Ids of the messages that deposed primaries have put aside."""
    lines = (
        line for path in directory.glob("node*/salvage/*.jsonl") for line in path.read_bytes().splitlines()[1:]
    )  # fmt: skip
    return {record.id_of(decode_record(line).body) for line in lines if not is_end(line)}


def _narrator(write: Callable[[str], object], quiet: bool) -> Callable[[str], None]:
    begin = time.monotonic()

    def say(text: str) -> None:
        write(f"{time.monotonic():.3f} {text}\n")
        if not quiet:
            print(f"{time.monotonic() - begin:6.1f} s  {text}", flush=True)

    return say


def _prepare(directory: Path) -> None:
    """An empty directory; an older run is removed, anything else is not touched."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            raise NetworkError(f"{directory} is not empty and not from an earlier run; name another with --directory")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torture", description="Random faults on real brokers, and a verdict.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults (%(default)g)")
    parser.add_argument("--faults", type=int, default=ENDLESS, help="at most so many")
    parser.add_argument("--mode", choices=MODES, default="quorum", help="ha-safety and the manager's rules")
    parser.add_argument("--brokers", type=int, choices=(3, 5), default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults; default: the time")
    parser.add_argument("--rate", type=float, default=300.0, help="messages a second (%(default)g)")
    parser.add_argument("--kind", action="append", default=[], choices=sorted(KINDS), help="only such faults")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of qpidd")
    parser.add_argument("--journals", action="store_true", help="on every broker; then all of them may die at once")
    forget = "journals, on disks that forget what was not synced when the power of all brokers is cut"
    alone = "without a shovel and a dynamic route to and from a broker outside of the cluster"
    parser.add_argument("--no-routes", action="store_false", dest="routes", help=alone)
    parser.add_argument("--power-cuts", action="store_true", help=forget)
    parser.add_argument("--directory", default="./torture-run", help="for logs (%(default)s); an older run is replaced")
    parser.add_argument("--keep", action="store_true", help="keep the logs in any case")
    parser.add_argument("--json", action="store_true", help="only the result, for programs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
