"""What `qpid-send` sends: contents, groups, numbered messages.  Pure, but for `lines`, which reads."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import select
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from client_lib.cli.sequence import SN
from client_lib.message import Message

EOS = b"eos"
"""The content of the end-of-stream message, as Qpid's tools send it."""
TS = "ts"

Content = bytes | str | Mapping[str, Any]


def contents(options: argparse.Namespace) -> Iterator[Content]:
    """Endless contents as the options ask for, except --content-stdin."""
    if options.content_map:
        return itertools.repeat(dict(options.content_map))
    if options.content_string is not None:
        return itertools.repeat(options.content_string)
    return itertools.repeat(b"X" * options.content_size)


def lines(fd: int, patience: float) -> Iterator[bytes | None]:
    """The lines of a file descriptor, without their ends; None whenever nothing came for `patience` seconds."""
    rest = b""
    while True:
        if not select.select([fd], [], [], patience)[0]:
            yield None
            continue
        data = os.read(fd, 1 << 16)
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
        if not data:
            if rest:
                yield rest
            return


@dataclass
class _Group:
    name: str
    left: int


class Groups:
    """Puts messages into groups: `size` of one name, or 1 to `size` by chance, `interleave` groups at a time."""

    def __init__(self, prefix: str, size: int, randomize: bool, interleave: int, chance: random.Random) -> None:
        self._names = (f"{prefix}{number}" for number in itertools.count())
        self._size, self._randomize, self._chance = size, randomize, chance
        self._open = [self._new() for _ in range(interleave)]
        self._turn = 0

    def next(self) -> str:
        """The group of the next message."""
        index = self._turn % len(self._open)
        group = self._open[index]
        group.left -= 1
        if group.left == 0:
            self._open[index] = self._new()
        self._turn = index + 1
        return group.name

    def _new(self) -> _Group:
        return _Group(next(self._names), self._chance.randint(1, self._size) if self._randomize else self._size)


class Production:
    """Makes messages of contents.  `wall_ns`: the clock for the header `ts`."""

    def __init__(self, options: argparse.Namespace, wall_ns: Callable[[], int], chance: random.Random) -> None:
        self._options, self._wall_ns = options, wall_ns
        self._properties = dict(options.property)
        self._key: str | None = options.group_key
        self._groups = Groups(
            options.group_prefix, options.group_size, options.group_randomize_size, options.group_interleave, chance
        )
        self._number = 0

    def message(self, content: Content) -> Message:
        self._number += 1
        properties = dict(self._properties)
        if self._options.sequence:
            properties[SN] = self._number
        if self._options.timestamp:
            properties[TS] = self._wall_ns()
        if self._key is not None:
            properties[self._key] = self._groups.next()
        return Message(
            content,
            content_type=self._options.content_type,
            id=self._id(),
            subject=self._options.subject,
            user_id=self._options.user_id,
            reply_to=self._options.reply_to,
            correlation_id=self._options.correlation_id,
            durable=self._options.durable,
            priority=self._options.priority,
            ttl=self._options.ttl / 1000 if self._options.ttl else None,
            properties=properties,
        )

    def end_of_stream(self) -> Message:
        """The end-of-stream message; it is numbered like the others."""
        properties = {SN: self._number + 1} if self._options.sequence else {}
        self._number += 1
        return Message(EOS, durable=self._options.durable, subject=self._options.subject, properties=properties)

    def _id(self) -> str | None:
        """The message id; with several messages a number is appended, since ids are unique."""
        if self._options.id is None or self._options.messages == 1:
            return None if self._options.id is None else str(self._options.id)
        return f"{self._options.id}:{self._number}"
