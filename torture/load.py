"""One load process: `python -m torture.load ROLE ...`.  Each client is a thread with a history of its own.  Shell.

SIGTERM ends it: producers publish nothing new and wait for what is under way, consumers give back what they have not
acknowledged.  What is in the queue `KEPT` is consumed only after SIGUSR1, so that every message in it outlives all
fail-overs.  With `--decided` there are clients of queues in which the broker decides, too (`decisions.py`), with
`--far` those of shovels and routes (`moved.py`).  A client that fails ends the process with 1 and a traceback; a
fail-over is no failure.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from demo.progress import Slot
from testkit import queues
from testkit.record import Recorder
from torture import decisions, library, moved, plain
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
Clients = dict[str, dict[str, tuple[float, Callable[[Context], Client]]]]
ROLES: Final[Clients] = {"producers": PRODUCERS, "consumers": CONSUMERS}
DECIDED: Final[Clients] = {"producers": DECIDED_PRODUCERS, "consumers": DECIDED_CONSUMERS}
MOVED: Final[Clients] = {
    "producers": {
        "shipped1": (0.06, lambda context: plain.Producer(context, context.queue(queues.SHIP), resend=True)),
        "landed1": (0.06, lambda context: moved.Producer(context.at_far, context.queue(queues.LANDED))),
    },
    "consumers": {
        "shipped2": (1.0, lambda context: plain.Consumer(context.at_far, context.queue(queues.SHIPPED))),
        "landed2": (1.0, lambda context: moved.Consumer(context, context.queue(queues.LANDED))),
    },
}
"""Of what shovels and routes move to another broker."""
UNTIMED: Final = ("routed2", "landed1")
"""Producers whose pauses tell nothing of the cluster: one publishes after a broken connection only, the other one
elsewhere."""
GROUPS: Final = (ROLES, DECIDED, MOVED)
"""In the order of their places in the shared progress file."""


def places(group: Clients) -> int:
    return sum(len(clients) for clients in group.values())


ALL_SLOTS: Final = sum(map(places, GROUPS))


def slots(role: str, group: Clients = ROLES) -> range:
    """The places of a role's clients."""
    first = sum(map(places, GROUPS[: GROUPS.index(group)]))
    first += 0 if role == "producers" else len(group["producers"])
    return range(first, first + len(group[role]))


def busy(groups: Sequence[Clients]) -> list[int]:
    """Places of those that have something to do all the time; the last one of the first group waits for the drain."""
    found = [slot for group in groups for role in group for slot in slots(role, group)]
    return [slot for slot in found if slot != slots("consumers")[-1]]


BUSY: Final = busy([ROLES])


def groups_of(decided: bool, far: bool) -> list[Clients]:
    return [ROLES, *([DECIDED] if decided else []), *([MOVED] if far else [])]


def _clients(role: str, groups: Sequence[Clients]) -> Iterator[tuple[int, str, float, Callable[[Context], Client]]]:
    """(place, name, share of the rate, how to make it)"""
    for group in groups:
        for slot, (name, (share, make)) in zip(slots(role, group), group[role].items(), strict=True):
            yield slot, name, share, make


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # a campaign is made of what it would complain about
    logging.getLogger("client_lib").setLevel(logging.CRITICAL)
    stopping, draining = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGUSR1, lambda *_: draining.set())
    addresses, far = _addresses(arguments.addresses), _addresses(arguments.far)
    threads = []
    for slot, name, share, make in _clients(arguments.role, groups_of(arguments.decided, bool(far))):
        record = Recorder(Path(arguments.directory), f"{arguments.group}.{name}" if arguments.group else name)
        place = Slot(Path(arguments.progress), slot)
        context = Context(
            addresses, record, place, stopping, draining, arguments.rate * share, arguments.group, arguments.patience,
            arguments.login, far,
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


def _addresses(text: str) -> tuple[tuple[str, int], ...]:
    found = (each.rpartition(":") for each in text.split(",") if each)
    return tuple((host, int(port)) for host, _, port in found)


def _login(text: str) -> tuple[str, str]:
    user, _, password = text.partition("/")
    return user, password


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torture.load", description="One load process.")
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--addresses", required=True, help="HOST:PORT,HOST:PORT")
    parser.add_argument("--far", default="", help="the same of the other end of shovels and routes, if there are any")
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
