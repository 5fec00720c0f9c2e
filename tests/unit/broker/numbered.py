"""Clients of exchanges that number their messages."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from qpidd_py.broker.broker import Broker
from tests.unit.broker.peer import Peer, Replicated

Basic, Exchange, Queue = commands.Basic, commands.Exchange, commands.Queue
NUMBERED = {"qpid.msg_sequence": 1}
HEADER = "qpid.msg_sequence"


def site(broker: Any = None) -> Peer:
    peer = Peer(Broker() if broker is None else broker)
    peer.open_channel()
    return peer


def exchange(peer: Peer, name: str = "x", kind: str = "topic", arguments: Any = None) -> None:
    peer.send(1, Exchange.Declare(exchange=name, exchange_type=kind, arguments={**NUMBERED, **(arguments or {})}))
    done(peer)


def plain(peer: Peer, name: str, kind: str = "fanout", arguments: Any = None) -> None:
    peer.send(1, Exchange.Declare(exchange=name, exchange_type=kind, arguments=arguments or {}))
    done(peer)


def queue(peer: Peer, name: str = "q", source: str = "x", key: str = "#", arguments: Any = None) -> None:
    peer.send(1, Queue.Declare(queue=name, arguments=arguments or {}))
    if source:
        peer.send(1, Queue.Bind(queue=name, exchange=source, routing_key=key))
    done(peer)


def link(peer: Peer, source: str, destination: str, key: str = "#") -> None:
    peer.send(1, Exchange.Bind(source=source, destination=destination, routing_key=key))
    done(peer)


def done(peer: Peer) -> list[Any]:
    if isinstance(peer.broker, Replicated):
        for _ in range(4):
            peer.broker.advance()
    return list(peer.frames())


def publish(peer: Peer, *bodies: bytes, to: str = "x", key: str = "k", **properties: Any) -> None:
    for body in bodies:
        peer.publish(body, key, to, **properties)
    done(peer)


def got(peer: Peer, name: str = "q") -> list[tuple[bytes, Any]]:
    """(body, number) of all that is ready."""
    found: list[tuple[bytes, Any]] = []
    while True:
        peer.send(1, Basic.Get(queue=name, no_ack=True))
        answer = peer.frames()
        if isinstance(answer[0], Basic.GetEmpty):
            return found
        found.append((answer[2].value, (answer[1].properties.headers or {}).get(HEADER)))


def last(broker: Broker, name: str = "x") -> int:
    numbers = broker.vhost.exchanges[name].numbers
    assert numbers is not None
    return numbers.last


def promoted(backup: Broker) -> Peer:
    backup.engine.passive = False
    backup.engine.begin_epoch(backup.engine.epoch + 1)
    backup.vhost.endings.on_promoted()
    return site(backup)
