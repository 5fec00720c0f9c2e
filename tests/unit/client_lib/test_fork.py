"""In the child after fork(2) everything says that the connection is the parent's, and nothing is processed twice."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_lib import Message
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import Threaded

ROOT = Path(__file__).parents[3]

PROGRAM = """
import asyncio, os, sys, threading, time
from client_lib import Connection, ConnectionClosed, ConnectionError, FailoverConnection, aio

def refused(*calls):
    for call in calls:
        try:
            print("not refused:", call, call())
        except ConnectionError as error:
            assert "parent" in str(error), error

def in_child(*calls):
    child = os.fork()
    if child == 0:
        try:
            refused(*calls)
        except BaseException as error:
            print("child:", repr(error))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""

THREADED = """
with Connection(sys.argv[1], event_log=sys.argv[2]) as connection:
    session = connection.session()
    receiver, sender = session.queue_receiver("q"), session.queue_sender("other")
    first = receiver.fetch(20)
    while receiver.available() < 4:
        time.sleep(0.01)
    connection.link.events._lock.acquire()  # another thread is writing an event
    locked = connection.link.events._lock
    in_child(lambda: receiver.fetch(0), lambda: receiver.poll(0), lambda: session.next_receiver(0),
             lambda: session.acknowledge(first), lambda: sender.send(b""), connection.session, connection.open,
             lambda: session.get("q"), session.fence, session.sync)
    locked.release()
    print([first.body, *(receiver.fetch(20).body for _ in range(4))], connection.failovers)
"""

AIO = """
async def main():
    async with aio.Connection(sys.argv[1], event_log=sys.argv[2]) as connection:
        session = await connection.session()
        receiver = await session.queue_receiver("q")
        first = await receiver.fetch(20)
        while receiver.available() < 4:
            await asyncio.sleep(0.01)
        step = lambda awaitable: awaitable.send(None)
        in_child(lambda: step(receiver.fetch(0)), lambda: step(receiver.poll(0)), lambda: step(session.sync()),
                 lambda: step(session.next_receiver(0)), lambda: step(session.acknowledge(first)),
                 lambda: step(connection.session()))
        print([first.body, *[(await receiver.fetch(20)).body for _ in range(4)]], connection.failovers)
asyncio.run(main())
"""

PIKA = """
connection = FailoverConnection(sys.argv[1], event_log=sys.argv[2])
channel = connection.channel()
bodies = []
channel.basic_consume("q", lambda channel, method, properties, body: bodies.append(body))
while channel._consuming.consumers[channel.consumer_tags[0]].receiver.available() < 5:
    time.sleep(0.01)
connection.inbox._condition.acquire()  # another thread is posting an event
condition = connection.inbox._condition
in_child(connection.process_data_events, connection.channel, lambda: channel.basic_publish("", "q", b""),)
condition.release()
while len(bodies) < 5:
    connection.process_data_events(1)
print(bodies, connection.failovers)
connection.close()
"""


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    broker.kill()


@pytest.mark.parametrize("program", [THREADED, AIO, PIKA])
def test_the_child_gets_nothing_of_the_parents(program: str, broker: ScriptedBroker, tmp_path: Path) -> None:
    style = Threaded([broker.url])
    for number in range(5):
        style._sender(0, "q", "", False).send(Message(str(number).encode()), timeout=20)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(program), broker.url, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == "[b'0', b'1', b'2', b'3', b'4'] 0\n"
    style.end()
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert len(lines) == len(set(lines)) > 0
