"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.samples import Key, Results

OURS, RABBIT = "qpidd-py", "RabbitMQ"
THROUGHPUT = ("both", "transient", "publish", "drain", "window 1", "one by one")
ABSENT = "–"


def number(value: float | None) -> str:
    """Three significant digits; thousands with a comma."""
    if value is None:
        return ABSENT
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio(numerator: float | None, denominator: float | None) -> str:
    return f"{number(numerator / denominator)} ×" if numerator is not None and denominator else ABSENT


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def throughput_table(results: Results) -> str:
    head = ["brokers", "load", "body", "msg/s ours", "RabbitMQ", "ratio", "CPU µs/msg ours", "RabbitMQ", "ratio"]
    head += ["confirm p50/p99 ms ours", "RabbitMQ", "RSS MB ours", "RabbitMQ", "foreign CPU %"]
    rows = [
        _throughput_row(results, key)
        for key in sorted(results.keys(THROUGHPUT), key=lambda key: (key.brokers, -key.size))
    ]
    return table(head, rows)


def _throughput_row(results: Results, key: Key) -> list[str]:
    def both(name: str) -> tuple[float | None, float | None]:
        return results.value(key, OURS, name), results.value(key, RABBIT, name)

    def latency(side: str) -> str:
        p50, p99 = (results.value(key, side, f"confirm_ms_{q}") for q in ("p50", "p99"))
        return ABSENT if p50 is None else f"{number(p50)}/{number(p99)}"

    rate, cpu, rss = both("rate"), both("cpu_us"), both("rss_mb")
    row = [str(key.brokers), key.load, str(key.size), number(rate[0]), number(rate[1]), ratio(*rate)]
    row += [
        number(cpu[0]),
        number(cpu[1]),
        ratio(cpu[1], cpu[0]),
        latency(OURS),
        latency(RABBIT),
        number(rss[0]),
        number(rss[1]),
        _worst(results, key),
    ]
    return row


def _worst(results: Results, key: Key) -> str:
    """The highest share of other processes: above a few percent of a core only CPU µs can be compared."""
    shares = [results.largest(key, side, "foreign_cpu_percent") for side in (OURS, RABBIT)]
    return number(max((share for share in shares if share is not None), default=None))


FLOODS = {
    "keys": "10,000 topic bindings, 130,000 keys",
    "headers": "headers exchange, 1,000 bindings",
    "held": "160,000 unacknowledged, the consumer dies",
    "letters": "200,000 expire to a dead-letter exchange",
    "deep": "1,000,000 messages purged, deleted",
    "declarations": "1 MiB of declarations at once",
    "bindings": "an exchange with 50,000 bindings is deleted",
    "exclusive": "a connection with 10,000 exclusive queues ends",
}

FLOORS = {
    "both": "1 KiB, window 1,000",
    "small": "16 octets, window 1,000",
    "window 1": "1 KiB, one at a time, each acknowledged",
    "large": "1 MiB, window 20",
}

ROUTES = {
    "topic": "topic exchange, {size:,} bindings, 50,000 keys",
    "direct": "direct exchange, {size:,} bindings, 50,000 keys",
    "headers": "headers exchange, {size:,} bindings",
    "queues": "default exchange, {size:,} queues",
}

OTHERS: dict[str, list[tuple[str, str]]] = {
    "outage": [
        ("kill -9 of the primary: outage of the publisher, ms", "outage_ms"),
        ("… gap of the consumer, ms", "delivery_gap_ms"),
        ("… confirmed messages lost", "lost"),
        ("… delivered twice", "duplicates"),
    ],
    "catch-up": [
        ("fresh backup to ready, {size:,} × 1 KiB waiting, s", "ready_s"),
        ("… of this after the process listens, s", "after_listening_s"),
        ("… longest stall of a publisher meanwhile, ms", "longest_stall_ms"),
    ],
    "rejoin": [
        ("restarted backup with a journal to ready, {size:,} × 1 KiB waiting, 1,000 missed, s", "ready_s"),
        ("… of this after the process listens (its journal is read), s", "after_listening_s"),
    ],
    "restart": [("restart with a journal and {size:,} × 1 KiB waiting, until they are served, s", "served_s")],
    "backlog": [
        ("{size:,} × 1 KiB wait on one broker with a journal, a memory limit of 2 GiB: filling, msg/s", "fill_rate"),
        ("… draining, msg/s", "drain_rate"),
        ("… most memory, of the limit", "peak_of_limit"),
        ("… out of order", "out_of_order"),
    ],
    "declare": [("declare {size:,} queues, 20 at once, s", "seconds")],
    "bind": [("bind a queue with {size:,} keys, 20 at once, s", "seconds")],
    **{
        f"cliff {name}": [
            (f"{text}: p99.9 of others' confirms, ms", "ms_p999"),
            ("… without it", "quiet_ms_p999"),
            ("… p99.9 of the brokers' turns, less than, ms", "turn_ms_p999"),
            ("… the longest of them, less than, ms", "turn_ms_max"),
        ]
        for name, text in FLOODS.items()
    },
    "storm": [
        ("{size:,} logins after a fail-over, s", "seconds"),
        ("… p99 of others' confirms, ms", "ms_p99"),
        ("… heartbeats too late", "late_heartbeats"),
    ],
    **{f"routes {kind}": [(f"{text}, msg/s", "rate"), ("… CPU µs/msg", "cpu_us")] for kind, text in ROUTES.items()},
    **{
        f"floor {name}": [
            (f"{text}: CPU µs/msg of plain C that only passes the octets on", "plain_cpu_us"),
            ("… of three brokers", "cpu_us"),
            ("… of three brokers, times plain C", "times"),
            ("… msg/s of plain C", "plain_rate"),
            ("… of three brokers", "rate"),
        ]
        for name, text in FLOORS.items()
    },
    "window": [("{size:,} messages without a confirm, both: msg/s", "rate"), ("… CPU µs/msg", "cpu_us")],
    "idle": [("{size:,} idle connections, percent of one processor", "percent")],
    "late": [
        ("one node runs 30 of 480 ms, {size:,} msg/s: p99 of confirms after 3 s, ms", "confirm_ms_p99"),
        ("… in the first 1.5 s of the load", "first_ms_p99"),
    ],
    "deep outage": [
        ("kill -9 with 10,000 queues and {size:,} messages: outage of the publisher, ms", "outage_ms"),
    ],
    "refill": [
        ("memory of all brokers after five cycles of {size:,} × 1 KiB, MB", "after_mb"),
        ("… before them", "before_mb"),
        ("… when full", "full_mb"),
        ("… the first fill, of fresh memory, msg/s", "first_rate"),
        ("… the other fills, msg/s", "rate"),
    ],
    "memory": [("memory of a waiting message of 1 KiB, octets a broker", "octets")],
}


def other_table(results: Results) -> str:
    rows = []
    for key in results.keys(OTHERS):
        for text, name in OTHERS[key.load]:
            values = [number(results.value(key, side, name)) for side in (OURS, RABBIT)]
            rows.append([str(key.brokers), text.format(size=key.size), *values])
    return table(["brokers", "what", "ours", "RabbitMQ"], rows)


@dataclass(frozen=True)
class Target:
    text: str
    wanted: str
    measure: Callable[[Results], float | None]
    met: Callable[[float], bool]


def _times(load: str, brokers: int, size: int = 1024) -> Callable[[Results], float | None]:
    def measure(results: Results) -> float | None:
        ours, theirs = (results.value(Key(brokers, load, size), side, "rate") for side in (OURS, RABBIT))
        return ours / theirs if ours is not None and theirs else None

    return measure


def _ours(load: str, brokers: int, size: int, name: str, worst: bool = False) -> Callable[[Results], float | None]:
    key = Key(brokers, load, size)
    return lambda results: results.largest(key, OURS, name) if worst else results.value(key, OURS, name)


def _at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def _at_least(limit: float) -> Callable[[float], bool]:
    return lambda value: value >= limit


def _least(text: str, limit: float, measure: Callable[[Results], float | None]) -> Target:
    return Target(text, f"≥ {limit:,g}", measure, _at_least(limit))


def _most(text: str, limit: float, measure: Callable[[Results], float | None]) -> Target:
    return Target(text, f"≤ {limit:,g}", measure, _at_most(limit))


TARGETS = [
    _least("three brokers, publisher and consumer: × RabbitMQ quorum queue", 40, _times("both", 3)),
    _most("… CPU of all three brokers, µs", 2.0, _ours("both", 3, 1024, "cpu_us")),
    _least("… messages of 1 MiB: × RabbitMQ quorum queue", 12, _times("both", 3, 2**20)),
    _least("three brokers, the queue grows: × RabbitMQ quorum queue", 35, _times("publish", 3)),
    _most("… CPU of all three brokers, µs", 3.0, _ours("publish", 3, 1024, "cpu_us")),
    _least("stand-alone, publisher and consumer: × RabbitMQ classic queue", 20, _times("both", 1)),
    _most("window 1, replicated, confirm p50, ms", 0.12, _ours("window 1", 3, 1024, "confirm_ms_p50")),
    _most("… CPU of all three brokers, µs", 110, _ours("window 1", 3, 1024, "cpu_us")),
    _least("topic, 10,000 bindings, 50,000 keys, msg/s", 500_000, _ours("routes topic", 1, 10_000, "rate")),
    _least("direct, 10,000 bindings, 50,000 keys, msg/s", 500_000, _ours("routes direct", 1, 10_000, "rate")),
    _least("headers, 1,000 bindings, msg/s", 50_000, _ours("routes headers", 1, 1000, "rate")),
    _most("10,000 idle connections, percent of one processor", 2, _ours("idle", 1, 10_000, "percent")),
    *(
        _most(f"{FLOODS[name]}: p99.9 of {text}, ms", 20, _ours(f"cliff {name}", 3, 20, key))
        for name in FLOODS
        for text, key in (("others", "ms_p999"), ("turns", "turn_ms_p999"))
    ),
    _most("a late backup, 5,000 msg/s: p99 of confirms, ms", 60, _ours("late", 3, 5000, "confirm_ms_p99")),
    _most("kill -9, instant promotion, worst outage, ms", 100, _ours("outage", 3, 1024, "outage_ms", worst=True)),
    _most(
        "… with 10,000 queues and 3,000,000 messages", 100, _ours("deep outage", 3, 3_000_000, "outage_ms", worst=True)
    ),
    _most("fresh backup, 300,000 × 1 KiB, to ready, s", 1.0, _ours("catch-up", 3, 300_000, "ready_s")),
    _most("… of it after it listens, s", 0.3, _ours("catch-up", 3, 300_000, "after_listening_s")),
    _most(
        "… longest stall of a publisher meanwhile, ms",
        50,
        _ours("catch-up", 3, 300_000, "longest_stall_ms", worst=True),
    ),
    _most(
        "restarted backup, 300,000 × 1 KiB in its journal, 1,000 missed, to ready after reading, s",
        0.3,
        _ours("rejoin", 3, 300_000, "after_listening_s"),
    ),
    _most("restart with 1,000,000 × 1 KiB waiting, until serving, s", 2.5, _ours("restart", 1, 1_000_000, "served_s")),
    _least("fill 20 M × 1 KiB, drain: msg/s", 300_000, _ours("backlog", 1, 20_000_000, "drain_rate")),
    _most("… most memory, of the limit", 1, _ours("backlog", 1, 20_000_000, "peak_of_limit")),
    _most("declare 1,000 replicated queues, s", 0.15, _ours("declare", 3, 1000, "seconds")),
    _most("declare 10,000, s", 1.2, _ours("declare", 3, 10_000, "seconds")),
    _most("bind one with 10,000 keys, s", 1, _ours("bind", 3, 10_000, "seconds")),
]


def target_table(results: Results) -> str:
    rows = []
    for target in TARGETS:
        value = target.measure(results)
        verdict = ABSENT if value is None else "yes" if target.met(value) else "no"
        rows.append([target.text, target.wanted, number(value), verdict])
    return table(["target", "wanted", "measured", "met"], rows)


def report(results: Results, machine: str) -> str:
    parts = [f"{machine}\n", throughput_table(results), other_table(results), target_table(results)]
    if results.failures:
        parts.append("Void runs:\n\n" + "".join(f"- {failure}\n" for failure in results.failures))
    return "\n".join(parts)
