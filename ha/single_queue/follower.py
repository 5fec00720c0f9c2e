"""Keeps a local queue equal to the queue of the same name on another broker or cluster.

    SEARCHING ──link open──▶ GREETING ──following──▶ COPYING ──merge──▶ FOLLOWING
        ▲ ▲                                              │                  │ stop, or the queue is gone at the source
        │ └─────────── the link is lost, try the next address ──────────────┤
        └──────────── refused: a backup, it names the primary               └──▶ ENDED

The conversation uses frames of the replication protocol (`protocol.py`), but the log is never sent: the source compares
the follower's content with its queue repeatedly, and sends the difference.  `>` is from the follower:

    > CONTROL follow      version, queue, who I am
    < CONTROL following   who I am, my lineage (epoch -> leader): which broker assigned the ids
    > HELD                the ids that I hold, after dropping those that name other messages there
    < DROP, SLICE..., MERGE     one pass: ids to drop, missing messages, put in order
    > CREDIT              for each SLICE and each MERGE
    < CONTROL refused     why; with `final` the follower must not try again
    HEARTBEAT             both ways

The copies keep the ids of the source, so after a broken connection only the difference is sent: the follower needs no
state but the queue itself.  While it follows, other clients may not publish to the queue or consume from it
(`reserved`), because their ids would not fit.  When it ends, the local log continues after the copies' ids.

A follower never counts for confirms.  Invariant: after each MERGE, content = content of the source at some moment.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Protocol

from ha.dial import Dial
from ha.model.difference import normalise, of_epochs
from ha.model.environment import Answer, Json, Link
from ha.model.protocol import REPLICA, VERSION, Kind, decode_control, decode_drop, encode_control, encode_held, need
from ha.model.pulse import Pulse
from ha.shell.core_link import LinkOwner
from qpidd_py.core import Engine, Queue, decode_ids, encode_ids
from qpidd_py.errors import LinkError
from qpidd_py.option_values import addresses

FIRST_DELAY: Final = 0.05
"""Seconds before the addresses are tried again."""

_PRIMARY = re.compile(r"the primary is ([^\s;,]+:\d+)")
"""Finds the primary's address in the refusal of a backup."""
_RECORD = struct.Struct("<IBBHQI")
"""Size, operation, flags, number of queues, position, queue: the head of an enqueue to one queue (`batch.pyx`)."""
_ENQUEUE, _RETURNED = 1, 7


class FollowStep(Enum):
    """Step of the replication of a queue; the values are shown to people."""

    SEARCHING = "searching"
    GREETING = "greeting"
    COPYING = "copying"
    FOLLOWING = "following"
    ENDED = "ended"


@dataclass(frozen=True)
class Source:
    """The location of the original: HOST:PORT of one broker, or of all members of a cluster."""

    addresses: tuple[str, ...]
    dial: Dial

    @classmethod
    def parse(cls, url: str, dial: Dial) -> Source:
        """Parse `[amqp:][user/password@][ssl:]host[:port],[ssl:]host[:port]...`; the login of `dial` is used if the
        text has none.  Raises ValueError."""
        credentials, at, rest = url.removeprefix("amqp://").removeprefix("amqp:").rpartition("@")
        if at:
            user, _, password = credentials.partition("/")
            dial = replace(dial, login=dial.login._replace(user=user, password=password))
        found = tuple(str(address) for address in addresses(rest))
        if not found:
            raise ValueError("a comma separated list HOST:PORT,HOST:PORT")
        return cls(found, dial)

    def __str__(self) -> str:
        return ",".join(self.addresses)


class Port(Protocol):
    """What a follower needs from its environment."""

    def now(self) -> float: ...

    def after(self, delay: float, call: Callable[[], None]) -> None: ...

    def connect(
        self,
        owner: LinkOwner,
        address: str,
        dial: Dial,
        properties: Mapping[str, object],
        timeout: float,
        done: Callable[[Link | Answer], None],
    ) -> None: ...

    def log(self, level: str, text: str) -> None: ...


class Replica:
    """One followed queue.  It is the owner of its links (`core_link.LinkOwner`)."""

    def __init__(
        self,
        port: Port,
        engine: Engine,
        queue: Queue,
        source: Source,
        name: str,
        heartbeat: float,
        maintenance: float,
        ended: Callable[[Replica], None],
    ) -> None:
        """`heartbeat`, `maintenance`: seconds, as for links between brokers.  `ended` is called when the replication
        has ended for any reason, which is in `reason`."""
        self.queue, self.source = queue, source
        self.step = FollowStep.SEARCHING
        self.reason = ""
        self.address = ""
        """Address that we follow, or tried last."""
        self.complaint = ""
        """Why the last attempt failed; empty after a success."""
        self.first: Callable[[], None] | None = None
        """Called once, with the result of the first round over all addresses."""
        self._port, self._engine, self._name = port, engine, name
        self._heartbeat, self._maintenance = heartbeat, maintenance
        self._ended = ended
        self._link: Link | None = None
        self._pulse = Pulse(0.0, 0.0)
        self._lineage: dict[int, str] = {}
        self._highest = 0
        self._attempt = 0
        self._next = 0
        self._hint = ""
        self._hinted = False
        self._delay = FIRST_DELAY

    # ---- begin and end --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._search()
        self._tick()

    def stop(self) -> None:
        """End the replication; the messages stay."""
        self._end("stopped")

    def shown(self) -> Json:
        """For `ha.replicate`."""
        shown: Json = {"queue": self.queue.name, "broker": str(self.source), "state": self.step.value}
        shown.update(address=self.address, messages=self.queue.ready + self.queue.unacked)
        if self.complaint:
            shown["error"] = self.complaint
        return shown

    def _end(self, reason: str) -> None:
        if self.step is FollowStep.ENDED:
            return
        self._drop_link()
        self.step, self.reason = FollowStep.ENDED, reason
        if not self.queue.deleted:
            self._engine.merge(self.queue.number)
        if self._highest > self._engine.sequence:
            # Later messages must have higher ids than the copies.
            self._engine.set_position(self._highest)
        self._ended(self)
        self._tell_first()

    def _tell_first(self) -> None:
        first, self.first = self.first, None
        if first is not None:
            first()

    # ---- finding the source ---------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Try the next address, or the one named by a backup."""
        if self.step is not FollowStep.SEARCHING:
            return
        self._attempt += 1
        attempt = self._attempt
        self.address, self._hint = self._hint or self.source.addresses[self._next], ""
        properties = {REPLICA: {"queue": self.queue.name, "name": self._name}}
        limit, dial = 2 * self._heartbeat, self.source.dial
        self._port.connect(self, self.address, dial, properties, limit, lambda end: self._tried(attempt, end))

    def _tried(self, attempt: int, end: Link | Answer) -> None:
        if attempt != self._attempt or self.step is not FollowStep.SEARCHING:
            if not isinstance(end, Answer):
                end.close()
        elif isinstance(end, Answer):
            self._failed(end.error or f"{self.address}: {end.outcome.value}")
        else:
            now = self._port.now()
            self._link, self._pulse = end, Pulse(now, now)
            self.step = FollowStep.GREETING
            follow = encode_control("follow", version=VERSION, queue=self.queue.name, name=self._name)
            self._send(Kind.CONTROL, follow)

    def _failed(self, error: str) -> None:
        """This address failed: try the next one at once; after the last one wait for a growing pause."""
        if error != self.complaint:
            self._port.log("info", f"replica of queue {self.queue.name}: {self.address}: {error}")
        self.complaint = error
        named = _PRIMARY.search(error)
        if named and not self._hinted and named[1] not in self.source.addresses:
            self._hint, self._hinted = named[1], True  # once in a round: two brokers may name each other
            self._port.after(0.0, self._search)
            return
        self._next = (self._next + 1) % len(self.source.addresses)
        delay = 0.0
        if self._next == 0:
            self._hinted = False
            delay, self._delay = self._delay, min(1.5 * self._delay, self._maintenance)
            self._tell_first()
        self._port.after(delay, self._search)

    # ---- the conversation -----------------------------------------------------------------------------------------

    def link_frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        if link is not self._link:
            return
        try:
            self._frame(kind, body)
        except LinkError as error:
            self._lost(str(error))

    def link_batches(self, link: Link, position: int) -> None:
        self._lost("it sends the log")

    def link_closed(self, link: Link, reason: str) -> None:
        if link is self._link:
            self._lost(reason)

    def _frame(self, kind: int, body: bytes) -> None:
        if kind == Kind.CONTROL:
            self._on_control(body)
        elif kind == Kind.HEARTBEAT:
            return
        elif self.step not in (FollowStep.COPYING, FollowStep.FOLLOWING):
            raise LinkError(f"frame of kind {kind} in step {self.step.value}")
        elif self.queue.deleted:
            self._end("the queue was deleted here")
        else:
            self._apply(kind, body)

    def _apply(self, kind: int, body: bytes) -> None:
        number = self.queue.number
        if kind == Kind.DROP:
            self._engine.drop(number, decode_drop(body)[1])
            return
        if kind == Kind.SLICE:
            records, highest = renumbered(body, number)
            self._engine.apply_slice(records)
            self._highest = max(self._highest, highest)
        elif kind == Kind.MERGE:
            self._engine.merge(number)
            self._equal()
        else:
            raise LinkError(f"frame of kind {kind}")
        self._send(Kind.CREDIT, b"")

    def _equal(self) -> None:
        if self.step is FollowStep.COPYING:
            self.step = FollowStep.FOLLOWING
            self._port.log("info", f"queue {self.queue.name} is equal to that of {self.address}")

    def _on_control(self, body: bytes) -> None:
        op, fields = decode_control(body)
        if op == "following" and self.step is FollowStep.GREETING:
            self._following(fields)
        elif op == "refused" and fields.get("final"):
            self._end(str(fields.get("reason")))
        elif op == "refused":
            raise LinkError(str(fields.get("reason")))
        else:
            raise LinkError(f"control {op} in step {self.step.value}")

    def _following(self, fields: Json) -> None:
        theirs = {int(epoch): str(leader) for epoch, leader in need(fields, "lineage", list)}
        self.step, self._delay, self.complaint = FollowStep.COPYING, FIRST_DELAY, ""
        self._port.log("notice", f"queue {self.queue.name} follows {fields.get('name')} at {self.address}")
        number = self.queue.number
        self._engine.merge(number)
        foreign = {epoch for epoch, leader in self._lineage.items() if theirs.get(epoch, leader) != leader}
        ids = of_epochs(normalise(decode_ids(self.queue.held())), foreign)
        if ids:
            self._engine.drop(number, encode_ids(ids))
        self._lineage = theirs
        self._send(Kind.HELD, encode_held(0, 0, self.queue.held()))
        self._tell_first()

    # ---- losing it ------------------------------------------------------------------------------------------------

    def _lost(self, reason: str) -> None:
        if self.step is FollowStep.ENDED:
            return
        if self.step is not FollowStep.GREETING:
            self._port.log("notice", f"queue {self.queue.name}: the link to {self.address} is lost: {reason}")
        self._drop_link()
        self.step = FollowStep.SEARCHING
        self._failed(reason)

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        self._attempt += 1
        if link is not None:
            link.close()

    def _tick(self) -> None:
        """Called four times in each heartbeat interval."""
        if self.step is FollowStep.ENDED:
            return
        if self.queue.deleted:
            self._end("the queue was deleted here")
            return
        self._port.after(self._heartbeat / 4, self._tick)
        link, now = self._link, self._port.now()
        if link is None:
            return
        silence = self._pulse.look(link, now)
        if silence > 2 * self._heartbeat:
            self._lost(f"silent for {silence:.3f} s")
        elif self._pulse.must_speak(link, now, self._heartbeat / 2):
            self._send(Kind.HEARTBEAT, b"")

    def _send(self, kind: int, body: bytes) -> None:
        if self._link is not None:
            self._link.send_frame(kind, 0, body)


def renumbered(records: bytes, number: int) -> tuple[bytes, int]:
    """The records of a slice for our queue, and the highest id among them.  Raises LinkError."""
    data, at, highest = bytearray(records), 0, 0
    while at < len(data):
        if len(data) - at < _RECORD.size:
            raise LinkError(f"slice ends with {len(data) - at} octets of a record")
        size, operation, flags, queues, id, _ = _RECORD.unpack_from(data, at)
        if operation not in (_ENQUEUE, _RETURNED) or queues != 1 or size < _RECORD.size:
            raise LinkError(f"record of operation {operation} for {queues} queues in a slice")
        _RECORD.pack_into(data, at, size, operation, flags, queues, id, number)
        highest = max(highest, id if operation == _ENQUEUE else 0)
        at += size
    return bytes(data), highest
