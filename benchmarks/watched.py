"""What it costs a broker to be watched: a scrape of its metrics each second, and pages of very many queues.

`python -m benchmarks.watched [--queues 10000] [--connections 2000] [--listed 50000] [--seconds 20]` prints

* the processor time of the broker, in % of a core, without and with a scrape each second (goal: + 3 at most);
* the seconds of a page of 100 queues of `qpid-http` (goal: 0.2), and p99 of a client's confirms without and with
  these pages (goal: + 5 ms at most); the same for pages sorted by messages.

Rounds without and with it take turns, twice each; the machine should do nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from statistics import mean
from typing import Any, Final

import pamqp.commands as commands

from benchmarks.cliffs import Client, probe, quantiles
from benchmarks.processes import cpu_seconds, free_ports, listens, stop_process, wait_until
from benchmarks.qpidd_cluster import PROGRAMS, QpiddCluster
from benchmarks.storm import Everybody

LOGIN: Final = "Basic Z3Vlc3Q6Z3Vlc3Q="
"""Of guest."""
PAGE: Final = "/api/queues?page={}&page_size=100&pagination=true"
SORTED: Final = f"{PAGE}&sort=messages&sort_reverse=true"
ROUNDS: Final = 2
START: Final = 20.0


def fetch(port: int, path: str) -> float:
    """Seconds until all of it is here."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": LOGIN})
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    return time.monotonic() - begin


@contextmanager
def beside(program: str, broker: int) -> Iterator[int]:
    """The port of a program that serves HTTP for the broker."""
    (port,) = free_ports(1)
    command = [str(PROGRAMS / program), "-b", f"127.0.0.1:{broker}", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port), START, f"{program} listens")
        yield port
    finally:
        stop_process(process)


@contextmanager
def again(work: Callable[[int], object], pause: float) -> Iterator[None]:
    """Meanwhile `work` is done, with its number, again and again."""
    over = threading.Event()
    failed: list[Exception] = []

    def run() -> None:
        number = 0
        try:
            while not over.wait(pause):
                number += 1
                work(number)
        except Exception as error:  # given to the caller
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def ask_for_pages(port: int, page: str, pages: int, channel: Connection) -> None:
    """Until the other end says something; then it tells how long each took."""
    took: list[float] = []
    while not channel.poll(0.25):
        took.append(fetch(port, page.format(1 + 37 * len(took) % pages)))
    channel.send(took)


@contextmanager
def paged(port: int, page: str, pages: int, took: list[float]) -> Iterator[None]:
    """Meanwhile another process asks for pages: in this one it would hold up the client whose confirms are timed."""
    ours, theirs = Pipe()
    child = get_context("fork").Process(target=ask_for_pages, args=(port, page, pages, theirs))
    child.start()
    theirs.close()
    try:
        yield
        ours.send("over")
        took += ours.recv()
    finally:
        child.terminate()
        child.join()


def declare(port: int, first: int, last: int) -> None:
    client = Client(port)
    for number in range(first, last):
        client.call(commands.Queue.Declare(queue=f"watched.{number}"))


def scraped(cluster: QpiddCluster, port: int, seconds: float) -> dict[str, Any]:
    """The broker's share of a core, in %."""

    def share() -> float:
        before, begin = cpu_seconds(cluster.pids()), time.monotonic()
        time.sleep(seconds)
        return 100 * (cpu_seconds(cluster.pids()) - before) / (time.monotonic() - begin)

    alone, watched, took = [], [], []
    for _ in range(ROUNDS):
        alone.append(share())
        with again(lambda _: took.append(fetch(port, "/metrics")), 1.0):
            watched.append(share())
    scrape = {"scrapes": len(took), "scrape_s": round(max(took), 3)}
    return {"alone": round(mean(alone), 2), "scraped": round(mean(watched), 2), **scrape}


def listed(cluster: QpiddCluster, port: int, page: str, pages: int, seconds: float) -> dict[str, Any]:
    """Seconds of a page, ms of a client's confirms."""
    took: list[float] = []
    alone: list[float] = []
    watched: list[float] = []
    broker = cluster.ports[0]
    for _ in range(ROUNDS):
        alone += probe(broker, seconds)
        with paged(port, page, pages, took):
            watched += probe(broker, seconds)
    ordered = sorted(took)
    seen = {"pages": len(took), "page_s_p50": ordered[len(took) // 2], "page_s_max": ordered[-1]}
    found = {**seen, **quantiles(alone, "alone_ms"), **quantiles(watched, "paged_ms")}
    return {name: round(value, 3) for name, value in found.items()}


def main() -> int:
    options = _options()
    cluster = QpiddCluster(1)
    try:
        cluster.start()
        broker = cluster.ports[0]
        declare(broker, 0, options.queues)
        everybody = Everybody(broker, 200)
        everybody.run(options.connections)
        with beside("qpid-metrics", broker) as port:
            fetch(port, "/metrics")
            print(json.dumps({"broker_cpu_percent": scraped(cluster, port, options.seconds)}), flush=True)
        del everybody
        declare(broker, options.queues, options.listed)
        with beside("qpid-http", broker) as port:
            fetch(port, PAGE.format(1))
            for name, page in (("queues", PAGE), ("queues_sorted", SORTED)):
                found = listed(cluster, port, page, options.listed // 100, options.seconds)
                print(json.dumps({f"{options.listed}_{name}": found}), flush=True)
    finally:
        cluster.stop()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.watched", description="What it costs a broker to be watched.")
    parser.add_argument("--queues", type=int, default=10_000, help="while metrics are scraped (%(default)s)")
    parser.add_argument("--connections", type=int, default=2_000, help="meanwhile (%(default)s)")
    parser.add_argument("--listed", type=int, default=50_000, help="queues in pages of 100 (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each round (%(default)g)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
