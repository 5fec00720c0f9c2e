"""One load process: `python -m torture.load ROLE ...`.  Each client is a thread with a history of its own.  Shell.

SIGTERM ends it: producers publish nothing new and wait for what is under way, consumers give back what they have not
acknowledged.  What is in the queue `KEPT` is consumed only after SIGUSR1, so that every message in it outlives all
fail-overs.  With `--decided` there are clients of queues in which the broker decides, too (`decisions.py`).  A client
that fails ends the process with 1 and a traceback; a fail-over is no failure.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from demo.progress import Slot
from testkit import queues
from testkit.record import Recorder
from torture import decisions, library, plain
from torture.context import Context


class Client(Protocol):
    def run(self) -> None: ...


LIBRARY, PLAIN, TRANSACTED, KEPT = "library", "plain", "transacted", "kept"
"""Kinds of queues."""
SPREAD: Final = ("torn", "torn-too", queues.REFUSING)
"""Of the transactions over three queues."""

PRODUCERS: Final[dict[str, tuple[float, Callable[[Context], Client]]]] = {
    "library1": (0.25, lambda context: library.Producer(context, context.queue(LIBRARY))),
    "library2": (0.15, lambda context: library.Producer(context, context.queue(PLAIN))),
    "library3": (0.15, lambda context: library.Producer(context, context.queue(KEPT))),
    "plain1": (0.15, lambda context: plain.Producer(context, context.queue(PLAIN), resend=True)),
    "plain2": (0.15, lambda context: plain.Producer(context, context.queue(KEPT), resend=False)),
    "transacted1": (0.15, lambda context: plain.TransactedProducer(context, context.queue(TRANSACTED))),
}
"""Name → share of the rate, and how to make it."""

CONSUMERS: Final[dict[str, tuple[float, Callable[[Context], Client]]]] = {
    "library4": (1.0, lambda context: library.Consumer(context, context.queue(LIBRARY))),
    "plain3": (1.0, lambda context: plain.Consumer(context, context.queue(PLAIN))),
    "transacted2": (1.0, lambda context: plain.TransactedConsumer(context, context.queue(TRANSACTED))),
    "plain4": (1.0, lambda context: plain.LateConsumer(context, context.queue(KEPT))),
}
DECIDED_PRODUCERS: Final[dict[str, tuple[float, Callable[[Context], Client]]]] = {
    "newest1": (0.08, lambda context: decisions.WindowProducer(context, context.queue(queues.NEWEST))),
    "purged1": (0.08, lambda context: decisions.WindowProducer(context, context.queue(queues.PURGED))),
    "routed1": (0.08, lambda context: decisions.WindowProducer(context, context.queue(queues.ROUTED), routed=True)),
    "routed2": (0.08, lambda context: decisions.Binder(context, context.queue(queues.ROUTED))),
    "mixed1": (0.1, lambda context: plain.Producer(context, context.queue(queues.MIXED), resend=True)),
    "refused1": (0.05, lambda context: plain.Producer(context, context.queue(queues.REFUSING), resend=False)),
    "wide1": (0.12, lambda context: decisions.WindowProducer(context, context.queue(queues.AUTO))),
    "torn1": (0.12, lambda context: plain.TransactedProducer(context, *map(context.queue, SPREAD))),
}
"""Of the queues in which the broker decides."""

DECIDED_CONSUMERS: Final[dict[str, tuple[float, Callable[[Context], Client]]]] = {
    "newest2": (1.0, lambda context: decisions.Reader(context, context.queue(queues.NEWEST))),
    "purged2": (1.0, lambda context: decisions.Reader(context, context.queue(queues.PURGED), purges=True)),
    "routed3": (1.0, lambda context: plain.Consumer(context, context.queue(queues.ROUTED))),
    "mixed2": (1.0, lambda context: decisions.Reader(context, context.queue(queues.MIXED), rejects=True)),
    "dead1": (1.0, lambda context: plain.Consumer(context, context.queue(queues.DEAD))),
    "refused2": (1.0, lambda context: decisions.Reader(context, context.queue(queues.REFUSING))),
    "wide2": (1.0, lambda context: decisions.Staller(context, context.queue(queues.AUTO))),
    "torn2": (1.0, lambda context: plain.Consumer(context, context.queue(SPREAD[0]))),
    "torn3": (1.0, lambda context: plain.TransactedConsumer(context, context.queue(SPREAD[1]))),
}
ROLES: Final = {"producers": PRODUCERS, "consumers": CONSUMERS}
DECIDED: Final = {"producers": DECIDED_PRODUCERS, "consumers": DECIDED_CONSUMERS}
SLOTS: Final = len(PRODUCERS) + len(CONSUMERS)
BUSY: Final = range(SLOTS - 1)
"""Places of those that have something to do all the time; the last one waits for the drain."""
ALL_SLOTS: Final = SLOTS + len(DECIDED_PRODUCERS) + len(DECIDED_CONSUMERS)
ALL_BUSY: Final = (*BUSY, *range(SLOTS, ALL_SLOTS))
"""The same with those of the queues in which the broker decides."""


def slots(role: str) -> range:
    """The places of a role's clients in the shared progress file."""
    first = 0 if role == "producers" else len(PRODUCERS)
    return range(first, first + len(ROLES[role]))


def decided_slots(role: str) -> range:
    first = SLOTS if role == "producers" else SLOTS + len(DECIDED_PRODUCERS)
    return range(first, first + len(DECIDED[role]))


def _clients(role: str, decided: bool) -> list[tuple[int, str, float, Callable[[Context], Client]]]:
    """(place, name, share of the rate, how to make it)"""
    found = list(zip(slots(role), ROLES[role].items(), strict=True))
    if decided:
        found += zip(decided_slots(role), DECIDED[role].items(), strict=True)
    return [(slot, name, share, make) for slot, (name, (share, make)) in found]


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # a campaign is made of what it would complain about
    logging.getLogger("client_lib").setLevel(logging.CRITICAL)
    stopping, draining = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGUSR1, lambda *_: draining.set())
    addresses = tuple(_address(text) for text in arguments.addresses.split(","))
    threads = []
    for slot, name, share, make in _clients(arguments.role, arguments.decided):
        record = Recorder(Path(arguments.directory), f"{arguments.group}.{name}" if arguments.group else name)
        place = Slot(Path(arguments.progress), slot)
        context = Context(
            addresses, record, place, stopping, draining, arguments.rate * share, arguments.group, arguments.patience,
            arguments.login,
        )  # fmt: skip
        threads.append(threading.Thread(target=_run, args=(make(context), record), name=name))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run(client: Client, record: Recorder) -> None:
    try:
        client.run()
        record.close()
    except BaseException:
        traceback.print_exc()
        record.close()
        os._exit(1)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _login(text: str) -> tuple[str, str]:
    user, _, password = text.partition("/")
    return user, password


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torture.load", description="One load process.")
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--addresses", required=True, help="HOST:PORT,HOST:PORT")
    parser.add_argument("--directory", required=True, help="for the histories")
    parser.add_argument("--progress", required=True, help="the shared file of demo.progress")
    parser.add_argument("--rate", type=float, default=300.0, help="messages a second, all producers together")
    parser.add_argument("--group", default="", help="puts these clients and their queues apart from others")
    parser.add_argument("--login", type=_login, default="guest/guest", help="USER/PASSWORD (%(default)s)")
    parser.add_argument("--decided", action="store_true", help="with queues in which the broker decides")
    parser.add_argument("--patience", type=float, default=1.0, help="seconds for an attempt to connect")
    return parser


if __name__ == "__main__":
    main()
