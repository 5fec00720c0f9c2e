"""Mistakes about what is copied, kept and said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ha import arrivals, state_file
from ha.arrivals import Arrivals
from ha.catchup import Plan
from ha.joining import Joining
from ha.membership import HaState
from ha.peer import Peer
from ha.salvager import Salvager
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
    """The state file is overwritten in place, and what cannot be read is taken for a new broker's."""

    def store(directory: Any, state: HaState) -> None:
        directory.write(state_file.NAME, state_file.encode(state))
        directory.sync(state_file.NAME)
        directory.sync_names()

    def stored(directory: Any) -> HaState | None:
        try:
            return old(directory)
        except state_file.StateFileError:
            return HaState("a new one")

    old = state_file.stored
    with patched(state_file, store=store, stored=stored):
        yield


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


def cut_after_snapshot() -> AbstractContextManager[None]:
    """What is compared is older than the cut: a message between the two comes neither way."""

    class Stale(Plan):
        def __init__(self, configuration: Any, held: Any, cut: int, limit: int) -> None:
            super().__init__(configuration, held, max(0, cut - 2), limit)

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

    def advance(self: Plan, link: Any) -> int:
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

    def output_ready(self: SimTransport) -> None:
        output = self.session.connection.take_output()
        at = output.rfind(ACK) - 7
        if at >= 0 and output[at : at + 1] == b"\x01" and len(output) % 7 == 0:
            output += output[at : at + 21]
        self.end.send(output)

    return patched(SimTransport, output_ready=output_ready)


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
