"""`qpid-route`: routes between brokers, in the words of Apache Qpid's tool of the same name.                     Shell.

A route is a shovel (`broker/parameters.py`) of the broker that pulls: the destination, or with --src-local the source,
which pushes.  The name of its parameter says what it is, so that `del` and `list` need no other record.  Errors are one
line `Failed: Class: text` on standard output, with exit code 1.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from qpidd_py.broker.parameters import FOLLOWS, NO_ACK, ON_CONFIRM, SHOVEL
from qpidd_py.cli.client_socket import DEFAULT_PORT, Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.cli.output import print_json, print_lines, print_table, run_tool
from qpidd_py.cli.route_ends import Other, Place, named, other_end, parted, places_of
from qpidd_py.cli.route_map import mapped
from qpidd_py.cli.target import (
    Options,
    Parser,
    UsageError,
    add_address_options,
    add_login_options,
    add_vhost_option,
    config_of,
    parsed,
    target_of,
    timeout_of,
)

PROGRAM: Final = "qpid-route"
USAGE: Final = """\
qpid-route [OPTIONS] dynamic add DEST-BROKER SRC-BROKER EXCHANGE [TAG] [EXCLUDE-LIST]
qpid-route [OPTIONS] dynamic del DEST-BROKER SRC-BROKER EXCHANGE
qpid-route [OPTIONS] route add DEST-BROKER SRC-BROKER EXCHANGE KEY [TAG] [EXCLUDE-LIST]
qpid-route [OPTIONS] route del DEST-BROKER SRC-BROKER EXCHANGE KEY
qpid-route [OPTIONS] queue add DEST-BROKER SRC-BROKER DEST-EXCHANGE SRC-QUEUE
qpid-route [OPTIONS] queue del DEST-BROKER SRC-BROKER DEST-EXCHANGE SRC-QUEUE
qpid-route [OPTIONS] route list [BROKER]
qpid-route [OPTIONS] route map [BROKER]
qpid-route [OPTIONS] route flush [BROKER]
qpid-route [OPTIONS] link list [BROKER]"""
PREFIX: Final = "qpid-route "
"""Of the names of its parameters."""
_NAME: Final = re.compile(rf"{PREFIX}(?:pull|push) (?P<kind>route|queue|dynamic) \S+ .+", re.DOTALL)
_KEYS: Final = {
    "route": ("dest-exchange", "src-exchange", "src-exchange-key"),
    "queue": ("dest-exchange", "src-queue"),
    "dynamic": ("dest-exchange", "src-exchange"),
}
DYNAMIC: Final = "<dynamic>"
"""In the place of a key."""
QUEUE: Final = "(queue) "
"""In front of the name of a queue, in the place of a key."""
WAYS: Final = {False: "pull", True: "push"}
_NOT_HERE: Final[Mapping[str, str]] = {
    "dynamic": "a dynamic route is DEST-BROKER SRC-BROKER EXCHANGE [TAG] [EXCLUDE-LIST], and is pulled: no --src-local",
    "link": "a link is there as long as a route needs it: see link list",
}
Ask = Callable[..., Any]
"""(method, **arguments) -> the result; raises RequestRefused."""


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, usage="\n" + USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*", metavar="COMMAND")
    add = parser.add_argument_group("options").add_argument
    add_address_options(add)
    add_vhost_option(add)
    add(
        "-d",
        "--durable",
        action="store_true",
        help="with route add: a durable queue at the source, nothing is missed",
    )
    add("-s", "--src-local", action="store_true", help="the source pushes; else the destination pulls")
    add("-t", "--transport", choices=("tcp", "ssl"), default="tcp", help="to the other broker (default tcp)")
    add("--ack", type=int, default=1, metavar="N", help="0: messages are not acknowledged, and may be lost (default 1)")
    add("--credit", type=int, metavar="N", help="at most so many messages are on their way (default 1000)")
    add("-q", "--quiet", action="store_true", help="no error for a route that is there already, or is not")
    add("--json", action="store_true", help="print JSON")
    add_login_options(add)
    return parser


class Tool:
    """One call of the program; `ask` sends a request to the broker that has the routes, `near`."""

    def __init__(self, options: Options, near: Target, ask: Ask) -> None:
        self._options, self._near, self._ask = options, near, ask

    def add(self, kind: str, other: str, exchange: str, key: str, tag: str = "", excluded: str = "") -> None:
        """`tag`: of the messages that come this way; those with one of `excluded` do not come."""
        end = self._end(other)
        name = self._name(kind, end, exchange, key)
        if any(route["name"] == name for route in self._routes()):
            self._complain(f"there is a route {name.removeprefix(PREFIX)!r}")
            return
        self._check_apart(kind, end, exchange)
        near, far = ("src", "dest") if self._options.src_local else ("dest", "src")
        value: dict[str, Any] = {
            f"{near}-uri": named("amqp://", self._near.vhost),
            f"{far}-uri": list(end.addresses),
            "dest-exchange": exchange,
        }
        if kind == "queue":
            value["src-queue"] = key
        else:
            value |= {"src-exchange": exchange}
            value |= {FOLLOWS: True} if kind == "dynamic" else {"src-exchange-key": key}
            if self._options.durable or kind == "dynamic":
                value["src-exchange-queue"] = f"bridge_queue_{uuid4()}"
        if tag:
            value["dest-add-trace"] = tag
        if excluded:
            value["src-exclude-traces"] = excluded.split(",")
        value["ack-mode"] = ON_CONFIRM if self._options.ack else NO_ACK
        if self._options.credit is not None:
            value["src-prefetch-count"] = self._options.credit
        self._ask("parameter.set", component=SHOVEL, name=name, value=value)

    def delete(self, kind: str, other: str, exchange: str, key: str) -> None:
        name = self._name(kind, self._end(other), exchange, key)
        if any(route["name"] == name for route in self._routes()):
            self._clear(name)
        else:
            self._complain(f"there is no route {name.removeprefix(PREFIX)!r}")

    def flush(self) -> None:
        for route in self._routes():
            self._clear(route["name"])

    def show(self) -> None:
        rows = [_row(route, _place(self._near)) for route in self._routes()]
        print_json(rows) if self._options.json else print_lines(" ".join(row.values()) for row in rows)

    def links(self) -> None:
        """The other brokers, as qpid-route shows them."""
        states = {item["name"]: item for item in self._ask("shovel.list")}
        rows = [_link(route, states.get(route["name"], {})) for route in self._routes()]
        if self._options.json:
            print_json(rows)
        else:
            print_table(list(_LINK), [list(row.values()) for row in rows])

    # ---- parts

    def _routes(self) -> list[dict[str, Any]]:
        return _routes(self._ask)

    def _clear(self, name: str) -> None:
        self._ask("parameter.clear", component=SHOVEL, name=name)

    def _complain(self, text: str) -> None:
        if not self._options.quiet:
            raise RequestRefused(text)

    def _name(self, kind: str, end: Other, exchange: str, key: str) -> str:
        what = exchange if kind == "dynamic" else f"{exchange} {key}"
        return f"{PREFIX}{WAYS[self._options.src_local]} {kind} {end.name} {what}"

    def _end(self, other: str) -> Other:
        """In the same virtual host as the near one, if it names none.  Raises ValueError."""
        return other_end(other, self._options.transport == "ssl", self._near.vhost)

    def _check_apart(self, kind: str, end: Other, exchange: str) -> None:
        """Raises UsageError for a route that leads back into its exchange; as far as can be known by the addresses."""
        if kind != "queue" and end.vhost == self._near.vhost and end.among([*self._near_places()]):
            raise UsageError(f"{end.name} is source and destination: exchange {exchange!r:.80} would feed itself")

    def _near_places(self) -> Iterator[Place]:
        """Where the members of the near cluster are, if the user may know."""
        yield self._near.host, self._near.port
        with suppress(RequestRefused, ValueError):
            found = self._ask("ha.query")
            for name in ("brokers_url", "public_url"):
                yield from places_of(found[name], DEFAULT_PORT) if found.get(name) else ()


def _routes(ask: Ask) -> list[dict[str, Any]]:
    return [item for item in ask("parameter.list") if _is_route(item)]


def _is_route(item: Mapping[str, Any]) -> bool:
    """Whoever may set a parameter may give it any name."""
    found = _NAME.fullmatch(item["name"])
    wanted = _KEYS.get(found["kind"], ()) if found else ()
    return bool(wanted) and all(isinstance(item["value"].get(name), str) for name in wanted)


def _parts(route: Mapping[str, Any]) -> tuple[str, str, str]:
    """The way, the kind and the places of the other broker."""
    way, kind, places = route["name"].removeprefix(PREFIX).split(" ", 3)[:3]
    return way, kind, places


def _row(route: Mapping[str, Any], here: str) -> dict[str, str]:
    way, kind, places = _parts(route)
    value = route["value"]
    ends = (here, places) if way == WAYS[False] else (places, here)
    key = DYNAMIC if kind == "dynamic" else f"{QUEUE}{value.get('src-queue')}"
    if kind == "route":
        key = value["src-exchange-key"]
    return {"destination": ends[0], "source": ends[1], "exchange": value["dest-exchange"], "key": key}


_LINK: Final = ("Broker", "Durable", "State", "Last Error")
_STATES: Final = {"running": "Operational", "starting": "Connecting", "terminated": "Waiting"}
"""In Qpid's words."""


def _link(route: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, str]:
    durable = "Y" if {"src-queue", "src-exchange-queue"} & route["value"].keys() else "N"
    values = (_parts(route)[2], durable, _STATES[state.get("state", "starting")], state.get("reason", ""))
    return dict(zip(_LINK, values, strict=True))


def run(options: Options) -> int:
    """Raises all errors; `main` prints them as one line."""
    words: list[str] = options.words
    match words:
        case ["route" | "queue" as kind, "del", destination, source, exchange, key]:
            near, far = (source, destination) if options.src_local else (destination, source)
            _at(near, options, lambda tool: tool.delete(kind, far, exchange, key))
        case ["route" | "queue" as kind, "add", destination, source, exchange, key, *tags] if len(tags) <= 2 * (
            kind == "route"
        ):
            near, far = (source, destination) if options.src_local else (destination, source)
            _at(near, options, lambda tool: tool.add(kind, far, exchange, key, *tags))
        case ["dynamic", "add", destination, source, exchange, *tags] if len(tags) <= 2 and not options.src_local:
            _at(destination, options, lambda tool: tool.add("dynamic", source, exchange, "", *tags))
        case ["dynamic", "del", destination, source, exchange] if not options.src_local:
            _at(destination, options, lambda tool: tool.delete("dynamic", source, exchange, ""))
        case ["route", "list", *rest] | ["list", *rest] if len(rest) <= 1 and rest != ["connections"]:
            _at(_first(rest), options, Tool.show)
        case ["route", "map", *rest] | ["map", *rest] if len(rest) <= 1:
            _map(_first(rest), options)
        case ["route", "flush", *rest] | ["flush", *rest] if len(rest) <= 1:
            _at(_first(rest), options, Tool.flush)
        case ["link", "list", *rest] | ["list", "connections", *rest] if len(rest) <= 1:
            _at(_first(rest), options, Tool.links)
        case _:
            reason = next((_NOT_HERE[word] for word in words[:2] if word in _NOT_HERE), "see --help")
            raise UsageError(f"unexpected arguments: {' '.join(words)}; {reason}")
    return 0


def _first(words: Sequence[str]) -> str:
    return words[0] if words else ""


def _place(near: Target) -> str:
    return named(near.address, near.vhost)


def _near(broker: str, options: Options) -> tuple[Target, float]:
    """With the time limit; without a name that of --broker, or of this machine.  Raises UsageError, ValueError."""
    text, vhost = parted(broker or options.broker or "", options.vhost)
    options.broker = text or None
    config = config_of(options)
    return target_of(options, config)._replace(vhost=vhost), timeout_of(options, config)


def _at(broker: str, options: Options, work: Callable[[Tool], None]) -> None:
    target, seconds = _near(broker, options)
    with ManagementSocket(target, Deadline(seconds)) as socket:
        work(Tool(options, target, _asking(socket, target)))


def _asking(socket: ManagementSocket, target: Target) -> Ask:
    """About its virtual host."""
    return lambda method, **arguments: socket.request(method, {"vhost": target.vhost, **arguments})


def _map(broker: str, options: Options) -> None:
    """The routes of a broker, and of those that they lead to."""
    near, seconds = _near(broker, options)

    def routes_of(target: Target) -> list[Mapping[str, Any]]:
        with ManagementSocket(target, Deadline(seconds)) as socket:
            return [*_routes(_asking(socket, target))]

    found = mapped(_place(near), near, lambda route: _parts(route)[2], routes_of)
    rows = [_row(route, name) for name, route in found.routes]
    if options.json:
        print_json({"brokers": found.brokers, "routes": rows, "not_asked": found.left})
        return
    print_lines(["", "Finding Linked Brokers:"])
    print_lines(f"    {name}... {why or 'Ok'}" for name, why in found.brokers.items())
    if found.left:
        print_lines([f"    {found.left} more were not asked"])
    dynamic, static = [_followed(rows), [_line(row) for row in rows if row["key"] != DYNAMIC]]
    for title, lines in (("Dynamic", dynamic), ("Static", static)):
        print_lines(["", f"{title} Routes:", "", *(lines or ["    none found"])])


def _followed(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """As qpid-route shows dynamic routes in a map: of each exchange, those in both directions as one."""
    lines: list[str] = []
    found = sorted((row["exchange"], row["source"], row["destination"]) for row in rows if row["key"] == DYNAMIC)
    for exchange in sorted({each[0] for each in found}):
        lines.append(f"  Exchange {exchange}:")
        for _, source, destination in (each for each in found if each[0] == exchange):
            both = (exchange, destination, source) in found
            if not both or source < destination:
                lines.append(f"    {source} {'<=>' if both else '=>'} {destination}")
    return lines


def _line(row: Mapping[str, str]) -> str:
    """As qpid-route shows one in a map."""
    exchange, key = row["exchange"], row["key"]
    queue = key.removeprefix(QUEUE)
    source = f"(queue={queue})" if key.startswith(QUEUE) else f"(ex={exchange}) key={key}"
    return f"    {row['destination']}(ex={exchange}) <= {row['source']}{source}"


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_main, arguments, "Failed: ")


def _main(words: Sequence[str]) -> int:
    options = parsed(make_parser(), words)
    if options is None:
        return 0
    if options.ack < 0:
        raise UsageError(f"argument --ack: found {options.ack}, wanted 0 or more")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
