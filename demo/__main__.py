"""`python -m demo`: a cluster under load and faults, the verdict, and the incident report.

Exit codes: 0 every confirmed message was delivered, and the report made from the logs alone agrees; 1 otherwise; 2 the
scenario could not run.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo import morning_after
from demo.cluster import Clients, Cluster, DemoError
from demo.events import read
from demo.morning_after import ReportFailed
from demo.report import summary, table
from demo.scenario import Fault, Narrator, Scenario, start_load
from ha.qpid_cluster.control import ControlError
from testkit.library_events import LibraryHistory

LIMITS = ("--max-lost", "0", "--max-unaccounted", "0", "--max-unexpected", "0", "--no-dual-primary")
MARK = "progress"  # a directory with this file in it is an old run of ours and may be replaced


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    directory = Path(arguments.directory)
    narrator = Narrator(arguments.json)
    try:
        _prepare(directory)
        faults, styles, seconds = _run(directory, narrator, arguments)
    except (DemoError, ControlError) as error:
        print(f"the demo could not go on: {error}", file=sys.stderr)
        print(f"logs: {directory}", file=sys.stderr)
        return 2
    narrator.say("reading the event logs")
    brokers = [event for node in sorted(directory.glob("node*/events")) for event in read(node)]
    found = summary(faults, LibraryHistory().add(read(directory / "events")), styles, seconds, brokers)
    (directory / "result.json").write_text(json.dumps(found, indent=2) + "\n")
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print(table(found, styles))
        print(f"event logs: {directory}/events (clients), {directory}/NODE/events (brokers)")
    broken = _report(directory, narrator, found["messages"])
    return 0 if found["messages"]["valid"] and not broken else 1


def _report(directory: Path, narrator: Narrator, counted: Mapping[str, int]) -> list[str]:
    """Reports from the logs alone; prints and returns the problems found."""
    engine, out = morning_after.engine(), directory / "report"
    narrator.say(f"the morning after: failover-report on {engine}")
    logs = [directory / "events", *sorted(directory.glob("node*/events")), *sorted(directory.glob("*.log"))]
    try:
        overview = morning_after.report(logs, out, "--engine", engine)
        broken = morning_after.check(out, *LIMITS) + morning_after.differences(overview, counted)
    except ReportFailed as error:
        broken = [str(error)]
    else:
        narrator.tell(morning_after.headlines(overview))
        narrator.tell([f"report: {out}/report.html"])
    for line in broken:
        print(f"the report: {line}", file=sys.stderr)
    return broken


def _run(
    directory: Path, narrator: Narrator, arguments: argparse.Namespace
) -> tuple[list[Fault], dict[str, str], float]:
    begin = time.monotonic()
    cluster = Cluster(directory)
    clients: Clients | None = None
    try:
        narrator.say("starting three brokers and their supervisor")
        cluster.up()
        narrator.say(f"{cluster.primary} was promoted; {', '.join(cluster.backups())} are ready")
        clients = Clients(directory, cluster.addresses())
        start_load(clients, arguments.rate, tuple(arguments.styles.split(",")))
        narrator.say(f"{len(clients.all)} clients at work")
        faults = Scenario(cluster, clients, narrator.say, arguments.calm).run()
        narrator.say("the producers stop, the consumers drain the queues")
        clients.stop("producer", 20.0)
        clients.stop("consumer", 45.0)
        return faults, {client.name: client.style for client in clients.all}, time.monotonic() - begin
    finally:
        if clients is not None:
            clients.kill()
        cluster.down()


def _prepare(directory: Path) -> None:
    """An empty directory; what an earlier demo left is removed, anything else is not touched."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists() and not (directory / "cluster.yaml").exists():
            raise DemoError(f"{directory} is not empty and not from an earlier demo; name another with --directory")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo", description="Three brokers under load and under fire.")
    parser.add_argument("--directory", default="./demo-run", help="for logs (%(default)s); an older run is replaced")
    parser.add_argument("--json", action="store_true", help="only the result, for programs")
    parser.add_argument("--rate", type=float, default=3000.0, help="messages a second, all together (%(default)g)")
    parser.add_argument("--calm", type=float, default=4.0, help="seconds between the faults (%(default)g)")
    parser.add_argument("--styles", default="library,plain", help="kinds of clients (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
