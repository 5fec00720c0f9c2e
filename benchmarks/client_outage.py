"""An application that sends and receives while its broker is killed; prints the length of its outage as JSON.

    python -m benchmarks.client_outage --addresses HOST:PORT,... --queue NAME --seconds S [--rate N] [--heartbeat S]

It prints `steady` when the load runs, then the broker may be killed.  The outage is the longest time between two
confirms, as the sender's callback sees them; the gap the same of the receiver's messages.  At the end everything that
was confirmed must have been received: the run is void (status 1) if not.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.processes import BenchmarkError
from benchmarks.qpidd_cluster import QpiddCluster
from client_lib import Connection, Message, MessagingError
from testkit.pace import Pace

CAPACITY, PREFETCH, SIZE = 1000, 100, 1024
STEADY = 200
"""Messages confirmed before the load counts as steady."""
SETTLE = 20.0


@dataclass
class Application:
    """A sender and a receiver, as in a careful program."""

    addresses: str
    queue: str
    rate: float
    heartbeat: int
    confirms: list[float] = field(default_factory=list)
    deliveries: list[float] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)
    received: list[str] = field(default_factory=list)

    def settled(self, _message: Message, id: str, error: MessagingError | None) -> None:
        if error is None:
            self.confirms.append(time.monotonic())
            self.confirmed.add(id)

    def receive(self, connection: Connection) -> None:
        session = connection.session()
        try:
            for message in session.queue_receiver(self.queue, PREFETCH):
                self.deliveries.append(time.monotonic())
                self.received.append(str(message.id))
                session.acknowledge(message, sync=False)
        except MessagingError:
            return  # closed

    def run(self, seconds: float) -> dict[str, float]:
        options = {"heartbeat": self.heartbeat}
        with Connection(self.addresses, **options) as outgoing, Connection(self.addresses, **options) as incoming:
            session = outgoing.session()
            session.declare_queue(self.queue, durable=True)
            sender = session.queue_sender(self.queue, capacity=CAPACITY, on_settled=self.settled)
            receiver = threading.Thread(target=self.receive, args=(incoming,), daemon=True)
            receiver.start()
            deadline, pace, steady = time.monotonic() + seconds, Pace(self.rate), False
            while time.monotonic() < deadline:
                pace.wait()
                sender.send(Message(b"x" * SIZE), sync=False)
                if not steady and len(self.confirms) >= STEADY:
                    steady = True
                    print("steady", flush=True)
            sender.sync(SETTLE)
            end = time.monotonic() + SETTLE
            while self.lost() and time.monotonic() < end:
                time.sleep(0.01)
        return {
            "outage_ms": longest_gap(self.confirms) * 1000,
            "delivery_gap_ms": longest_gap(self.deliveries) * 1000,
            "confirmed": len(self.confirmed),
            "duplicates": len(self.received) - len(set(self.received)),
            "lost": self.lost(),
        }

    def lost(self) -> int:
        return len(self.confirmed - set(self.received))


def longest_gap(moments: Iterable[float]) -> float:
    """Seconds; 0 for less than two moments."""
    return max((later - earlier for earlier, later in pairwise(moments)), default=0.0)


def measure(cluster: QpiddCluster, queue: str, hang: bool = False, seconds: float = 4.0) -> dict[str, float]:
    """kill -9 of the primary, or SIGSTOP, promotion at once; then it is started again.  Raises BenchmarkError."""
    words = [
        "--addresses",
        ",".join(cluster.addresses()),
        "--queue",
        queue,
        "--heartbeat",
        "1" if hang else "2",
        "--seconds",
        str(seconds),
    ]
    worker = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.client_outage", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != "steady":
            raise BenchmarkError("the application did not get going")
        cluster.fail_over(hang)
        output, _ = worker.communicate(timeout=seconds + 2 * SETTLE)
    except subprocess.TimeoutExpired:
        raise BenchmarkError("the application did not end") from None
    finally:
        worker.kill()
        worker.wait()
        cluster.repair()
    if worker.returncode:
        raise BenchmarkError(f"the application failed: {output}")
    values: dict[str, float] = json.loads(output)
    return values


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_outage", description="One application.")
    parser.add_argument("--addresses", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--heartbeat", type=int, default=2)
    options = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    logging.getLogger("client_lib").setLevel(logging.ERROR)
    values = Application(options.addresses, options.queue, options.rate, options.heartbeat).run(options.seconds)
    print(json.dumps(values))
    return 1 if values["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
