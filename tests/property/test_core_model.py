"""The engine against a model in plain Python: any sequence of client commands, on a primary and on its backups.

After every step: each queue's counters and order, what the client was sent, and a backup that holds exactly what the
primary holds.  A second backup joins in the middle, by difference, while commands go on."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pamqp.commands import Basic

from qpidd_py.core import Catchup, Engine, Queue, Route
from tests.support.memory import MemoryClient, confirms, deliveries
from tests.support.slow import few

NAMES = ("a", "b")


class Joiner:
    """A backup that copies the difference slice by slice."""

    def __init__(self, primary: Engine, queues: list[Queue], backup: Engine) -> None:
        self.engine = backup
        cut = primary.flush()
        self.work = [Catchup(q, backup.queues[q.number].held(), cut) for q in queues]
        for catchup in self.work:
            self.engine.drop(catchup.queue.number, catchup.drops())
        self.engine.set_position(cut)

    def step(self) -> bool:
        """Copies one slice; False when nothing is left."""
        if not self.work:
            return False
        piece = self.work[0].slice(1)
        if piece:
            self.engine.apply_slice(piece)
        elif piece is not None:  # its messages are in memory
            self.engine.merge(self.work.pop(0).queue.number)
        return True


class EngineMachine(RuleBasedStateMachine):
    @initialize(buries=st.booleans())
    def start(self, buries: bool) -> None:
        """With `buries`, what is discarded from queue a goes to queue b."""
        self.buries = buries
        self.engine = Engine(segment_size=8192)
        self.queues = [self.engine.create_queue(n + 1, name, True) for n, name in enumerate(NAMES)]
        self.backup = self.make_backup()
        if buries:
            to = Route([self.queues[1]])
            self.queues[0].dead_letter = lambda reason, exchange, key, header, body: (to, exchange, key, header)
        self.joiner: Joiner | None = None
        self.late: Engine | None = None
        self.engine.on_batch = self.replicate
        self.client = MemoryClient(self.engine, a=self.queues[0], b=self.queues[1])
        self.client.owner.routes[b"both"] = self.queues
        self.client.channel.confirm_select()
        self.sent = 0
        self.confirmed: set[int] = set()
        self.tags: dict[int, bytes] = {}
        self.expected: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.home: dict[int, str] = {}

    def make_backup(self) -> Engine:
        backup = Engine(lambda position, payload: None, segment_size=8192)
        for number, name in enumerate(NAMES):
            backup.create_queue(number + 1, name, True)
        return backup

    def replicate(self, batch: object) -> None:
        self.backup.apply(bytes(batch))  # type: ignore[call-overload]
        if self.late is not None:
            self.late.apply(bytes(batch))  # type: ignore[call-overload]

    def turn(self) -> None:
        frames = self.client.turn()
        for tag, multiple in confirms(frames):
            assert tag <= self.sent
            new = set(range(1, tag + 1)) if multiple else {tag}
            assert new - self.confirmed, "a confirm that says nothing new"
            self.confirmed |= new
        tags = {f.delivery_tag: str(f.consumer_tag) for _, f in frames if isinstance(f, Basic.Deliver)}
        for tag, body, _ in deliveries(frames):
            self.tags[tag] = body
            self.home[tag] = tags[tag][0]
            assert body in self.expected[tags[tag][0]]

    @rule(to=st.sampled_from(["a", "b", "both"]), size=st.sampled_from([0, 1, 100, 3000, 9000]))
    def publish(self, to: str, size: int) -> None:
        self.sent += 1
        body = b"%d:" % self.sent + b"x" * size
        self.client.publish(body, to)
        for name in NAMES if to == "both" else (to,):
            self.expected[name].append(body)

    @rule(name=st.sampled_from(NAMES), prefetch=st.integers(0, 4))
    def consume(self, name: str, prefetch: int) -> None:
        tag = f"{name}{len(self.client.channel.consumers)}"
        if tag not in self.client.channel.consumers and len(self.client.channel.consumers) < 4:
            self.client.channel.consume(self.queues[NAMES.index(name)], tag, False, prefetch)
        self.turn()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.client.channel.consumers:
            self.turn()
            self.client.channel.cancel(data.draw(st.sampled_from(sorted(self.client.channel.consumers))))

    @precondition(lambda self: self.tags)
    @rule(data=st.data(), how=st.sampled_from(["ack", "ack-all", "requeue", "discard"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        tag = data.draw(st.sampled_from(sorted(self.tags)))
        tags = [t for t in self.tags if t <= tag] if how == "ack-all" else [tag]
        method = {
            "ack": Basic.Ack(tag),
            "ack-all": Basic.Ack(tag, multiple=True),
            "requeue": Basic.Nack(tag, requeue=True),
            "discard": Basic.Reject(tag, requeue=False),
        }[how]
        self.client.send(method)
        for t in tags:
            body, name = self.tags.pop(t), self.home.pop(t)
            if how != "requeue":
                self.expected[name].remove(body)
            if how == "discard" and name == "a" and self.buries:
                self.expected["b"].append(body)
        self.turn()

    @rule(source=st.sampled_from(NAMES), to=st.sampled_from(NAMES), limit=st.integers(1, 9))
    def move(self, source: str, to: str, limit: int) -> None:
        self.turn()
        queue, target = (self.queues[NAMES.index(name)] for name in (source, to))
        before = Counter(message[5] for message in queue.peek(1 << 30))
        ready = queue.ready
        assert self.engine.move(queue, limit, lambda *_: Route([target])) == min(limit, ready)
        if source != to:
            for body in (before - Counter(message[5] for message in queue.peek(1 << 30))).elements():
                self.expected[source].remove(body)
                self.expected[to].append(body)

    @rule(name=st.sampled_from(NAMES))
    def purge(self, name: str) -> None:
        self.turn()
        held = [body for tag, body in self.tags.items() if self.home[tag] == name]
        assert self.engine.purge(self.queues[NAMES.index(name)]) == len(self.expected[name]) - len(held)
        self.expected[name] = held

    @rule()
    def end_turn(self) -> None:
        self.turn()

    @rule()
    def compact(self) -> None:
        self.engine.tick()

    @precondition(lambda self: self.late is None)
    @rule(stale=st.booleans())
    def join(self, stale: bool) -> None:
        """A fresh backup joins, or one that holds what the other did a moment ago."""
        late = self.make_backup()
        if stale:
            source = [Catchup(q, b"", self.backup.position) for q in self.backup.queues.values()]
            for catchup in source:
                late.apply_slice(catchup.slice(1 << 30) or b"")
                late.merge(catchup.queue.number)
        self.turn()
        self.joiner = Joiner(self.engine, self.queues, late)
        self.late = late

    @precondition(lambda self: self.joiner is not None)
    @rule()
    def copy(self) -> None:
        assert self.joiner is not None
        if not self.joiner.step():
            self.turn()
            self.compare(self.joiner.engine)
            self.joiner = self.late = None

    @precondition(lambda self: self.sent > len(self.confirmed))
    @rule()
    def safe(self) -> None:
        self.turn()
        self.engine.advance_safe(self.engine.position)
        self.turn()
        assert len(self.confirmed) == self.sent
        assert self.engine.waiting_confirms == 0

    @invariant()
    def counters(self) -> None:
        if not hasattr(self, "queues"):
            return
        for name, queue in zip(NAMES, self.queues, strict=True):
            queue.check()
            assert queue.ready + queue.unacked == len(self.expected[name])
            assert sorted(m[5] for m in queue.peek(1 << 30)) == sorted(self.expected[name])

    def compare(self, backup: Engine) -> None:
        for queue in self.queues:
            copy = backup.queues[queue.number]
            copy.check()
            assert [(m[0], m[5]) for m in copy.peek(1 << 30)] == [(m[0], m[5]) for m in queue.peek(1 << 30)]

    @invariant()
    def backup_equals_primary(self) -> None:
        if hasattr(self, "queues"):
            self.turn()
            self.compare(self.backup)

    def teardown(self) -> None:
        if hasattr(self, "client"):
            self.client.connection.close()
            for queue in self.queues:
                queue.check()


EngineMachine.TestCase.settings = settings(max_examples=few(150), stateful_step_count=50, deadline=None)
TestEngineAgainstModel = EngineMachine.TestCase
