"""What waits on the disk: a restart with many messages, and a backlog that does not fit into memory."""

from __future__ import annotations

import threading
import time

import pika
import pika.exceptions

from benchmarks import load_generator
from benchmarks.measurements import MEGABYTE, WAITING_SIZE
from benchmarks.processes import BenchmarkError, resident_bytes, stop_process, wait_until
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.samples import Key, Sample

RESTARTED = 1_000_000
BACKLOG = 20_000_000
MEMORY_LIMIT = 2 << 30
"""Octets, for the backlog: a tenth of it."""
START_LIMIT = 120.0
HOUR = 3600.0


def restart() -> list[Sample]:
    """One broker with a journal and RESTARTED messages is stopped and started again, until it serves them."""
    cluster = QpiddCluster(1, journals=True)
    try:
        cluster.start()
        _fill(cluster, RESTARTED)
        stop_process(cluster.processes[0])
        begin = time.monotonic()
        cluster.launch(0)
        wait_until(lambda: _waiting(cluster) == RESTARTED, START_LIMIT, "all messages are served", interval=0.01)
        served = time.monotonic() - begin
    finally:
        cluster.stop()
    return [Sample(Key(1, "restart", RESTARTED), cluster.name, {"served_s": served})]


def _waiting(cluster: QpiddCluster) -> int:
    """The number that a client is told; 0 while it is not served."""
    if cluster.processes[0].poll() is not None:
        raise BenchmarkError(f"the broker ended with status {cluster.processes[0].returncode}")
    parameters = pika.ConnectionParameters("127.0.0.1", cluster.ports[0], socket_timeout=5, stack_timeout=5)
    try:
        with pika.BlockingConnection(parameters) as connection:
            return int(connection.channel().queue_declare("backlog", passive=True).method.message_count)
    except (pika.exceptions.AMQPError, OSError):
        return 0


def backlog() -> list[Sample]:
    """BACKLOG messages wait on one broker with a journal whose memory is limited, and are consumed."""
    options = ["--auth", "no", "--memory-limit", str(MEMORY_LIMIT)]
    cluster = QpiddCluster(1, journals=True, options=options)
    try:
        cluster.start()
        with Peak(cluster.pids()) as peak:
            filled = _fill(cluster, BACKLOG)
            waiting = resident_bytes(cluster.pids())
            drained = _run(cluster, no_publish=True, count=BACKLOG)
    finally:
        cluster.stop()
    values = {
        "fill_rate": filled["rate"],
        "drain_rate": drained["rate"],
        "peak_of_limit": peak.octets / MEMORY_LIMIT,
        "rss_mb": waiting / MEGABYTE,
        "out_of_order": drained["out_of_order"],
    }
    return [Sample(Key(1, "backlog", BACKLOG), cluster.name, values)]


def _fill(cluster: QpiddCluster, count: int) -> load_generator.Report:
    return _run(cluster, no_consume=True, count=count)


def _run(cluster: QpiddCluster, **options: str | float | bool) -> load_generator.Report:
    where: dict[str, str | float | bool] = {"address": cluster.addresses()[0], "queue": "backlog", "size": WAITING_SIZE}
    return load_generator.run("load", HOUR, **where, **options)


class Peak:
    """The most memory that these processes have together, looked at five times a second."""

    def __init__(self, pids: list[int]) -> None:
        self.octets = 0
        self._pids, self._over = pids, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.octets = max(self.octets, resident_bytes(self._pids))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
