"""The commands of `qpid-ha` for a whole cluster: the primary, the members, the content of the queues.

Commands that need the primary find it from any member.
"""

from ha.qpid_ha.ask import ask, primary_of
from qpidd_py.cli.client_socket import Deadline, Target, shown, split_host_port, uses_tls
from qpidd_py.cli.output import print_json
from qpidd_py.cli.target import Options, Parser, UsageError


def add_arguments(command: str, parser: Parser) -> None:
    if command == "relocate":
        parser.add_argument("--to", metavar="NODE", default="", help="name, id or address of a backup in sync")
    elif command == "member":
        parser.add_argument("action", metavar="ACTION", nargs="?", default="list", help="list, add or remove")
        parser.add_argument("address", metavar="HOST:PORT", nargs="?", default="", help="of the member")


def relocate(options: Options, target: Target, deadline: Deadline) -> int:
    result = ask(primary_of(target, deadline), deadline, "ha.relocate", {"to": options.to})
    if options.json:
        print_json(result)
    else:
        gap = 1000 * float(result.get("without_primary", 0.0))
        print(f"{result.get('primary')} is primary; none was for {gap:.0f} ms")
    return 0


def demote(options: Options, target: Target, deadline: Deadline) -> int:
    result = ask(target, deadline, "ha.demote")
    if options.json:
        print_json(result)
    return 0


def dump(options: Options, target: Target, deadline: Deadline) -> int:
    result = ask(primary_of(target, deadline), deadline, "ha.dump")
    if options.json:
        print_json(result)
    else:
        unnamed = result.get("unnamed")
        rest = f", {unnamed} of them without their ids" if unnamed else ""
        print(f"{result.get('messages')} messages in {result.get('queues')} queues{rest}")
    return 0


def member(options: Options, target: Target, deadline: Deadline) -> int:
    if options.action == "list":
        result = ask(target, deadline, "ha.member", {"action": "list"})
    elif options.action not in ("add", "remove"):
        raise UsageError(f"argument ACTION: found {options.action!r}, wanted list, add or remove")
    else:
        primary = primary_of(target, deadline)
        change = {"action": options.action, "address": _address(options.address)}
        result = ask(primary, deadline, "ha.member", change)
    if options.json:
        print_json(result)
    else:
        print("\n".join(map(str, result.get("brokers", []))))
    return 0


def _address(text: str) -> str:
    """Check [ssl:]HOST:PORT; the port is required, because all members must use the same address."""
    try:
        host, port = split_host_port(text)
    except ValueError as error:
        raise UsageError(f"argument HOST:PORT: {error}") from None
    if port is None:
        raise UsageError(f"argument HOST:PORT: found {text!r}, wanted host:port")
    return shown(host, port, uses_tls(text))
