"""The ports of the HA core: what it needs from its environment, and what the environment calls on it.

The core (`node.py` and what it imports) has no sockets, clock, threads, files or random numbers.
`shell/environment.py` is the real environment, on asyncio; the simulator and the tests bring their own.  The engine is
the core's own (`qpidd_py.core.Engine`): it has no clock or sockets either.
One thread makes all calls; no port may call back before the call that requested it has returned.

What the environment calls on a `Node` (`requests.py` for management):

    node.start()                                  once; a broker that is started is `joining`
    node.link_accepted(link, properties)          a backup has connected and both ends speak the link protocol
    node.link_frame(link, kind, position, body)   a frame other than BATCH arrived (core: Owner.link_frame)
    node.link_batches(link, position)             BATCH frames were applied to the engine up to position
    node.link_closed(link, reason)                the peer closed the link; never after our own `link.close()`
    node.batch(batch), node.membership(position, payload)    the engine's on_batch and on_membership
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from ha.model.membership import HaState
from ha.model.salvaged import Header, Record
from qpidd_py.core import Batch, Queue
from qpidd_py.errors import LinkError

Json = dict[str, Any]
Depose = Callable[[tuple[int, str], str, str], None]
"""(ballot, reason, address): a higher ballot was seen; the broker steps down and goes to that address."""
EXIT_TWIN: Final = 3
"""Exit code of a broker that cannot be part of its cluster: its identity is taken."""

Reply = Callable[[Json], None]
"""Gets the result of a management request, once: {"ok": true, "result": ...} or {"ok": false, "error": text}."""


class ElsewherePrimary(LinkError):
    """Only a primary can do what was asked for."""


class StateNotStored(LinkError):
    """The disk does not take our vote or in-sync set.  The link, request or attempt that needed it fails; the process
    goes on, since what it holds in memory may be the only copy."""


class Outcome(Enum):
    """How a request to another broker, or an attempt to connect to it, ended."""

    ANSWERED = "answered"
    """It answered: `Answer.result`, or `Answer.error` for a refusal."""
    REFUSED = "refused"
    """Its host refused connections, on every port that the broker is known by (`shell/asker.py`): that process is gone,
    with its memory content, or a firewall refuses.  What that is worth: `model/refusals.py`."""
    SILENT = "silent"
    """No answer in time, or the connection broke: it may be dead, paused or cut off."""


@dataclass(frozen=True)
class Answer:
    """The result of a request to another broker."""

    outcome: Outcome
    result: Json = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Exchanged:
    """The result of an exchange with the resource manager's registry."""

    states: tuple[HaState, ...] = ()
    """The entries of all brokers, including ours."""
    error: str = ""
    """Why the exchange failed; our entry may or may not have been written."""
    gone: frozenset[str] = frozenset()
    """Ids of brokers that the manager knows to be dead: their node was fenced, or stopped with everything on it."""


class Link(Protocol):
    """One replication link.  Frames arrive in order or not at all."""

    @property
    def received(self) -> int:
        """Octets received; any growth is a sign of life."""
        ...

    @property
    def sent(self) -> int:
        """Octets sent."""
        ...

    @property
    def backlog(self) -> int:
        """Octets that wait to be written."""
        ...

    def send_frame(self, kind: int, position: int, body: bytes) -> None: ...

    def send_batch(self, batch: Batch) -> None: ...

    def hold_batches(self, on: bool) -> None:
        """From the next frame on, batches arrive as frames of kind BATCH (on), or are applied to the engine (off)."""
        ...

    def close(self) -> None:
        """Close at once; nothing in flight is delivered, and `link_closed` is not called."""
        ...


class SalvageFile(Protocol):
    """Messages put aside before they are dropped (`salvage/selection.py`).  Every method but `cancel` raises LinkError
    if the disk does not take it."""

    @property
    def name(self) -> str: ...

    def add(self, records: Sequence[Record]) -> None:
        """Append `records`; they are on disk when this returns."""
        ...

    def finish(self) -> None:
        """End the file: it is complete."""
        ...

    def cancel(self) -> None:
        """Discard the file: the messages are kept in the queues."""
        ...


class Configuration(Protocol):
    """The broker's replicated configuration (the virtual host)."""

    def snapshot(self) -> bytes:
        """Every replicated object as (position, record), in an order in which they can be created, encoded."""
        ...

    def adopting(self, records: list[tuple[int, bytes]]) -> Iterator[None]:
        """Make the local configuration equal to a snapshot, one object with each step."""
        ...

    def replicated(self) -> Iterable[tuple[Queue, int]]:
        """(core queue, uid) of each queue whose messages are replicated; uid = position of its declaration."""
        ...

    def on_promoted(self) -> None:
        """We are primary now: end what belonged to connections of the old primary; log changes from now on."""
        ...

    def on_deposed(self) -> None:
        """We are a backup now: replicated objects change only by `adopt` and the engine's on_config."""
        ...

    def pause_clients(self, reason: str) -> None:
        """Ask publishers to pause, but keep reading them.  Nothing more is sent to consumers."""
        ...

    def resume_clients(self) -> None:
        """Let clients go on, unless `on_throttle` still stops them."""
        ...

    def still_busy(self) -> tuple[int, int]:
        """During a pause: (publishers that will report when they have stopped, messages that consumers hold)."""
        ...

    def on_throttle(self, reason: str) -> None:
        """Stop reading publishers and tell them `reason`; empty: read them again."""
        ...


class Environment(Protocol):
    """What the core needs from its environment."""

    def now(self) -> float:
        """Monotonic seconds.  Runs on while the process is stopped (SIGSTOP), so that pauses can be detected."""
        ...

    def wall(self) -> int:
        """Microseconds since 1970, for reports only: this clock may be wrong or set at any time."""
        ...

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Call once, `delay` seconds from now."""
        ...

    def connect(
        self, address: str, properties: Mapping[str, object], timeout: float, done: Callable[[Link | Answer], None]
    ) -> None:
        """Open a replication link; `done` gets the link, or an `Answer` with the reason of the failure (a refusal by
        the peer is ANSWERED with the text of its `connection.close` as error)."""
        ...

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        """Send a management request to another broker.  `done` is called exactly once."""
        ...

    def persist(self, state: HaState) -> None:
        """Store the state; it is on disk when this returns.  After StateNotStored the earlier state stays in force
        until a later call succeeds."""
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

    def end(self, reason: str, code: int = EXIT_TWIN) -> None:
        """End this process with this exit code."""
        ...

    def event(self, kind: str, **fields: object) -> None:
        """Write a structured event for the reports (`events.py`)."""
        ...

    def log(self, level: str, text: str) -> None:
        """Write a log line; level is debug, info, notice, warning, error or critical."""
        ...
