"""`qpidctl`: users, what they may do, what a broker has; words and columns are those of rabbitmqctl.             Shell.

Everything is a management request, so a change is as safe as that of any client when the tool returns.  A password is
hashed here and never sent.  Errors are one line `Failed: Class: text` on standard output, with exit code 1.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from qpidd_py.cli.asking import Ask
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.cli.ctl_instead import instead
from qpidd_py.cli.ctl_views import LISTS
from qpidd_py.cli.output import plain, print_json, run_tool
from qpidd_py.cli.qpid_passwd import SCRAM_HELP, ask_password
from qpidd_py.cli.target import (
    Options,
    Parser,
    UsageError,
    add_address_options,
    add_login_options,
    add_vhost_option,
    config_of,
    shorter,
    target_of,
    timeout_of,
)
from qpidd_py.errors import ReplyCode
from qpidd_py.security.scram import scram_entry
from qpidd_py.security.users import hash_password

PROGRAM: Final = "qpidctl"


class Verb(NamedTuple):
    """`words`: its arguments; one with `?` may be left out, one with `*` takes what is left."""

    words: tuple[str, ...]
    text: str
    run: Callable[[Options, Ask], Any]
    host: bool = False
    """Takes -p VHOST."""
    policy: bool = False
    """Takes the options of a policy."""
    hashes: bool = False
    """Takes --scram."""
    fixed: Mapping[str, Any] = {}
    """What `run` finds among the options, besides."""


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, description="users, what they may do, and what a broker has", add_help=False)
    add_address_options(parser.add_argument)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="lists without the line of heads")
    add_login_options(parser.add_argument)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    for name, verb in VERBS.items():
        sub = verbs.add_parser(name, help=verb.text, description=verb.text)
        for word in verb.words:
            nargs = word[-1] if word[-1] in "?*" else None
            sub.add_argument(word.rstrip("?*"), nargs=nargs, metavar=word.rstrip("?*").upper())
        if verb.host:
            add_vhost_option(sub.add_argument)
        if verb.policy:
            sub.add_argument("--priority", type=int, default=0, metavar="N", help="the highest one counts (default 0)")
            sub.add_argument("--apply-to", default="all", metavar="WHAT", help="queues, exchanges or all (the default)")
        if verb.hashes:
            sub.add_argument("--scram", action="store_true", help=SCRAM_HELP)
        sub.set_defaults(**verb.fixed)
    return parser


# ---- users


def _add_user(options: Options, ask: Ask) -> None:
    if any(user["name"] == options.user for user in ask("user.list")):
        raise RequestRefused(f"user {options.user!r} exists already")
    ask("user.put", user=options.user, hash=_entry(options))


def _change_password(options: Options, ask: Ask) -> None:
    _known(options.user, ask)
    ask("user.put", user=options.user, hash=_entry(options))


def _clear_password(options: Options, ask: Ask) -> None:
    _known(options.user, ask)
    ask("user.put", user=options.user, hash="")


def _set_tags(options: Options, ask: Ask) -> None:
    _known(options.user, ask)
    ask("user.put", user=options.user, tags=options.tag)


def _known(name: str, ask: Ask) -> None:
    """A typing error must not make a user."""
    if not any(user["name"] == name and user["cluster"] for user in ask("user.list")):
        raise RequestRefused(f"no user {name!r} of the cluster")


def _entry(options: Options) -> str:
    return scram_entry(_password(options)) if options.scram else hash_password(_password(options))


def _password(options: Options) -> str:
    """Of the command line, as rabbitmqctl takes it, or better asked for, or read from standard input."""
    password: str = ask_password(twice=True) if options.password is None else options.password
    if not password:
        raise UsageError("the password is empty; clear_password makes a user without one")
    return password


# ---- lists and changes


def _request(method: str, *names: str) -> Callable[[Options, Ask], Any]:
    """The arguments of the verb, under these names, are those of the request."""
    return lambda options, ask: ask(method, **{name: getattr(options, name) for name in names})


def _list(verb: str) -> Callable[[Options, Ask], Any]:
    view = LISTS[verb]

    def run(options: Options, ask: Ask) -> Any:
        wanted: list[str] = getattr(options, "column", [])
        view.rows((), wanted)
        chosen = {field: getattr(options, argument) for field, argument in view.filters.items()}
        arguments = {"vhost": options.vhost} if "vhost" in view.filters else {}
        listed = [item for item in ask(view.method, **arguments) if not view.having or view.having in item]
        items = [item for item in listed if all(item[field] == value for field, value in chosen.items())]
        rows = view.rows(items, wanted)
        return rows if options.json else view.lines(rows, wanted, heads=not options.quiet)

    return run


def _definition(options: Options) -> Any:
    try:
        return json.loads(options.definition)
    except ValueError as error:
        raise UsageError(f"definition {options.definition!r:.80} is no JSON: {error}") from None


def _set_policy(options: Options, ask: Ask) -> Any:
    """What the broker says of it, too: a part may not be in force."""
    definition = _definition(options)
    fields = {name: getattr(options, name) for name in ("name", "vhost", "operator", "pattern", "priority")}
    return ask("policy.set", **fields, **{"apply-to": options.apply_to}, definition=definition)


def _policy_verbs(operator: bool) -> dict[str, Verb]:
    """As rabbitmqctl's."""
    what = "operator_policy" if operator else "policy"
    words, fixed = ("name", "pattern", "definition"), {"operator": operator}
    text = "numbers that no policy exceeds" if operator else "what holds for all queues whose names match a pattern"
    clear = _request("policy.clear", "name", "vhost", "operator")
    lists = _list("list_policies")
    return {
        f"set_{what}": Verb(words, f"{text}, as JSON", _set_policy, host=True, policy=True, fixed=fixed),
        f"clear_{what}": Verb(("name",), "it holds no longer", clear, host=True, fixed=fixed),
        f"list_{what[:-1]}ies": Verb((), "all of them", lists, host=True, fixed=fixed),
    }


def _limit_verbs(whose: str) -> dict[str, Verb]:
    """As rabbitmqctl's, of users or of virtual hosts."""
    words, host = (("user",), False) if whose == "user" else ((), True)

    def put(options: Options, ask: Ask) -> None:
        ask("limit.set", **{whose: getattr(options, whose)}, limits=_definition(options))

    clear = _request("limit.clear", whose, "limit")
    text = f"limits of {'users' if words else 'virtual hosts'}"
    return {
        f"set_{whose}_limits": Verb((*words, "definition"), f"{text}, as JSON", put, host=host),
        f"clear_{whose}_limits": Verb((*words, "limit"), "one of them, or all", clear, host=host),
        f"list_{whose}_limits": Verb((), text, _list(f"list_{whose}_limits")),
    }


def _add_vhost(options: Options, ask: Ask) -> None:
    if any(vhost["name"] == options.name for vhost in ask("vhost.list")):
        raise RequestRefused(f"virtual host {options.name!r} exists already")
    ask("vhost.add", name=options.name)


def _set_parameter(options: Options, ask: Ask) -> None:
    fields = {name: getattr(options, name) for name in ("component", "name", "vhost")}
    ask("parameter.set", **fields, value=_definition(options))


def _close(options: Options, ask: Ask) -> Any:
    if not options.number.isdecimal():
        raise UsageError(f"connection {options.number!r}, wanted a number of list_connections")
    ask("session.close", number=int(options.number), reason=options.reason or "closed by an administrator")


def _export(options: Options, ask: Ask) -> None:
    from qpidd_py.cli.ctl_definitions import export_definitions

    export_definitions(options.file, ask)


def _import(options: Options, ask: Ask) -> None:
    from qpidd_py.cli.ctl_definitions import import_definitions

    import_definitions(options.file, ask)


def _alarms(options: Options, ask: Ask) -> Any:
    return ask("broker.info")["alarms"]


def _support(verb: str) -> Callable[[Options, Ask], Any]:
    def run(options: Options, ask: Ask) -> Any:
        from qpidd_py.cli import ctl_support

        return getattr(ctl_support, verb)(options, ask)

    return run


def _close_all(field: str) -> Callable[[Options, Ask], Any]:
    """Of a virtual host or a user; not the tools of administrators, which this is one of, nor links of brokers."""

    def run(options: Options, ask: Ask) -> Any:
        closed, reason = 0, options.reason or "closed by an administrator"
        for item in ask("session.list"):
            if item[field] == getattr(options, field) and not item["admin"] and not item["link"]:
                try:
                    ask("session.close", number=item["number"], reason=reason)
                    closed += 1
                except RequestRefused as error:
                    if error.code != ReplyCode.NOT_FOUND:  # it has gone meanwhile
                        raise
        return {"closed": closed}

    return run


_PATTERNS = ("user", "vhost", "configure", "write", "read")
_TOPIC = ("user", "vhost", "exchange", "write", "read")
VERBS: Final[Mapping[str, Verb]] = {
    "add_user": Verb(("user", "password?"), "add a user of the cluster; asks for the password", _add_user, hashes=True),
    "delete_user": Verb(("user",), "delete a user, and close its connections", _request("user.delete", "user")),
    "change_password": Verb(("user", "password?"), "give a user another password", _change_password, hashes=True),
    "clear_password": Verb(("user",), "no password fits any more", _clear_password),
    "set_user_tags": Verb(("user", "tag*"), "administrator, monitoring, policymaker, management", _set_tags),
    "list_users": Verb((), "users and their tags", _list("list_users")),
    "set_permissions": Verb(
        ("user", "configure", "write", "read"),
        "patterns for names that a user may configure, write, read",
        _request("permission.set", *_PATTERNS),
        host=True,
    ),
    "clear_permissions": Verb(
        ("user",), "the user cannot enter any more", _request("permission.clear", "user", "vhost"), host=True
    ),
    "list_permissions": Verb((), "permissions in a virtual host", _list("list_permissions"), host=True),
    "list_user_permissions": Verb(("user",), "permissions of a user", _list("list_user_permissions")),
    "set_topic_permissions": Verb(
        ("user", "exchange", "write", "read"),
        "patterns for the routing keys of a topic exchange",
        _request("topic.set", *_TOPIC),
        host=True,
    ),
    "clear_topic_permissions": Verb(
        ("user", "exchange?"),
        "of one exchange, or of all",
        lambda options, ask: ask(
            "topic.clear", user=options.user, vhost=options.vhost, exchange=options.exchange or ""
        ),
        host=True,
    ),
    "list_topic_permissions": Verb(
        (), "topic permissions in a virtual host", _list("list_topic_permissions"), host=True
    ),
    "list_user_topic_permissions": Verb(("user",), "of a user", _list("list_user_topic_permissions")),
    "authenticate_user": Verb(
        ("user", "password?"), "does this password fit? asks for it", _support("authenticate_user"), host=True
    ),
    "add_vhost": Verb(("name",), "make a virtual host", _add_vhost),
    "delete_vhost": Verb(("name",), "delete a virtual host with all that is in it", _request("vhost.delete", "name")),
    "list_vhosts": Verb(("column*",), "virtual hosts: name, queues, messages", _list("list_vhosts")),
    **_policy_verbs(False),
    **_policy_verbs(True),
    **_limit_verbs("user"),
    **_limit_verbs("vhost"),
    "set_parameter": Verb(
        ("component", "name", "definition"), "of the component shovel: what qpid-shovel does", _set_parameter, host=True
    ),
    "clear_parameter": Verb(
        ("component", "name"),
        "qpid-shovel does it no longer",
        _request("parameter.clear", "component", "name", "vhost"),
        host=True,
    ),
    "list_parameters": Verb(
        (), "all of them, with the passwords in their addresses", _list("list_parameters"), host=True
    ),
    "restart_shovel": Verb(("name",), "it begins anew at once", _request("shovel.restart", "name", "vhost"), host=True),
    "shovel_status": Verb((), "what the shovels do", _list("shovel_status")),
    "list_queues": Verb(("column*",), "queues, with these columns", _list("list_queues"), host=True),
    "list_exchanges": Verb(("column*",), "exchanges, with these columns", _list("list_exchanges"), host=True),
    "list_bindings": Verb(("column*",), "bindings, with these columns", _list("list_bindings"), host=True),
    "list_connections": Verb(("column*",), "connections, with these columns", _list("list_connections")),
    "list_channels": Verb(("column*",), "channels, with these columns", _list("list_channels")),
    "list_consumers": Verb(("column*",), "consumers, with these columns", _list("list_consumers"), host=True),
    "purge_queue": Verb(
        ("queue",), "drop the ready messages of a queue", _request("queue.purge", "queue", "vhost"), host=True
    ),
    "delete_queue": Verb(
        ("queue",), "delete a queue with its messages", _request("queue.delete", "queue", "vhost"), host=True
    ),
    "close_connection": Verb(("number", "reason?"), "end a client's connection", _close),
    "close_all_connections": Verb(("reason?",), "end all of a virtual host", _close_all("vhost"), host=True),
    "close_all_user_connections": Verb(("user", "reason?"), "end all of a user", _close_all("user")),
    "export_definitions": Verb(("file",), "users, policies, queues, ... to a file of JSON, or to -", _export),
    "import_definitions": Verb(("file",), "makes what such a file, or one of RabbitMQ, has", _import),
    "alarms": Verb((), "what the broker's administrator has to know, if anything", _alarms),
    "environment": Verb((), "the options that are in force, secrets hidden", _request("broker.options")),
    "status": Verb((), "version, role and counters of the broker", _request("broker.info")),
    "ping": Verb((), "does the broker answer?", _support("ping")),
    "cluster_status": Verb((), "the brokers of the cluster, and how each is", _support("cluster_status")),
    "report": Verb((), "what support has to know, without passwords", _support("report")),
}


def run(options: Options, target: Target, deadline: Deadline) -> int:
    """Raises all errors; `main` prints them as one line."""
    with ManagementSocket(target, deadline) as broker:
        result = VERBS[options.verb].run(options, Ask(broker, target, deadline))
    if options.json:
        print_json({} if result is None else result)
    elif isinstance(result, list):
        print("\n".join(result)) if result else None
    elif result:
        print("\n".join(f"{name}\t{plain(str(value))}" for name, value in result.items()))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_main, arguments, "Failed: ")


def _main(words: Sequence[str]) -> int:
    parser = make_parser()
    if not words or ({"-h", "--help"} & set(words) and not set(words) & set(VERBS)):
        print(parser.format_help().rstrip())
        return 0
    try:
        options = parser.parse_args(words)
    except UsageError as error:
        raise (UsageError(found) if (found := instead(str(error))) else shorter(error, VERBS)) from None
    if options.verb is None:
        raise UsageError("no verb; see --help")
    config = config_of(options)
    return run(options, target_of(options, config), Deadline(timeout_of(options, config)))


if __name__ == "__main__":
    sys.exit(main())
