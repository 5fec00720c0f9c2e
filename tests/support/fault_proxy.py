"""A TCP proxy on the loopback interface that does to connections what networks do.

Theory.  One thread runs an asyncio loop that owns every socket; a method called from another thread has taken effect
when it returns.  Two things are set independently:

* the *entrance*, for new connections: OPEN; REFUSE (no process listens); HANG (accepted, and then silence, as by the
  kernel of a process that is stuck); DROP (the SYN is lost: the accept queue is kept full, and the client's kernel
  tries again after 1 s, 3 s ...); RESET (accepted, then reset).  Where the upstream refuses, the client is reset.
* the two *lanes*, for what is under way: `hold` and `release` (packets are late: TCP has repeated them), `vanish` (they
  never come, and nothing tells so), `slow` (octets a second, seconds of delay), `cut` (reset or orderly close), and
  `snap` (closed after so many octets of a frame).

A lane keeps the order, and the end of a stream travels in it as the octets do.  `translate` replaces texts on the way
to the client by others of equal length: in a refusal, the address of a broker by that of its proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

from tests.support.fault_streams import Lane, Pair, Snap, Way, close
from tests.support.frame_counter import FrameCounter

__all__ = ["Entrance", "FaultProxy", "Snap", "Way"]

T = TypeVar("T")
BACKLOG: Final = 128
COMMAND_TIME: Final = 60.0


class Entrance(Enum):
    """What becomes of a new connection."""

    OPEN = "open"
    REFUSE = "refuse"
    HANG = "hang"
    DROP = "drop"
    RESET = "reset"


class FaultProxy:
    """A context manager.  The port is its own from the beginning to the end, refusing or not."""

    def __init__(self, port: int, host: str = "127.0.0.1", at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        """`port`, `host`: the server; `at`: the proxy's own address, port 0 = any."""
        self.server = (host, port)
        self._texts: list[tuple[bytes, bytes]] = []
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(at)
        self.host, self.port = self._holder.getsockname()
        self.address = f"{self.host}:{self.port}"
        self.accepted = 0
        """Connections that came in, those that hang included."""
        self.entrance = Entrance.REFUSE
        self._lanes = {way: Lane() for way in Way.BOTH}
        self._connecting: set[asyncio.Task[None]] = set()
        self._pairs: set[Pair] = set()
        self._idle: list[socket.socket] = []
        self._fillers: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self._acceptor: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy:{self.port}", daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self.let(Entrance.OPEN)
        return self

    def __exit__(self, *_: object) -> None:
        self.let(Entrance.REFUSE)
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(COMMAND_TIME)
        self._loop.close()
        self._holder.close()

    # ---- from any thread --------------------------------------------------------------------------------------------

    def translate(self, texts: Mapping[str, str]) -> None:
        """For what is read from the server from now on; a text that TCP has torn in two is not found.

        Raises ValueError for texts of different length."""
        for old, new in texts.items():
            if len(old) != len(new):
                raise ValueError(f"{new!r} is not as long as {old!r}")
        self._texts = [(old.encode(), new.encode()) for old, new in texts.items()]

    def move(self, port: int, host: str = "127.0.0.1") -> None:
        """New connections go to another server; those there are go on until they are `cut`."""
        self.server = (host, port)

    @property
    def connections(self) -> int:
        """Those that are being passed on, whether anything comes through or not."""
        return len(self._pairs)

    def let(self, entrance: Entrance) -> None:
        """What becomes of new connections."""
        self._do(self._let(entrance))

    def heal(self) -> None:
        """Everything passes; what has vanished does not come back."""
        self.slow()
        self.release()
        self.unsnap()
        self.let(Entrance.OPEN)

    def cut(self, reset: bool = True) -> int:
        """Ends all connections, those that hang as well; how many there were."""
        return self._do(self._cut(reset))

    def hold(self, way: Way = Way.BOTH) -> None:
        """Nothing passes until `release`, nothing is lost; not even the end of a connection is seen."""
        self._do(self._each(way, lambda lane: lane.free.clear()))

    def release(self, way: Way = Way.BOTH) -> None:
        self._do(self._each(way, lambda lane: lane.free.set()))

    def vanish(self, way: Way = Way.BOTH) -> None:
        """What the connections there are send from now on is lost for ever, no reset tells so."""
        self._do(self._each(way, _vanish))

    def slow(self, way: Way = Way.BOTH, rate: float | None = None, delay: float = 0.0) -> None:
        """`rate`: octets a second of each connection, None: as they come; `delay` in seconds."""

        def change(lane: Lane) -> None:
            lane.rate, lane.delay = rate, delay

        self._do(self._each(way, change))

    def snap(self, way: Way, frame: int = 1, octets: int = 1, reset: bool = False) -> Snap:
        """Ends the first connection that gets there after `octets` of the `frame`-th frame from now on, one direction.

        The cut is inside the frame however short that is.  Raises ValueError."""
        FrameCounter().arm(frame, octets)
        snap = Snap(frame, octets, reset)
        self._do(self._each(way, lambda lane: lane.set_snap(snap)))
        return snap

    def unsnap(self) -> None:
        """Takes back what `snap` has asked for and has not happened."""
        self._do(self._each(Way.BOTH, lambda lane: lane.set_snap(None)))

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(COMMAND_TIME)

    async def _each(self, way: Way, change: Callable[[Lane], None]) -> None:
        for each in way:
            change(self._lanes[each])

    async def _let(self, entrance: Entrance) -> None:
        self.entrance = entrance
        if self._acceptor is not None:
            self._acceptor.cancel()
            await asyncio.gather(self._acceptor, return_exceptions=True)
            self._acceptor = None
        if entrance is Entrance.REFUSE:
            close(self._take_listener(), reset=True)
            return
        if self._listener is None:
            self._listener = self._listen()
        if entrance is Entrance.DROP:
            self._fill(self._listener)
            return
        self._listener.listen(BACKLOG)
        self._acceptor = self._loop.create_task(self._accept(self._listener, entrance))

    def _take_listener(self) -> list[socket.socket]:
        taken = [*self._fillers, *([self._listener] if self._listener else [])]
        self._fillers, self._listener = [], None
        return taken

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.host, self.port))
        listener.setblocking(False)
        listener.listen(BACKLOG)
        return listener

    def _fill(self, listener: socket.socket) -> None:
        """With a backlog of 0 there is place for one that is not accepted; the SYN of the next is not answered."""
        listener.listen(0)
        filler = socket.socket()
        filler.settimeout(0.05)
        self._fillers.append(filler)
        with contextlib.suppress(OSError):  # full already
            filler.connect((self.host, self.port))

    async def _accept(self, listener: socket.socket, entrance: Entrance) -> None:
        while True:
            client, peer = await self._loop.sock_accept(listener)
            client.setblocking(False)
            filler = next((filler for filler in self._fillers if filler.getsockname() == peer), None)
            if filler is not None:
                self._fillers.remove(filler)
                close((client, filler))
                continue
            self.accepted += 1
            if entrance is Entrance.RESET:
                close((client,), reset=True)
            elif entrance is Entrance.HANG:
                self._idle.append(client)
            else:
                task = self._loop.create_task(self._connect(client))  # not ours: we may be cancelled
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: socket.socket) -> None:
        server = socket.socket()
        server.setblocking(False)
        try:
            await self._loop.sock_connect(server, self.server)
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = Pair(self._lanes, client, server)
        except OSError:  # one of them has ended meanwhile
            close((client, server), reset=True)
            return
        self._pairs.add(pair)
        pair.task = self._loop.create_task(pair.run(self._translated))
        pair.task.add_done_callback(lambda _task: self._forget(pair))

    def _forget(self, pair: Pair) -> None:
        self._pairs.discard(pair)
        pair.close()

    def _translated(self, data: bytes) -> bytes:
        for old, new in self._texts:
            data = data.replace(old, new)
        return data

    async def _cut(self, reset: bool) -> int:
        await asyncio.gather(*self._connecting)
        pairs = list(self._pairs)
        for pair in pairs:
            pair.end(reset)
        if reset:
            await asyncio.gather(*(pair.task for pair in pairs if pair.task), return_exceptions=True)
        close(self._idle, reset)
        count = len(pairs) + len(self._idle)
        self._idle.clear()
        return count


def _vanish(lane: Lane) -> None:
    for stream in lane.streams:
        stream.vanishing = True
