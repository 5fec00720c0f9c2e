"""How far a backup is behind, in operations, octets and seconds; and when a joining one will have caught up.

A position does not give octets or time, so the primary samples the end of its log: at most once in STEP seconds at any
load.  A sample is taken just *before* a batch enters the log, or at a tick after that; so the first operation that a
backup at a sampled position lacks is never older than that sample.  When there are too many samples, every second one
is discarded: old times are kept coarsely, new ones finely.

Between two samples, position, octets and time are interpolated linearly.  Formulas: the samples are ordered by time and
by position;  lag(end of the log) = 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from ha.model.environment import Environment, Json
from ha.model.position import epoch_of
from ha.primary.catchup import Progress
from ha.primary.peer import Peer
from qpidd_py.core import Batch, Engine

STEP: Final = 0.05
"""Seconds between two samples of the log."""
SAMPLES: Final = 1024
REPORT: Final = 5.0
"""Seconds between two log lines about one catch-up; a shorter catch-up logs none."""


class Sample(NamedTuple):
    """At `time` the log ended at `position`, and `octets` had been sent since the promotion."""

    time: float
    position: int
    octets: int


class LogHistory:
    """Samples of the end of the log."""

    def __init__(self, now: float, position: int, step: float = STEP, most: int = SAMPLES) -> None:
        self._samples = [Sample(now, position, 0)]
        self._step, self._most = step, most
        self._changed = now
        self.position = position
        self.octets = 0

    def __len__(self) -> int:
        return len(self._samples)

    def sealed(self, now: float, position: int, octets: int) -> None:
        """A batch of `octets` octets has moved the end of the log to `position`."""
        if now - self._samples[-1].time >= self._step:
            self._sample(now)
        self._changed = now
        self.position = position
        self.octets += octets

    def tick(self, now: float) -> None:
        """Sample after a busy period, so that the idle time that follows is not interpolated into it."""
        if self._samples[-1].position < self.position:
            self._sample(now)

    def lag(self, position: int, now: float) -> Json:
        """The lag of a backup that holds everything up to `position`; octets and seconds are None for a position older
        than the history."""
        operations = max(0, self.position - position)
        found: Json = {"positions": operations, "octets": 0, "seconds": 0.0}
        if not operations:
            return found
        if position < self._samples[0].position:
            return {**found, "octets": None, "seconds": None}
        then = self._at(position)
        return {**found, "octets": self.octets - then.octets, "seconds": round(max(0.0, now - then.time), 3)}

    def delay(self, position: int, now: float) -> float:
        """Seconds since the first operation after `position`; 0 if there is none."""
        if position >= self.position:
            return 0.0
        first = self._samples[0]
        return now - (self._at(position).time if position >= first.position else first.time)

    def _at(self, position: int) -> Sample:
        """The sample, interpolated, at which the log continued from `position`."""
        index = bisect_right(self._samples, position, key=lambda sample: sample.position)
        low = self._samples[index - 1]
        end = Sample(self._changed, self.position, self.octets)
        high = self._samples[index] if index < len(self._samples) else end
        part = (position - low.position) / (high.position - low.position)
        octets = low.octets + int(part * (high.octets - low.octets))
        return Sample(low.time + part * (high.time - low.time), position, octets)

    def _sample(self, now: float) -> None:
        self._samples.append(Sample(now, self.position, self.octets))
        if len(self._samples) > self._most:
            del self._samples[1:-1:2]


class Lags:
    """Computes the lag of each backup."""

    def __init__(self, env: Environment, engine: Engine) -> None:
        self._env = env
        self._engine = engine
        self._history = LogHistory(env.now(), engine.position)

    def sealed(self, now: float, batch: Batch) -> None:
        """Once for each batch of the log."""
        self._history.sealed(now, batch.last, len(batch))

    def tick(self, now: float, peers: Iterable[Peer]) -> None:
        """Four times in each heartbeat interval."""
        self._history.tick(now)
        for peer in peers:
            plan = peer.plan
            if plan is None:
                peer.progress = None
                continue
            if peer.progress is None:
                peer.progress = Progress(peer.started)
            peer.progress.note(now, plan.octets, plan.messages)
            if now - peer.progress.reported >= REPORT:
                peer.progress.reported = now
                self._env.log("notice", f"backup {peer.member} catches up: {progress_text(catchup(peer))}")

    def delay(self, position: int) -> float:
        """Seconds for which a backup that holds everything up to `position` has lacked something."""
        return self._history.delay(position, self._env.now())

    def shown(self, peer: Peer, position: int) -> Json:
        """The fields `lag`, `backlog` (octets that wait to be written) and, while it joins, `catchup`."""
        known = epoch_of(position) == self._engine.epoch
        shown: Json = {"lag": self._history.lag(position, self._env.now()) if known else None}
        shown["backlog"] = peer.link.backlog if peer.link else 0
        if peer.plan is not None:
            shown["catchup"] = catchup(peer)
        return shown


def catchup(peer: Peer) -> Json:
    """Progress of a joining backup.  The remainder is an upper estimate: queues not compared yet count in full, less
    what the backup reported to hold; `remaining` (seconds) is None while nothing is sent."""
    plan = peer.plan
    assert plan is not None
    messages_left, octets_left = plan.remaining()
    rate, message_rate = peer.progress.rates() if peer.progress else (0.0, 0.0)
    remaining = 0.0 if not octets_left else round(octets_left / rate, 1) if rate else None
    return {
        "queues": plan.queues,
        "left": plan.queues_left,
        "messages": plan.messages,
        "messages_left": messages_left,
        "octets": plan.octets,
        "octets_left": octets_left,
        "rate": round(rate),
        "message_rate": round(message_rate),
        "remaining": remaining,
    }


def progress_text(found: Json) -> str:
    """The progress as text for the log."""
    queues = f"{found['queues'] - found['left']} of {found['queues']} queues"
    sent = f"{found['messages']} messages sent, about {found['messages_left']} left"
    rate = f"{found['rate'] / 1e6:.1f} MB/s"
    remaining = "" if found["remaining"] is None else f", {found['remaining']:.0f} s to go"
    return f"{queues}, {sent}, {rate}{remaining}"
