"""What Prometheus reads of a broker: the answers to management requests in, families of metrics out.  Pure.

A metric has RabbitMQ's name where it means the same, so that dashboards made for RabbitMQ show it; what only we have
begins with `qpidd_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

Json = Mapping[str, Any]

STATES: Final = ("standalone", "joining", "catchup", "ready", "recovering", "active")
_TURN_BITS: Final = range(6, 21)
"""From 64 us to 1 s."""
SHOVEL_STATES: Final = ("starting", "running", "terminated")
_QUEUE_GAUGES: Final = {
    "rabbitmq_queue_messages_ready": ("Messages ready to be delivered", "ready"),
    "rabbitmq_queue_messages_unacked": ("Messages delivered and not acknowledged yet", "unacked"),
    "rabbitmq_queue_messages": ("Messages ready, or not acknowledged yet", "messages"),
    "rabbitmq_queue_messages_ready_bytes": ("Octets of the bodies of messages that are ready", "ready_bytes"),
    "rabbitmq_queue_consumers": ("Consumers of queues", "consumers"),
}


def down() -> Metric:
    """When the broker does not answer."""
    return GaugeMetricFamily("qpidd_up", "1 if the broker answered", 0)


def of_broker(info: Json) -> Iterator[Metric]:
    """From `broker.info`."""
    yield GaugeMetricFamily("qpidd_up", "1 if the broker answered", 1)
    product = {name: str(info[name]) for name in ("product", "version", "name")}
    yield InfoMetricFamily("qpidd_build", "The program, and the broker's name", product)
    received = CounterMetricFamily(
        "rabbitmq_global_messages_received", "Messages received from publishers", labels=["protocol"]
    )
    received.add_metric(["amqp091"], info["published"])
    yield received
    delivered = CounterMetricFamily(
        "rabbitmq_global_messages_delivered", "Messages delivered to consumers", labels=["protocol"]
    )
    delivered.add_metric(["amqp091"], info["delivered"])
    yield delivered
    yield GaugeMetricFamily("rabbitmq_connections", "Open connections", info["sessions"])
    yield GaugeMetricFamily("rabbitmq_queues", "Queues", info["queues"])
    yield GaugeMetricFamily("qpidd_exchanges", "Exchanges", info["exchanges"])
    yield GaugeMetricFamily("qpidd_confirms_waiting", "Publishes whose confirm waits", info["waiting_confirms"])
    yield GaugeMetricFamily("qpidd_publishers_blocked", "1 while publishers are blocked", int(bool(info["blocked"])))
    if not info["backup"]:  # which does not know what is safe
        unsafe = max(0, info["position"] - info["safe"])
        yield GaugeMetricFamily("qpidd_unsafe_operations", "Operations that not every in-sync broker has", unsafe)
    yield from _memory(info["memory"])
    yield from _turns(info["turns"])
    yield from _journal(info["journal"])
    alarms = GaugeMetricFamily("qpidd_alarm", "1 while this alarm lasts; its reason is in the log", labels=["alarm"])
    for name in sorted(info["alarms"]):
        alarms.add_metric([name], 1)
    yield alarms


def _memory(memory: Json) -> Iterator[Metric]:
    names = {
        "resident": ("rabbitmq_process_resident_memory_bytes", "Memory used in bytes"),
        "limit": ("rabbitmq_resident_memory_limit_bytes", "Memory high watermark in bytes; 0 = no limit"),
        "segments": ("qpidd_segments_bytes", "Memory of the segments that hold messages"),
    }
    for name, octets in memory.items():
        yield GaugeMetricFamily(*names[name], octets)


def _turns(turns: Json) -> Iterator[Metric]:
    """A broker that still reads its journal says nothing of them."""
    if turns:
        below = list(accumulate(turns["took"]))
        buckets = [(str(2**bits / 1e6), below[bits]) for bits in _TURN_BITS]
        text = "How long turns of the broker's loop took: everybody waits meanwhile"
        yield HistogramMetricFamily(
            "qpidd_turn_seconds", text, buckets=[*buckets, ("+Inf", below[-1])], sum_value=turns["seconds"]
        )


def _journal(journal: Json | None) -> Iterator[Metric]:
    if journal is not None:
        yield GaugeMetricFamily("qpidd_journal_bytes", "Octets that the journal takes on disk", journal["octets"])
        yield GaugeMetricFamily(
            "qpidd_journal_waiting_bytes", "Octets that wait for the journal's disk", journal["waiting"]
        )
        yield GaugeMetricFamily(
            "qpidd_journal_behind_operations", "Operations that are not on the journal's disk yet", journal["behind"]
        )
        yield GaugeMetricFamily("qpidd_journal_full", "1 while the journal's disk takes no more", int(journal["full"]))


def of_queues(sums: Json, longest: Sequence[Json]) -> Iterator[Metric]:
    """From `queue.totals`, and with the label `queue` for each of the `longest`."""
    for name, (text, field) in _QUEUE_GAUGES.items():
        yield GaugeMetricFamily(name, text, sums[field])
        if longest:
            yield _each(f"{name.replace('rabbitmq_', 'rabbitmq_detailed_')}", text, longest, field)


def _each(name: str, text: str, queues: Iterable[Json], field: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["vhost", "queue"])
    for queue in queues:
        family.add_metric([str(queue.get("vhost", "/")), str(queue["name"])], queue[field])
    return family


def of_shovels(shovels: Sequence[Json]) -> Iterator[Metric]:
    """From `shovel.list` of a primary."""
    count = GaugeMetricFamily("qpidd_shovels", "Shovels by their state", labels=["state"])
    for name in SHOVEL_STATES:
        count.add_metric([name], sum(shovel["state"] == name for shovel in shovels))
    yield count


def of_cluster(query: Json) -> Iterator[Metric]:
    """From `ha.query`."""
    state = GaugeMetricFamily("qpidd_ha_state", "1 for the state that the broker is in", labels=["state"])
    for name in STATES:
        state.add_metric([name], int(name == query["status"]))
    yield state
    if "epoch" not in query:  # outside of a cluster
        return
    yield GaugeMetricFamily("qpidd_ha_epoch", "Grows by one or more with each promotion", query["epoch"])
    stalled = query["stalled"]
    yield GaugeMetricFamily(
        "qpidd_ha_stalled_seconds",
        "For so long confirms have been waiting; 0: they do not",
        (stalled or {}).get("seconds", 0),
    )
    yield GaugeMetricFamily("qpidd_ha_isolated", "1 for a primary that is cut off", int(query["isolated"]))
    yield from _backups([member for member in query["members"] if "counts" in member])


def _backups(members: Sequence[Json]) -> Iterator[Metric]:
    """Of a primary; nothing of a backup, which does not know."""
    ready = GaugeMetricFamily("qpidd_ha_backup_in_sync", "1 if confirms wait for this backup", labels=["backup"])
    lags = {
        "positions": GaugeMetricFamily("qpidd_ha_backup_lag_operations", "Operations it lacks", labels=["backup"]),
        "octets": GaugeMetricFamily("qpidd_ha_backup_lag_bytes", "Octets it lacks", labels=["backup"]),
        "seconds": GaugeMetricFamily("qpidd_ha_backup_lag_seconds", "Age of what it lacks", labels=["backup"]),
    }
    for member in members:
        backup = [str(member["name"] or member["address"])]
        ready.add_metric(backup, int(bool(member["counts"])))
        for unit, value in (member.get("lag") or {}).items():
            if unit in lags and value is not None:
                lags[unit].add_metric(backup, value)
    yield from (ready, *lags.values())
