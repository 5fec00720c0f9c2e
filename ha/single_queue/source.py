"""The source of replicated queues: sends each follower what its copy lacks (protocol: `single_queue/follower.py`).

    GREETING ──follow──▶ HELD ──held──▶ PASS ──last credit──▶ IDLE ──the queue has changed──▶ PASS

A *pass* compares the ids that the follower has with those in the queue, sends what it must drop, then the missing
messages in bounded slices, then a MERGE.  Changes meanwhile are left to the next pass.  After a pass the follower has
what the queue had when the pass began; ids that were dequeued before their slice was sent count as held, and the next
pass drops them, which does no harm.

Cost: none without followers.  With one, its queue's two counters are read each PERIOD; a pass walks over the index of
the queue (some nanoseconds for each message), so after a long pass the next one waits REST times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ha.model.environment import Link
from ha.model.protocol import (
    VERSION,
    Kind,
    decode_control,
    decode_held,
    encode_control,
    encode_drop,
    encode_merge,
    need,
)
from ha.model.pulse import Pulse
from ha.single_queue.follower import Port
from qpidd_py.core import Catchup, Engine, Queue
from qpidd_py.errors import LinkError

PERIOD: Final = 0.02
"""Seconds between two checks of the followed queues."""
REST: Final = 4
LONGEST_REST: Final = 1.0
"""Seconds."""
WINDOW: Final = 4
"""Slices under way."""


class FeedPhase(Enum):
    """Phase of the conversation with a follower."""

    GREETING = "greeting"
    HELD = "held"
    PASS = "pass"
    IDLE = "idle"


@dataclass(frozen=True)
class Standing:
    """The present standing of this broker."""

    name: str
    lineage: dict[int, str]
    """Epoch -> broker that assigned its ids."""
    refusal: str = ""
    """Why its queues cannot be followed; empty if they can."""


@dataclass(eq=False)
class Feed:
    """One follower."""

    link: Link
    pulse: Pulse
    phase: FeedPhase = FeedPhase.GREETING
    name: str = ""
    queue: Queue | None = None
    held: bytes = b""
    """The ids that the follower has."""
    goal: bytes = b""
    """The ids that it will have after this pass."""
    work: Catchup | None = None
    """What is still to be sent in this pass; None when everything was sent."""
    fresh: bool = True
    """True until a pass has ended: the first one always ends with a MERGE."""
    sent: bool = False
    under_way: int = 0
    seen: tuple[int, int] = field(default=(0, 0))
    """The queue's counters when the pass began."""
    began: float = 0.0
    rest_until: float = 0.0


class ReplicaSource:
    """All followers of this broker's queues; the owner of their links (`core_link.LinkOwner`)."""

    def __init__(
        self,
        port: Port,
        engine: Engine,
        find: Callable[[str], Queue | None],
        standing: Callable[[], Standing],
        heartbeat: float,
        slice_size: int,
    ) -> None:
        """`heartbeat` in seconds; `slice_size` in octets, approximately."""
        self._port, self._engine = port, engine
        self._find, self._standing = find, standing
        self._heartbeat, self._slice_size = heartbeat, slice_size
        self._feeds: dict[Link, Feed] = {}
        self._ticking = False

    def __len__(self) -> int:
        return len(self._feeds)

    def accepted(self, link: Link) -> None:
        """A follower has connected."""
        now = self._port.now()
        self._feeds[link] = Feed(link, Pulse(now, now))
        if not self._ticking:
            self._ticking = True
            self._port.after(PERIOD, self._tick)

    def link_frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        feed = self._feeds.get(link)
        if feed is None:
            return
        try:
            self._frame(feed, kind, body)
        except LinkError as error:
            self._drop(feed, str(error))

    def link_batches(self, link: Link, position: int) -> None:
        self.link_closed(link, "it sends the log")

    def link_closed(self, link: Link, reason: str) -> None:
        feed = self._feeds.pop(link, None)
        if feed is not None and feed.queue is not None:
            self._port.log("notice", f"follower {feed.name} of queue {feed.queue.name} is gone: {reason}")

    # ---- the conversation -----------------------------------------------------------------------------------------

    def _frame(self, feed: Feed, kind: int, body: bytes) -> None:
        if kind == Kind.CONTROL and feed.phase is FeedPhase.GREETING:
            self._follow(feed, body)
        elif kind == Kind.HELD and feed.phase is FeedPhase.HELD:
            feed.held = decode_held(body)[2]
            self._begin(feed)
        elif kind == Kind.CREDIT and feed.under_way:
            feed.under_way -= 1
            self._pump(feed)
        elif kind != Kind.HEARTBEAT:
            raise LinkError(f"frame of kind {kind} in phase {feed.phase.value}")

    def _follow(self, feed: Feed, body: bytes) -> None:
        op, fields = decode_control(body)
        if op != "follow" or fields.get("version") != VERSION:
            raise LinkError(f"control {op} of version {fields.get('version')}, expected follow of {VERSION}")
        standing, name = self._standing(), need(fields, "queue", str)
        queue = self._find(name)
        if standing.refusal:
            self._refuse(feed, standing.refusal)
        elif queue is None:
            self._refuse(feed, f"{standing.name} has no queue {name!r}", final=True)
        else:
            feed.queue, feed.name, feed.phase = queue, str(fields.get("name", "")), FeedPhase.HELD
            lineage = [[epoch, leader] for epoch, leader in standing.lineage.items()]
            self._control(feed, "following", name=standing.name, lineage=lineage)
            self._port.log("notice", f"queue {name} is followed by {feed.name}")

    def _refuse(self, feed: Feed, reason: str, final: bool = False) -> None:
        """Send the reason and keep the link until the follower closes it, or is silent for too long."""
        self._control(feed, "refused", reason=reason, final=final)
        feed.queue, feed.work, feed.phase = None, None, FeedPhase.GREETING

    # ---- a pass ---------------------------------------------------------------------------------------------------

    def _begin(self, feed: Feed) -> None:
        queue = feed.queue
        assert queue is not None
        feed.phase, feed.began = FeedPhase.PASS, self._port.now()
        feed.seen = queue.enqueued, queue.dequeued
        feed.goal = queue.held()
        feed.work = Catchup(queue, feed.held, self._engine.sequence, lambda: self._read(feed))
        drops = feed.work.drops()
        feed.sent = False
        if drops:
            feed.link.send_frame(Kind.DROP, 0, encode_drop(0, drops))
        self._pump(feed)

    def _pump(self, feed: Feed) -> None:
        work = feed.work
        while work is not None and feed.under_way < WINDOW:
            records = b"" if work.queue.deleted else work.slice(self._slice_size)
            if records is None:
                return
            feed.under_way += 1
            if records:
                feed.sent = True
                feed.link.send_frame(Kind.SLICE, 0, records)
                continue
            work = feed.work = None
            if feed.sent or feed.fresh:
                feed.link.send_frame(Kind.MERGE, 0, encode_merge(0))
            else:
                feed.under_way -= 1
        if work is None and feed.under_way == 0 and feed.phase is FeedPhase.PASS:
            self._finish(feed)

    def _read(self, feed: Feed) -> None:
        """What a slice lacked is in memory."""
        if feed in self._feeds.values():
            self._pump(feed)

    def _finish(self, feed: Feed) -> None:
        now = self._port.now()
        feed.phase, feed.fresh = FeedPhase.IDLE, False
        feed.held, feed.goal = feed.goal, b""
        feed.rest_until = now + min(REST * (now - feed.began), LONGEST_REST)

    # ---- time -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._feeds:
            self._ticking = False
            return
        self._port.after(PERIOD, self._tick)
        refusal, now = self._standing().refusal, self._port.now()
        for feed in list(self._feeds.values()):
            self._look(feed, refusal, now)

    def _look(self, feed: Feed, refusal: str, now: float) -> None:
        queue = feed.queue
        silence = feed.pulse.look(feed.link, now)
        if silence > 2 * self._heartbeat:
            self._drop(feed, f"silent for {silence:.3f} s")
            return
        if queue is not None and refusal:
            self._refuse(feed, refusal)
        elif queue is not None and queue.deleted:
            self._refuse(feed, f"queue {queue.name!r} was deleted", final=True)
        elif queue is not None and self._is_due(feed, queue, now):
            self._begin(feed)
        if feed.pulse.must_speak(feed.link, now, self._heartbeat / 2):
            feed.link.send_frame(Kind.HEARTBEAT, 0, b"")

    @staticmethod
    def _is_due(feed: Feed, queue: Queue, now: float) -> bool:
        changed = feed.seen != (queue.enqueued, queue.dequeued)
        return changed and feed.phase is FeedPhase.IDLE and now >= feed.rest_until

    def _drop(self, feed: Feed, reason: str) -> None:
        feed.link.close()
        self.link_closed(feed.link, reason)

    def _control(self, feed: Feed, op: str, **fields: object) -> None:
        feed.link.send_frame(Kind.CONTROL, 0, encode_control(op, **fields))
