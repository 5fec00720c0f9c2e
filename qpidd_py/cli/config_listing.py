"""The output of `qpid-config`: overview, exchanges, queues, bindings.  Pure: the broker's answers in, lines out.

Settings are shown as the options that set them.  Lines fit 80 columns, unless a single name or option is longer: names
are never cut, since scripts read them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from qpidd_py.cli.output import WIDTH

Json = Mapping[str, Any]

OPTION_OF = {
    "qpid.replicate": "--replicate",
    "x-max-length": "--max-queue-count",
    "x-max-length-bytes": "--max-queue-size",
    "alternate-exchange": "--alternate-exchange",
}
POLICIES = {"reject": "reject-publish", "ring": "drop-head"}
"""--limit-policy as `x-overflow` has it."""

_FIGURES: Mapping[str, Callable[[Json], str]] = {
    "Messages": lambda item: str(item["messages"]),
    "Unacked": lambda item: str(item["unacked"]),
    "MiB": lambda item: f"{item['bytes'] / (1 << 20):.1f}",
    "Consumers": lambda item: str(item["consumers"]),
}
_RATES = {"In msg/s": "enqueue_rate", "Out msg/s": "dequeue_rate"}
_WIDEST_NAME = 40
_NARROWEST = 20
"""Characters for the last column next to the others; if there are fewer, it stands below them."""


def overview(exchanges: Sequence[Json], queues: Sequence[Json]) -> list[str]:
    kinds = Counter(str(exchange["type"]) for exchange in exchanges)
    durable = sum(bool(queue["durable"]) for queue in queues)
    lines = [f"Total Exchanges: {len(exchanges)}"]
    lines += [f"{kind:>15}: {count}" for kind, count in sorted(kinds.items())]
    lines += ["", f"{'Total Queues':>15}: {len(queues)}"]
    return [*lines, f"{'durable':>15}: {durable}", f"{'non-durable':>15}: {len(queues) - durable}"]


def exchange_table(exchanges: Iterable[Json]) -> list[str]:
    rows = [(str(item["type"]), shown_name(item["name"]), exchange_attributes(item)) for item in exchanges]
    return table(("Type", "Exchange Name", "Attributes"), rows)


def queue_table(queues: Iterable[Json]) -> list[str]:
    """With the rates of `with_rates`, if they are there."""
    items = list(queues)
    columns = {head: [show(item) for item in items] for head, show in _FIGURES.items()}
    if any("enqueue_rate" in item for item in items):
        columns |= {head: [shown_rate(item.get(name)) for item in items] for head, name in _RATES.items()}
    figures = [to_the_right([head, *cells])[1:] for head, cells in columns.items()]
    rows = [
        (shown_name(item["name"]), *cells, queue_attributes(item)) for item, *cells in zip(items, *figures, strict=True)
    ]
    return table(("Queue Name", *columns, "Attributes"), rows)


def to_the_right(column: Sequence[str]) -> list[str]:
    """Head and cells of a column of numbers."""
    width = max(map(len, column))
    return [f"{cell:>{width}}" for cell in column]


def shown_rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def with_rates(before: Iterable[Json], after: Iterable[Json], seconds: float) -> list[dict[str, Any]]:
    """`after`, each queue with messages per second since `before`; None for a queue that was not there, or that has
    begun to count anew."""
    counted = {str(item["name"]): item for item in before}
    return [{**item, **_rates(counted.get(str(item["name"])), item, seconds)} for item in after]


def _rates(before: Json | None, after: Json, seconds: float) -> dict[str, float | None]:
    names = {"enqueue_rate": "enqueued", "dequeue_rate": "dequeued"}
    return {name: rate_since(before, after, counter, seconds) for name, counter in names.items()}


def rate_since(before: Json | None, after: Json, counter: str, seconds: float) -> float | None:
    """Growth of a counter per second; None where there was none before, or it has begun anew."""
    grown = after[counter] - before[counter] if before is not None else -1
    return round(grown / seconds, 1) if grown >= 0 and seconds > 0 else None


def exchange_bindings(exchanges: Iterable[Json], bindings: Sequence[Json]) -> list[str]:
    """Each exchange with what is bound to it."""
    lines = []
    for exchange in exchanges:
        lines.append(f"Exchange {shown_name(exchange['name'])} ({exchange['type']})")
        found = [binding for binding in bindings if binding["source"] == exchange["name"]]
        lines += [_binding(binding, _destination(binding)) for binding in found]
    return lines


def queue_bindings(queues: Iterable[Json], bindings: Sequence[Json]) -> list[str]:
    """Each queue with what it is bound to; to the default exchange it always is."""
    lines = []
    for queue in queues:
        lines.append(f"Queue {shown_name(queue['name'])}")
        lines.append(f"    bind [{queue['name']}] => ''")
        for binding in bindings:
            if binding["destination_type"] == "queue" and binding["destination"] == queue["name"]:
                lines.append(_binding(binding, shown_name(binding["source"])))
    return lines


def _destination(binding: Json) -> str:
    name = shown_name(binding["destination"])
    return name if binding["destination_type"] == "queue" else f"exchange {name}"


def _binding(binding: Json, to: str) -> str:
    arguments = " ".join(f"{name}={value}" for name, value in sorted(binding["arguments"].items()))
    return f"    bind [{shown_octets(binding['routing_key'])}] => {to}" + (f" {arguments}" if arguments else "")


def shown_octets(value: Any) -> str:
    """Text, or the broker's form of octets that are not text."""
    return f"base64:{value['base64']}" if isinstance(value, Mapping) and "base64" in value else str(value)


def shown_name(name: Any) -> str:
    return shown_octets(name) or "''"


# ---- attributes ------------------------------------------------------------------------------------------------------


def queue_attributes(queue: Json) -> list[str]:
    flags = [("--durable", "durable"), ("excl", "exclusive"), ("auto-del", "auto_delete")]
    return [flag for flag, name in flags if queue[name]] + _arguments(queue)


def exchange_attributes(exchange: Json) -> list[str]:
    flags = [("--durable", "durable"), ("internal", "internal"), ("auto-del", "auto_delete")]
    return [flag for flag, name in flags if exchange[name]] + _arguments(exchange)


def _arguments(item: Json) -> list[str]:
    """The arguments as options; the level of replication is an option unless it is "none"."""
    arguments = {name: value for name, value in item["arguments"].items() if name != "qpid.replicate"}
    level = item.get("replicate", "none")
    found = [f"--replicate={level}"] if level != "none" else []
    return found + [_argument(name, value) for name, value in sorted(arguments.items())]


def _argument(name: str, value: Any) -> str:
    policy = next((word for word, overflow in POLICIES.items() if (name, value) == ("x-overflow", overflow)), "")
    if policy:
        return f"--limit-policy={policy}"
    option = OPTION_OF.get(name)
    return f"{option}={value}" if option else f"--argument {name}={value}"


# ---- layout ----------------------------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Sequence[tuple[str | list[str], ...]]) -> list[str]:
    """The last column is a list of words, which go on in further lines when one is full.  A name that is wider than its
    column has a line for itself if the others do not fit next to it."""
    names = [[str(cell) for cell in row[:-1]] for row in rows]
    widths = _widths([max([len(head), *(len(row[at]) for row in names)]) for at, head in enumerate(heads[:-1])])
    width = sum(widths) + 2 * len(widths)
    indent = width if width <= WIDTH - _NARROWEST else 4
    lines = _filled(_beside(heads[:-1], widths), [heads[-1]], indent)
    lines.append("=" * min(WIDTH, max(width + 30, len(lines[0]))))
    for row, cells in zip(rows, names, strict=True):
        head = _beside(cells, widths)
        if len(head.rstrip()) > WIDTH and len(cells[0]) > widths[0]:
            lines.append(cells[0])
            head = _beside(["", *cells[1:]], widths)
        lines += _filled(head, list(row[-1]), indent)
    return lines


def _widths(wanted: Sequence[int]) -> list[int]:
    """At most _WIDEST_NAME, and what the others leave."""
    room = WIDTH - 2 * len(wanted) - sum(wanted)
    return [min(width, _WIDEST_NAME, max(width + room, _NARROWEST)) for width in wanted]


def _beside(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))


def _filled(line: str, words: list[str], indent: int) -> list[str]:
    lines = []
    for word in words:
        if len(line) > indent and len(line.rstrip()) + 1 + len(word) > WIDTH:
            lines.append(line.rstrip())
            line = " " * indent
        line += f"{word} "
    return [*lines, line.rstrip()]
