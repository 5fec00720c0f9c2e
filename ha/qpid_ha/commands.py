"""The commands of `qpid-ha` that Apache Qpid's tool also has; each returns the exit code."""

from ha.model.status import EXPECTATIONS, RECOVERING_JOURNAL
from ha.qpid_ha.ask import as_object, ask, ask_all
from ha.qpid_ha.output import print_line, print_paged, print_query, print_status_table, print_troubles
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.cli.output import describe, print_json
from qpidd_py.cli.target import Options, Parser

ALIASES = {"catch-up": "catchup", "stand-alone": "standalone"}
"""Spellings of two states in Apache Qpid's manual."""


def add_arguments(command: str, parser: Parser) -> None:
    if command == "status":
        choice = parser.add_mutually_exclusive_group()
        words = ", ".join(EXPECTATIONS)
        choice.add_argument("--expect", metavar="STATE", help=f"exit 0 if the status is STATE, else 1: {words}")
        choice.add_argument("--is-primary", action="store_true", help="exit 0 if the broker is primary, else 1")
        choice.add_argument("--all", action="store_true", help="all brokers of the cluster, one line each")
        parser.add_argument("-v", "--verbose", action="store_true", help="also show faults; with --all: a table")
    elif command == "query":
        parser.add_argument("--all", action="store_true", help="all brokers of the cluster")
        parser.add_argument("-v", "--verbose", action="store_true", help="epoch, positions and members, too")
    elif command == "promote":
        text = "promote even if confirmed messages may be lost: tries without force first and prints its refusal"
        parser.add_argument("--force", action="store_true", help=text)
        text = "promote even if another broker in sync holds more unconfirmed messages; for resource managers"
        parser.add_argument("--behind", action="store_true", help=text)
        text = "if another broker is primary, ask it to hand over; for resource managers"
        parser.add_argument("--takeover", action="store_true", help=text)


def ping(options: Options, target: Target, deadline: Deadline) -> int:
    with ManagementSocket(target, deadline, manage=False):
        if options.json:
            print_json({"address": target.address, "ok": True})
    return 0


def status(options: Options, target: Target, deadline: Deadline) -> int:
    if options.all:
        return _status_all(options, target, deadline)
    found = ask(target, deadline, "ha.status")
    word = str(found.get("status", "unknown"))
    if options.is_primary:
        return 0 if _fits(word, "primary") else 1
    if options.expect is not None:
        return 0 if _fits(word, options.expect) else 1
    if options.json:
        print_json({**found, "status": word})
    else:
        print(word)
        if options.verbose:
            print_troubles(found)
            if word != RECOVERING_JOURNAL:
                print_paged(ask(target, deadline, "broker.info").get("paged"))
    return 0


def _fits(found: str, wanted: str) -> bool:
    """True if the state `found` satisfies `--expect`; an unknown word matches nothing, as in Apache Qpid."""
    return found in EXPECTATIONS.get(ALIASES.get(wanted, wanted), ())


def _status_all(options: Options, target: Target, deadline: Deadline) -> int:
    answers = ask_all(target, deadline, "ha.query" if options.verbose else "ha.status")
    if options.json:
        print_json([as_object(address, answer) for address, answer in answers])
        return 0
    if options.verbose:
        print_status_table(answers)
        return 0
    width = max(len(address) for address, _ in answers)
    for address, answer in answers:
        if isinstance(answer, dict):
            word = answer.get("status", "unknown")
        else:
            word = describe(answer).replace(f" {address}: ", " ", 1)
        print(f"{address:<{width}} {word}")
    return 0


def query(options: Options, target: Target, deadline: Deadline) -> int:
    if not options.all:
        found = ask(target, deadline, "ha.query")
        print_json(found) if options.json else print_query(found, options.verbose)
        return 0
    answers = ask_all(target, deadline, "ha.query")
    if options.json:
        print_json([as_object(address, answer) for address, answer in answers])
        return 0
    for address, answer in answers:
        print_line("Address", address)
        if isinstance(answer, dict):
            print_query(answer, options.verbose)
        else:
            print_line("Status", describe(answer))
        print()
    return 0


def promote(options: Options, target: Target, deadline: Deadline) -> int:
    flags = {"behind": options.behind, "takeover": options.takeover}
    arguments = {name: True for name, wanted in flags.items() if wanted}
    try:
        result, overridden = ask(target, deadline, "ha.promote", arguments), ""
    except RequestRefused as refusal:
        if not options.force:
            raise
        overridden = str(refusal)
        if not options.json:
            print(f"by force, confirmed messages may be lost: {overridden}")
        result = ask(target, deadline, "ha.promote", {"force": True})
    if options.json:
        print_json({**result, **({"overridden": overridden} if overridden else {})})
    elif result.get("warning") and not overridden:
        print(result["warning"])
    return 0
