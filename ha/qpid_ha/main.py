"""`qpid-ha`: queries and controls the high-availability module of a broker.  Shell.

Commands, options, outputs and exit codes follow Apache Qpid's tool of the same name, because scripts of resource
managers depend on them: one word from `status`, silence from `status --expect` and `--is-primary`, every error as one
line `ClassName: text` on standard output with exit code 1.  The command word may stand anywhere among the arguments.

A resource manager may call this tool every second: modules that only some calls need (TLS, configuration file, threads,
rarer commands) are imported where they are used; asyncio and the general AMQP codec are never loaded.
"""

import sys
from collections.abc import Sequence

from ha.qpid_ha.parser import COMMANDS, command_parser, find_command, run_handler, usage, usage_all
from qpidd_py.cli.client_socket import Deadline
from qpidd_py.cli.output import installed_version, run_tool
from qpidd_py.cli.target import UsageError, config_of, target_of, timeout_of


def run(arguments: Sequence[str]) -> int:
    """Errors are raised; `main` prints them as one line."""
    command, rest = find_command(arguments)
    manager = "--cluster-manager" in rest
    if command == "help-all":
        print(usage_all())
        return 0
    if "--version" in rest:
        print(installed_version())
        return 0
    if command == "help" or (not command and {"-h", "--help"} & set(rest)):
        print(usage(manager))
        return 0
    if not command:
        print(usage(manager))
        raise UsageError("no command given")
    if command not in COMMANDS:
        print(usage(manager))
        raise UsageError(f"unknown command {command!r}")
    return run_command(command, rest)


def run_command(command: str, rest: Sequence[str]) -> int:
    parser = command_parser(command)
    if {"-h", "--help"} & set(rest):
        print(parser.format_help().rstrip())
        return 0
    options, unknown = parser.parse_known_args(rest)
    if unknown:
        print(parser.format_usage().rstrip())
        raise UsageError(f"unexpected arguments: {' '.join(unknown)}")
    found = COMMANDS[command]
    if found.manager and not options.cluster_manager:
        raise UsageError(f"{command} is for cluster managers only; --cluster-manager allows it")
    config = config_of(options)
    target, deadline = target_of(options, config), Deadline(timeout_of(options, config, found.patience))
    return run_handler(command, options, target, deadline)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(run, arguments)


if __name__ == "__main__":
    sys.exit(main())
