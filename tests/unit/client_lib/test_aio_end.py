"""Loops: the wrong one, a closed one, and programs that end without close()."""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_lib import aio
from client_lib.aio import Message
from tests.support.wait import wait_for
from tests.unit.client_lib.aio_lab import QUICK, Lab, in_loop
from tests.unit.client_lib.scripted_broker import ScriptedBroker

ROOT = Path(__file__).parents[3]


def test_without_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no event loop is running"):
        aio.Connection("localhost")


@in_loop
async def test_another_thread_and_loop_are_refused(lab: Lab) -> None:
    connection = await lab.connect(lab.broker())
    session = await connection.session()
    sender, receiver = await session.sender("q"), await session.receiver("q")
    message = Message("1")
    calls: list[Callable[[], Any]] = [
        lambda: sender.send("1"),
        lambda: sender.sync(),
        lambda: receiver.fetch(),
        lambda: receiver.close(),
        lambda: session.acknowledge(message),
        lambda: session.acknowledge(message, sync=False),
        lambda: session.release(message),
        lambda: session.next_receiver(),
        lambda: session.declare_queue("q"),
        lambda: session.queue_sender("q"),
        lambda: session.queue_receiver("q"),
        lambda: session.close(),
        lambda: connection.session(),
        lambda: connection.open(),
        lambda: connection.close(),
    ]
    errors: list[str] = []

    def elsewhere() -> None:
        for call in calls:
            try:
                asyncio.run(call())
            except RuntimeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join, 10)
    assert len(errors) == len(calls) and all("belongs to another event loop" in error for error in errors)
    await sender.send("1", timeout=30)


def test_after_the_loop_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker()
    kept: list[aio.Connection] = []

    async def first() -> None:
        kept.append(await aio.Connection.establish(broker.url, **QUICK))

    async def second() -> None:
        with pytest.raises(RuntimeError, match="which is closed"):
            await kept[0].session()

    with pytest.warns(ResourceWarning, match="was not closed"):
        asyncio.run(first())
    asyncio.run(second())
    broker.kill()


def test_the_end_of_the_loop_waits_for_confirms() -> None:
    broker = ScriptedBroker()

    async def program() -> None:
        connection = await aio.Connection.establish(broker.url, **QUICK)
        sender = await (await connection.session()).sender("q")
        await sender.send("1", sync=False)

    with pytest.warns(ResourceWarning, match="was not closed"):
        asyncio.run(program())
    assert [body for _, _, body, _ in broker.store.queues["q"]] == [b"1"]
    broker.kill()


def test_the_end_of_the_loop_says_what_is_in_doubt(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_lib.aio.connection.EXIT_CLOSE", 0.1)
    broker = ScriptedBroker()
    broker.confirm = "hold"

    async def program() -> None:
        connection = await aio.Connection.establish(broker.url, **QUICK)
        sender = await (await connection.session()).sender("q")
        for _ in range(3):
            await sender.send("1", sync=False)

    with pytest.warns(ResourceWarning, match="was not closed"):
        asyncio.run(program())
    assert "closed with 3 messages in doubt" in caplog.text
    broker.kill()


def test_an_interrupted_program_closes_what_it_opened(caplog: pytest.LogCaptureFixture) -> None:
    """Ctrl-C cancels the main task; `async with` closes politely."""
    broker = ScriptedBroker()

    async def program() -> None:
        async with aio.Connection(broker.url, **QUICK) as connection:
            sender = await (await connection.session()).sender("q")
            await sender.send("1", sync=False)
            raise KeyboardInterrupt

    with warnings.catch_warnings(), pytest.raises(KeyboardInterrupt):
        warnings.simplefilter("error")
        asyncio.run(program())
    assert [body for _, _, body, _ in broker.store.queues["q"]] == [b"1"]
    assert "Connection.Close" in broker.store.methods("b")
    broker.kill()


FORGETFUL = """
import asyncio, logging, sys
from client_lib import aio
logging.basicConfig(format="%(levelname)s %(message)s")

async def program():
    connection = await aio.Connection.establish(sys.argv[1], heartbeat=1)
    sender = await (await connection.session()).sender("q")
    await sender.send("1", sync=False)
    await sender.send("2", sync=False)

loop = asyncio.new_event_loop()
loop.run_until_complete(program())
loop.close()
"""


def test_a_loop_that_is_closed_without_a_word() -> None:
    """What remains is interpreter exit, which says how many messages are in doubt."""
    broker = ScriptedBroker()
    broker.confirm = "hold"
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, broker.url], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0 and "ERROR" in done.stderr
    assert "never closed; 2 messages are in doubt" in done.stderr and "Traceback" not in done.stderr
    broker.kill()


FORKING = """
import asyncio, os, sys
from client_lib import aio

async def program():
    async with aio.Connection(sys.argv[1], heartbeat=1) as connection:
        session = await connection.session()
        sender = session.queue_sender("q", on_settled=lambda *_: print(os.getpid() == parent))
        await sender.send("1", sync=False)
        child = os.fork()
        if not child:
            try:
                sender.raise_failure()
            except aio.ConnectionClosed as error:
                os.write(1, f"child: {error}\\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
        await sender.send("2", timeout=30)
        print("failovers:", connection.failovers)

parent = os.getpid()
asyncio.run(program())
"""


def test_a_forked_child_leaves_the_connection_to_its_parent() -> None:
    broker = ScriptedBroker()
    done = subprocess.run(
        [sys.executable, "-c", FORKING, broker.url], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == "" and done.stdout.splitlines() == [
        "child: the connection belongs to the parent process",
        "True",
        "True",
        "failovers: 0",
    ]
    assert [body for _, _, body, _ in broker.store.queues["q"]] == [b"1", b"2"]
    broker.kill()


def test_a_closed_connection_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """No task, no timer, no socket, no thread: the loop has nothing to complain about, even in debug mode."""
    broker = ScriptedBroker()
    caplog.set_level(logging.DEBUG, "asyncio")

    async def program() -> None:
        asyncio.get_running_loop().slow_callback_duration = 60.0  # that of a busy machine is none of ours
        async with await aio.Connection.establish(broker.url, **QUICK) as connection:
            session = await connection.session()
            await (await session.sender("q")).send("1")
            fetch = asyncio.create_task((await session.receiver("q")).fetch())
            assert (await fetch).body == b"1"
        assert asyncio.all_tasks() == {asyncio.current_task()}
        loop = asyncio.get_running_loop()
        assert not list(loop._asyncgens)  # type: ignore[attr-defined]
        assert not [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]

    threads = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(program(), debug=True)
        gc.collect()
    ours = [record for record in caplog.records if record.thread == threading.get_ident()]
    assert not [record for record in ours if record.levelno >= logging.WARNING]
    broker.kill()
    wait_for(lambda: threading.active_count() <= threads + 1)


@in_loop
async def test_a_defect_in_a_callback_costs_the_connection_only(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    connection = await lab.connect(lab.broker())
    session = await connection.session()
    sender = await session.sender("q")
    connection.link.post(lambda: 1 // 0)  # type: ignore[arg-type]
    await sender.send("1", sync=False)
    await sender.sync(30)
    assert connection.failovers == 1 and "ZeroDivisionError" in caplog.text
