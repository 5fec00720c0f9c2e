"""The memory scenario for as long as wanted: three brokers with 600 MiB each, publishers at full speed, one consumer.

python -m tests.integration.memory_scenario quorum ulimit --seconds 300              with a page file
python -m tests.integration.memory_scenario manager cgroup --pages no                all in memory; as root

When all publishers have waited for ten seconds, two thirds are drained, and they have to go on.  At the end everything
is drained: nothing confirmed is lost, and no process has ended.  The page files may fill the disk up to `--disk-free`.
Exit codes: 0, and 1 when something was lost or has ended.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pika
import psutil

from tests.integration.test_memory_limit import BODY, Confined, Grouped, Publisher, consumer, drain, drain_to_the_end
from tests.support.members import Members

PUBLISHERS = 2
LOOK = 0.5
WAITED = 20
"""Looks in which all publishers waited, before some is drained."""


class Served(threading.Thread):
    """A consumer that takes some messages a second; the longest time without one."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.number, self.gap = 0, 0.0
        self.end = threading.Event()
        self._port = port
        self.start()

    def run(self) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._port)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10)
            last = time.monotonic()
            for method, _, body in channel.consume("q", inactivity_timeout=1.0):
                if self.end.is_set():
                    break
                if method is not None:
                    assert body == BODY
                    channel.basic_ack(method.delivery_tag)
                    now = time.monotonic()
                    self.number, self.gap, last = self.number + 1, max(self.gap, now - last), now
                    connection.sleep(0.02)
            channel.cancel()


class Scenario:
    def __init__(self, members: Members, seconds: float) -> None:
        self._members = members
        self._port = members.brokers["a"].port
        self._publishers = [Publisher(self._port) for _ in range(PUBLISHERS)]
        time.sleep(3)
        self._served = Served(self._port)
        self._resident: dict[str, int] = {}
        self.found: dict[str, Any] = {"drains": 0, "resumed": 0}
        self._taken = 0
        self._fill(time.monotonic() + seconds)
        self._empty()

    def _fill(self, end: float) -> None:
        waited = 0
        while time.monotonic() < end:
            time.sleep(LOOK)
            self._look()
            waited += all(publisher.waits() for publisher in self._publishers)
            if waited == WAITED:
                waited = 0
                self._drain_some()
        self.found["waiting"] = self._waiting()

    def _drain_some(self) -> None:
        told = len(self._publishers[0].told)
        self._taken += drain(self._port, self._waiting() * 2 // 3)
        end = time.monotonic() + 60
        while time.monotonic() < end and len(self._publishers[0].told) == told:
            time.sleep(0.1)
        self.found["drains"] += 1
        self.found["resumed"] += len(self._publishers[0].told) > told

    def _waiting(self) -> int:
        with consumer(self._port) as channel:
            return int(channel.queue_declare("q", passive=True).method.message_count)

    def _look(self) -> None:
        for name, broker in self._members.brokers.items():
            if broker.running:
                resident = psutil.Process(broker.pid).memory_info().rss >> 20
                self._resident[name] = max(self._resident.get(name, 0), resident)

    def _empty(self) -> None:
        self._served.end.set()
        self._served.join(30)
        self._taken += drain_to_the_end(self._port, *self._publishers) + self._served.number
        self._look()
        confirmed = sum(publisher.confirmed for publisher in self._publishers)
        self.found |= {
            "published": sum(publisher.published for publisher in self._publishers),
            "confirmed": confirmed,
            "taken": self._taken,
            "lost": max(0, confirmed - self._taken),
            "served": self._served.number,
            "longest gap": round(self._served.gap, 2),
            "resident MiB": self._resident,
            "running": all(broker.running for broker in self._members.brokers.values()),
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="memory_scenario", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("mode", choices=["quorum", "manager", "availability"])
    parser.add_argument("limit", choices=["ulimit", "cgroup"])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--pages", choices=["yes", "no"], default="yes")
    parser.add_argument("--disk-free", default="10G")
    options = parser.parse_args()
    pages = ["--disk-free-limit", options.disk_free] if options.pages == "yes" else ["--page-folder", "no"]
    process = Confined if options.limit == "ulimit" else Grouped
    with tempfile.TemporaryDirectory() as folder:
        members = Members(Path(folder), "--ha-safety", options.mode, *pages, process=process)
        try:
            members.up()
            found = Scenario(members, options.seconds).found
        finally:
            members.close()
    print(json.dumps(found))
    return int(found["lost"] > 0 or not found["running"] or found["resumed"] < found["drains"])


if __name__ == "__main__":
    raise SystemExit(main())
