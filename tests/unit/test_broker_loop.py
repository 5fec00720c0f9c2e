"""The core's wait as that of asyncio: what each has to do is done in time, and asyncio is not run for nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.core import Engine
from qpidd_py.core.reactor import Reactor
from qpidd_py.server.loop import LIMIT, BrokerLoop, TurnSelector
from tests.support.memory import PROTOCOL_HEADER, RecordingOwner, method_octets

METHOD = method_octets(commands.Basic.Qos())


class Owner(RecordingOwner):
    """Calls `heard` for each method."""

    heard: Callable[[], None]

    def method(self, channel: int, payload: bytes) -> None:
        self.heard()

    def closed(self, reason: str) -> None:
        pass


class Lab:
    """A reactor with one connection, and a loop that waits in it."""

    def __init__(self) -> None:
        self.turns = TurnSelector()
        self.engine = Engine()
        self.reactor = Reactor(self.engine)
        self.selected = 0
        self.failed: list[BaseException] = []

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        self.loop = BrokerLoop(self.turns)
        inner = self.turns.select

        def select(timeout: float | None = None) -> Any:
            self.selected += 1
            return inner(timeout)

        self.turns.select = select  # type: ignore[method-assign]
        self.turns.serve(self.reactor, self.guard)
        self.engine.schedule = self.schedule
        try:
            self.loop.run_until_complete(asyncio.wait_for(main, 20))
        finally:
            self.loop.close()

    def schedule(self) -> None:
        self.loop.call_soon(self.engine.end_turn)

    def guard(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.failed.append(error)

    def connect(self) -> tuple[socket.socket, Owner]:
        """The client's end, and the broker's owner of the other one."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        owner = Owner(self.engine)
        owner.connection.feed(PROTOCOL_HEADER)
        owner.connection.open_channel(1)
        self.reactor.add(owner.connection, ours)
        return theirs, owner


def test_timers_calls_and_descriptors_of_asyncio_come_in_time() -> None:
    lab = Lab()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await asyncio.sleep(0.05)
        assert 0.05 <= loop.time() - begin < 2
        await asyncio.to_thread(time.sleep, 0.01)
        reader, writer = await asyncio.open_connection(sock=_echo())
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        done = loop.create_future()
        loop.add_signal_handler(signal.SIGUSR2, done.set_result, None)
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        await done
        loop.remove_signal_handler(signal.SIGUSR2)

    lab.run(main())
    assert not lab.failed


def _echo() -> socket.socket:
    ours, theirs = socket.socketpair()

    def serve() -> None:
        theirs.sendall(theirs.recv(100))
        theirs.close()

    threading.Thread(target=serve).start()
    return ours


def test_turns_of_the_core_do_not_run_asyncio() -> None:
    lab = Lab()
    turns = 200

    async def main() -> None:
        theirs, owner = lab.connect()
        done = asyncio.get_running_loop().create_future()
        heard: list[None] = []

        def answer() -> None:
            heard.append(None)
            if len(heard) == turns:
                done.set_result(None)

        owner.heard = answer

        def talk() -> None:
            for _ in range(turns):
                before = len(heard)
                theirs.sendall(METHOD)
                while len(heard) == before and not done.done():
                    time.sleep(0.0005)

        thread = threading.Thread(target=talk)
        thread.start()
        await done
        thread.join()
        theirs.close()

    lab.run(main())
    assert not lab.failed
    assert lab.reactor.turns >= turns and lab.selected < 20


def test_what_a_turn_calls_soon_or_later_is_called() -> None:
    lab = Lab()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        theirs, owner = lab.connect()
        for seconds in (None, 0.02):
            done = loop.create_future()

            def answer(done: Any = done, seconds: float | None = seconds) -> None:
                if seconds is None:
                    loop.call_soon(done.set_result, None)
                else:
                    loop.call_later(seconds, done.set_result, None)

            owner.heard = answer
            theirs.sendall(METHOD)
            await done  # no timer of others ends the wait
        theirs.close()

    lab.run(main())
    assert not lab.failed


def test_a_failure_of_a_turn_goes_to_the_guard() -> None:
    lab = Lab()

    async def main() -> None:
        theirs, owner = lab.connect()

        def answer() -> None:
            raise RuntimeError("broken")

        owner.heard = answer
        theirs.sendall(METHOD)
        while not lab.failed:
            await asyncio.sleep(0.01)
        theirs.close()

    lab.run(main())
    assert [str(error) for error in lab.failed] == ["broken"]


def test_late_turns_of_the_core_are_noticed_while_they_go_on_and_after() -> None:
    lab = Lab()
    seen: list[float] = []

    async def main() -> None:
        theirs, owner = lab.connect()

        def answer() -> None:
            time.sleep(LIMIT)
            seen.append(lab.turns.began)
            time.sleep(LIMIT)

        owner.heard = answer
        begun = time.monotonic()
        theirs.sendall(METHOD)
        while not lab.turns.late:
            await asyncio.sleep(0.01)
        assert begun <= seen[0] <= lab.turns.late[0][0] + 1e-6
        theirs.close()

    lab.run(main())
    assert lab.turns.late[0][1] >= 2 * LIMIT
    bits = int(2 * LIMIT * 1e6).bit_length()
    assert sum(lab.reactor.durations[bits:]) == 1 and lab.reactor.busy >= 2 * LIMIT * 1e9


@pytest.mark.parametrize(
    ("took", "bits"), [(0, 0), (999, 0), (1000, 1), (1999, 1), (2000, 2), (1_000_000, 10), (2**63, 31)]
)
def test_turns_are_counted_by_their_time(took: int, bits: int) -> None:
    reactor = Reactor(Engine())
    reactor.count(took)
    assert reactor.durations == [int(place == bits) for place in range(32)] and reactor.busy == took


def test_turns_of_asyncio_are_counted_too() -> None:
    lab = Lab()

    async def main() -> None:
        time.sleep(LIMIT)
        await asyncio.sleep(0)

    lab.run(main())
    assert sum(lab.reactor.durations[int(LIMIT * 1e6).bit_length() :]) == 1


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.03])
def test_the_wait_ends_after_its_time(seconds: float) -> None:
    reactor = Reactor(Engine())
    begin = time.monotonic()
    reactor.wait(seconds)
    assert seconds <= time.monotonic() - begin + 1e-6 and not reactor.others and reactor.began == 0


def test_others_that_are_ready_end_it() -> None:
    reactor = Reactor(Engine())
    one, other = socket.socketpair()
    reactor.watch(one.fileno())
    other.send(b"x")
    reactor.wait(-1.0)
    assert reactor.others
    one.recv(1)
    reactor.wait(0.01)
    assert not reactor.others
    one.close()
    other.close()
