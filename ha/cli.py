"""`qpid-ha`: ask and command the high-availability module of a broker.  Shell.

Commands, options, outputs and exit codes follow Apache Qpid's tool of the same name, because scripts of resource
managers depend on them: one word from `status`, silence from `status --expect` and `--is-primary`, every error as one
line `ClassName: text` on standard output with exit code 1.  The command word may stand anywhere among the arguments.

A resource manager calls this tool every second or so: what only some calls need (TLS, configuration file, threads)
is imported where it is used, and neither asyncio nor a general AMQP codec is ever loaded.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ha.cli_output import describe, print_json, print_line, print_query
from ha.client_socket import BrokerError, Deadline, ManagementSocket, Target, split_host_port
from ha.status import EXPECTATIONS
from qpidd_py.amqp.client import Login

if TYPE_CHECKING:
    from ha.cli_config import ToolConfig

PROGRAM = "qpid-ha"
DEFAULT_TIMEOUT = 10.0
"""Seconds, when neither the command line nor a configuration file says another."""

DEFAULT_HOST = "127.0.0.1"

COMMANDS = {
    "ping": "test that a broker answers",
    "status": "print the HA status of a broker, or test it",
    "query": "print the HA configuration and status of a broker",
    "promote": "promote a backup to primary (for cluster managers)",
}
MANAGER_COMMANDS = frozenset({"promote"})

ALIASES = {"catch-up": "catchup", "stand-alone": "standalone"}
"""The manual of Apache Qpid writes two of the states like this."""

Options = argparse.Namespace


class UsageError(Exception):
    """The command line makes no sense."""


# ---- arguments -------------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def common_parser(prog: str, description: str) -> Parser:
    parser = Parser(prog=prog, description=description, add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("options of all commands").add_argument
    add("-h", "--help", action="store_true", help="show this help")
    add("-b", "--broker", metavar="ADDRESS", help="[user/password@]host[:port] (default: the local broker)")
    add("--timeout", metavar="SECONDS", help=f"limit for the whole command, 0 = none (default {DEFAULT_TIMEOUT:g})")
    add("--config", metavar="FILE", help="take credentials, port and timeout from this qpidd.conf")
    add("--cluster-manager", action="store_true", help="allow the commands meant for cluster managers")
    add("--json", action="store_true", help="print JSON")
    add("--sasl-mechanism", metavar="NAME", help="PLAIN, AMQPLAIN or EXTERNAL")
    add("--sasl-service-name", metavar="NAME", help="accepted for compatibility, not used")
    add("--ssl", action="store_true", help="use TLS")
    add("--ssl-certificate", metavar="FILE", help="our certificate (PEM); turns TLS on")
    add("--ssl-key", metavar="FILE", help="its private key (PEM), if it is not in the same file")
    add("--ssl-ca", metavar="FILE", help="authorities to trust (PEM; default: those of the system); turns TLS on")
    return parser


def command_parser(command: str) -> Parser:
    parser = common_parser(f"{PROGRAM} {command}", COMMANDS[command])
    if command == "status":
        choice = parser.add_mutually_exclusive_group()
        words = ", ".join(EXPECTATIONS)
        choice.add_argument("--expect", metavar="STATE", help=f"exit 0 if the status is STATE, else 1: {words}")
        choice.add_argument("--is-primary", action="store_true", help="exit 0 if the broker is primary, else 1")
        choice.add_argument("--all", action="store_true", help="all brokers of the cluster, one line each")
    elif command == "query":
        parser.add_argument("--all", action="store_true", help="all brokers of the cluster")
        parser.add_argument("-v", "--verbose", action="store_true", help="epoch, positions and members, too")
    return parser


def usage(manager: bool) -> str:
    lines = [f"usage: {PROGRAM} <command> [options]", "", "commands:"]
    lines += [f"  {name:<10}{text}" for name, text in COMMANDS.items() if manager or name not in MANAGER_COMMANDS]
    lines += ["  help      this text; `help-all` for all commands with all options", ""]
    lines += [f"`{PROGRAM} <command> --help` tells the options of a command."]
    return "\n".join(lines)


def usage_all() -> str:
    return "\n\n".join([usage(True), *(command_parser(name).format_help().rstrip() for name in COMMANDS)])


def find_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command word, wherever it stands, and the arguments without it; "" if there is none.

    A word that is the value of an option is no command: a host may be called `status`.
    """
    takes_value = {"-b", "--expect"}
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


# ---- where to ask ----------------------------------------------------------------------------------------------------


def target_of(options: Options, config: "ToolConfig | None") -> Target:
    """The command line first, then the configuration (file and `QPID_*`), then the defaults."""
    user = password = host = ""
    port: int | None = None
    if options.broker:
        credentials, _, address = options.broker.rpartition("@")
        user, _, password = credentials.partition("/")
        host, port = split_host_port(address)
    mechanism = options.sasl_mechanism or ""
    if config is not None:
        if not user:
            user, password = config.user, config.password
        mechanism = mechanism or config.mechanism
        host, port = host or config.host, port or config.port
    tls = tls_context(options)
    login = Login(user or "guest", password if user else "guest", mechanism)
    return Target(host or DEFAULT_HOST, port or (5671 if tls else 5672), login, tls)


def timeout_of(options: Options, config: "ToolConfig | None") -> float:
    if options.timeout is None:
        return config.timeout if config is not None and config.timeout else DEFAULT_TIMEOUT
    try:
        seconds = float(options.timeout)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e9:
        raise UsageError(f"argument --timeout: found {options.timeout!r}, wanted seconds, 0 or more")
    return seconds


def config_of(options: Options) -> "ToolConfig | None":
    """None if neither a file nor the environment has a say; then nothing is imported for it either."""
    installed = "/etc/qpid/qpidd.conf"
    file = options.config or os.environ.get("QPID_CONFIG")
    if not file and not options.broker and os.path.exists(installed):
        file = installed
    if not file and not any(name.startswith("QPID_") for name in os.environ):
        return None
    from ha.cli_config import read_tool_config

    return read_tool_config(file, os.environ)


def tls_context(options: Options) -> Any:
    if options.ssl_key and not options.ssl_certificate:
        raise UsageError("argument --ssl-key: needs --ssl-certificate")
    if not (options.ssl or options.ssl_certificate or options.ssl_ca):
        return None
    import ssl

    context = ssl.create_default_context(cafile=options.ssl_ca)
    if options.ssl_certificate:
        context.load_cert_chain(options.ssl_certificate, options.ssl_key)
    return context


# ---- commands: each returns the exit code ----------------------------------------------------------------------------


def ping(options: Options, target: Target, deadline: Deadline) -> int:
    with ManagementSocket(target, deadline, manage=False):
        if options.json:
            print_json({"address": target.address, "ok": True})
    return 0


def status(options: Options, target: Target, deadline: Deadline) -> int:
    if options.all:
        return status_all(options, target, deadline)
    found = str(ask(target, deadline, "ha.status").get("status", "unknown"))
    if options.is_primary:
        return 0 if fits(found, "primary") else 1
    if options.expect is not None:
        return 0 if fits(found, options.expect) else 1
    if options.json:
        print_json({"address": target.address, "status": found})
    else:
        print(found)
    return 0


def fits(found: str, wanted: str) -> bool:
    """Whether the state `found` is what `--expect` wants; an unknown word fits nothing, as in the original."""
    return found in {state.value for state in EXPECTATIONS.get(ALIASES.get(wanted, wanted), ())}


def status_all(options: Options, target: Target, deadline: Deadline) -> int:
    answers = ask_all(target, deadline, "ha.status")
    if options.json:
        print_json([as_object(address, answer) for address, answer in answers])
        return 0
    width = max(len(address) for address, _ in answers)
    for address, answer in answers:
        if isinstance(answer, dict):
            word = answer.get("status", "unknown")
        else:
            word = describe(answer).replace(f" {address}: ", " ", 1)
        print(f"{address:<{width}} {word}")
    return 0


def as_object(address: str, answer: "Answer") -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {"address": address, "error": describe(answer)}


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
    result = ask(target, deadline, "ha.promote")
    if options.json:
        print_json({"address": target.address, **result})
    return 0


HANDLERS: Mapping[str, Callable[[Options, Target, Deadline], int]] = {
    "ping": ping,
    "status": status,
    "query": query,
    "promote": promote,
}


def ask(target: Target, deadline: Deadline, method: str) -> dict[str, Any]:
    """One request on a connection of its own; the answer always is a JSON object, `address` added."""
    with ManagementSocket(target, deadline) as broker:
        return ask_on(broker, method)


def ask_on(broker: ManagementSocket, method: str) -> dict[str, Any]:
    result = broker.request(method) or {}
    if not isinstance(result, dict):
        raise BrokerError(f"{broker.target.address}: {method} answered {type(result).__name__}, wanted an object")
    answer = {"address": broker.target.address, **result}
    if "state" in answer:
        # What brokers call it among themselves; the tool has always said status.
        answer.setdefault("status", answer["state"])
    return answer


Answer = dict[str, Any] | Exception
Answers = list[tuple[str, Answer]]


def ask_all(target: Target, deadline: Deadline, method: str) -> Answers:
    """The first broker says which there are; then all are asked at once, so that dead ones cost the time of one."""
    with ManagementSocket(target, deadline) as broker:
        first = ask_on(broker, "ha.query")
        addresses = brokers_of(first.get("brokers_url", ""))
        if not addresses:
            return [(target.address, ask_on(broker, method))]
    import threading

    answers: dict[str, Answer] = {}

    def work(address: str) -> None:
        try:
            answers[address] = ask(target.at(address), deadline, method)
        except Exception as error:  # each line tells its own
            answers[address] = error

    threads = [threading.Thread(target=work, args=(address,), daemon=True) for address in addresses]
    for thread in threads:
        thread.start()
    late = TimeoutError(deadline.text)
    for thread in threads:
        # The sockets keep the deadline by themselves; a resolver of names may not.
        thread.join(deadline.seconds + 0.5 if deadline.seconds else None)
    return [(address, answers.get(address, late)) for address in addresses]


def brokers_of(url: Any) -> list[str]:
    """`ha-brokers-url` as text or as a list; each address as `host:port`."""
    parts = url.removeprefix("amqp:").split(",") if isinstance(url, str) else [str(part) for part in url or ()]
    return [Target("").at(part.strip()).address for part in parts if part.strip() and part.strip() != "none"]


# ---- main ------------------------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Raises whatever goes wrong; `main` turns it into a line."""
    command, rest = find_command(arguments)
    manager = "--cluster-manager" in rest
    if command == "help-all":
        print(usage_all())
        return 0
    if command == "help" or (not command and {"-h", "--help"} & set(rest)):
        print(usage(manager))
        return 0
    if not command:
        print(usage(manager))
        raise UsageError("a command is wanted")
    if command not in COMMANDS:
        print(usage(manager))
        raise UsageError(f"unknown command {command!r}")
    return run_command(command, rest)


def run_command(command: str, rest: Sequence[str]) -> int:
    parser = command_parser(command)
    options, unknown = parser.parse_known_args(rest)
    if options.help:
        print(parser.format_help().rstrip())
        return 0
    if unknown:
        print(parser.format_usage().rstrip())
        raise UsageError(f"unexpected arguments: {' '.join(unknown)}")
    if command in MANAGER_COMMANDS and not options.cluster_manager:
        raise UsageError(f"{command} is for cluster managers only; --cluster-manager allows it")
    config = config_of(options)
    target, deadline = target_of(options, config), Deadline(timeout_of(options, config))
    return HANDLERS[command](options, target, deadline)


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("KeyboardInterrupt: interrupted")
    except BrokenPipeError:
        # Whoever read our output has gone; writing again at exit would only add a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        print_json({"error": describe(error)}) if "--json" in words else print(describe(error))
    return 1


if __name__ == "__main__":
    sys.exit(main())
