"""What tests of the asyncio API share: brokers that misbehave, connections that are closed at the end, polling."""

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

from client_lib import aio
from tests.unit.client_lib.scripted_broker import ScriptedBroker, Store

QUICK = {
    "reconnect_interval_min": 0.005,
    "reconnect_interval_max": 0.05,
    "connect_timeout": 10.0,
    "connect_overlap": 2.0,  # no second connection next to the first: `broker.peers[-1]` is the one in use
    "heartbeat": 20,
}


class Lab:
    """Brokers that share a store, and connections that are closed at the end."""

    def __init__(self) -> None:
        self.store = Store()
        self.brokers: list[ScriptedBroker] = []
        self.connections: list[aio.Connection] = []
        self.events: list[dict[str, Any]] = []
        self.blamed: list[dict[str, Any]] = []
        """What the loop's exception handler was told."""

    def broker(self, mode: str = "normal") -> ScriptedBroker:
        broker = ScriptedBroker(self.store, f"b{len(self.brokers)}", mode)
        self.brokers.append(broker)
        return broker

    async def connect(self, *brokers: ScriptedBroker, **options: Any) -> aio.Connection:
        on_event: Any = self.events.append
        connection = aio.Connection([b.url for b in brokers], **{**QUICK, "on_event": on_event, **options})
        self.connections.append(connection)
        return await connection.open(timeout=30)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    async def finish(self) -> None:
        for connection in self.connections:
            await connection.close(0.2)
        for broker in self.brokers:
            broker.kill()


Test = Callable[..., Awaitable[None]]


def in_loop(test: Test) -> Callable[..., None]:
    """Runs a test that is a coroutine function, with a Lab as its first argument, in a loop of its own.

    The loop is in debug mode: it refuses calls from other threads.  Nothing may be left for its exception handler."""

    async def whole(*arguments: Any, **named: Any) -> None:
        lab = Lab()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: lab.blamed.append(context))
        try:
            async with asyncio.timeout(120):
                await test(lab, *arguments, **named)
        finally:
            await lab.finish()
        assert lab.blamed == []

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(whole(*arguments, **named), debug=True)

    of_test = inspect.signature(test)
    # else pytest would look for a fixture "lab"
    run.__signature__ = of_test.replace(parameters=list(of_test.parameters.values())[1:])  # type: ignore[attr-defined]
    del run.__wrapped__
    return run


async def until(condition: Callable[[], Any], timeout: float = 60.0, what: str | Callable[[], str] = "") -> None:
    """As tests.support.wait.wait_for, while the loop runs."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            text = what() if callable(what) else what
            raise AssertionError(f"not within {timeout:g} s: {text or getattr(condition, '__name__', 'condition')}")
        await asyncio.sleep(0.005)
