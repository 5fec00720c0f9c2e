"""`qpid-metrics`: serves a broker's metrics to Prometheus.  Shell; the metrics are in `metric_views`.

A process of its own next to each broker, so that a scrape costs the broker some management requests and nothing else.
Each scrape has a connection of its own: it goes on when the broker comes back.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.cli.output import describe, run_tool
from qpidd_py.cli.target import (
    Options,
    Parser,
    UsageError,
    add_address_options,
    add_listen_options,
    add_login_options,
    listen_address,
    run_parsed,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

PROGRAM: Final = "qpid-metrics"
PORT: Final = 15692
"""As RabbitMQ's plug-in."""
USAGE: Final = "qpid-metrics [OPTIONS]"
NAMED_MAX: Final = 10_000
"""Queues by name; a broker puts no more into order."""


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, usage=USAGE, add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("options").add_argument
    add_listen_options(add, PORT)
    add("--queues", type=int, default=0, metavar="N", help="the N longest queues each by name, too (default 0)")
    add("--once", action="store_true", help="print the metrics once, and end")
    add_address_options(add)
    add_login_options(add)
    return parser


class Scrape:
    """Asks one broker; what Prometheus' library calls a collector."""

    def __init__(self, target: Target, seconds: float, queues: int) -> None:
        self._target, self._seconds, self._queues = target, seconds, queues
        self._one = Lock()
        """Any number of scrapes at a time are one connection to the broker after the other."""

    def collect(self) -> Iterator[Metric]:
        """All metrics, or only that the broker does not answer."""
        from qpidd_py.cli import metric_views

        try:
            found = self._in_turn()
        except (OSError, BrokerError) as error:
            log.warning("%s", describe(error))
            found = [metric_views.down()]
        yield from found

    def _in_turn(self) -> list[Metric]:
        """Behind other scrapes, for as long as one may take: while a broker hangs they would pile up."""
        if not self._one.acquire(timeout=self._seconds or -1):
            raise TimeoutError(f"an earlier scrape has not ended within {self._seconds:g} s")
        try:
            return self._ask()
        finally:
            self._one.release()

    def _ask(self) -> list[Metric]:
        from qpidd_py.cli import metric_views as views

        with ManagementSocket(self._target, Deadline(self._seconds)) as broker:
            info, sums = broker.request("broker.info"), broker.request("queue.totals")
            wanted = {"limit": self._queues, "sort": "messages", "reverse": True, "vhost": None}
            longest = broker.request("queue.page", wanted)["queues"] if self._queues else []
            shovels = [] if info["backup"] else views.of_shovels(broker.request("shovel.list"))
            found = [*views.of_broker(info), *views.of_queues(sums, longest), *shovels]
            try:
                query = broker.request("ha.query") if info["ha"] else None
            except RequestRefused:  # a broker outside a cluster that follows single queues
                query = None
        return found + (list(views.of_cluster(query)) if query else [])


def run(options: Options, target: Target, seconds: float) -> int:
    """Raises all errors; `main` prints them as one line."""
    address = _check(options)
    return _serve(Scrape(target, seconds, options.queues), address, options)


def _check(options: Options) -> tuple[str, int]:
    """The address to listen on.  Raises UsageError."""
    address = listen_address(options)
    if not 0 <= options.queues <= NAMED_MAX:
        raise UsageError(f"argument --queues: found {options.queues}, wanted a number from 0 to {NAMED_MAX}")
    return address


def _serve(scrape: Scrape, address: tuple[str, int], options: Options) -> int:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(scrape)
    if options.once:
        print(generate_latest(registry).decode(), end="")
        return 0
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    start_http_server(address[1], address[0], registry, certfile=options.listen_certificate, keyfile=options.listen_key)
    print(f"{PROGRAM}: serves http{'s' * bool(options.listen_key)}://{options.listen}/metrics", flush=True)
    signal.sigwait(signals)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(format=f"%(asctime)s {PROGRAM}: %(message)s")
    return run_tool(lambda words: run_parsed(make_parser(), words, run), arguments, "Failed: ")


if __name__ == "__main__":
    sys.exit(main())
