"""`qpid-ha replicate`: lets a queue of a stand-alone broker follow the queue of the same name on another broker.

`-b` names the broker that gets the copy.  The requests are described in `single_queue/link.py`.
"""

from collections.abc import Mapping
from typing import Any

from ha.qpid_ha.ask import ask
from qpidd_py.cli.client_socket import Deadline, Target
from qpidd_py.cli.output import print_json, print_table
from qpidd_py.cli.target import Options, Parser, UsageError

METHOD = "ha.replicate"


def add_arguments(command: str, parser: Parser) -> None:
    parser.usage = "qpid-ha replicate [BROKER QUEUE | --stop QUEUE] [options]"
    parser.add_argument("words", nargs="*", metavar="BROKER QUEUE", help="source broker and queue; none: list")
    parser.add_argument("--stop", action="store_true", help="end the replication; the messages stay")


def replicate(options: Options, target: Target, deadline: Deadline) -> int:
    result = ask(target, deadline, METHOD, _arguments(options))
    if options.json:
        print_json(result)
    elif "replicas" in result:
        print_table(("Queue", "State", "Messages", "Source"), [_row(replica) for replica in result["replicas"]])
    elif result.get("state") == "searching":
        print(f"not connected yet, it goes on trying: {result.get('error', '')}")
    return 0


def _arguments(options: Options) -> dict[str, Any]:
    match options.stop, options.words:
        case False, []:
            return {}
        case False, [source, queue]:
            return {"broker": source, "queue": queue}
        case True, [queue]:
            return {"queue": queue, "stop": True}
    raise UsageError(f"arguments {' '.join(options.words)!r}, wanted BROKER QUEUE, or --stop QUEUE, or none")


def _row(replica: Mapping[str, Any]) -> tuple[str, str, str, str]:
    source = replica.get("address") or replica.get("broker")
    note = f"{source}: {replica['error']}" if replica.get("error") else source
    return str(replica["queue"]), str(replica["state"]), str(replica["messages"]), str(note)
