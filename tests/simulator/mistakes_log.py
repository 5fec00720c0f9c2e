"""Mistakes about what is copied, kept and said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from ha.backup.backup import Backup
from ha.backup.joining import Joining
from ha.backup.salvager import Salvager
from ha.backup.staging import Staging
from ha.model import state_file
from ha.model.membership import HaState
from ha.model.state_file import StateFile, StateFileError
from ha.node import Node
from ha.primary import arrivals
from ha.primary.arrivals import Arrivals
from ha.primary.catchup import Plan
from ha.primary.peer import Peer
from ha.promotion.claims import ClaimRequest
from qpidd_py.broker.operation_log import OperationLog
from tests.simulator.disk import Disk
from tests.simulator.environment import SimTransport
from tests.simulator.mistakes_safety import patched
from tests.simulator.process import BrokerProcess

ACK = b"\x00\x3c\x00\x50"
"""basic.ack"""


def forget_votes() -> AbstractContextManager[None]:
    """A restart forgets epoch and in-sync set."""

    def persist(self: BrokerProcess, state: HaState) -> None:
        self.simulation.history.persisted(state)

    return patched(BrokerProcess, persist=persist)


@contextmanager
def torn_state() -> Iterator[None]:
    """The file is overwritten as a whole, and what cannot be read is taken for a new broker's."""

    def stored(self: StateFile) -> HaState | None:
        try:
            return old(self)
        except StateFileError:
            return HaState("a new one")

    old = StateFile.open
    with patched(StateFile, open=stored), both_slots():
        yield


def both_slots() -> AbstractContextManager[None]:
    """Both slots are overwritten in one write."""

    def store(self: StateFile, state: HaState) -> None:
        if not self._generation:
            self._create(state)
            return
        self._generation += 2
        slots = sorted((self._generation - n for n in (0, 1)), key=lambda generation: generation % 2)
        octets = b"".join(state_file.encode(state, generation) for generation in slots)
        self._directory.overwrite(state_file.NAME, 0, octets)

    return patched(StateFile, store=store)


def oldest_slot() -> AbstractContextManager[None]:
    """Of two valid slots the older one is taken."""

    def oldest(octets: bytes) -> tuple[int, HaState]:
        slots = octets[: state_file.SLOT], octets[state_file.SLOT :]
        try:
            return min((state_file.decode(slot) for slot in slots), key=lambda slot: slot[0])
        except StateFileError:
            return newest(octets)

    newest = state_file.newest
    return patched(state_file, newest=oldest)


def other_slot() -> AbstractContextManager[None]:
    """After a write that has failed the next one goes into the other slot, which holds the state in force."""

    def store(self: StateFile, state: HaState) -> None:
        try:
            old(self, state)
        except OSError:
            self._generation += 1
            raise

    old = StateFile.store
    return patched(StateFile, store=store)


def failed_write_for_done() -> AbstractContextManager[None]:
    """A write that has failed counts as done."""

    def store(self: StateFile, state: HaState) -> None:
        with suppress(OSError):
            old(self, state)

    old = StateFile.store
    return patched(StateFile, store=store)


def claim_without_write() -> AbstractContextManager[None]:
    """A claim is granted although the vote could not be stored."""

    def vote(self: Node, claim: ClaimRequest) -> str:
        old(self, claim)
        return ""

    old = Node._vote
    return patched(Node, _vote=vote)


def set_without_write() -> AbstractContextManager[None]:
    """A backup acknowledges a set that it could not store."""
    return patched(Backup, _need_stored=lambda self: None)


def believe_the_cache() -> AbstractContextManager[None]:
    """What the cache shows after a failed fsync is taken for what the disk has."""

    def read(self: Disk, name: str) -> bytes | None:
        file = self._names.get(name)
        return None if file is None else file.seen

    return patched(Disk, read=read)


def union_on_rejoin() -> AbstractContextManager[None]:
    """A joining backup keeps what the primary does not have."""

    def keep(self: Joining, body: bytes) -> None:
        pass

    return patched(Joining, _on_drop=keep)


def acknowledge_holes() -> AbstractContextManager[None]:
    """A backup counts as complete before the difference has arrived."""

    def begin(self: Arrivals, peer: Peer) -> None:
        old(self, peer)
        if peer.plan is not None:
            peer.plan._queues.clear()
            peer.plan._work = None

    old = Arrivals.begin
    return patched(Arrivals, begin=begin)


def half_a_difference() -> AbstractContextManager[None]:
    """A whole backup takes over what comes of a difference as it comes: promoted in the middle it has half of it."""
    return patched(Staging, keep=lambda self: None)


def cut_after_snapshot() -> AbstractContextManager[None]:
    """What is compared is older than the cut: a message between the two comes neither way."""

    class Stale(Plan):
        def __init__(self, configuration: Any, held: Any, cut: int, limit: int, *more: Any) -> None:
            super().__init__(configuration, held, max(0, cut - 2), limit, *more)

    return patched(arrivals, Plan=Stale)


@contextmanager
def dequeue_before_enqueue() -> Iterator[None]:
    """Live batches overtake the slices: a message is dequeued before it is there."""

    class Overtaken:
        """A link on which some frames are late."""

        def __init__(self, link: Any) -> None:
            self._link = link

        def send_frame(self, kind: int, position: int, body: bytes) -> None:
            link = self._link
            now[-1].after(0.02, lambda: None if link._over else link.send_frame(kind, position, body))

    def advance(self: Plan, link: Any) -> int | None:
        return old(self, Overtaken(link))  # type: ignore[arg-type]

    def pump(self: Arrivals, peer: Peer) -> None:
        now.append(self._env)
        old_pump(self, peer)
        now.pop()

    now: list[Any] = []
    old, old_pump = Plan._advance, Arrivals.pump
    with patched(Plan, _advance=advance), patched(Arrivals, pump=pump):
        yield


def confirm_twice() -> AbstractContextManager[None]:
    """A confirm is said again, now and then."""

    def output(self: SimTransport, leaves: bool = True) -> bytes:
        taken = self.connection.core.take_output(leaves)
        at = taken.rfind(ACK) - 7
        if at >= 0 and taken[at : at + 1] == b"\x01" and len(taken) % 7 == 0:
            taken += taken[at : at + 21]
        return taken

    return patched(SimTransport, output=output)


def demote_before_closing() -> AbstractContextManager[None]:
    """Clients are sent away only after the engine has given back what they held.  (It was so once.)"""

    def close_clients(self: BrokerProcess, code: int, text: str) -> None:
        self.after(0.0, lambda: old(self, code, text))

    old = BrokerProcess.close_clients
    return patched(BrokerProcess, close_clients=close_clients)


def salvage_skipped() -> AbstractContextManager[None]:
    """A joining broker drops what only it has."""

    def start(self: Salvager, suspects: Any, send: Callable[[int, bytes], None]) -> None:
        self._end()

    return patched(Salvager, start=start)


def unchanged_is_safe() -> AbstractContextManager[None]:
    """What is bound or declared already is answered as soon as that is safe, whoever is primary meanwhile.  (It was so
    once.)"""
    return patched(OperationLog, unchanged=lambda self, position: position)
