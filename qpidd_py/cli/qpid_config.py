"""`qpid-config`: look at and change the exchanges, queues and bindings of a broker.  Shell.

Words and options follow Apache Qpid's tool of the same name.  Changes are AMQP methods, so they are as safe as those of
any client when the tool returns; listings are management requests, which backups answer too.  Errors are one line
`Failed: Class: text` on standard output, with exit code 1.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.management_client import ADMIN_PROPERTIES
from qpidd_py.cli import config_listing as listing
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.cli.method_socket import MethodSocket, with_fields
from qpidd_py.cli.output import print_json, print_lines, run_tool
from qpidd_py.cli.target import (
    DEFAULT_VHOST,
    Options,
    Parser,
    UsageError,
    add_address_options,
    add_login_options,
    add_vhost_option,
    run_parsed,
)

PROGRAM = "qpid-config"
RATE_TIME = 1.0
"""Seconds between two looks at the counters."""
LEVELS = ("none", "configuration", "all")
KINDS = ("direct", "fanout", "headers", "topic")

USAGE = """\
qpid-config [OPTIONS]                                    overview
qpid-config [OPTIONS] exchanges [SUBSTRING] [-r]
qpid-config [OPTIONS] queues [SUBSTRING] [-r] [--rates]
qpid-config [OPTIONS] list exchange|queue [SUBSTRING]    the same
qpid-config [OPTIONS] add exchange TYPE NAME [ADD-OPTIONS] [--sequence] [--ive]
qpid-config [OPTIONS] add queue NAME [ADD-OPTIONS] [QUEUE-OPTIONS]
qpid-config [OPTIONS] del exchange NAME
qpid-config [OPTIONS] del queue NAME [--force | --force-if-not-empty | --force-if-used]
qpid-config [OPTIONS] del connection NUMBER [--reason TEXT]
qpid-config [OPTIONS] bind EXCHANGE QUEUE [KEY] [all|any NAME=VALUE...]
qpid-config [OPTIONS] unbind EXCHANGE QUEUE [KEY] [all|any NAME=VALUE...]
qpid-config [OPTIONS] reload-acl"""


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, usage="\n" + USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*", metavar="COMMAND")
    add = parser.add_argument_group("options").add_argument
    add_address_options(add)
    add("-a", "--broker-addr", dest="broker", metavar="ADDRESS", help="the same as --broker")
    add("-t", dest="timeout", metavar="SECONDS", help="the same as --timeout")
    add("--json", action="store_true", help="print JSON")
    add_vhost_option(add)
    add("--ha-admin", action="store_true", help="connect to a backup, too, for what is not replicated")
    add("-r", "--recursive", action="store_true", help="with the bindings")
    add("--rates", action="store_true", help=f"with queues: messages per second, measured over {RATE_TIME:g} s")
    add_login_options(add)
    _add_options(parser.add_argument_group("add-options").add_argument)
    _exchange_options(parser.add_argument_group("options of add exchange").add_argument)
    _queue_options(parser.add_argument_group("queue-options").add_argument)
    _deletion_options(parser.add_argument_group("options of del").add_argument)
    return parser


def _add_options(add: Callable[..., Any]) -> None:
    add("--durable", action="store_true", help="survives a restart, where the broker keeps a journal")
    add("--replicate", choices=LEVELS, metavar="LEVEL", help="none, configuration (no messages) or all")
    add("--alternate-exchange", metavar="NAME", help="gets messages that cannot be routed, or are rejected")
    add("--argument", action="append", default=[], metavar="N=V", help="any other: a number, true, false, text")


def _exchange_options(add: Callable[..., Any]) -> None:
    add("--ive", action="store_true", help="keep the last message for queues that are bound later")
    add("--sequence", action="store_true", help="number the messages, in the header qpid.msg_sequence")


def _queue_options(add: Callable[..., Any]) -> None:
    add("--max-queue-size", type=int, metavar="OCTETS", help="limit, of the bodies of messages that are ready")
    add("--max-queue-count", type=int, metavar="N", help="limit, in messages that are ready")
    add("--limit-policy", choices=("none", *listing.POLICIES), help="reject the newest (default), or drop the oldest")
    add("--flow-stop-size", type=int, metavar="OCTETS", help="publishers wait above it, see --flow-resume-size")
    add("--flow-stop-count", type=int, metavar="N", help="the same, in messages")
    add("--flow-resume-size", type=int, metavar="OCTETS", help="publishers go on at it")
    add("--flow-resume-count", type=int, metavar="N", help="the same, in messages")
    add("--lvq-key", metavar="HEADER", help="keep the newest message of each value of this header")
    add("--group-header", metavar="HEADER", help="messages with one value of it are with one client at a time")
    add("--start-replica", metavar="BROKER-URL", help="follow the queue of this name there, see `qpid-ha replicate`")


def _deletion_options(add: Callable[..., Any]) -> None:
    add("--force", action="store_true", help="even if it is used or holds messages")
    add("--force-if-not-empty", action="store_true", help="even if it holds messages")
    add("--force-if-used", action="store_true", help="even if it has consumers")
    add("--reason", metavar="TEXT", help="with del connection: what the client is told")


class Tool:
    """One call of the program."""

    def __init__(self, options: Options, target: Target, deadline: Deadline) -> None:
        self._options, self._target, self._deadline = options, target, deadline

    def run(self, words: list[str]) -> int:
        """Returns the exit code; raises all errors."""
        match words:
            case []:
                return self._overview()
            case ["exchanges" | "queues" as what, *rest] if len(rest) <= 1:
                return self._list(what, rest[0] if rest else "")
            case ["list", "exchange" | "queue" as what, *rest] if len(rest) <= 1:
                return self._list(f"{what}s", rest[0] if rest else "")
            case ["add", "exchange", kind, name]:
                return self._add_exchange(kind, name)
            case ["add", "queue", name]:
                return self._add_queue(name)
            case ["del", "exchange" | "queue" as what, name]:
                return self._delete(what, name)
            case ["del", "connection", number]:
                return self._close(number)
            case ["bind" | "unbind" as what, exchange, queue, *rest]:
                return self._bind(what, exchange, queue, rest)
            case ["reload-acl"]:
                return self._reload_acl()
        raise UsageError(f"unexpected arguments: {' '.join(words)}; see --help")

    # ---- listings

    def _ask(self, *methods: str) -> list[list[dict[str, Any]]]:
        with ManagementSocket(self._target, self._deadline) as broker:
            return [broker.request(method) for method in methods]

    def _overview(self) -> int:
        exchanges, queues = self._ask("exchange.list", "queue.list")
        if self._options.json:
            print_json({"exchanges": exchanges, "queues": queues})
        else:
            print_lines(listing.overview(exchanges, queues))
        return 0

    def _queues(self) -> list[dict[str, Any]]:
        """Those of RATE_TIME ago and now, if rates are wanted."""
        with ManagementSocket(self._target, self._deadline) as broker:
            before, began = broker.request("queue.list"), time.monotonic()
            if not self._options.rates:
                return list(before)
            left = self._deadline.remaining()
            time.sleep(RATE_TIME if left is None else min(RATE_TIME, left / 2))
            after = broker.request("queue.list")
            return listing.with_rates(before, after, time.monotonic() - began)

    def _list(self, what: str, substring: str) -> int:
        """Exit code 1 when no name contains the pattern."""
        if self._options.rates and what != "queues":
            raise UsageError("--rates is for queues")
        all_items = self._queues() if what == "queues" else self._ask("exchange.list")[0]
        bindings = self._ask("binding.list")[0] if self._options.recursive else []
        items = [item for item in all_items if substring in str(item["name"])]
        if self._options.json:
            print_json(items if not self._options.recursive else {what: items, "bindings": bindings})
        elif items or not substring:
            print_lines(self._lines(what, items, bindings))
        if substring and not items:
            raise RequestRefused(f"no {what[:-1]} has {substring!r} in its name")
        return 0

    def _lines(self, what: str, items: list[dict[str, Any]], bindings: list[dict[str, Any]]) -> list[str]:
        if self._options.recursive:
            show = listing.exchange_bindings if what == "exchanges" else listing.queue_bindings
            return show(items, bindings)
        return listing.exchange_table(items) if what == "exchanges" else listing.queue_table(items)

    # ---- changes

    def _call(self, *methods: Frame) -> int:
        properties = ADMIN_PROPERTIES if self._options.ha_admin else {}
        with MethodSocket(self._target, self._deadline, properties) as broker:
            for method in methods:
                broker.call(method)
        if self._options.json:
            print_json({})
        return 0

    def _add_exchange(self, kind: str, name: str) -> int:
        if kind not in KINDS:
            raise UsageError(f"exchange type {kind!r}, wanted {', '.join(KINDS)}")
        options = self._options
        return self._call(
            with_fields(
                commands.Exchange.Declare(),
                exchange=name,
                exchange_type=kind,
                durable=options.durable,
                arguments={**common_arguments(options), **exchange_arguments(options)},
            )
        )

    def _add_queue(self, name: str) -> int:
        if exchange_arguments(self._options):
            raise UsageError("--sequence and --ive are of exchanges, not of queues")
        arguments = {
            **common_arguments(self._options),
            **limit_arguments(self._options),
            **kind_arguments(self._options),
        }
        declare = with_fields(commands.Queue.Declare(), queue=name, durable=self._options.durable, arguments=arguments)
        code = self._call(declare)
        if arguments.get("x-queue-type") == "quorum":
            self._warn_of_one_copy(name)
        if self._options.start_replica:
            with ManagementSocket(self._target, self._deadline) as broker:
                broker.request("ha.replicate", {"broker": self._options.start_replica, "queue": name})
        return code

    def _warn_of_one_copy(self, name: str) -> None:
        with ManagementSocket(self._target, self._deadline) as broker:
            clustered = broker.request("broker.info").get("clustered", True)
        if not clustered:
            print(f"Warning: quorum queue {name!r}: the broker has no cluster, this is the only copy", file=sys.stderr)

    def _delete(self, what: str, name: str) -> int:
        """A broker accepts the deletion of a missing object; on the command line it is an error, probably a wrong
        name."""
        if what == "exchange":
            present = with_fields(commands.Exchange.Declare(), exchange=name, passive=True)
            return self._call(present, with_fields(commands.Exchange.Delete(), exchange=name))
        options = self._options
        delete = with_fields(
            commands.Queue.Delete(),
            queue=name,
            if_unused=not (options.force or options.force_if_used),
            if_empty=not (options.force or options.force_if_not_empty),
        )
        return self._call(with_fields(commands.Queue.Declare(), queue=name, passive=True), delete)

    def _close(self, number: str) -> int:
        """The number is that of `qpid-stat -c`; clients that fail over come back."""
        if not number.isdecimal():
            raise UsageError(f"connection {number!r}, wanted a number of qpid-stat -c")
        arguments: dict[str, Any] = {"number": int(number)}
        if self._options.reason:
            arguments["reason"] = self._options.reason
        with ManagementSocket(self._target, self._deadline) as broker:
            closed = broker.request("session.close", arguments)
        print_json(closed) if self._options.json else print(f"connection {number} from {closed['closed']} is closed")
        return 0

    def _reload_acl(self) -> int:
        """Of the one broker that is asked."""
        with ManagementSocket(self._target, self._deadline) as broker:
            found = broker.request("acl.reload")
        print_json(found) if self._options.json else print(f"{found['file']} is in force, rules: {found['rules']}")
        return 0

    def _bind(self, what: str, exchange: str, queue: str, rest: list[str]) -> int:
        key = rest.pop(0) if rest and rest[0] not in ("all", "any") and "=" not in rest[0] else ""
        method = commands.Queue.Bind() if what == "bind" else commands.Queue.Unbind()
        arguments = header_arguments(rest)
        return self._call(with_fields(method, exchange=exchange, queue=queue, routing_key=key, arguments=arguments))


def exchange_arguments(options: Options) -> dict[str, Any]:
    """What only exchanges have."""
    flags = {"qpid.msg_sequence": options.sequence, "qpid.ive": options.ive}
    return {name: 1 for name, wanted in flags.items() if wanted}


def common_arguments(options: Options) -> dict[str, Any]:
    arguments = dict(parse_argument(text) for text in options.argument)
    if options.replicate:
        arguments["qpid.replicate"] = options.replicate
    if options.alternate_exchange is not None:
        arguments["alternate-exchange"] = options.alternate_exchange
    return arguments


def limit_arguments(options: Options) -> dict[str, Any]:
    """A limit without a policy rejects, as in the original: messages are dropped only on request."""
    sizes = {"x-max-length-bytes": options.max_queue_size, "x-max-length": options.max_queue_count}
    arguments: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    policy = options.limit_policy or ("reject" if arguments else "none")
    if policy != "none":
        arguments["x-overflow"] = listing.POLICIES[policy]
    return arguments


def kind_arguments(options: Options) -> dict[str, Any]:
    """What makes it another kind of queue; groups are always shared."""
    values = {
        "qpid.flow_stop_size": options.flow_stop_size,
        "qpid.flow_stop_count": options.flow_stop_count,
        "qpid.flow_resume_size": options.flow_resume_size,
        "qpid.flow_resume_count": options.flow_resume_count,
        "qpid.last_value_queue_key": options.lvq_key,
        "qpid.group_header_key": options.group_header,
        "qpid.shared_msg_group": None if options.group_header is None else True,
    }
    return {name: value for name, value in values.items() if value is not None}


def header_arguments(words: Sequence[str]) -> dict[str, Any]:
    """`all|any NAME=VALUE...` of a headers binding."""
    if not words:
        return {}
    if words[0] not in ("all", "any"):
        raise UsageError(f"binding to headers begins with {words[0]!r}, wanted all or any")
    return {"x-match": words[0], **dict(parse_argument(word) for word in words[1:])}


def parse_argument(text: str) -> tuple[str, Any]:
    """NAME=VALUE; quotes around the value make a text of a number."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"argument {text!r}, wanted NAME=VALUE")
    words: Mapping[str, bool] = {"true": True, "false": False}
    if value in words:
        return name, words[value]
    if value.removeprefix("-").isdecimal() and value.isascii():
        return name, int(value)
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
    return name, value[1:-1] if quoted else value


def run(options: Options, target: Target, seconds: float) -> int:
    """Raises all errors; `main` prints them as one line."""
    if options.start_replica and options.vhost != DEFAULT_VHOST:
        raise UsageError(f"argument --start-replica: is for virtual host {DEFAULT_VHOST}, found {options.vhost!r}")
    return Tool(options, target._replace(vhost=options.vhost), Deadline(seconds)).run(options.words)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(lambda words: run_parsed(make_parser(), words, run), arguments, "Failed: ")


if __name__ == "__main__":
    sys.exit(main())
