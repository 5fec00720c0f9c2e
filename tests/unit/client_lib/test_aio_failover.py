"""The asyncio API against brokers that misbehave on command: what `test_client_failover` asks of the threaded one."""

import asyncio
import time

import pytest
from pamqp import commands

from client_lib import aio
from client_lib.aio import (
    AuthenticationFailure,
    ConnectError,
    ConnectionClosed,
    Disposition,
    Empty,
    InDoubt,
    InsufficientCapacity,
    LinkClosed,
    Message,
    Rejected,
    Returned,
    ServerError,
    SessionClosed,
    Timeout,
)
from client_lib.aio.sender import BURST
from tests.unit.client_lib.aio_lab import QUICK, Lab, in_loop, until
from tests.unit.client_lib.scripted_broker import ScriptedBroker


@in_loop
async def test_send_and_fetch(lab: Lab) -> None:
    session = await (await lab.connect(lab.broker())).session()
    await session.declare_queue("q")
    sender = await session.sender("q")
    message_id = await sender.send(Message("text", properties={"a": 1}, ttl=60, priority=3), timeout=30)
    assert sender.unsettled() == 0 and sender.available() == sender.capacity == 1000
    receiver = await session.receiver("q")
    message = await receiver.fetch(30)
    assert (message.body, message.id, message.priority, message.ttl) == (b"text", message_id, 3, 60)
    assert message.properties == {"a": 1} and message.durable and not message.resent
    await session.acknowledge(message)
    await session.sync(30)
    assert lab.store.methods("b0").count("Basic.Ack") == 1


@in_loop
async def test_unconfirmed_are_sent_again_in_order_with_the_same_ids(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    first.confirm = "hold"
    session = await (await lab.connect(first, second)).session()
    sender = await session.sender("q", capacity=10)
    ids = [await sender.send(Message(str(n), properties={"n": n}), sync=False) for n in range(10)]
    await until(lambda: len(lab.store.queues.get("q", ())) == 10)
    assert sender.unsettled() == 10 and sender.available() == 0
    lab.store.queues["q"].clear()  # the first broker loses what it had not confirmed
    first.kill()
    await sender.sync(30)
    arrived = list(lab.store.queues["q"])
    assert [properties.message_id for _, properties, _, _ in arrived] == ids
    assert [properties.headers for _, properties, _, _ in arrived] == [{"n": n, "x-resent": True} for n in range(10)]


@in_loop
async def test_refused_by_a_backup_goes_to_the_primary_it_names(lab: Lab) -> None:
    backup, unlisted = lab.broker("refuse"), lab.broker()
    backup.refusal = f"CONNECTION_FORCED - b0 is a backup (ready); the primary is {unlisted.url}"
    began = time.monotonic()
    connection = await lab.connect(backup, reconnect_interval_min=30.0, reconnect_interval_max=60.0)
    assert time.monotonic() - began < 20, "a refusal must cost no pause"
    assert str(connection.address) == unlisted.url


@in_loop
async def test_hung_broker_is_noticed_within_two_heartbeats_while_idle(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection = await lab.connect(first, second, heartbeat=1)
    first.stop_answering()
    began = time.monotonic()
    await until(lambda: connection.is_connected and connection.failovers == 1)
    assert 1.0 < time.monotonic() - began < 20


@in_loop
async def test_a_loop_that_was_blocked_does_not_blame_the_broker(lab: Lab) -> None:
    broker = lab.broker()
    connection = await lab.connect(broker, heartbeat=1)
    session = await connection.session()
    receiver = await session.receiver("q")
    for _ in range(2):
        time.sleep(2.2)
        await asyncio.sleep(0)
    await asyncio.sleep(0.3)
    await (await session.sender("q")).send("1", timeout=30)
    assert (await receiver.fetch(30)).body == b"1"
    assert connection.failovers == 0 and broker.accepted == 1


@in_loop
async def test_a_loop_that_is_blocked_while_connecting_does_not_blame_the_broker(lab: Lab) -> None:
    broker = lab.broker()
    times = {"connect_timeout": 2.0, "connect_overlap": 0.4}
    connection = aio.Connection(broker.url, **{**QUICK, **times, "on_event": lab.events.append})
    lab.connections.append(connection)
    opening = asyncio.create_task(connection.open(30))
    await until(lambda: broker.accepted)
    time.sleep(2.5)
    await opening
    assert not [event for event in lab.events if event.get("result") == "timeout"]


@in_loop
async def test_capacity_blocks(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    sender = await (await (await lab.connect(broker)).session()).sender("q", capacity=2)
    await sender.send("1", sync=False)
    await sender.send("2", sync=False)
    with pytest.raises(InsufficientCapacity):
        await sender.send("3", timeout=0.05, sync=False)
    with pytest.raises(InsufficientCapacity):
        await sender.send("3", timeout=0, sync=False)
    assert sender.unsettled() == 2
    with pytest.raises(InDoubt):
        await sender.sync(0.05)


@in_loop
async def test_many_tasks_share_a_small_window_in_order(lab: Lab) -> None:
    broker = lab.broker()
    session = await (await lab.connect(broker)).session()
    sender = await session.sender("q", capacity=3)
    tasks = [asyncio.create_task(sender.send(str(number), sync=number % 2 == 0)) for number in range(500)]
    await asyncio.gather(*tasks)
    await sender.sync(30)
    assert [body for _, _, body, _ in lab.store.queues["q"]] == [str(number).encode() for number in range(500)]


def confirm(broker: ScriptedBroker, delivery_tag: int) -> None:
    """All messages up to this one."""
    broker.peers[-1].send(1, commands.Basic.Ack(delivery_tag, True))


@in_loop
async def test_who_waits_for_room_is_let_in_when_a_quarter_of_the_window_is_free(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    sender = (await (await lab.connect(broker, heartbeat=30)).session()).queue_sender("q", capacity=8)
    for _ in range(8):
        await sender.send("1", sync=False)
    waiting = [asyncio.create_task(sender.send("2", sync=False)) for _ in range(3)]
    await until(lambda: broker.peers[-1].publishes == 8)
    confirm(broker, 1)
    await until(lambda: sender.unsettled() == 7)
    assert not any(task.done() for task in waiting)
    confirm(broker, 2)
    await until(lambda: waiting[1].done())
    assert [task.done() for task in waiting] == [True, True, False] and sender.unsettled() == 8
    confirm(broker, 10)
    await asyncio.gather(*waiting)


@in_loop
async def test_no_task_overtakes_one_that_waits_for_room(lab: Lab) -> None:
    """Not even in the very turn in which the first was woken and has not run yet."""
    broker = lab.broker()
    broker.confirm = "hold"
    sender = (await (await lab.connect(broker, heartbeat=30)).session()).queue_sender("q", capacity=1)
    await sender.send("1", sync=False)
    await until(lambda: broker.peers[-1].publishes == 1)

    async def newcomer() -> None:
        while not sender._room.going:
            await asyncio.sleep(0)
        await sender.send("3", sync=False)

    waiting = asyncio.create_task(sender.send("2", sync=False))
    late = asyncio.create_task(newcomer())
    await asyncio.sleep(0)
    for tag in (1, 2, 3):
        await until(lambda: broker.peers[-1].publishes == tag)  # noqa: B023
        confirm(broker, tag)
    await asyncio.gather(waiting, late)
    await sender.sync(30)
    assert [body for _, _, body, _ in lab.store.queues["q"]] == [b"1", b"2", b"3"]


@in_loop
async def test_a_place_in_the_window_that_is_not_used_goes_to_the_next(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    connection = await lab.connect(broker)
    sender = await (await connection.session()).sender("q", capacity=1)
    await sender.send("1", sync=False)
    bad = asyncio.create_task(sender.send(Message("2", properties={"a": object()}), sync=False))
    cancelled = asyncio.create_task(sender.send("3", sync=False))
    good = asyncio.create_task(sender.send("4", sync=False))
    await asyncio.sleep(0.05)
    broker.confirm = "ack"
    broker.drop()
    await until(lambda: bad.done())
    cancelled.cancel()
    await asyncio.wait_for(good, 60)
    await sender.sync(30)
    with pytest.raises((TypeError, ValueError, Exception), match="object"):
        await bad
    assert {body for _, _, body, _ in lab.store.queues["q"]} >= {b"1", b"4"}


@in_loop
async def test_a_tight_loop_of_sends_lets_others_run(lab: Lab) -> None:
    """Though there is room for all of them: the loop goes on, messages are written and confirms are read."""
    session = await (await lab.connect(lab.broker())).session()
    sender = session.queue_sender("q", capacity=100_000)
    turns, ended = 0, False

    async def others() -> None:
        nonlocal turns
        while not ended:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    sent = 0
    while sent < 6400 or (sender.unsettled() == sent and sent < 64_000):  # a busy broker has confirmed none yet
        await sender.send(str(sent), sync=False)
        sent += 1
    ended = True
    assert turns >= sent // BURST and sender.unsettled() < sent
    await task
    await sender.sync(20)
    assert [int(body) for _, _, body, _ in lab.store.queues["q"]] == list(range(sent))


@in_loop
async def test_a_tight_loop_of_fetches_lets_others_run(lab: Lab) -> None:
    session = await (await lab.connect(lab.broker())).session()
    sender, receiver = session.queue_sender("q"), await session.queue_receiver("q", capacity=1000)
    for _ in range(640):
        await sender.send("1", sync=False)
    await until(lambda: receiver.available() == 640)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while receiver.available():
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    for _ in range(640):
        await receiver.fetch(0)
    assert turns >= 640 // BURST - 1
    await task


@in_loop
async def test_sync_send_without_confirm_is_in_doubt(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    connection = await lab.connect(broker)
    message = Message("1")
    sender = await (await connection.session()).sender("q")
    with pytest.raises(InDoubt):
        await sender.send(message, timeout=0.05)
    assert await connection.close(0.1) == [message]


@in_loop
async def test_nack_and_return_raise_with_the_message(lab: Lab) -> None:
    broker = lab.broker()
    session = await (await lab.connect(broker)).session()
    broker.confirm = "nack"
    message = Message("1")
    sender = session.queue_sender("q", mandatory=True)
    with pytest.raises(Rejected) as rejected:
        await sender.send(message, timeout=30)
    assert rejected.value.message is message
    broker.confirm, broker.unroutable = "ack", True
    await sender.send(message, sync=False)
    with pytest.raises(Returned) as returned:
        await sender.sync(30)
    assert (returned.value.message, returned.value.reply_code) == (message, 312)
    broker.unroutable = False
    await sender.send(message, timeout=30)


@in_loop
async def test_callback_runs_in_the_loop(lab: Lab) -> None:
    broker = lab.broker()
    outcomes: list[tuple[str, bool]] = []
    tasks: list[asyncio.Task[None]] = []

    def settled(message: Message, message_id: str, error: Exception | None) -> None:
        outcomes.append((message_id, not error))
        tasks.append(asyncio.create_task(asyncio.sleep(0)))  # raises outside of the loop

    sender = await (await (await lab.connect(broker)).session()).sender("q", on_settled=settled)
    one = await sender.send("1", timeout=30)
    broker.confirm = "nack"
    two = await sender.send("2", sync=False)
    await until(lambda: outcomes == [(one, True), (two, False)])
    await sender.sync(30)
    assert len(tasks) == 2


@in_loop
async def test_coroutine_callbacks_are_refused(lab: Lab) -> None:
    async def callback(*arguments: object) -> None: ...

    class Callable:
        async def __call__(self, *arguments: object) -> None: ...

    session = await (await lab.connect(lab.broker())).session()
    for wrong in (callback, Callable()):
        with pytest.raises(TypeError, match="on_settled must be a plain function"):
            await session.sender("q", on_settled=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="on_event must be a plain function"):
            aio.Connection("localhost", on_event=wrong)


@in_loop
async def test_a_callback_that_returns_a_coroutine_is_told_so(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    async def callback() -> None: ...

    session = await (await lab.connect(lab.broker())).session()
    sender = await session.sender("q", on_settled=lambda *_: callback())  # type: ignore[arg-type]
    await sender.send("1", timeout=30)
    await until(lambda: "returned a coroutine" in caplog.text)


@in_loop
async def test_topology_comes_back_in_order(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    session = await (await lab.connect(first, second)).session()
    queue = await session.declare_queue(exclusive=True)
    await session.declare_exchange("x", "fanout")
    await session.bind_queue(queue, "x")
    receiver = await session.queue_receiver(queue)
    first.kill()
    await until(lambda: "Basic.Consume" in lab.store.methods("b1"))
    wanted = ["Queue.Declare", "Exchange.Declare", "Queue.Bind", "Basic.Qos", "Basic.Consume"]
    assert [method for method in lab.store.methods("b1") if method in wanted] == wanted
    await session.queue_sender(queue).send("1", timeout=30)
    assert (await receiver.fetch(30)).body == b"1"


@in_loop
async def test_channel_error_fails_the_session_only(lab: Lab) -> None:
    broker = lab.broker()
    connection = await lab.connect(broker)
    session = await connection.session()
    broker.refuse_declare = lambda queue: (406, "PRECONDITION_FAILED")
    with pytest.raises(ServerError) as failed:
        await session.declare_queue("q")
    assert failed.value.reply_code == 406
    with pytest.raises(ServerError):
        session.queue_sender("q")
    broker.refuse_declare = lambda queue: None
    await (await connection.session()).queue_sender("q").send("1", timeout=30)


@in_loop
async def test_acknowledgements_of_a_lost_connection_are_dropped(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    session = await (await lab.connect(first, second)).session()
    await (await session.sender("q")).send("1", timeout=30)
    receiver = await session.receiver("q")
    message = await receiver.fetch(30)
    first.kill()
    again = await receiver.fetch(30)
    await session.acknowledge(message, sync=False)
    assert again.redelivered and again.id == message.id
    await session.acknowledge(again)
    assert lab.store.methods("b1").count("Basic.Ack") == 1
    assert not lab.store.queues["q"] and not second.peers[-1].unacked


@in_loop
async def test_duplicate_filter_attaches_the_second_copy_to_the_first(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    session = await (await lab.connect(first, second)).session()
    await (await session.sender("q")).send("1", timeout=30)
    receiver = await session.receiver("q", drop_duplicates=True)
    message = await receiver.fetch(30)
    first.kill()
    with pytest.raises(Empty):
        await receiver.fetch(0.3)
    assert second.peers[-1].unacked, "the copy must not be acknowledged before the application has done so"
    await session.acknowledge(message)
    assert not second.peers[-1].unacked


@in_loop
async def test_released_and_rejected(lab: Lab) -> None:
    session = await (await lab.connect(lab.broker())).session()
    sender = await session.sender("q")
    await sender.send("1", timeout=30)
    receiver = await session.receiver("q", drop_duplicates=True)
    session.release(await receiver.fetch(30))
    message = await receiver.fetch(30)
    assert message.redelivered
    await session.acknowledge(message, Disposition.REJECT)
    await sender.send("2", timeout=30)
    session.reject(await receiver.fetch(30))
    await session.sync(30)
    await until(lambda: not lab.brokers[0].peers[-1].unacked and not lab.store.queues["q"])


@in_loop
async def test_next_receiver(lab: Lab) -> None:
    session = await (await lab.connect(lab.broker())).session()
    one, two = await session.receiver("q1"), await session.receiver("q2")
    with pytest.raises(Empty):
        await session.next_receiver(0.02)
    waiting = asyncio.create_task(session.next_receiver())
    await asyncio.sleep(0.02)
    await (await session.sender("q2")).send("2", timeout=30)
    assert await asyncio.wait_for(waiting, 60) is two and two.available() == 1
    assert (await two.fetch(0)).body == b"2"
    await (await session.sender("q1")).send("1", timeout=30)
    assert await session.next_receiver(5) is one
    waiting = asyncio.create_task(session.next_receiver())
    await one.fetch(0)
    await asyncio.sleep(0.02)
    await session.close()
    with pytest.raises(SessionClosed):
        await waiting


@in_loop
async def test_iteration_ends_at_close(lab: Lab) -> None:
    connection = await lab.connect(lab.broker())
    session = await connection.session()
    receivers = [await session.receiver(name) for name in ("q1", "q2", "q3")]
    sender = await session.sender("q1")
    for _ in range(3):
        await sender.send("x", timeout=30)

    taken: list[Message] = []

    async def consume(receiver: aio.Receiver) -> int:
        number = 0
        async for message in receiver:
            taken.append(message)
            number += 1
        return number

    tasks = [asyncio.create_task(consume(receiver)) for receiver in receivers]
    await until(lambda: len(taken) == 3)
    await receivers[0].close()
    assert await asyncio.wait_for(tasks[0], 60) == 3
    with pytest.raises(LinkClosed):
        await receivers[0].fetch()
    await session.close()
    assert await asyncio.wait_for(tasks[1], 60) == await asyncio.wait_for(tasks[2], 60) == 0


@in_loop
async def test_many_tasks_and_many_failovers_lose_nothing(lab: Lab) -> None:
    brokers = [lab.broker() for _ in range(3)]
    connection = await lab.connect(*brokers)
    session = await connection.session()
    sender = await session.sender("q", capacity=50)
    receiver = await session.receiver("q", capacity=20, drop_duplicates=True)
    got: list[str | None] = []

    async def produce() -> None:
        for _ in range(300):
            await sender.send(b"x", timeout=20, sync=False)

    async def consume() -> None:
        async for message in receiver:
            got.append(message.id)
            await session.acknowledge(message, sync=False)

    async with asyncio.TaskGroup() as group:
        consumers = [group.create_task(consume()) for _ in range(3)]
        producers = [group.create_task(produce()) for _ in range(4)]
        for number in range(6):
            await until(lambda: connection.failovers == number and connection.is_connected)  # noqa: B023
            await until(lambda: len(got) >= 150 * number)  # noqa: B023
            next(broker for broker in brokers if broker.url == str(connection.address)).drop()
        await asyncio.gather(*producers)
        await sender.sync(20)
        await until(lambda: len(got) >= 1200, 20)
        await receiver.close()
        await asyncio.gather(*consumers)
    assert len(got) == len(set(got)) == 1200
    assert connection.failovers == 6


@in_loop
async def test_gives_up_at_the_limit(lab: Lab) -> None:
    broker = lab.broker()
    session = await (await lab.connect(broker, reconnect_limit=3)).session()
    broker.confirm = "hold"
    sender = await session.sender("q")
    waiting = asyncio.create_task(sender.send("1"))
    await asyncio.sleep(0.02)
    broker.kill()
    with pytest.raises(ConnectError, match="reconnect_limit"):
        await waiting
    with pytest.raises(ConnectError):
        await sender.sync(30)


@in_loop
async def test_without_reconnect_the_loss_is_final(lab: Lab) -> None:
    broker = lab.broker()
    session = await (await lab.connect(broker, reconnect=False)).session()
    receiver = await session.receiver("q")
    broker.drop()
    with pytest.raises(ConnectError):
        await receiver.fetch(30)


@in_loop
async def test_wrong_password_is_final(lab: Lab) -> None:
    with pytest.raises(AuthenticationFailure):
        await lab.connect(lab.broker("deny"))


@in_loop
async def test_open_times_out_and_close_ends_it(lab: Lab) -> None:
    broker = lab.broker("refuse")
    connection = aio.Connection(broker.url, **QUICK)
    with pytest.raises(Timeout):
        await connection.open(timeout=0.1)
    began = time.monotonic()
    assert await connection.close(60) == []
    assert time.monotonic() - began < 20
    with pytest.raises(ConnectionClosed):
        await connection.session()


@pytest.mark.parametrize("hang", [False, True])
@in_loop
async def test_close_never_hangs(lab: Lab, hang: bool) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    connection = await lab.connect(broker)
    sender = await (await connection.session()).sender("q", capacity=1)
    message = Message("1")
    await sender.send(message, sync=False)
    blocked = [asyncio.create_task(sender.send("2", sync=False)) for _ in range(5)]
    await asyncio.sleep(0.02)
    if hang:
        broker.stop_answering()
    began = time.monotonic()
    both = await asyncio.gather(connection.close(0.3), connection.close(0.3))
    assert both == [[message], []]
    assert time.monotonic() - began < 20
    answers = await asyncio.wait_for(asyncio.gather(*blocked, return_exceptions=True), 60)
    assert [type(answer) for answer in answers] == [ConnectionClosed] * 5
    assert await connection.close() == []


@in_loop
async def test_a_second_close_waits_for_the_first_and_does_not_hurry_it(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    connection = await lab.connect(broker, heartbeat=30)
    await (await connection.session()).queue_sender("q").send("1", sync=False)
    first = asyncio.create_task(connection.close(10))
    await until(lambda: broker.peers[-1].publishes == 1)
    assert await connection.close(0.05) == [] and connection.is_connected and not first.done()
    confirm(broker, 1)
    assert await first == []


@in_loop
async def test_a_value_amqp_cannot_carry_raises_at_the_caller(lab: Lab) -> None:
    sender = await (await (await lab.connect(lab.broker())).session()).sender("q")
    with pytest.raises(Exception, match="object"):
        await sender.send(Message("1", properties={"a": object()}), sync=False)
    assert sender.unsettled() == 0
    await sender.send("1", timeout=30)


@in_loop
async def test_a_large_message(lab: Lab) -> None:
    body = bytes(range(256)) * 2000
    await (await (await (await lab.connect(lab.broker())).session()).sender("q")).send(body, timeout=30)
    assert lab.store.queues["q"][0][2] == body
