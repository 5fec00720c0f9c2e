"""Cancelled calls: nothing is swallowed, nothing is lost, nothing hangs."""

import asyncio
import random
import time

import pytest

from client_lib import aio
from client_lib.aio import ConnectionClosed, Empty, InDoubt, LinkClosed, Message, Rejected, Timeout
from client_lib.delivery import Delivery
from tests.unit.client_lib.aio_lab import QUICK, Lab, in_loop, until


async def ready(lab: Lab, capacity: int = 1000) -> tuple[aio.Session, aio.Sender, aio.Receiver]:
    session = await (await lab.connect(lab.broker())).session()
    return session, await session.sender("q", capacity=capacity), await session.receiver("q")


@in_loop
async def test_a_cancelled_fetch_swallows_nothing(lab: Lab) -> None:
    """Cancelled before the message comes, in the turn in which it comes, and after it was woken for it."""
    session, sender, receiver = await ready(lab)
    rng, got, cancelled = random.Random(1), [], 0
    for number in range(200):
        fetches = [asyncio.create_task(receiver.fetch()) for _ in range(3)]
        await asyncio.sleep(0)
        await sender.send(str(number), sync=number % 2 == 0)
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        for task in fetches:
            cancelled += task.cancel()
        answers = await asyncio.gather(*fetches, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Message):
                got.append(int(answer.body))
                await session.acknowledge(answer, sync=False)
    caught = len(got)
    with pytest.raises(Empty):
        while True:
            message = await receiver.fetch(0.3)
            got.append(int(message.body))
            await session.acknowledge(message, sync=False)
    assert sorted(got) == list(range(200))
    assert cancelled >= 400 and 0 < caught < 200, "the cancellations must hit both sides"


@in_loop
async def test_the_next_in_line_gets_what_a_cancelled_fetch_was_woken_for(lab: Lab) -> None:
    _session, _sender, receiver = await ready(lab)
    first, second = asyncio.create_task(receiver.fetch()), asyncio.create_task(receiver.fetch())
    await asyncio.sleep(0)
    message = Message("1")
    message._delivery = Delivery(receiver, -1, 0)
    receiver.arrived(message)
    first.cancel()
    assert await asyncio.wait_for(second, 60) is message
    assert first.cancelled()


@in_loop
async def test_fetch_within_asyncio_timeout(lab: Lab) -> None:
    _session, sender, receiver = await ready(lab)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await receiver.fetch()
    await sender.send("1")
    async with asyncio.timeout(60):
        assert (await receiver.fetch()).body == b"1"


@in_loop
async def test_a_cancelled_send_that_waited_for_room_has_sent_nothing(lab: Lab) -> None:
    _session, sender, receiver = await ready(lab, capacity=1)
    lab.brokers[0].confirm = "hold"
    await sender.send("1", sync=False)
    for sync in (True, False):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await sender.send("2", sync=sync)
    assert sender.unsettled() == 1
    lab.brokers[0].confirm = "ack"
    lab.brokers[0].drop()
    await sender.send("3")
    assert [(await receiver.fetch(30)).body for _ in range(3)] == [b"1", b"1", b"3"]  # the broker had kept the first
    assert receiver.available() == 0


@in_loop
async def test_a_cancelled_send_that_waited_for_the_confirm_leaves_the_message_in_doubt(lab: Lab) -> None:
    _session, sender, _receiver = await ready(lab)
    lab.brokers[0].confirm = "hold"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await sender.send("1")
    assert sender.unsettled() == 1
    with pytest.raises(InDoubt):
        await sender.sync(0.02)
    lab.brokers[0].confirm = "ack"
    lab.brokers[0].drop()
    await sender.sync(30)


@in_loop
async def test_what_became_of_a_cancelled_send_is_said_by_the_next_call(lab: Lab) -> None:
    _session, sender, _receiver = await ready(lab)
    lab.brokers[0].confirm = "nack"
    message = Message("1")
    task = asyncio.create_task(sender.send(message))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(Rejected) as rejected:
        await sender.sync(30)
    assert rejected.value.message is message and task.cancelled()
    await sender.sync(30)


@in_loop
async def test_cancelled_sends_in_a_crowd(lab: Lab) -> None:
    """Of many tasks at a small window some are cancelled: each message is sent once or not at all, none waits for
    ever, and those that were not cancelled are sent."""
    _session, sender, _receiver = await ready(lab, capacity=4)
    rng = random.Random(2)
    tasks = [asyncio.create_task(sender.send(str(number))) for number in range(400)]
    cancelled = set()
    while not all(task.done() for task in tasks):
        number = rng.randrange(len(tasks))
        if tasks[number].cancel():
            cancelled.add(number)
        await asyncio.sleep(rng.choice([0, 0, 0.001]))
    await sender.sync(30)
    sent = [int(body) for _, _, body, _ in lab.store.queues["q"]] + [
        int(stored[2]) for _, _, stored in lab.brokers[0].peers[-1].unacked.values()
    ]
    assert len(sent) == len(set(sent)) and set(range(400)) - cancelled <= set(sent)
    assert cancelled


@in_loop
async def test_a_cancelled_open_goes_on_and_close_ends_it(lab: Lab) -> None:
    connection = aio.Connection(lab.broker("hang").url, **QUICK)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connection.open()
    await until(lambda: lab.brokers[0].accepted == 1)
    lab.brokers[0].mode = "normal"
    await connection.open(30)
    await connection.close()


@in_loop
async def test_what_establish_opened_and_could_not_hand_over_is_closed(lab: Lab) -> None:
    broker = lab.broker("refuse")
    before = len(asyncio.all_tasks())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await aio.Connection.establish(broker.url, **QUICK)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), aio.Connection(broker.url, **QUICK):
            pass
    await asyncio.sleep(0.1)
    accepted = broker.accepted
    await asyncio.sleep(0.2)
    assert broker.accepted == accepted, "it goes on connecting"
    assert len(asyncio.all_tasks()) == before


@in_loop
async def test_a_cancelled_close_closes_at_once_and_says_what_is_in_doubt(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    session, sender, _receiver = await ready(lab)
    lab.brokers[0].confirm = "hold"
    await sender.send("1", sync=False)
    connection = session.connection
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connection.close(60)
    assert "closed with 1 messages in doubt" in caplog.text
    with pytest.raises(ConnectionClosed):
        await sender.send("2")
    assert await connection.close(5) == []
    assert time.monotonic() - began < 20
    await until(lambda: lab.brokers[0].peers[-1].gone)


@in_loop
async def test_a_cancelled_close_of_a_session_closes_its_channel(lab: Lab) -> None:
    session, sender, _receiver = await ready(lab)
    lab.brokers[0].confirm = "hold"
    closed = lab.store.methods("b0").count("Channel.Close")
    await sender.send("1", sync=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.close(20)
    await until(lambda: lab.store.methods("b0").count("Channel.Close") > closed)


@in_loop
async def test_a_cancelled_close_of_a_sender_does_not_wait_for_the_broker(lab: Lab) -> None:
    """The confirm does not come, and neither would the answer to the deletion."""
    broker = lab.broker()
    session = await (await lab.connect(broker, heartbeat=60)).session()
    sender = await session.sender("q; {create: always, delete: always}")
    broker.stop_answering()
    await sender.send("1", sync=False)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await sender.close()
    assert time.monotonic() - began < 20
    with pytest.raises(LinkClosed):
        await sender.send("2")


@in_loop
async def test_a_cancelled_subscription_is_withdrawn(lab: Lab) -> None:
    broker = lab.broker()
    session = await (await lab.connect(broker)).session()
    broker.stop_answering()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.queue_receiver("q")
    with pytest.raises(Timeout):
        await session.queue_receiver("q", timeout=0.05)
    broker.mode = "normal"
    broker.drop()
    receiver = await session.queue_receiver("other")
    assert lab.store.methods("b0").count("Basic.Consume") <= 2
    assert [queue for _, queue, _ in broker.peers[-1].consumers.values()] == ["other"]
    await receiver.close()


@in_loop
async def test_close_of_a_receiver_wakes_all_who_fetch(lab: Lab) -> None:
    _session, _sender, receiver = await ready(lab)
    tasks = [asyncio.create_task(receiver.fetch()) for _ in range(5)]
    await asyncio.sleep(0)
    await receiver.close()
    answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert [type(answer) for answer in answers] == [LinkClosed] * 5
