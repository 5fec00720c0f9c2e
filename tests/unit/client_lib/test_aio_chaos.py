"""Everything at once: many tasks, cancellations at random moments, brokers that break, drop and step down."""

import asyncio
import random
from collections import Counter

import pytest

from client_lib import aio
from client_lib.aio import Message
from tests.unit.client_lib.aio_lab import Lab, in_loop, until

TASKS, MESSAGES = 8, 60


class Story:
    """What was sent, what the library said about it, and what arrived."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.taken: set[str] = set()
        """Sent for certain: `send` returned."""
        self.perhaps: set[str] = set()
        """Cancelled while they were being sent."""
        self.arrived: Counter[str] = Counter()
        self.plain: Counter[str] = Counter()
        """Copies that do not admit to be a second one."""
        self.cancelled_fetches = 0

    async def produce(self, sender: aio.Sender, name: str) -> None:
        for number in range(MESSAGES):
            message_id = f"{name}:{number}"
            patience = self.rng.choice([None, None, None, 0.0, 0.001, 0.01])
            try:
                async with asyncio.timeout(patience):
                    await sender.send(Message(b"x", id=message_id), sync=self.rng.random() < 0.5)
                self.taken.add(message_id)
            except TimeoutError:
                self.perhaps.add(message_id)

    async def consume(self, session: aio.Session, receiver: aio.Receiver) -> None:
        while True:
            try:
                async with asyncio.timeout(self.rng.choice([None, 0.0, 0.001, 0.02])):
                    message = await receiver.fetch()
            except aio.LinkClosed:
                return
            except TimeoutError:
                self.cancelled_fetches += 1
                await asyncio.sleep(0)
                continue
            assert message.id is not None
            self.arrived[message.id] += 1
            if not (message.resent or message.redelivered):
                self.plain[message.id] += 1
            await session.acknowledge(message, sync=self.rng.random() < 0.05)


@pytest.mark.parametrize("seed", range(4))
@in_loop
async def test_nothing_is_lost_and_nothing_comes_twice_without_saying_so(lab: Lab, seed: int) -> None:
    story, brokers = Story(seed), [lab.broker() for _ in range(3)]
    connection = await lab.connect(*brokers)
    session = await connection.session()
    senders = [session.queue_sender("q", capacity=story.rng.choice([1, 3, 50])) for _ in range(3)]
    receiver = await session.queue_receiver("q", capacity=10)

    async def disturb() -> None:
        while True:
            await asyncio.sleep(story.rng.uniform(0.01, 0.1))
            victim = story.rng.choice(brokers)
            if story.rng.random() < 0.5:
                victim.drop()
            else:
                victim.shut("CONNECTION_FORCED - stepping down; the primary is not known")

    async with asyncio.TaskGroup() as group:
        consumers = [group.create_task(story.consume(session, receiver)) for _ in range(3)]
        trouble = group.create_task(disturb())
        producers = [
            group.create_task(story.produce(story.rng.choice(senders), f"{seed}-{task}")) for task in range(TASKS)
        ]
        await asyncio.gather(*producers)
        await until(lambda: connection.failovers >= 2)
        trouble.cancel()
        for sender in senders:
            await sender.sync(20)
        await until(lambda: story.taken <= story.arrived.keys(), 20)
        await receiver.close()
        await asyncio.gather(*consumers)
    assert story.arrived.keys() <= story.taken | story.perhaps
    assert len(story.taken) + len(story.perhaps) == TASKS * MESSAGES and story.perhaps and story.cancelled_fetches
    assert max(story.plain.values()) == 1
