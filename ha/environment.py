"""The ports of the HA core: everything that it asks of the world, and what the world has to tell it.

The core (`node.py` and what it imports) has no sockets, clock, threads,
files or random numbers.  `shell/environment.py` is the real environment, on asyncio; the simulator and the tests bring
their own.
The engine is the core's own (`qpidd_py.core.Engine`): it has no clock and no sockets either.
One thread calls everything; no port may call back before the call that asked for it has returned.

What the environment calls on a `Node` (`requests.py` for management):

    node.start()                                  once; a broker that is started is `joining`
    node.link_accepted(link, properties)          a backup has connected and both ends speak the link protocol
    node.link_frame(link, kind, position, body)   a frame other than BATCH arrived (core: Owner.link_frame)
    node.link_batches(link, position)             BATCH frames were applied to the engine up to position
    node.link_closed(link, reason)                the peer went away; never after our own `link.close()`
    node.batch(batch), node.membership(position, payload)    the engine's on_batch and on_membership
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from qpidd_py.errors import LinkError

if TYPE_CHECKING:
    from ha.model.membership import HaState
    from ha.model.salvaged import Header, Record
    from qpidd_py.core import Batch, Queue

Json = dict[str, Any]
Reply = Callable[[Json], None]
"""Told the end of a management request, once: {"ok": true, "result": ...} or {"ok": false, "error": text}."""


class StateNotStored(LinkError):
    """The disk does not take our vote or in-sync set.  It costs the link, the request or the attempt that needed it,
    never the process: what this broker holds in memory may be the only copy."""


class Outcome(Enum):
    """How a request to another broker, or an attempt to connect to it, ended."""

    ANSWERED = "answered"
    """It answered; `Answer.result` or, when it said no, `Answer.error`."""
    REFUSED = "refused"
    """Its host says that nobody listens: that process is gone, and with it what it held in memory."""
    SILENT = "silent"
    """No answer in time, or the connection broke: it may be dead, paused or cut off.  Nothing is known."""


@dataclass(frozen=True)
class Answer:
    """The end of a request to another broker."""

    outcome: Outcome
    result: Json = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Exchanged:
    """The end of an exchange with the resource manager's registry."""

    states: tuple[HaState, ...] = ()
    """Of every broker that has an entry, ours included."""
    error: str = ""
    """Why it failed; then nothing is known, not even whether our entry was written."""
    gone: frozenset[str] = frozenset()
    """Ids of brokers that the manager knows to be dead: their nodes were fenced, or all that ran there was stopped."""


class Link(Protocol):
    """One replication link.  Frames arrive in order or not at all."""

    @property
    def received(self) -> int:
        """Octets that came in; any growth is a sign of life."""
        ...

    @property
    def sent(self) -> int:
        """Octets that went out."""
        ...

    @property
    def backlog(self) -> int:
        """Octets that wait to be written."""
        ...

    def send_frame(self, kind: int, position: int, body: bytes) -> None: ...

    def send_batch(self, batch: Batch) -> None: ...

    def hold_batches(self, on: bool) -> None:
        """From the next frame on, batches come as frames of kind BATCH (on), or are applied to the engine (off)."""
        ...

    def close(self) -> None:
        """At once; nothing that is still in flight is delivered, and `link_closed` is not called."""
        ...


class SalvageFile(Protocol):
    """Messages that are put aside before they are dropped (`salvage/selection.py`).  Every method but `cancel` raises
    LinkError when the disk does not take it."""

    @property
    def name(self) -> str: ...

    def add(self, records: Sequence[Record]) -> None:
        """They are on disk when this returns."""
        ...

    def finish(self) -> None:
        """That was all."""
        ...

    def cancel(self) -> None:
        """Not needed: the messages stay where they are."""
        ...


class Configuration(Protocol):
    """The broker's replicated configuration (the virtual host)."""

    def snapshot(self) -> list[tuple[int, bytes]]:
        """Every replicated object as (position, record), in an order in which they can be created."""
        ...

    def adopt(self, records: list[tuple[int, bytes]]) -> None:
        """Make the local configuration equal to a snapshot."""
        ...

    def replicated(self) -> Iterable[tuple[Queue, int]]:
        """(core queue, uid) of each queue whose messages are replicated; uid = position of its declaration."""
        ...

    def on_promoted(self) -> None:
        """We are primary now: end what belonged to connections of the old one; changes go into the log again."""
        ...

    def on_deposed(self) -> None:
        """We are a backup now: nothing replicated is changed here but by `adopt` and the engine's on_config."""
        ...

    def pause_clients(self, reason: str) -> None:
        """Ask publishers to pause; they are read nevertheless.  Consumers are sent nothing more."""
        ...

    def resume_clients(self) -> None:
        """Clients may go on, unless `on_throttle` still holds them."""
        ...

    def still_busy(self) -> tuple[int, int]:
        """During a pause: (publishers that will say when they have stopped, messages that consumers hold)."""
        ...

    def on_throttle(self, reason: str) -> None:
        """Publishers are not read because of `reason`, which they are told; empty: they are read again."""
        ...


class Environment(Protocol):
    """What the core asks of the world."""

    def now(self) -> float:
        """Monotonic seconds.  Runs on while the process is stopped (SIGSTOP): that is how a pause is noticed."""
        ...

    def wall(self) -> int:
        """Microseconds since 1970, for the reports only: this clock may be wrong, and may be set at any time."""
        ...

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Call once, `delay` seconds from now."""
        ...

    def connect(
        self, address: str, properties: Mapping[str, object], timeout: float, done: Callable[[Link | Answer], None]
    ) -> None:
        """Open a replication link; `done` gets the link, or an `Answer` that says why not (a refusal by the peer
        is ANSWERED with the text of its `connection.close` as error)."""
        ...

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        """Send a management request to another broker.  `done` is called exactly once."""
        ...

    def persist(self, state: HaState) -> None:
        """Keep the state over a restart.  It is on disk when this returns.  Raises StateNotStored: then what was kept
        before is in force, and may be replaced by a later call only."""
        ...

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        """Write our entry into the resource manager's registry (None: only read), then read the entries of all.

        `done` is called exactly once, never before this call has returned.  The registry must be linearizable: of two
        brokers that exchange, at least one sees the other's entry.  What one broker writes takes effect in the order of
        its calls or not at all, also after an error: an entry never goes back.  Only called if `NodeSettings.registry`.
        """
        ...

    def salvage(self, header: Header) -> SalvageFile:
        """Begin a salvage file.  Raises LinkError when the disk does not take it."""
        ...

    def close_clients(self, code: int, text: str) -> None:
        """Close every client connection with `connection.close`; links stay, and administrators without messages."""
        ...

    def end(self, reason: str) -> None:
        """End this process with the exit code for a broker that cannot be part of its cluster (3)."""
        ...

    def event(self, kind: str, **fields: object) -> None:
        """A structured event, for the reports (`events.py`)."""
        ...

    def log(self, level: str, text: str) -> None:
        """A log line; level is debug, info, notice, warning, error or critical."""
        ...
