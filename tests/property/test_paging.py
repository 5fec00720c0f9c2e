"""Messages that leave memory at random moments change nothing: the same history with and without a page file.

What is wanted is read at once in them: what waits for a disk comes later than what happens meanwhile, such as a dead
letter, or a message that a limit drops.  `PagedMachine` lets it wait.

Each history runs in two worlds, with tiny segments: queues with priorities, times to live, limits and dead letters;
transactions; requeues; backups that join, apply and take over.  After each step both have delivered and confirmed the
same in the same order, and count the same."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from pamqp.commands import Basic

from qpidd_py.core import Catchup, Engine, Route
from tests.property.test_core_model import EngineMachine
from tests.support.memory import MemoryClient, confirms, deliveries
from tests.support.paged import ALL, MemoryPages
from tests.support.slow import few

NAMES = ("plain", "priority", "limited", "timed", "refusing", "local")
STEPS = 120


class World:
    """A primary and its backup; `paged`: with page files."""

    def __init__(self, seed: int, paged: bool) -> None:
        self.whims = Random(seed) if paged else None
        """What leaves memory when: of this world only."""
        self.hard = paged and seed % 2 == 0
        """All leaves memory in each step."""
        self.pages: list[MemoryPages] = []
        self.now, self.epoch = 1_000_000, 1
        self.engine, self.backup = self.make(), self.make()
        self.engine.begin_epoch(1)
        self.backup.passive = True
        self.lead()

    def make(self) -> Engine:
        engine = Engine(lambda position, payload: None, segment_size=2048)
        engine.pool.sparse, engine.sweep_most, engine.now = 4096, 20, self.now
        for number, name in enumerate(NAMES, 1):
            queue = engine.create_queue(number, name, name != "local")
            if name == "priority":
                queue.add_levels(2)
        queues = list(engine.queues.values())
        plain, _, limited, timed, refusing, _ = queues
        limited.max_count, timed.ttl = 12, 500
        refusing.max_bytes, refusing.rejects = 9000, True
        to = Route([timed])
        for queue in (plain, limited):
            queue.dead_letter = lambda reason, exchange, key, header, body: (to, exchange, key, header)
        if self.whims is not None:
            self.pages.append(MemoryPages(engine, instant=True))
        return engine

    def lead(self) -> None:
        """Clients connect."""
        self.wanted = False
        self.engine.schedule = self.want
        self.engine.on_batch = lambda batch: self.backup.apply(bytes(batch))
        self.queues = list(self.engine.queues.values())
        by_name = dict(zip(NAMES, self.queues, strict=True))
        self.clients = [MemoryClient(self.engine, **by_name) for _ in NAMES]
        self.publisher = MemoryClient(self.engine, **by_name)
        self.publisher.owner.routes[b"several"] = self.queues[:3]
        self.publisher.channel.confirm_select()
        self.transaction = MemoryClient(self.engine, **by_name)
        self.transaction.channel.tx_select()
        self.open: list[list[int]] = [[] for _ in NAMES]
        self.sent = 0

    def want(self) -> None:
        self.wanted = True

    def settle(self) -> list[Any]:
        """Turns until nothing is left to do; what the clients got."""
        got: list[list[Any]] = [[] for _ in range(len(NAMES) + 1)]
        for _ in range(10_000):
            self.wanted = False
            for seen, client in zip(got, [*self.clients, self.publisher], strict=True):
                seen += client.turn()
            for pages in self.pages:
                assert self.whims is not None
                pages.at_random(self.whims)
                self.wanted = pages.arrive() or self.wanted
            if not self.wanted:
                break
        else:
            raise AssertionError("it does not end")
        taken = [deliveries(frames) for frames in got[:-1]]
        for tags, found in zip(self.open, taken, strict=True):
            tags += [tag for tag, _, _ in found]
        confirmed = max((tag for tag, _ in confirms(got[-1])), default=0)
        return [taken, confirmed, self.counts(self.engine), self.counts(self.backup)]

    @staticmethod
    def counts(engine: Engine) -> list[tuple[int, ...]]:
        for queue in engine.queues.values():
            queue.check()
        return [(q.ready, q.unacked, q.bytes, q.ready_bytes, q.enqueued, q.dequeued) for q in engine.queues.values()]

    def content(self) -> list[Any]:
        """But for the ids: with more turns there are more operations."""
        return [
            [[message[1:] for message in queue.peek(1 << 20)] for queue in engine.queues.values()]
            for engine in (self.engine, self.backup)
        ]

    # ---- what happens -----------------------------------------------------------------------------------------------

    def publish(self, client: MemoryClient, rng: Random) -> None:
        self.sent += 1
        properties: dict[str, Any] = {"delivery_mode": rng.choice((1, 2)), "priority": rng.randrange(4)}
        if rng.random() < 0.2:
            properties["expiration"] = str(rng.choice((0, 100, 1000)))
        body = b"%d:" % self.sent + b"x" * rng.choice((0, 50, 300, 900, 5000))
        client.publish(body, rng.choice((*NAMES, "plain", "plain", "several")), **properties)

    def do(self, rng: Random) -> None:
        at = rng.randrange(len(NAMES))
        names = ("publish", "publish", "publish", "transact", "consume", "cancel", "get", "answer", "answer", "answer")
        rare = ("purge", "move", "wait", "wait", "tick", "safe", "safe", "demote", "take_over", "join")
        getattr(self, f"_{rng.choice(names if rng.random() < 0.85 else rare)}")(at, rng)
        for pages in self.pages[-2:] if self.hard else ():
            pages.everything()

    def _publish(self, at: int, rng: Random) -> None:
        for _ in range(rng.randrange(1, 12)):
            self.publish(self.publisher, rng)

    def _transact(self, at: int, rng: Random) -> None:
        for _ in range(rng.randrange(1, 5)):
            self.publish(self.transaction, rng)
        self.transaction.channel.tx_commit()

    def _consume(self, at: int, rng: Random) -> None:
        channel, prefetch, no_ack = self.clients[at].channel, rng.choice((0, 1, 7)), rng.random() < 0.1
        if not channel.consumers:
            channel.consume(self.queues[at], "c", no_ack, prefetch)

    def _cancel(self, at: int, rng: Random) -> None:
        if self.clients[at].channel.consumers:
            self.clients[at].channel.cancel("c")

    def _get(self, at: int, rng: Random) -> None:
        self.clients[at].channel.get(self.queues[at], False)

    def _answer(self, at: int, rng: Random) -> None:
        tags = self.open[at]
        if not tags or any(consumer.no_ack for consumer in self.clients[at].channel.consumers.values()):
            return
        tag, how = rng.choice(tags), rng.randrange(4)
        if how == 0:
            self.open[at] = [other for other in tags if other > tag]
            self.clients[at].send(Basic.Ack(tag, multiple=True))
            return
        tags.remove(tag)
        methods = (Basic.Ack(tag), Basic.Nack(tag, requeue=True), Basic.Reject(tag, requeue=False))
        self.clients[at].send(methods[how - 1])

    def _purge(self, at: int, rng: Random) -> None:
        self.engine.purge(self.queues[at])

    def _move(self, at: int, rng: Random) -> None:
        to = Route([rng.choice(self.queues)])
        self.engine.move(self.queues[at], rng.randrange(1, 9), lambda *_: to)

    def _wait(self, at: int, rng: Random) -> None:
        self.now += rng.choice((1, 50, 200))
        self.engine.now = self.backup.now = self.now

    def _tick(self, at: int, rng: Random) -> None:
        self.engine.tick()
        self.backup.tick()

    def _safe(self, at: int, rng: Random) -> None:
        self.engine.advance_safe(self.engine.flush())

    def _close(self) -> None:
        for client in (*self.clients, self.publisher, self.transaction):
            client.connection.close()
        self.epoch += 1

    def _demote(self, at: int, rng: Random) -> None:
        """It is deposed, and promoted again."""
        self._close()
        self.engine.end_turn()
        self.engine.demote()
        self.engine.begin_epoch(self.epoch)
        self.lead()
        self._join(at, rng)

    def _take_over(self, at: int, rng: Random) -> None:
        """The backup becomes the primary, and the primary its backup."""
        self._close()
        self.engine.end_turn()
        self.engine.demote()
        self.engine, self.backup = self.backup, self.engine
        self.engine.passive, self.backup.passive = False, True
        self.backup.on_batch = self.backup.schedule = None
        self.engine.begin_epoch(self.epoch)
        self.lead()
        self._join(at, rng)

    def _join(self, at: int, rng: Random) -> None:
        """Its backup takes the difference, which may be everything."""
        if rng.random() < 0.5:
            self.backup = self.make()
            self.backup.passive = True
        cut = self.engine.flush()
        replicated = [queue for queue in self.engine.queues.values() if queue.replicated]
        work = [Catchup(queue, self.backup.queues[queue.number].held(), cut) for queue in replicated]
        for each in work:
            self.backup.drop(each.queue.number, each.drops())
        self.backup.set_position(cut)
        for each in work:
            while records := each.slice(rng.choice((1, 700, 1 << 20))):
                self.backup.apply_slice(records)
                for pages in self.pages:
                    assert self.whims is not None
                    pages.at_random(self.whims)
            self.backup.merge(each.queue.number)


def differs(seed: int) -> str:
    """Where the two worlds go apart in this history; empty if nowhere."""
    worlds = World(seed, False), World(seed, True)
    for step in range(STEPS):
        for world in worlds:
            world.do(Random(f"{seed} {step}"))
        plain, paged = (world.settle() for world in worlds)
        if plain != paged:
            return f"step {step}: {plain} and with a page file {paged}"
        if step % 20 == 19 and worlds[0].content() != worlds[1].content():
            return f"step {step}: other content"
    return ""


class PagedMachine(EngineMachine):
    """The same with what is wanted from the page file coming late, or in another order."""

    @initialize(buries=st.booleans())
    def start(self, buries: bool) -> None:
        super().start(buries)
        self.pages = MemoryPages(self.engine)
        self.backup_pages = MemoryPages(self.backup, instant=True)

    @rule(number=st.sampled_from([1, ALL]))
    def arrive(self, number: int) -> None:
        self.pages.arrive(number)

    @rule(young=st.integers(0, 2))
    def leave(self, young: int) -> None:
        self.pages.out(ALL, young)
        self.backup_pages.everything()

    @rule(number=st.sampled_from([1, ALL]))
    def written(self, number: int) -> None:
        self.pages.written(number)

    @rule()
    def everything(self) -> None:
        self.pages.everything()


PagedMachine.TestCase.settings = settings(max_examples=few(60), stateful_step_count=50, deadline=None)
TestPagedEngineAgainstModel = PagedMachine.TestCase


@pytest.mark.parametrize("seed", range(few(300)))
def test_a_history_is_the_same_with_and_without_a_page_file(seed: int) -> None:
    assert not differs(seed)
