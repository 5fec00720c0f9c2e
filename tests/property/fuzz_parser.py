"""Garbage for the parser alone, as many inputs as possible: no broker, no handshake, no decoding in Python.

    python -m tests.property.fuzz_parser --seconds 600 [--seed N]        as many blocks as there is time for
    python -m tests.property.fuzz_parser --seed N --block M              one block again

An *input* is one to four valid frames of a client or of a replication link, spoiled in one to four places and fed in
one or two pieces to an open connection (a new one after each error, which ends a connection).  A *block* is 4,096
inputs to one engine, drawn from seed and number of the block, so a failure can be repeated.  Nothing may be raised,
and after each block the counters of all queues must be right.  Under AddressSanitizer and UBSan (`make
fuzz-sanitized`) an access outside a buffer, or undefined behaviour, ends the run.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from random import Random
from typing import Any, Final

from pamqp.commands import Basic, Tx

from qpidd_py.core import Connection, Engine, Queue, Route, encode_ids, link_frame
from tests.support.memory import PROTOCOL_HEADER, method_octets, publish_octets

BLOCK: Final = 4096
TURN: Final = 16
"""Inputs in one turn of the loop."""
LIFE: Final = 32
"""Inputs after which the connection is a new one: a body that is announced and does not come takes all that follows."""
ODD: Final = bytes([0, 1, 0x7F, 0x80, 0xCE, 0xFF])
NAMES: Final = (b"plain", b"ranked", b"short")


class Owner:
    """Opens channels 1 to 3; keeps nothing, answers nothing."""

    def __init__(self, engine: Engine, queues: dict[bytes, Queue], link: bool) -> None:
        self.engine, self.queues, self.over = engine, queues, False
        self.connection = Connection(engine, self, link)
        self.connection.frame_max = 4096  # a frame that is announced and does not come takes few inputs with it
        if link:
            self.connection.switch_to_link(True)
            return
        self.connection.feed(PROTOCOL_HEADER)
        channels = [self.connection.open_channel(number) for number in (1, 2, 3)]
        channels[1].confirm_select()
        channels[0].consume(queues[b"plain"], "c1", False, 20)
        channels[0].consume(queues[b"short"], "c2", True)

    def protocol_header(self, header: bytes) -> None:
        self.over = header != PROTOCOL_HEADER

    def method(self, channel: int, payload: bytes) -> None:
        """Not of the data path."""

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        queue = self.queues.get(routing_key)
        return Route([queue] if queue is not None else [])

    def addressed(self, channel: int, exchange: bytes, routing_key: bytes, header: bytes) -> tuple[list[Queue], bytes]:
        return self.route(channel, exchange, routing_key).queues, header

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        self.over = True

    def closed(self, reason: str) -> None:
        self.over = True

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        """The frames of a link are fuzzed by `tests/fuzz/frames.py`."""

    def link_batches(self, position: int) -> None:
        """Applied."""

    def output_ready(self) -> None:
        """Taken at the end of the turn."""


PROPERTIES: Final[dict[str, Any]] = {"message_id": "m", "headers": {"h": 1}, "expiration": "60000", "priority": 3}


def _publishes() -> list[bytes]:
    found = []
    for key, channel, size in itertools.product((*NAMES, b"nowhere"), (1, 2, 3), (0, 1, 300, 5000)):
        properties = PROPERTIES if size % 3 else {}
        found.append(publish_octets(b"x" * size, key.decode(), channel=channel, frame_max=2048, **properties))
    return found


CLIENT: Final = [
    *_publishes(),
    *(method_octets(Basic.Ack(tag, bool(tag % 2)), 1) for tag in range(3)),
    *(method_octets(Basic.Nack(tag, bool(tag % 2), bool(tag % 3)), 1) for tag in range(3)),
    *(method_octets(Basic.Reject(tag, bool(tag % 2)), 1) for tag in (1, 2)),
    *(method_octets(method, 3) for method in (Tx.Select(), Tx.Commit(), Basic.Qos(0, 3), Basic.Recover(True))),
    bytes([8, 0, 0, 0, 0, 0, 0, 0xCE]),
]
LINK: Final = [
    *(link_frame(kind, 1 << 48 | kind, b"y" * size) for kind in range(12) for size in (0, 1, 40, 900)),
    link_frame(5, 1 << 48, encode_ids([(1 << 48 | 1, 1 << 48 | 9)])),
]


def spoil(octets: bytearray, draw: int) -> None:
    """Changes one place, as the 64 drawn bits have it."""
    at, kind, value = (draw >> 16) % len(octets), draw & 15, draw >> 8 & 0xFF
    if kind < 6:
        octets[at] = value
    elif kind < 9:
        octets[at] = ODD[value % len(ODD)]
    elif kind < 13:
        octets[at] ^= 1 << (value & 7)
    elif kind == 13:
        del octets[at : at + 1 + (value & 7)]
    elif kind == 14:
        octets[at:at] = octets[at : at + 1 + (value & 31)]
    else:  # a length of eight octets, wherever it lands
        octets[at : at + 8] = (draw >> 24 & 0xFFFFFFFF).to_bytes(8, "big")


def an_input(rng: Random, pieces: list[bytes]) -> bytearray:
    draw = rng.getrandbits(64)
    octets = bytearray(b"".join([pieces[(draw >> 8 * place) % len(pieces)] for place in range(1 + (draw & 3))]))
    for _ in range(1 + (draw >> 2 & 3)):
        spoil(octets, rng.getrandbits(64))
        octets = octets or bytearray(1)
    return octets


class Block:
    """4,096 inputs to one engine."""

    def __init__(self, seed: int, number: int) -> None:
        self._rng = Random(f"{seed}:{number}")
        self._engine = Engine()
        self.queues = {name: self._engine.create_queue(n, name.decode(), False) for n, name in enumerate(NAMES, 1)}
        self._pieces = LINK if number % 8 == 7 else CLIENT
        self._owner = self._open()

    def _open(self) -> Owner:
        return Owner(self._engine, self.queues, self._pieces is LINK)

    def run(self) -> None:
        for number in range(BLOCK):
            octets = bytes(an_input(self._rng, self._pieces))
            draw = self._rng.getrandbits(32)
            at = draw % (len(octets) + 1) if draw & 1 << 31 else len(octets)
            self._owner.connection.feed(octets[:at])
            if at < len(octets) and not self._owner.over:
                self._owner.connection.feed(octets[at:])
            if number % TURN == TURN - 1:
                self._turn()
            if self._owner.over or number % LIFE == LIFE - 1:
                self._owner.connection.close()
                self._owner = self._open()
        self._end()

    def _turn(self) -> None:
        self._engine.end_turn()
        self._owner.connection.take_output()

    def _end(self) -> None:
        self._owner.connection.close()
        self._engine.end_turn()
        self._engine.tick()
        for queue in self.queues.values():
            queue.check()
            if queue.unacked:
                raise AssertionError(f"{queue!r} after its only consumer has gone")


def run(seconds: float, seed: int, blocks: int = 1 << 62, first: int = 0) -> int:
    """How many inputs were tried.  Raises on the first thing that is wrong."""
    end, said = time.monotonic() + seconds, time.monotonic()
    number = first
    while time.monotonic() < end and number < first + blocks:
        try:
            Block(seed, number).run()
        except BaseException:
            print(f"failed: --seed {seed} --block {number}", file=sys.stderr)
            raise
        number += 1
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{(number - first) * BLOCK} inputs, {end - said:.0f} s left", file=sys.stderr, flush=True)
    return (number - first) * BLOCK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--block", type=int, help="only this one")
    options = parser.parse_args()
    blocks, first = (1 << 62, 0) if options.block is None else (1, options.block)
    print(f"{run(options.seconds, options.seed, blocks, first)} inputs, nothing found")


if __name__ == "__main__":
    main()
