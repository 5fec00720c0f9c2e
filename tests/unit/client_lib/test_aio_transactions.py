"""Transactional sessions of the asyncio API; the cases themselves are in `test_client_transactions`."""

import asyncio

import pytest
from pamqp import commands

from client_lib import aio
from client_lib.aio import NontransactionalSession, Returned, TransactionAborted, TransactionUnknown
from tests.unit.client_lib.aio_lab import Lab, in_loop, until


def stored(lab: Lab, queue: str = "q") -> list[bytes]:
    with lab.store.lock:
        return [body for _, _, body, _ in lab.store.queues.get(queue, ())]


async def begun(lab: Lab) -> tuple[aio.Session, aio.Sender]:
    session = await (await lab.connect(lab.broker(), lab.broker())).session(transactional=True)
    return session, session.queue_sender("q", capacity=5)


@in_loop
async def test_many_tasks_send_more_than_the_capacity(lab: Lab) -> None:
    session, sender = await begun(lab)
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(sender.send(str(number)))
    assert stored(lab) == [] and session.unsettled() == 200
    await session.commit(30)
    assert stored(lab) == [str(number).encode() for number in range(200)] and session.unsettled() == 0


@in_loop
async def test_a_send_during_the_commit_belongs_to_the_next(lab: Lab) -> None:
    session, sender = await begun(lab)
    await sender.send("1")
    commit = asyncio.create_task(session.commit(30))
    await asyncio.sleep(0)
    later = [asyncio.create_task(sender.send(str(number))) for number in (2, 3)]
    await commit
    assert stored(lab) == [b"1"]
    await asyncio.wait_for(asyncio.gather(*later), 60)
    await session.commit(30)
    assert stored(lab) == [b"1", b"2", b"3"]


@in_loop
async def test_a_loss_aborts_until_rollback(lab: Lab) -> None:
    session, sender = await begun(lab)
    await sender.send("lost")
    await sender.sync(30)
    lab.brokers[0].kill()
    await until(lambda: session.connection.failovers == 1 and session.connection.is_connected)
    for call in (session.commit, session.sync, session.declare_queue, session.acknowledge, session.next_receiver):
        with pytest.raises(TransactionAborted):
            await call()
    with pytest.raises(TransactionAborted):
        await sender.send("more")
    await session.rollback(30)
    await sender.send("kept")
    await session.commit(30)
    assert stored(lab) == [b"kept"]


@in_loop
async def test_a_waiting_fetch_ends_with_the_transaction(lab: Lab) -> None:
    session, sender = await begun(lab)
    receiver = await session.queue_receiver("in")
    fetch = asyncio.create_task(receiver.fetch())
    await sender.send("1")
    await sender.sync(30)
    lab.brokers[0].kill()
    with pytest.raises(TransactionAborted):
        await asyncio.wait_for(fetch, 60)


@in_loop
async def test_a_loss_during_the_commit_is_unknown_once(lab: Lab) -> None:
    session, sender = await begun(lab)
    await sender.send("1")
    lab.brokers[0].commit = "drop"
    with pytest.raises(TransactionUnknown):
        await session.commit(30)
    await sender.send("2")
    lab.brokers[0].commit = "ok"
    await session.commit(30)
    assert stored(lab) == [b"2"]


@in_loop
async def test_a_cancelled_commit_that_is_not_written_is_withdrawn(lab: Lab) -> None:
    session, sender = await begun(lab)
    await session.declare_queue("there")  # the channel is open
    for peer in lab.brokers[0].peers:
        peer.send(0, commands.Connection.Blocked("memory"))
    await until(lambda: "blocked" in lab.kinds())
    await sender.send("1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.commit()
    for peer in lab.brokers[0].peers:
        peer.send(0, commands.Connection.Unblocked())
    await sender.sync(30)
    await sender.send("2", timeout=30)
    await session.fence(5)
    assert "Tx.Commit" not in lab.store.methods("b0")
    await session.commit(30)
    assert stored(lab) == [b"1", b"2"]


@in_loop
async def test_the_outcome_of_a_cancelled_commit_that_was_written_is_told_later(lab: Lab) -> None:
    session, sender = await begun(lab)
    await sender.send("1")
    lab.brokers[0].commit = "hold"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await session.commit()
    assert "Tx.Commit" in lab.store.methods("b0")
    again = [asyncio.create_task(session.commit(30)) for _ in range(2)]
    await asyncio.sleep(0)
    lab.brokers[0].drop()
    assert [type(answer) for answer in await asyncio.gather(*again, return_exceptions=True)] == [TransactionUnknown] * 2
    await session.rollback(30)


@in_loop
async def test_a_returned_message_is_told_by_the_commit(lab: Lab) -> None:
    session, _ = await begun(lab)
    sender = session.queue_sender("q", mandatory=True)
    lab.brokers[0].unroutable = True
    await sender.send("1")
    with pytest.raises(Returned):
        await session.commit(30)


@in_loop
async def test_not_transactional(lab: Lab) -> None:
    session = await (await lab.connect(lab.broker())).session("plain")
    for call in (session.commit, session.rollback):
        with pytest.raises(NontransactionalSession):
            await call()
    assert await session.connection.session("plain") is session
    with pytest.raises(ValueError, match="not transactional"):
        await session.connection.session("plain", transactional=True)


@in_loop
async def test_a_get_that_is_cancelled_gives_its_message_back(lab: Lab) -> None:
    broker = lab.broker()
    session = await (await lab.connect(broker)).session()
    assert await session.get("q", timeout=30) is None
    await session.queue_sender("q").send("1", timeout=30)
    get = asyncio.create_task(session.get("q"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it is written
    get.cancel()
    await asyncio.wait((get,))
    await session.fence(5)
    await session.sync(30)
    await until(lambda: not any(peer.unacked for peer in broker.peers))
    message = await session.get("q", timeout=30)
    assert message is not None and message.body == b"1"
