"""Hosts, and between them connections like TCP: octets arrive in order, late, or not at all.

A cut keeps back what is under way in its direction; it arrives after the cut has healed, as TCP sends again.  A
process that dies closes its connections (its host does); a host without power says nothing until it is back, and then
answers what belongs to old connections with a reset.  Datagrams (`message`) stand for requests on connections of
their own: what meets a cut is lost or late, the seed decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from tests.simulator.scheduler import Call, Scheduler

SYN: Final = 0
DATA: Final = 1
FIN: Final = 2
RST: Final = 3
Item = tuple[int, bytes]


class Host(Protocol):
    """Where one end of a connection lives."""

    name: str

    @property
    def powered(self) -> bool:
        """A host without power neither receives nor answers."""
        ...

    def accept(self, end: End) -> bool:
        """A connection arrives; False when nobody listens."""
        ...

    def run(self, source: object, call: Call) -> None:
        """Do it in the process, in order with all else of that source, as soon as the process runs."""
        ...


class End:
    """One end of a connection."""

    def __init__(self, network: Network, host: Host, peer_host: Host) -> None:
        self.network = network
        self.host = host
        self.peer_host = peer_host
        self.peer: End
        self.open = True
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_closed: Callable[[str], None] = lambda reason: None
        self._under_way: deque[tuple[float, Item]] = deque()
        self._last = 0.0
        self._moving = False

    def send(self, data: bytes) -> None:
        if self.open and data:
            self._push((DATA, data))

    def close(self) -> None:
        """Nothing more is delivered here; the other end learns of it behind what was sent."""
        if self.open:
            self.open = False
            self._push((FIN, b""))

    def abort(self) -> None:
        """The host is gone: nobody says anything."""
        self.open = False

    def _push(self, item: Item) -> None:
        rng = self.network.scheduler.rng
        if item[0] == DATA and len(item[1]) > 1 and rng.random() < 0.05:
            middle = rng.randrange(1, len(item[1]))
            self._enqueue((DATA, item[1][:middle]))
            self._enqueue((DATA, item[1][middle:]))
        else:
            self._enqueue(item)

    def _enqueue(self, item: Item) -> None:
        network = self.network
        arrival = network.scheduler.now + network.delay(self.host, self.peer_host)
        self._last = max(self._last, arrival)
        self._under_way.append((self._last, item))
        if not self._moving:
            self._move()

    def _move(self) -> None:
        """The next piece arrives in its time, or when the way is open again."""
        self._moving = bool(self._under_way)
        if not self._moving:
            return
        network = self.network
        if network.blocked(self.host, self.peer_host):
            network.waiting.append(self)
        else:
            network.scheduler.at(max(0.0, self._under_way[0][0] - network.scheduler.now), self._arrive)

    def unblock(self) -> None:
        self._move()

    def _arrive(self) -> None:
        if self.network.blocked(self.host, self.peer_host):
            self.network.waiting.append(self)
            return
        _, (kind, data) = self._under_way.popleft()
        if self.peer_host.powered:
            self._deliver(kind, data)
        self._move()

    def _deliver(self, kind: int, data: bytes) -> None:
        peer = self.peer
        if kind == SYN:
            if not self.peer_host.accept(peer):
                peer.open = False
                peer._push((RST, b"refused"))
        elif not peer.open:
            if kind == DATA:
                peer._push((RST, b"reset"))
        elif kind == DATA:
            peer.host.run(peer, lambda: peer._received(data))
        else:
            peer.host.run(peer, lambda: peer._ended(data.decode() or "closed by the peer"))

    def _received(self, data: bytes) -> None:
        if self.open:
            self.on_data(data)

    def _ended(self, reason: str) -> None:
        if self.open:
            self.open = False
            self.on_closed(reason)


class Network:
    """Delays and cuts between hosts; both by direction."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.cuts: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        self.waiting: list[End] = []
        self.before_heal: Call = lambda: None
        self._late: list[tuple[tuple[str, str], Call]] = []
        self._base = scheduler.rng.uniform(0.0002, 0.002)

    def blocked(self, source: Host, target: Host) -> bool:
        return (source.name, target.name) in self.cuts

    def delay(self, source: Host, target: Host) -> float:
        extra = self.slow.get((source.name, target.name), 0.0)
        return (self._base + extra) * (0.5 + self.scheduler.rng.random())

    def slowness(self, source: str, target: str) -> float:
        """Seconds that a slow path adds, at least."""
        return self.slow.get((source, target), 0.0)

    def connect(self, source: Host, target: Host) -> End:
        """The new connection's near end; `on_closed("refused")` when nobody listens there."""
        near, far = End(self, source, target), End(self, target, source)
        near.peer, far.peer = far, near
        near._push((SYN, b""))
        return near

    def message(self, source: Host, target: Host, call: Call) -> None:
        """`call` happens at the target's host, if it arrives."""

        def arrive() -> None:
            if self.blocked(source, target):
                if self.scheduler.rng.random() < 0.5:
                    self._late.append(((source.name, target.name), arrive))
            elif target.powered:
                call()

        if source.powered:
            self.scheduler.at(self.delay(source, target), arrive)

    def cut(self, pairs: set[tuple[str, str]]) -> None:
        self.cuts |= pairs

    def heal(self, pairs: set[tuple[str, str]]) -> None:
        self.before_heal()
        self.cuts -= pairs
        waiting, self.waiting = self.waiting, []
        for end in waiting:
            end.unblock()
        late, self._late = self._late, []
        for pair, arrive in late:
            if pair in self.cuts:
                self._late.append((pair, arrive))
            else:
                self.scheduler.at(self.scheduler.rng.uniform(0.001, 0.2), arrive)

    def heal_all(self) -> None:
        self.slow.clear()
        self.heal(set(self.cuts))

    def connected(self, one: str, other: str) -> bool:
        """Both directions are open."""
        return (one, other) not in self.cuts and (other, one) not in self.cuts
