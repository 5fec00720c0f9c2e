"""A core connection without sockets: what a client sends goes in as octets, what it would see comes out decoded."""

from __future__ import annotations

from typing import Any

import pamqp.commands as commands
import pamqp.frame

from qpidd_py.amqp.codec import encode_properties
from qpidd_py.amqp.frames import publish_frames
from qpidd_py.core import Connection, Engine, Queue, Route

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"


def publish_octets(
    body: bytes, routing_key: str, exchange: str = "", channel: int = 1, frame_max: int = 131072, **properties: Any
) -> bytes:
    """basic.publish with its content, cut to `frame_max`; a property that is None is left out."""
    mandatory = properties.pop("mandatory", False)
    header = encode_properties({name: value for name, value in properties.items() if value is not None}, len(body))
    return publish_frames(channel, exchange, routing_key, header, body, frame_max, mandatory)


def method_octets(method: Any, channel: int = 1) -> bytes:
    return bytes(pamqp.frame.marshal(method, channel))


def decode(octets: bytes) -> list[tuple[int, Any]]:
    """All frames of `octets` as (channel, pamqp frame)."""
    frames = []
    while octets:
        used, channel, frame = pamqp.frame.unmarshal(octets)
        frames.append((channel, frame))
        octets = octets[used:]
    return frames


class RecordingOwner:
    """Routes by queue name or a given table; records what the core tells it."""

    def __init__(self, engine: Engine) -> None:
        self.connection = Connection(engine, self)
        self.routes: dict[bytes, list[Queue]] = {}
        self.methods: list[tuple[int, bytes]] = []
        self.failures: list[tuple[int, int, str, int, int]] = []
        self.frames: list[tuple[int, int, bytes]] = []
        self.batches: list[int] = []
        self.headers: list[bytes] = []
        self.flows: list[str] = []

    def protocol_header(self, header: bytes) -> None:
        self.headers.append(header)

    def method(self, channel: int, payload: bytes) -> None:
        self.methods.append((channel, payload))

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        return Route(self.routes.get(routing_key, []))

    def addressed(self, channel: int, exchange: bytes, routing_key: bytes, header: bytes) -> tuple[Route, bytes]:
        return Route(self.routes.get(routing_key, [])), header

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        self.failures.append((channel, code, text, class_id, method_id))

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        self.frames.append((kind, position, body))

    def link_batches(self, position: int) -> None:
        self.batches.append(position)

    def flow(self, reason: str) -> None:
        self.flows.append(reason)

    def output_ready(self) -> None:
        """The test takes the output when it wants it."""


class MemoryClient:
    """One client connection of an engine, with one open channel."""

    def __init__(self, engine: Engine, **queues: Queue) -> None:
        self.engine = engine
        self.owner = RecordingOwner(engine)
        self.connection = self.owner.connection
        self.connection.feed(PROTOCOL_HEADER)
        self.channel = self.connection.open_channel(1)
        for name, queue in queues.items():
            self.owner.routes[name.encode()] = [queue]

    def publish(self, body: bytes, routing_key: str, **properties: Any) -> None:
        self.connection.feed(publish_octets(body, routing_key, **properties))

    def send(self, method: Any, channel: int = 1) -> None:
        self.connection.feed(method_octets(method, channel))

    def turn(self) -> list[tuple[int, Any]]:
        """Ends the turn; what the client would have received."""
        self.engine.end_turn()
        return decode(self.connection.take_output())


def confirms(frames: list[tuple[int, Any]]) -> list[tuple[int, bool]]:
    return [(f.delivery_tag, f.multiple) for _, f in frames if isinstance(f, commands.Basic.Ack)]


def deliveries(frames: list[tuple[int, Any]]) -> list[tuple[int, bytes, bool]]:
    """(delivery tag, body, redelivered) of each basic.deliver; bodies of several frames are joined."""
    found: list[tuple[int, bytes, bool]] = []
    for _, frame in frames:
        if isinstance(frame, commands.Basic.Deliver):
            found.append((int(frame.delivery_tag or 0), b"", frame.redelivered))
        elif isinstance(frame, pamqp.body.ContentBody) and found:
            tag, body, redelivered = found[-1]
            found[-1] = (tag, body + frame.value, redelivered)
    return found
