"""A program that sends what cannot be sent, at and over every limit of AMQP, between messages that are in order.

Each of its messages ends in one way: *confirmed*, *refused* (a call raised it) or *in doubt* (a call said so).  The
three add up to what was sent; the broker has what was confirmed, nothing of what was refused when it was encoded, and
of what is in doubt some.  Requests other than messages are refused or answered.  No call takes longer than PATIENCE.
"""

from __future__ import annotations

import contextlib
import math
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pika

from client_lib import MessagingError, Timeout
from client_lib.content import HEADERS_DEPTH_MAX
from client_lib.message import Message
from tests.unit.client_lib.styles import PATIENCE, Asyncio, PikaStyle, Threaded

SLACK: Final = 10.0  # seconds, on a loaded machine
LARGE: Final = 0.1
"""The share of messages that may fill several frames."""
SOON: Final = 0.003
"""Seconds for a message that is in doubt soon."""
FRAME_MAX: Final = 131072
MISSING: Final = "hostile.missing"
"""No exchange has this name."""
UNROUTABLE: Final = "hostile.unroutable"
"""No queue has this name."""
STYLES: Final[Mapping[str, Any]] = {"threaded": Threaded, "transacted": Threaded, "asyncio": Asyncio, "pika": PikaStyle}


def nested(depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _ in range(depth):
        table = {"t": table}
    return table


def filling(octets: int) -> dict[str, str]:
    """Headers that make a property list so long."""
    bare = len(Message(b"", properties={"h": ""}).encode("x" * 60))
    return {"h": "x" * (octets - bare)}


ENCODING: Final = (
    ValueError, TypeError, struct.error, AttributeError,
    pika.exceptions.ShortStringTooLong, pika.exceptions.UnsupportedAMQPFieldException,
)  # fmt: skip
"""What the encoders raise; the last four are pika's."""
KEYS: Final = ("", "k", "k" * 255, "é" * 127 + "k", "k" * 256, "é" * 128, "\udc80", "k\x00k")
HEADERS: Final = (
    {}, {"n": 1}, {"n": (1 << 63) - 1}, {"n": 1 << 63}, {"n": -(1 << 63)}, {"n": math.nan}, {"n": math.inf},
    {"n": object()}, {"n": "\ud800"}, {"n": None}, {"k" * 255: 1}, {"k" * 256: 1}, {"": 1}, {"é" * 128: 1}, {1: 1},
    nested(HEADERS_DEPTH_MAX), nested(HEADERS_DEPTH_MAX + 1), nested(2000), {"list": [[[]]] * 50},
    {"x-resent": "?"}, {"qpid.subject": 7},
)  # fmt: skip
TALL: Final = tuple(filling(size) for size in (4096, FRAME_MAX - 200, FRAME_MAX - 30, FRAME_MAX, 200_000))
"""Headers that fill a frame, or more."""
SIZES: Final = (0, 1, 4088, FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX)
NAMES: Final = ("n" * 255, "n" * 256, "é" * 128, "\udc80", MISSING)
ARGUMENTS: Final[tuple[Any, ...]] = (
    {}, {"x": math.nan}, {"x": object()}, {"k" * 256: 1}, filling(200_000), nested(32), nested(33), nested(2000),
)  # fmt: skip


@dataclass
class Tally:
    """Bodies begin with the number of the message."""

    sent: int = 0
    confirmed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unsendable: set[str] = field(default_factory=set)
    """Of those that were refused: when they were encoded."""
    doubtful: set[str] = field(default_factory=set)
    requests: Counter[str] = field(default_factory=Counter)
    slow: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"hostile: sent {self.sent} = confirmed {len(self.confirmed)} + refused {len(self.refused)} (encoding"
            f" {len(self.unsendable)}) + in doubt {len(self.doubtful)}; requests {dict(self.requests)}"
        )

    def problems(self, kept: set[str]) -> list[str]:
        """`kept`: what the broker has."""
        together = len(self.confirmed) + len(self.refused) + len(self.doubtful)
        rules = {
            f"{self.sent} sent, {together} accounted for": together != self.sent,
            "two outcomes": self.confirmed & self.refused or (self.confirmed | self.refused) & self.doubtful,
            "confirmed and lost": self.confirmed - kept,
            "refused when it was encoded, and kept": self.unsendable & kept,
            "not sent, and kept": kept - self.confirmed - self.refused - self.doubtful,
            "slow": self.slow,
        }
        return [f"{rule}: {found}" for rule, found in rules.items() if found]


class Hostile:
    """Use as a context manager; in one thread, with a connection of its own."""

    def __init__(self, addresses: str, name: str, seed: int, style: str = "threaded", rate: float = 15.0) -> None:
        self.tally = Tally()
        self.exchange, self.queue = f"{name}.hostile", f"{name}.hostile.kept"
        self._rng = random.Random(seed)
        self._pause = 1 / rate
        self._style: Any = STYLES[style](addresses.split(","), connect_timeout=1.0, heartbeat=1)
        self._number = 0
        """Of the session; a refusal may end it."""
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hostile", daemon=True)

    def __enter__(self) -> Hostile:
        self._declare()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(3 * PATIENCE)
        self._style.end()

    def finish(self) -> None:
        """Raises AssertionError if the thread has failed."""
        self._stopping.set()
        self._thread.join(3 * PATIENCE)
        assert not self._thread.is_alive(), "the hostile program hangs"
        if self._failure is not None:
            raise AssertionError(f"the hostile program failed; {self.tally.line()}") from self._failure

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def _declare(self) -> None:
        session = self._style.session("declare")
        if isinstance(self._style, PikaStyle):
            session.exchange_declare(self.exchange, "fanout", durable=True)
            session.queue_declare(self.queue, durable=True)
            session.queue_bind(self.queue, self.exchange)
            return
        session.declare_exchange(self.exchange, "fanout", durable=True)
        session.declare_queue(self.queue, durable=True)
        session.bind_queue(self.queue, self.exchange)

    # -- in the thread

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._pause):
                self._message() if self._rng.random() < 0.8 else self._request()
        except BaseException as error:
            self._failure = error

    def _message(self) -> None:
        """One at a time: the outcome of a call is that of its message."""
        rng, tally = self._rng, self.tally
        tally.sent += 1
        id = str(tally.sent)
        # few large ones: what is kept is copied to each backup that returns
        body = id.encode() + b" " + bytes(max(0, rng.choice(SIZES) - len(id) - 1) if rng.random() < LARGE else 0)
        key = rng.choice(KEYS) if rng.random() < 0.5 else "k"
        headers = rng.choice(TALL if rng.random() < LARGE else HEADERS) if rng.random() < 0.5 else {}
        exchange, mandatory = self.exchange, False
        if rng.random() < 0.1:
            exchange, key, mandatory = rng.choice(("", MISSING, "e" * 256)), UNROUTABLE, True
        self._timed(
            f"publish to {exchange[:20]!r}, key {key[:20]!r}",
            lambda: self._outcome(id, lambda: self._publish(key, body, headers, exchange, mandatory)),
        )

    def _publish(self, key: str, body: bytes, headers: Any, exchange: str, mandatory: bool) -> None:
        if isinstance(self._style, PikaStyle) or self._rng.random() < 0.8:
            self._style.publish(key, body, headers, self._number, exchange, mandatory)
            return
        sender = self._style._sender(self._number, key, exchange, mandatory)
        sender.send(Message(body, properties=headers), timeout=SOON)

    def _outcome(self, id: str, publish: Callable[[], None]) -> None:
        try:
            publish()
        except ENCODING:
            self.tally.refused.add(id)
            self.tally.unsendable.add(id)
        except (Timeout, TimeoutError):
            self.tally.doubtful.add(id)
        except (MessagingError, pika.exceptions.AMQPError):
            self.tally.refused.add(id)
            self._renew()
        else:
            self.tally.confirmed.add(id)

    def _request(self) -> None:
        """Declares, subscribes or gets."""
        name, arguments = self._rng.choice(NAMES), self._rng.choice(ARGUMENTS)
        what, call = self._rng.choice(
            (
                ("declare", lambda: self._style.declare(name, arguments, self._number)),
                ("consume", lambda: self._style.consume(name, arguments, self._number)),
                ("get", lambda: self._style.get(name, self._number)),
            )
        )

        def ask() -> None:
            try:
                call()
            except ENCODING:
                self.tally.requests["refused"] += 1
            except TimeoutError:
                self.tally.requests["unanswered"] += 1
            except (MessagingError, pika.exceptions.AMQPError):
                self.tally.requests["refused"] += 1
                self._renew()
            else:
                self.tally.requests["answered"] += 1

        self._timed(f"{what} {name[:20]!r}", ask)

    def _renew(self) -> None:
        """The broker may have closed the channel: goes on with another one."""
        with contextlib.suppress(Exception):  # that it was closed, and what has been told
            self._style.close_session(self._number)
        self._number += 1

    def _timed(self, what: str, call: Callable[[], None]) -> None:
        began = time.monotonic()
        call()
        took = time.monotonic() - began
        if took > PATIENCE + SLACK:
            self.tally.slow.append(f"{what}: {took:.1f} s")
