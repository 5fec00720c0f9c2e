"""The asyncio API against real brokers: processes that are killed, paused and restarted."""

import asyncio
import functools
import time
from collections.abc import Callable

import pytest

from client_lib import Message, aio
from demo.cluster import Cluster
from ha.qpid_cluster.main import settled
from tests.support.process import BrokerProcess
from tests.unit.client_lib.aio_lab import until


def in_loop(test):
    """Runs a test that is a coroutine function."""

    @functools.wraps(test)
    def run(**fixtures) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 120))

    return run


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.down()


class Load:
    """Tasks that send and receive on one queue; remembers what was confirmed and what was fetched, and how."""

    def __init__(self) -> None:
        self.confirmed: list[str] = []
        self.errors: list[Exception] = []
        self.fetched: list[str] = []
        self.again: set[str] = set()
        """Ids of copies that were re-sent or redelivered."""
        self.stop = False

    def settled(self, _message: Message, message_id: str, error: Exception | None) -> None:
        if error is None:
            self.confirmed.append(message_id)
        else:
            self.errors.append(error)

    async def send(self, sender: aio.Sender) -> None:
        while not self.stop:
            await sender.send(b"x" * 1024, sync=False)
            await asyncio.sleep(0.002)

    async def fetch(self, session: aio.Session, receiver: aio.Receiver) -> None:
        async for message in receiver:
            self.fetched.append(message.id or "")
            if message.resent or message.redelivered:
                self.again.add(message.id or "")
            await session.acknowledge(message, sync=False)

    async def run_on(self, count: int = 500) -> None:
        goal = len(self.confirmed) + count
        await until(lambda: len(self.confirmed) >= goal, 30, lambda: f"{len(self.confirmed)} of {goal} confirms")

    def judge(self) -> None:
        """Everything confirmed was fetched; in order; what came twice said so."""
        assert not self.errors
        numbers = [int(text.rpartition(":")[2]) for text in self.confirmed]
        assert numbers == sorted(set(numbers))
        assert set(self.fetched) >= set(self.confirmed)
        twice = [message_id for message_id in self.fetched if self.fetched.count(message_id) > 1] if self.again else []
        assert set(twice) <= self.again
        first = list(dict.fromkeys(message_id for message_id in self.fetched if message_id not in self.again))
        assert first == sorted(first, key=lambda text: int(text.rpartition(":")[2]))


async def command(cluster: Cluster, name: str, node: str) -> None:
    await asyncio.to_thread(cluster.command, name, node)


async def fail_over(cluster: Cluster, how: str) -> str:
    old = cluster.primary
    await command(cluster, how, old)
    await until(lambda: cluster.primary not in ("", old), 20, "another primary")
    return old


async def under_load(cluster: Cluster, story: Callable, **options) -> Load:
    """Runs the story next to a sender and a receiver, waits until all has arrived, and judges."""
    load = Load()
    options = {"heartbeat": 1, "connect_timeout": 1.0, **options}
    async with aio.Connection(cluster.addresses(), **options) as connection:
        session = await connection.session()
        await session.declare_queue("load", durable=True)
        sender = session.queue_sender("load", capacity=200, on_settled=load.settled)
        receiver = await session.queue_receiver("load", capacity=100)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(load.send(sender))
            group.create_task(load.fetch(session, receiver))
            await story(load, connection)
            load.stop = True
            await sending
            await sender.sync(20)
            await until(lambda: set(load.fetched) >= set(load.confirmed), 20, "all fetched")
            await session.sync(30)
            await receiver.close()
        assert await connection.close() == []
    load.judge()
    return load


@pytest.mark.slow  # tests/faults kills under this style, tests/integration/test_client_lib.py twice under the other
@in_loop
async def test_kill_and_return_twice(cluster) -> None:
    async def story(load: Load, connection: aio.Connection) -> None:
        for _ in range(2):
            await load.run_on()
            await fail_over(cluster, "kill")
            await load.run_on()
            await until(lambda: settled(cluster.status()), 30, lambda: f"settled: {cluster.status()}")
        assert connection.failovers >= 2

    load = await under_load(cluster, story)
    assert len(load.confirmed) >= 2000


@in_loop
async def test_pause_of_the_primary(cluster) -> None:
    outages = []

    def note(event) -> None:
        if event["kind"] == "connected" and "outage_us" in event.get("attrs", {}):
            outages.append(int(event["attrs"]["outage_us"]))

    async def story(load: Load, connection: aio.Connection) -> None:
        await load.run_on()
        old = await fail_over(cluster, "pause")
        await load.run_on()
        await command(cluster, "start", old)
        await until(lambda: settled(cluster.status()), 30, lambda: f"settled: {cluster.status()}")

    await under_load(cluster, story, on_event=note)
    assert outages and max(outages) < 20_000_000


@in_loop
async def test_synchronous_sends_of_many_tasks_over_a_kill(cluster) -> None:
    """Each task sends one message after the other and waits for each confirm: all arrive, each task's in its order."""
    async with aio.Connection(cluster.addresses(), heartbeat=1, connect_timeout=1.0) as connection:
        session = await connection.session()
        await session.declare_queue("many", durable=True)
        sender = session.queue_sender("many")
        done = [0] * 20

        async def produce(task: int) -> None:
            for number in range(100):
                await sender.send(f"{task} {number}", timeout=30)
                done[task] += 1
                await asyncio.sleep(0.001)

        async with asyncio.TaskGroup() as group:
            for task in range(20):
                group.create_task(produce(task))
            await until(lambda: sum(done) >= 500, 20)
            await fail_over(cluster, "kill")
        receiver = await session.queue_receiver("many", capacity=500, drop_duplicates=True)
        got: dict[str, list[int]] = {}
        for _ in range(2000):
            message = await receiver.fetch(30)
            name, number = message.body.decode().split()
            got.setdefault(name, []).append(int(number))
            await session.acknowledge(message, sync=False)
        assert all(numbers == list(range(100)) for numbers in got.values()) and len(got) == 20
        assert connection.failovers >= 1


@in_loop
async def test_a_broker_that_returns_on_its_port(tmp_path) -> None:
    with BrokerProcess(tmp_path) as broker:
        async with aio.Connection(broker.address, heartbeat=1) as connection:
            session = await connection.session()
            await session.declare_queue("q", durable=True)
            sender = session.queue_sender("q")
            await sender.send("before", timeout=30)
            broker.kill()
            message_id = await sender.send("after", sync=False)
            assert sender.unsettled() == 1
            await asyncio.to_thread(broker.start)
            await sender.sync(20)
            receiver = await session.queue_receiver("q")
            while (message := await receiver.fetch(30)).id != message_id:
                await session.acknowledge(message)
            await session.acknowledge(message)


@in_loop
async def test_an_address_over_a_fail_over(cluster) -> None:
    async with aio.Connection(cluster.addresses(), heartbeat=1) as connection:
        session = await connection.session()
        sender = await session.sender("orders; {create: always, node: {durable: true}}")
        receiver = await session.receiver("orders")
        for number in range(2):
            await sender.send(Message({"number": number}), timeout=30)
            message = await receiver.fetch(30)
            assert message.content == {"number": number}
            await session.acknowledge(message)
            if number == 0:
                await fail_over(cluster, "kill")
        await sender.close()
        await receiver.close()


@in_loop
async def test_close_of_a_connection_to_a_paused_broker(tmp_path) -> None:
    with BrokerProcess(tmp_path) as broker:
        connection = await aio.Connection.establish(broker.address, heartbeat=30)
        sender = (await connection.session()).queue_sender("nowhere")
        broker.pause()
        message = Message("in doubt")
        await sender.send(message, sync=False)
        began = time.monotonic()
        assert await connection.close(0.5) == [message]
        assert time.monotonic() - began < 20
