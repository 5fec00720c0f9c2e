"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.samples import Key, Results

OURS, RABBIT = "qpidd-py", "RabbitMQ"
THROUGHPUT = ("both", "transient", "publish", "drain", "window 1")
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
        ]
        for name, text in FLOODS.items()
    },
    "storm": [
        ("{size:,} logins after a fail-over, s", "seconds"),
        ("… p99 of others' confirms, ms", "ms_p99"),
        ("… heartbeats too late", "late_heartbeats"),
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


def _times_rabbit(brokers: int) -> Callable[[Results], float | None]:
    def measure(results: Results) -> float | None:
        ours, theirs = (results.value(Key(brokers, "both", 1024), side, "rate") for side in (OURS, RABBIT))
        return ours / theirs if ours is not None and theirs else None

    return measure


def _ours(key: Key, name: str, worst: bool = False) -> Callable[[Results], float | None]:
    return lambda results: results.largest(key, OURS, name) if worst else results.value(key, OURS, name)


def _at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def _at_least(limit: float) -> Callable[[float], bool]:
    return lambda value: value >= limit


_CATCH_UP, _REJOIN = Key(3, "catch-up", 300_000), Key(3, "rejoin", 300_000)
TARGETS = [
    Target(
        "three brokers, 1 KiB, publisher and consumer: × RabbitMQ quorum queue", "≥ 20", _times_rabbit(3), _at_least(20)
    ),
    Target(
        "CPU of all three brokers for a replicated message of 1 KiB, µs",
        "≤ 6",
        _ours(Key(3, "both", 1024), "cpu_us"),
        _at_most(6),
    ),
    Target("stand-alone, same load: × RabbitMQ classic queue", "≥ 20", _times_rabbit(1), _at_least(20)),
    Target(
        "window 1, replicated, confirm p50, ms",
        "≤ 0.3",
        _ours(Key(3, "window 1", 1024), "confirm_ms_p50"),
        _at_most(0.3),
    ),
    Target(
        "kill -9, instant promotion, worst outage, ms",
        "≤ 100",
        _ours(Key(3, "outage", 1024), "outage_ms", worst=True),
        _at_most(100),
    ),
    Target("fresh backup, 300,000 × 1 KiB, to ready, s", "≤ 1.5", _ours(_CATCH_UP, "ready_s"), _at_most(1.5)),
    Target(
        "… longest stall of a publisher meanwhile, ms",
        "≤ 50",
        _ours(_CATCH_UP, "longest_stall_ms", worst=True),
        _at_most(50),
    ),
    Target(
        "restarted backup, 300,000 × 1 KiB in its journal, 1,000 missed, to ready after reading, s",
        "≤ 0.3",
        _ours(_REJOIN, "after_listening_s"),
        _at_most(0.3),
    ),
    Target(
        "restart with 1,000,000 × 1 KiB waiting, until serving, s",
        "≤ 2.5",
        _ours(Key(1, "restart", 1_000_000), "served_s"),
        _at_most(2.5),
    ),
    Target(
        "fill 20 M × 1 KiB, drain: msg/s",
        "≥ 300,000",
        _ours(Key(1, "backlog", 20_000_000), "drain_rate"),
        _at_least(300_000),
    ),
    Target("… most memory, of the limit", "≤ 1", _ours(Key(1, "backlog", 20_000_000), "peak_of_limit"), _at_most(1.0)),
    Target("declare 1,000 replicated queues, s", "≤ 0.15", _ours(Key(3, "declare", 1000), "seconds"), _at_most(0.15)),
    Target("declare 10,000, s", "≤ 1.2", _ours(Key(3, "declare", 10_000), "seconds"), _at_most(1.2)),
    Target("bind one with 10,000 keys, s", "≤ 1", _ours(Key(3, "bind", 10_000), "seconds"), _at_most(1.0)),
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
