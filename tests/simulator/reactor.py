"""`qpidd_py.core.reactor` in virtual time: how much of which connection a turn reads, and what the sockets take of it.

The real one cannot run here: its clock and its `epoll` are the machine's.  This one serves connections in the same way,
with limits of the seed instead of `REAL` (`test_reactor.py` compares both):

    poll: at most `rounds` turns; each takes at most `events` connections that are ready
        serve one: write what has waited for the socket, then read at most `reads` times at most `octets`
        end the turn

So a read ends at any octet, one turn has octets of several connections, and a connection with much to say waits for
the others.  A socket takes part of what is written, or nothing; the rest stays in the process and dies with it.
Between two connections of a turn time may pass, in which the process can be stopped or killed; nothing else runs in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from qpidd_py.core import Connection
from tests.simulator.clients import Client
from tests.simulator.network import End

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess

PAUSES: Final = 0.1
"""Share of the connections of a turn after which time passes."""
FULL: Final = (0.005, 0.05, 0.4)
"""Seconds until a socket that took only a part takes more: those of a client that reads slowly are the later ones."""
NEVER: Final[Mapping[str, float]] = {"octets": 1, "reads": 1, "events": 1, "rounds": 1}


@dataclass(frozen=True)
class Limits:
    """Of a turn."""

    octets: int
    """Of one read."""
    reads: int
    """Of one connection."""
    events: int
    """Connections of one turn."""
    rounds: int
    """Turns of one poll."""


REAL: Final = Limits(octets=262144, reads=4, events=64, rounds=8)


class Socket:
    """Of one connection: what has come and is not read, and what is written and has not left."""

    def __init__(
        self,
        reactor: Reactor,
        end: End,
        core: Connection,
        take: Callable[[], bytes],
        closed: Callable[[str], None],
    ) -> None:
        """`take` takes the core's output, `closed` is told why the connection is gone."""
        self._reactor, self._end, self._core = reactor, end, core
        self._take, self._closed = take, closed
        self._unread = bytearray()
        self._ended = ""
        self._unsent = b""
        self._waits = False
        """For room to write."""
        self._full_until = 0.0
        self._told = b""
        """Begin of a frame that has left in part."""
        end.on_data, end.on_closed, end.on_writable = self._arrived, self._over, lambda: None
        reactor.sockets[self] = None

    @property
    def gone(self) -> bool:
        return self not in self._reactor.sockets

    # ---- the host -------------------------------------------------------------------------------------------------

    def _arrived(self, data: bytes) -> None:
        self._unread += data

    def _over(self, reason: str) -> None:
        self._ended = reason
        if reason == "reset":
            self._unread.clear()

    @property
    def _room(self) -> bool:
        peer = self._end.peer_host
        reads = peer.reads if isinstance(peer, Client) else True
        return reads and not self._end.full and self._reactor.now >= self._full_until

    def _send(self, data: bytes) -> int:
        """So many octets fit."""
        fits, seconds = self._reactor.fits(len(data), isinstance(self._end.peer_host, Client))
        if fits < len(data):
            self._full_until = self._reactor.now + seconds
            self._reactor.wake(seconds)
        self._end.send(data[:fits])
        self._tell(data[:fits])
        return fits

    def _tell(self, left: bytes) -> None:
        """A client's host has these; what has come in part is nothing to it."""
        peer = self._end.peer_host
        if isinstance(peer, Client) and self._end.open:
            self._told += left
            whole = _whole(self._told)
            peer.octets_left(self._told[:whole])
            self._told = self._told[whole:]

    # ---- the reactor ----------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        if not (self._unread or self._ended or self._waits):
            return False  # most of them, each time that somebody looks
        readable = self._core.reads() and bool(self._unread or self._ended)
        return readable or self._ended == "reset" or (self._waits and self._room)

    def serve(self) -> None:
        if self._waits and self._room:
            self._waits = False
            self.flush()
        if not self.gone and (self._unread or self._ended):
            self._read()

    def _read(self) -> None:
        limits = self._reactor.limits
        for _ in range(limits.reads):
            if not self._unread:
                if self._ended:
                    self._lost(self._ended)
                return
            octets = bytes(self._unread[: limits.octets])
            del self._unread[: limits.octets]
            self._core.feed(octets)
            if len(octets) < limits.octets or self.gone or not self._core.reads():
                return
        self._reactor.counts["reads cut short"] += bool(self._unread)

    def _lost(self, reason: str) -> None:
        del self._reactor.sockets[self]
        self._closed(reason)

    # ---- the connection -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        if self._waits or self.gone:
            return
        if not self._room:
            self._waits = True
            return
        self._unsent += self._take()
        self._unsent = self._unsent[self._send(self._unsent) :]
        self.left(len(self._unsent))
        self._waits = bool(self._unsent)
        self._reactor.counts["writes taken in part"] += self._waits

    def left(self, waiting: int) -> None:
        """All but so many octets are out of the process."""
        self._core.left(waiting)

    def close(self) -> None:
        """What does not fit any more is lost."""
        if not self.gone:
            if self._room:
                self._send(self._unsent + self._take())
            del self._reactor.sockets[self]
        self._end.close()


class Reactor:
    """Of one life of a process."""

    def __init__(self, process: BrokerProcess) -> None:
        option: Mapping[str, float] = process.simulation.scenario.option("reactor", {})
        self.used = bool(option)
        """Do connections come through here?  Else each piece is parsed as it arrives, as with TLS."""
        values = option or NEVER
        self.limits = Limits(*(int(values[name]) for name in ("octets", "reads", "events", "rounds")))
        self.sockets: dict[Socket, None] = {}
        self.turns = 0
        self.reading = False
        """The turn will end by itself: nothing has to end it."""
        self._process, self._life = process, process.life
        self.counts = process.simulation.history.counts
        self._rng = process.simulation.scenario.rng(f"reactor {process.name} {process.life}")
        self._partly, self._seconds = option.get("partly", 0.0), option.get("seconds", 0.0)
        self._linger = option.get("linger", 0.0)
        self._lingers = False
        self._calm = process.simulation.scenario.duration
        """Time after which clients read as fast as they can."""
        self._due = False
        self._poll: Iterator[None] | None = None

    @property
    def now(self) -> float:
        return self._process.scheduler.now

    @property
    def in_turn(self) -> bool:
        """Nothing else can run."""
        return self._poll is not None

    def fits(self, octets: int, slow: bool) -> tuple[int, float]:
        """How many of them a socket takes, and for how many seconds it is full then: with a `slow` peer for long."""
        if octets and self._rng.random() < self._partly:
            return self._rng.randrange(octets), self._rng.choice(FULL if slow and self.now < self._calm else FULL[:1])
        return octets, 0.0

    def wake(self, seconds: float) -> None:
        """There is room again after that time."""
        self._process.scheduler.at(seconds, lambda: self._process._run(self, self._life, lambda: None))

    def look(self) -> None:
        """After everything that the process does: is there anything to do for us?"""
        if not self.used or self._due or self.in_turn:
            return
        for socket in self.sockets:
            if not socket.ready:
                continue
            self._due = True
            longest: float = self._process.simulation.scenario.option("turn", 0.0003)
            delay = self._rng.choice((0.0, 0.0, longest))
            self._process.scheduler.at(delay, lambda: self._process._run(self, self._life, self._begin))
            return

    def _begin(self) -> None:
        self._due = False
        self._poll = self.poll()
        self.go_on()

    def go_on(self) -> None:
        """Until the poll ends, or time passes in it."""
        process = self._process
        for _ in self._poll or ():
            seconds = max(process.busy_until - self.now, self._pause())
            if seconds > 0.0:
                self.counts["turns that take time"] += 1
                process.scheduler.at(seconds, partial(process.turn_goes_on, self._life))
                return
        self._poll = None

    def _pause(self) -> float:
        paused = self._seconds and self._rng.random() < PAUSES
        return self._rng.expovariate(1 / self._seconds) if paused else 0.0

    def poll(self) -> Iterator[None]:
        """As `Reactor.poll`; yields after each connection."""
        for _ in range(self.limits.rounds):
            ready = [socket for socket in self.sockets if socket.ready]
            self._rng.shuffle(ready)
            served = ready[: self.limits.events]
            if not served:
                return
            self.turns, self.reading = self.turns + 1, True
            for socket in served:
                if not socket.gone:
                    socket.serve()
                yield
            self.reading = False
            self.end_turn()
            if len(served) < self.limits.events:
                return

    def end_turn(self) -> None:
        """What clients have acknowledged may wait so many seconds for another batch."""
        self._process.engine.end_turn(self._linger > 0)
        if self._linger and self._process.engine.unlogged and not self._lingers:
            self._lingers = True
            self.counts["acknowledgements that linger"] += 1
            self._process.after(self._linger, self._log)

    def _log(self) -> None:
        self._lingers = False
        self._process.engine.end_turn()


def _whole(octets: bytes) -> int:
    """Octets of the complete frames."""
    at = 0
    while at + 7 <= len(octets):
        size = int.from_bytes(octets[at + 3 : at + 7], "big") + 8
        if at + size > len(octets):
            break
        at += size
    return at
