"""The commands of `qpid-ha` and their options."""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from qpidd_py.cli.client_socket import Deadline, Target
from qpidd_py.cli.target import Options, Parser, add_address_options, add_login_options

PROGRAM = "qpid-ha"


class Command(NamedTuple):
    """`module` has `add_arguments(command, parser)` and a function of the command's name; it is imported on use, to
    keep frequent calls by a resource manager fast."""

    text: str
    module: str = "ha.qpid_ha.commands"
    manager: bool = False
    """Requires --cluster-manager."""
    patience: float = 0.0
    """Default timeout in seconds, at least; --timeout overrides it."""


CLUSTER = "ha.qpid_ha.cluster"
ARCHIVE = "ha.qpid_ha.archive"
COMMANDS = {
    "ping": Command("test that a broker answers"),
    "status": Command("print the HA status of a broker, or test it"),
    "query": Command("print the HA configuration and status of a broker"),
    "promote": Command("promote a backup to primary (for cluster managers)", manager=True),
    "demote": Command("make a primary step down in place (for cluster managers)", CLUSTER, manager=True),
    "relocate": Command("hand over from the primary to a backup, as planned", CLUSTER, patience=20.0),
    "member": Command("list the members of the cluster, add one, remove one", CLUSTER),
    "salvage": Command("what a broker held and its cluster lacks: list, show, restore", "ha.qpid_ha.salvage"),
    "backup": Command("copy what a running broker holds to a file", ARCHIVE),
    "restore": Command("put what a backup has into an empty cluster", ARCHIVE),
    "dump": Command("write what is in the durable queues into the primary's event log", CLUSTER),
    "replicate": Command("let a stand-alone broker follow a queue of another one", "ha.qpid_ha.replicate"),
}


def common_parser(prog: str, description: str) -> Parser:
    parser = Parser(prog=prog, description=description, add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("options of all commands").add_argument
    add_address_options(add)
    add("--cluster-manager", action="store_true", help="allow the commands meant for cluster managers")
    add("--json", action="store_true", help="print JSON")
    add_login_options(add)
    return parser


def command_parser(command: str) -> Parser:
    parser = common_parser(f"{PROGRAM} {command}", COMMANDS[command].text)
    _module(command).add_arguments(command, parser)
    return parser


def run_handler(command: str, options: Options, target: Target, deadline: Deadline) -> int:
    """Run the command and return its exit code.  Errors are raised."""
    return int(getattr(_module(command), command)(options, target, deadline))


def _module(command: str) -> Any:
    return importlib.import_module(COMMANDS[command].module)


def usage(manager: bool) -> str:
    lines = [f"usage: {PROGRAM} <command> [options]", "", "commands:"]
    lines += [f"  {name:<10}{command.text}" for name, command in COMMANDS.items() if manager or not command.manager]
    lines += ["  help      this text; `help-all` for all commands with all options", ""]
    lines += [f"`{PROGRAM} <command> --help` shows the options of a command."]
    return "\n".join(lines)


def usage_all() -> str:
    return "\n\n".join([usage(True), *(command_parser(name).format_help().rstrip() for name in COMMANDS)])


def find_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command word, at any place, and the other arguments; "" if there is none.

    The value of an option is not a command: a host may be called `status`.
    """
    takes_value = {"-b", "--expect", "--to"}
    for action in common_parser(PROGRAM, "")._actions:
        if action.nargs != 0:
            takes_value.update(action.option_strings)
    skip = False
    for index, word in enumerate(arguments):
        if skip or word.startswith("-"):
            skip = not skip and word in takes_value
            continue
        return word, [*arguments[:index], *arguments[index + 1 :]]
    return "", list(arguments)
