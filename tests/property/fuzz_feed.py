"""Garbage for the parser: mutated input into the real broker, octets as they please.

    python -m tests.property.fuzz_feed --seconds 600 [--seed N]

Each round writes a valid conversation of a client (handshake, declares, publishes, consumes, settlements, tx),
spoils it in some places, cuts it into random pieces and feeds it.  The broker may close that connection and must keep:
a second client's connection open and served, each queue's counters right, and no exception beyond the AMQP error
families.  Under AddressSanitizer (`make fuzz-sanitized`) a read or write outside a buffer ends the run.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from typing import Any

from pamqp import commands
from pamqp.commands import Basic, Channel, Exchange, Queue, Tx

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core import Engine, IdRuns, link_frame, reading
from tests.support.memory import PROTOCOL_HEADER, decode, deliveries, method_octets, publish_octets


class MemoryTransport:
    """The shell of a client connection in a test."""

    waiting = 0

    def __init__(self) -> None:
        self.disconnected = False

    def disconnect(self) -> None:
        self.disconnected = True

    def output_ready(self) -> None:
        """Taken when wanted."""


def handshake(**client_properties: Any) -> bytes:
    """A client's side of connecting, all in one piece."""
    start = commands.Connection.StartOk(client_properties, "PLAIN", "\0guest\0guest", "en_US")
    tune = commands.Connection.TuneOk(channel_max=100, frame_max=131072, heartbeat=0)
    opened = commands.Connection.Open("/")
    return PROTOCOL_HEADER + b"".join(method_octets(method, 0) for method in (start, tune, opened))


class Peer:
    """One connection to the broker under test."""

    def __init__(self, broker: Broker) -> None:
        self.transport = MemoryTransport()
        self.connection = ClientConnection(broker, "memory", self.transport)

    def feed(self, octets: bytes) -> None:
        if not self.transport.disconnected:
            self.connection.core.feed(octets)

    def take(self) -> bytes:
        return self.connection.core.take_output()


ARGUMENTS: dict[str, dict[str, Any]] = {
    "fuzz-a": {"x": [1, {"y": "z"}]},
    "fuzz-b": {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "k.y", "x-max-length": 3},
    "fuzz-c": {"x-max-length": 2, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "amq.topic"},
    "fuzz-d": {"alternate-exchange": "amq.topic", "x-max-priority": 3, "x-max-length-bytes": 9000},
}


def _consume(rng: random.Random, names: list[str]) -> Basic.Consume:
    tag, no_ack = f"c{rng.randrange(5)}", rng.random() < 0.4
    return Basic.Consume(queue=rng.choice(names), consumer_tag=tag, no_ack=no_ack)


def conversation(rng: random.Random) -> list[bytes]:
    """What a busy client says after the handshake, as pieces that can be reordered."""
    names = rng.sample(list(ARGUMENTS), 2)
    pieces = [method_octets(Channel.Open(), number) for number in (1, 2, 3)]
    for name in names:
        pieces.append(method_octets(Queue.Declare(queue=name, arguments=ARGUMENTS[name]), 1))
        pieces.append(method_octets(Queue.Bind(queue=name, exchange="amq.topic", routing_key="k.*"), 1))
    choices = [
        lambda: publish_octets(
            rng.randbytes(rng.choice([0, 1, 50, 5000])), rng.choice(names), message_id=f"m:{rng.randrange(9)}"
        ),
        lambda: publish_octets(b"t", "k.x", exchange="amq.topic", headers={"h": 1}, mandatory=True),
        lambda: publish_octets(rng.randbytes(3000), names[0], channel=rng.choice([2, 3]), frame_max=1024),
        lambda: method_octets(_consume(rng, names), 1),
        lambda: method_octets(Basic.Cancel(consumer_tag=f"c{rng.randrange(5)}"), 1),
        lambda: method_octets(Basic.Ack(rng.randrange(1, 6), rng.random() < 0.5), 1),
        lambda: method_octets(Basic.Nack(rng.randrange(1, 6), False, rng.random() < 0.5), 1),
        lambda: method_octets(Basic.Get(queue=rng.choice(names), no_ack=rng.random() < 0.3), 2),
        lambda: method_octets(Basic.Qos(prefetch_count=rng.randrange(4), global_=rng.random() < 0.5), 1),
        lambda: method_octets(Basic.Recover(requeue=rng.random() < 0.5), 1),
        lambda: method_octets(commands.Confirm.Select(), 2),
        lambda: method_octets(rng.choice([Tx.Select(), Tx.Commit(), Tx.Rollback()]), 3),
        lambda: method_octets(Exchange.Declare(exchange="fuzz-x", exchange_type="headers"), 2),
        lambda: method_octets(Queue.Purge(queue=rng.choice(names)), 2),
        lambda: method_octets(Queue.Delete(queue=rng.choice(names)), 2),
    ]
    pieces += [rng.choice(choices + choices[:3] * 5)() for _ in range(rng.randrange(5, 40))]
    if rng.random() < 0.2:  # fatal in most places, so not often
        fatal = [method_octets(Channel.Close(0, "", 0, 0), 2), link_frame(rng.randrange(10), 7, rng.randbytes(20))]
        pieces.insert(rng.randrange(4, len(pieces)), rng.choice(fatal))
    return pieces


def spoil(rng: random.Random, octets: bytes) -> bytes:
    """A few octets changed, removed, doubled or inserted."""
    data = bytearray(octets)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xCE, 0xFF, rng.randrange(256)])
        elif kind == 1:
            del data[at : at + rng.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(1, 30)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


class Victim:
    """The second client: publishes to itself, and must never notice anything."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.peer = Peer(broker)
        self.peer.feed(handshake())
        self.peer.feed(method_octets(Channel.Open(), 1))
        self.peer.feed(method_octets(Queue.Declare(queue="", exclusive=True), 1))
        broker.engine.end_turn()
        [self.queue] = [str(f.queue) for _, f in decode(self.peer.take()) if isinstance(f, Queue.DeclareOk)]
        self.peer.feed(method_octets(Basic.Consume(queue=self.queue, no_ack=True), 1))
        self.count = 0

    def check(self) -> None:
        self.count += 1
        body = b"%d" % self.count
        self.peer.feed(publish_octets(body, self.queue))
        self.broker.engine.end_turn()
        got = [d[1] for d in deliveries(decode(self.peer.take()))]
        if got != [body]:
            raise AssertionError(f"the other client sent {body!r} to itself and got {got}")


def one_round(broker: Broker, victim: Victim, rng: random.Random) -> None:
    peer = Peer(broker)
    pieces = conversation(rng)
    if rng.random() < 0.3:
        rng.shuffle(pieces)
    octets = spoil(rng, b"".join(pieces))
    whole = spoil(rng, handshake()) + octets if rng.random() < 0.1 else handshake() + octets
    at = 0
    while at < len(whole):
        step = rng.choice([1, 7, 100, 1000, len(whole)])
        peer.feed(whole[at : at + step])
        at += step
        if rng.random() < 0.3:
            broker.engine.end_turn()
            peer.take()
    broker.engine.tick()
    victim.check()
    if not peer.transport.disconnected:
        peer.connection.closed("end of the round")
    broker.engine.end_turn()
    for queue in list(broker.engine.queues.values()):
        queue.check()
        if named(reading.named(queue, 5)) != queue.ready:
            raise AssertionError(f"{queue!r}: {reading.named(queue, 5).named}")
        if queue.unacked:
            raise AssertionError(f"{queue!r} after its only consumer has gone")


def named(runs: IdRuns) -> int:
    """How many messages they stand for."""
    return runs.unnamed[0] + sum(count for _, _, count, _, _ in runs.named)


def look(engine: Engine) -> None:
    """As the event log does."""
    if not all(named(runs) for _, _, _, runs in engine.removed()):
        raise AssertionError("nothing has left, and a row would say so")


def run(seconds: float, seed: int, rounds: int = 1 << 62) -> int:
    """Feeds garbage for `seconds` or `rounds`; how many rounds that were.  Raises on the first thing that is wrong."""
    logging.disable(logging.CRITICAL)
    broker = Broker()
    broker.engine.on_removed = lambda: look(broker.engine)
    victim = Victim(broker)
    end = time.monotonic() + seconds
    done = 0
    try:
        while time.monotonic() < end and done < rounds:
            try:
                one_round(broker, victim, random.Random(f"{seed}:{done}"))
            except BaseException:
                print(f"failed: seed {seed}, round {done}", file=sys.stderr)
                raise
            done += 1
            if done % 5000 == 0:
                print(f"{done} rounds, {end - time.monotonic():.0f} s left", file=sys.stderr)
    finally:
        logging.disable(logging.NOTSET)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{run(options.seconds, options.seed)} rounds, nothing found")


if __name__ == "__main__":
    main()
