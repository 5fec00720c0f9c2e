"""What lies between the two sockets of a connection through the fault proxy: see `tests.support.fault_proxy`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from enum import Flag, auto
from typing import Final

from tests.support.frame_counter import PROTOCOL_HEADER, FrameCounter

CHUNK: Final = 16384
UNDER_WAY: Final = 8
"""Chunks a lane takes before it stops reading, so that what is slow is felt by the sender."""
RESETTING: Final = b"\1\0\0\0\0\0\0\0"
"""SO_LINGER with which close() resets."""


class Way(Flag):
    """Directions."""

    TO_SERVER = auto()
    TO_CLIENT = auto()
    BOTH = TO_SERVER | TO_CLIENT


class Snap:
    """A cut in the middle of a frame, of the first connection that gets there."""

    def __init__(self, frame: int, octets: int, reset: bool) -> None:
        self.frame, self.octets, self.reset = frame, octets, reset
        self.done = threading.Event()


class Lane:
    """What holds for one direction of all connections."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self.delay = 0.0
        self.free = asyncio.Event()
        self.free.set()
        self.snap: Snap | None = None
        self.streams: set[Stream] = set()

    def set_snap(self, snap: Snap | None) -> None:
        self.snap = snap
        for stream in self.streams:
            stream.aim()


class Stream:
    """One direction of one connection."""

    def __init__(self, pair: Pair, lane: Lane, source: socket.socket, target: socket.socket, before: int) -> None:
        self.vanishing = False
        self._pair, self._lane, self._source, self._target = pair, lane, source, target
        self._counter = FrameCounter(before)
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDER_WAY)
        self.aim()

    def aim(self) -> None:
        self._counter.disarm()
        if self._lane.snap is not None:
            self._counter.arm(self._lane.snap.frame, self._lane.snap.octets)

    async def read(self, translate: Callable[[bytes], bytes]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await loop.sock_recv(self._source, CHUNK)
            except OSError:
                if not self.vanishing:
                    raise
                data = b""  # the reset is lost as everything else
            await self._queue.put((loop.time() + self._lane.delay, translate(data)))
            if not data:
                return

    async def write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._queue.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self._lane.free.wait()
            if not data:
                with contextlib.suppress(OSError):
                    if not self.vanishing:
                        self._target.shutdown(socket.SHUT_WR)
                return
            if not self.vanishing:
                await self._pass(data)

    async def _pass(self, data: bytes) -> None:
        end, snap = self._counter.feed(data), self._lane.snap
        if end is None or snap is None:
            await self._send(data)
            return
        self._lane.set_snap(None)
        await self._send(data[:end])
        self._pair.end(snap.reset)
        snap.done.set()

    async def _send(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        while data and not self.vanishing:
            rate = self._lane.rate
            size = len(data) if rate is None else max(1, int(rate / 20))
            piece, data = data[:size], data[size:]
            try:
                await loop.sock_sendall(self._target, piece)
            except OSError:
                self.vanishing = True  # who reads from that socket sees it, too, unless that way nothing comes back
            if rate is not None:
                await asyncio.sleep(len(piece) / rate)


class Pair:
    """One connection: the client's socket, the server's, a stream each way.  `OSError` when it has ended already."""

    def __init__(self, lanes: Mapping[Way, Lane], client: socket.socket, server: socket.socket) -> None:
        self.task: asyncio.Task[None] | None = None
        self.client_port = int(client.getpeername()[1])
        self._sockets = (client, server)
        self.streams = {
            Way.TO_SERVER: Stream(self, lanes[Way.TO_SERVER], client, server, PROTOCOL_HEADER),
            Way.TO_CLIENT: Stream(self, lanes[Way.TO_CLIENT], server, client, 0),
        }
        self._lanes = lanes
        self._reset = False
        for way, stream in self.streams.items():
            lanes[way].streams.add(stream)

    async def run(self, translate: Callable[[bytes], bytes]) -> None:
        """Until both directions have ended, a reset was seen, or `task` is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for way, stream in self.streams.items():
                    group.create_task(stream.read(translate if way is Way.TO_CLIENT else bytes))
                    group.create_task(stream.write())
        except* OSError:
            self._reset = True

    def close(self) -> None:
        """To be called when `task` is done: one that was cancelled early has not run at all."""
        for way, stream in self.streams.items():
            self._lanes[way].streams.discard(stream)
        close(self._sockets, self._reset)

    def end(self, reset: bool) -> None:
        """Both sides see the end of the connection after what has been passed to them already."""
        self._reset = reset
        if reset:
            assert self.task is not None
            self.task.cancel()
            return
        for stream in self.streams.values():
            stream.vanishing = True
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)


def close(sockets: Collection[socket.socket], reset: bool = False) -> None:
    """Closes them; `reset`: the other side reads a reset, not an end."""
    for sock in sockets:
        if reset:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETTING)
        sock.close()
