"""Hosts, and between them connections like TCP: octets arrive in order, late, or not at all.

A cut keeps back what is under way in its direction; it arrives after the cut has healed, as TCP sends again.  A
process that dies closes its connections (its host does), or resets them, and then what is under way is lost; a host
without power says nothing until it is back, and then answers what belongs to old connections with a reset.  A
connection can be reset between two living processes (`reset`), and a living host can refuse new ones (`rejecting`).
Datagrams (`message`) stand for requests on connections of their own: what meets a cut is lost or late, as the seed
decides.

A path can be *narrow* (few octets a second, for each connection): then a writer has to wait (`End.full`), and its peer
sees that it lives.  Widths are scaled down as the limits of a backlog are.  Requests are not, so their connections have
a width of QUESTIONS at least: a question and its answer pass in time, if not behind a handshake.

Connections are independent of each other: what one of them holds up (`linger`), a newer one may overtake.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

from tests.simulator.scheduler import Call, Scheduler

SOCKET: Final = 512
"""Octets that fit a connection's buffers on a narrow path; what does not fit waits in the process that writes it."""
SEGMENT: Final = 128
"""Octets of one piece on a narrow path."""
CALM: Final = 0.15
"""Seconds that an octet takes at most where nothing is broken: less than `link-heartbeat-interval`.  Where it takes as
long as a link may be silent, links are given up for ever; that is what the interval is for.  Not much less, either: a
slow path shows what does not wait for it (the planted mistake `hang_up_early`)."""
QUESTIONS: Final = 8000.0
"""Octets a second that a connection of requests takes on a narrow path, at least."""
SYN: Final = 0
DATA: Final = 1
FIN: Final = 2
RST: Final = 3
ACK: Final = 4
"""Of a SYN, where it is waited for."""
Item = tuple[int, bytes]
Pairs = set[tuple[str, str]]


class Host(Protocol):
    """Where one end of a connection lives."""

    name: str

    @property
    def powered(self) -> bool:
        """A host without power neither receives nor answers."""
        ...

    @property
    def busy_until(self) -> float:
        """What it sends now leaves at that time; its process is in a system call until then."""
        ...

    def accept(self, end: End) -> bool:
        """A connection arrives; False when no process listens."""
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
        self.on_writable: Call = lambda: None
        self.on_open: Call | None = None
        self.least = 0.0
        """Octets a second that pass on a narrow path, too."""
        self.hold_until = 0.0
        """Nothing of this connection arrives before that time."""
        self._rng = network.rng(host.name, peer_host.name)
        self._under_way: deque[tuple[float, float, Item]] = deque()
        """(departure, arrival, item)"""
        self._last = 0.0
        self._waits = 0
        """Octets under way."""
        self._moving = False
        self._arrived = 0
        """Octets that have come to the peer."""

    def send(self, data: bytes) -> None:
        if self.open and data:
            self._push((DATA, data))

    @property
    def full(self) -> bool:
        """A writer has to wait for `on_writable`."""
        return self._waits >= SOCKET and self.network.width(self) > 0

    @property
    def takes(self) -> float:
        """Seconds in which what is under way passes a narrow path."""
        width = self.network.width(self)
        return self._waits / width if width else 0.0

    def writable(self) -> None:
        """The peer has begun to read again, or a narrow path has room."""
        self.host.run(self, self.on_writable)

    def close(self) -> None:
        """Nothing more is delivered here; the other end learns of it behind what was sent."""
        if self.open:
            self.open = False
            self._push((FIN, b""))

    def crash(self, power: bool) -> None:
        """The process is gone, and what it had not yet sent; its host says so, unless it is gone as well."""
        now = self.network.scheduler.now
        resets = not power and self.network.resets()
        self._discard(-1.0 if resets else now)
        if power:
            self.open = False
        elif resets and self.open:
            self.open = False
            self._push((RST, b"reset"))
        else:
            self.close()

    def reset(self, both: bool) -> None:
        """The connection breaks with what is under way in it.  The other end is told, or finds out when it writes."""
        for end in (self, self.peer):
            end._discard(-1.0)
        self.host.run(self, lambda: self._ended("reset"))
        if both:
            self.peer.host.run(self.peer, lambda: self.peer._ended("reset"))

    def _discard(self, until: float) -> None:
        """What has not left before `until` never arrives."""
        if not self._under_way or self._under_way[-1][0] <= until:
            return
        # The one that is on its way already has its event, so it must stay.
        first, *rest = self._under_way
        self._under_way = deque([first, *(each for each in rest if each[0] <= until)])
        if first[0] > until:
            self._under_way[0] = (first[0], first[1], (first[2][0] if first[2][0] == SYN else DATA, b""))
        self._waits = sum(len(data) for _, _, (_, data) in self._under_way)

    def _push(self, item: Item) -> None:
        rng = self._rng
        kind, data = item
        if kind == DATA and self.network.width(self):
            for at in range(0, len(data) - SEGMENT, SEGMENT):
                self._enqueue((DATA, data[at : at + SEGMENT]))
            data = data[(len(data) - 1) // SEGMENT * SEGMENT :]
        while kind == DATA and len(data) > 1 and rng.random() < self.network.split:
            middle = rng.randrange(1, len(data))
            self._enqueue((DATA, data[:middle]))
            data = data[middle:]
        self._enqueue((kind, data))

    def _enqueue(self, item: Item) -> None:
        network = self.network
        departure = max(network.scheduler.now, self.host.busy_until)
        arrival = departure + network.delay(self.host, self.peer_host, self._rng)
        self._last = max(self._last, arrival, self.hold_until)
        self._under_way.append((departure, self._last, item))
        self._waits += len(item[1])
        if not self._moving:
            self._move()

    def _move(self) -> None:
        """The next piece arrives in its time, or when the way is open again."""
        self._moving = bool(self._under_way)
        if not self._moving:
            return
        network = self.network
        if self._held_up():
            network.waiting.append(self)
        else:
            _, arrival, (_, data) = self._under_way[0]
            width = network.width(self)
            takes = len(data) / width if width else 0.0
            network.scheduler.at(max(takes, arrival - network.scheduler.now), self._arrive)

    def unblock(self) -> None:
        self._move()

    def _held_up(self) -> bool:
        """By a cut, or because so many octets of a connection arrive and no more."""
        network = self.network
        if network.blocked(self.host, self.peer_host):
            return True
        most = network.clogged.get((self.host.name, self.peer_host.name)) if network.clogged else None
        kind, data = self._under_way[0][2]
        return most is not None and kind != SYN and self._arrived + len(data) > (most if data else most - 1)

    def _arrive(self) -> None:
        if self._held_up():
            self.network.waiting.append(self)
            return
        _, _, (kind, data) = self._under_way.popleft()
        self._arrived += len(data)
        had_to_wait = self._waits >= SOCKET
        self._waits -= len(data)
        if had_to_wait and self._waits < SOCKET and self.open:
            self.writable()
        if self.peer_host.powered:
            self._deliver(kind, data)
        self._move()

    def _deliver(self, kind: int, data: bytes) -> None:
        peer = self.peer
        if kind == SYN:
            if self.network.rejects(self.host, self.peer_host) or not self.peer_host.accept(peer):
                peer.open = False
                peer._push((RST, b"refused"))
            elif self.on_open is not None:
                peer._push((ACK, b""))
        elif kind == ACK:
            peer.host.run(peer, peer.opened)
        elif not peer.open:
            if kind == DATA:
                peer._push((RST, b"reset"))
        elif kind == DATA:
            if data:
                peer.host.run(peer, lambda: peer._received(data))
        else:
            peer.host.run(peer, lambda: peer._ended(data.decode() or "closed by the peer"))

    def opened(self) -> None:
        if self.open and self.on_open is not None:
            self.on_open()

    def _received(self, data: bytes) -> None:
        if self.open:
            self.on_data(data)

    def _ended(self, reason: str) -> None:
        if self.open:
            self.open = False
            self.on_closed(reason)


class Network:
    """Delays and cuts between hosts; both by direction."""

    def __init__(self, scheduler: Scheduler, make_rng: Callable[[str], Random]) -> None:
        self.scheduler = scheduler
        self.cuts: Counter[tuple[str, str]] = Counter()
        """How many cuts there are in each direction; it is open when all of them have healed."""
        self.slow: dict[tuple[str, str], float] = {}
        self.narrow: dict[tuple[str, str], float] = {}
        """Octets a second, of each connection in this direction."""
        self.clogged: dict[tuple[str, str], int] = {}
        """So many octets of each connection arrive in this direction, and no more."""
        self.waiting: list[End] = []
        self.rejecting: set[tuple[str, str]] = set()
        """These hosts refuse connections of those, and live (a firewall; a listener that is being restarted)."""
        self.repeated: dict[tuple[str, str], float] = {}
        """A request arrives, and within so many seconds a second time: it was sent again when its connection broke."""
        self.delayed: dict[tuple[str, str], float] = {}
        """A request arrives within so many seconds, long after anybody waits for its answer."""
        self.reset_share = 0.0
        """Of the connections of a process that dies are reset, and lose what is under way; the others are closed."""
        self.before_heal: Call = lambda: None
        self._ends: list[End] = []
        self._late: list[tuple[tuple[str, str], Call]] = []
        self._make_rng = make_rng
        self._resets = make_rng("resets")
        self._rngs: dict[tuple[str, str], Random] = {}
        self._base = make_rng("network").uniform(0.0002, 0.002)
        self.search({})

    def search(self, option: Mapping[str, float]) -> None:
        """`tail`: exponent of the delays (0: uniform ones), of which none is above `most` seconds; `split`: how often a
        write arrives in pieces."""
        self._tail, self._most = option.get("tail", 0.0), option.get("most", 0.0)
        self.split = option.get("split", 0.05)

    def rng(self, source: str, target: str) -> Random:
        """Each direction has its own randomness."""
        found = self._rngs.get((source, target))
        if found is None:
            found = self._rngs[source, target] = self._make_rng(f"{source}>{target}")
        return found

    def blocked(self, source: Host, target: Host) -> bool:
        return (source.name, target.name) in self.cuts

    def delay(self, source: Host, target: Host, rng: Random) -> float:
        extra = self.slow.get((source.name, target.name), 0.0)
        if not self._tail:
            return (self._base + extra) * (0.5 + rng.random())
        return extra + min(self._most, self._base * 0.5 * rng.paretovariate(self._tail))

    def width(self, end: End) -> float:
        """Octets a second; 0: any number."""
        narrow = self.narrow.get((end.host.name, end.peer_host.name), 0.0) if self.narrow else 0.0
        return max(narrow, end.least) if narrow else 0.0

    def rejects(self, source: Host, target: Host) -> bool:
        return (source.name, target.name) in self.rejecting

    def resets(self) -> bool:
        """Does this connection of a dying process end in a reset?"""
        return self._resets.random() < self.reset_share

    def slowness(self, source: str, target: str) -> float:
        """Seconds that a slow path adds, at least."""
        return self.slow.get((source, target), 0.0)

    def connect(self, source: Host, target: Host, on_open: Call | None = None, least: float = 0.0) -> End:
        """The new connection's near end; `on_closed("refused")` when no process listens there."""
        near, far = End(self, source, target), End(self, target, source)
        near.least = far.least = least
        near.peer, far.peer, near.on_open = far, near, on_open
        self._ends = [end for end in self._ends if end.open]
        self._ends += (near, far)
        near._push((SYN, b""))
        return near

    def linger(self, source: str, target: str, until: float) -> None:
        """The connections that exist now get slow in this direction; newer ones do not."""
        for end in self._ends:
            if end.open and end.host.name == source and end.peer_host.name == target:
                end.hold_until = until

    def between(self, one: str, other: str) -> list[End]:
        """The open connections of two hosts, each by its end at `one`."""
        return [end for end in self._ends if end.open and end.host.name == one and end.peer_host.name == other]

    def request(self, source: Host, target: Host, call: Call) -> None:
        """`message`, in time or late, once or twice."""
        pair = source.name, target.name
        late = self.delayed.get(pair, self.repeated.get(pair))
        if pair not in self.delayed:
            self.message(source, target, call)
        if late is not None:
            self.scheduler.at(self._resets.uniform(0.0, late), lambda: self.message(source, target, call))

    def message(self, source: Host, target: Host, call: Call) -> None:
        """`call` happens at the target's host, if it arrives."""
        rng = self.rng(source.name, target.name)

        def arrive() -> None:
            if self.blocked(source, target):
                if rng.random() < 0.5:
                    self._late.append(((source.name, target.name), arrive))
            elif target.powered:
                call()

        if source.powered:
            self.scheduler.at(self.delay(source, target, rng), arrive)

    def cut(self, pairs: Pairs) -> None:
        self.cuts.update(pairs)

    def heal(self, pairs: Pairs) -> None:
        self.before_heal()
        self._open(self.cuts - Counter(pairs))

    def _open(self, cuts: Counter[tuple[str, str]]) -> None:
        self.cuts = cuts
        waiting, self.waiting = self.waiting, []
        for end in waiting:
            end.unblock()
        late, self._late = self._late, []
        for pair, arrive in late:
            if pair in self.cuts:
                self._late.append((pair, arrive))
            else:
                self.scheduler.at(self.rng(*pair).uniform(0.001, 0.2), arrive)

    def repair(self, healthy: set[str]) -> None:
        """Whatever is between these."""

        def among(pair: tuple[str, str]) -> bool:
            return pair[0] in healthy and pair[1] in healthy

        self.slow = {pair: delay for pair, delay in self.slow.items() if not among(pair)}
        self.widen({pair for pair in self.narrow if among(pair)})
        self._calm(among)
        self._most = min(self._most, CALM)
        for end in self._ends:
            if among((end.host.name, end.peer_host.name)):
                end.hold_until = 0.0
        self.before_heal()
        self._open(Counter({pair: count for pair, count in self.cuts.items() if not among(pair)}))

    def _calm(self, healed: Callable[[tuple[str, str]], bool]) -> None:
        self.rejecting = {pair for pair in self.rejecting if not healed(pair)}
        self.repeated = {pair: delay for pair, delay in self.repeated.items() if not healed(pair)}
        self.delayed = {pair: delay for pair, delay in self.delayed.items() if not healed(pair)}

    def heal_all(self) -> None:
        self.slow.clear()
        self.widen(set(self.narrow))
        self.clogged.clear()
        self._calm(lambda pair: True)
        self._most = min(self._most, CALM)
        for end in self._ends:
            end.hold_until = 0.0
        self.before_heal()
        self._open(Counter())

    def widen(self, pairs: Pairs) -> None:
        """They are narrow no more: who waits to write goes on."""
        self.narrow = {pair: width for pair, width in self.narrow.items() if pair not in pairs}
        for end in self._ends:
            if end.open and (end.host.name, end.peer_host.name) in pairs:
                end.writable()

    def connected(self, one: str, other: str) -> bool:
        """Both directions are open."""
        return (one, other) not in self.cuts and (other, one) not in self.cuts
