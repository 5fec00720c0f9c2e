"""One connection in each of the three APIs behind the same few calls, for tests of what they have in common."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika

from client_lib import Connection, FailoverConnection, Message, aio
from tests.unit.client_lib.scripted_broker import ScriptedBroker, Store

QUICK: dict[str, Any] = {
    "reconnect_interval_min": 0.005,
    "reconnect_interval_max": 0.05,
    "connect_timeout": 10.0,
    "connect_overlap": 2.0,  # as in aio_lab.py
    "heartbeat": 5,
}
PATIENCE = 20.0
"""Seconds for a call that must end."""


class Threaded:
    """`publish` waits for the confirm; `post` does not.  `number` names the session or channel."""

    def __init__(self, urls: list[str], **options: Any) -> None:
        self.connection: Any = Connection(urls, **{**QUICK, **options}).open(PATIENCE)
        self._sessions: dict[int, Any] = {}
        self._senders: dict[Any, Any] = {}

    def session(self, number: int) -> Any:
        if number not in self._sessions:
            self._sessions[number] = self.connection.session()
        return self._sessions[number]

    def _sender(self, number: int, key: str, exchange: str, mandatory: bool) -> Any:
        found = self._senders.get((number, key, exchange, mandatory))
        if found is None:
            found = self.session(number).queue_sender(key, exchange, 1000, mandatory)
            self._senders[number, key, exchange, mandatory] = found
        return found

    def publish(
        self,
        key: str,
        body: Any = b"",
        headers: Any = None,
        number: int = 0,
        exchange: str = "",
        mandatory: bool = False,
    ) -> None:
        self._sender(number, key, exchange, mandatory).send(Message(body, properties=headers), timeout=PATIENCE)

    def post(self, key: str, body: Any = b"", number: int = 0, mandatory: bool = False) -> None:
        self._sender(number, key, "", mandatory).send(Message(body), sync=False, timeout=PATIENCE)

    def declare(self, queue: str, arguments: Any = None, number: int = 0) -> None:
        self.session(number).declare_queue(queue, arguments=arguments, timeout=PATIENCE)

    def consume(self, queue: str, arguments: Any = None, number: int = 0) -> None:
        self.session(number).queue_receiver(queue, arguments=arguments, timeout=PATIENCE)

    def get(self, queue: str, number: int = 0) -> None:
        self.session(number).get(queue, timeout=PATIENCE)

    def sync(self, number: int = 0) -> None:
        self.session(number).sync(PATIENCE)

    def begin(self, number: int) -> None:
        """Session `number` is transactional."""
        self._sessions[number] = self.connection.session(transactional=True)

    def commit(self, number: int) -> None:
        self.session(number).commit(PATIENCE)

    def roll_back(self, number: int) -> None:
        self.session(number).rollback(PATIENCE)

    def close_session(self, number: int = 0) -> Any:
        return self.session(number).close()

    def close(self, **arguments: Any) -> Any:
        return self.connection.close(**arguments)

    def leave(self, error: BaseException | None = None) -> None:
        """The end of `with`."""
        self.connection.__exit__(type(error) if error else None, error, None)

    @property
    def failovers(self) -> int:
        return int(self.connection.failovers)

    def end(self) -> None:
        try:
            self.connection.close(0.2)
        except Exception:  # what the test has seen already
            pass


class Asyncio(Threaded):
    def __init__(self, urls: list[str], **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def make() -> Any:
            return await aio.Connection(urls, **{**QUICK, **options}).open(PATIENCE)

        self.inner = self.run(make())
        self.connection = _Awaited(self, self.inner)
        self._sessions = {}
        self._senders = {}

    def run(self, awaitable: Any) -> Any:
        async def whole() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(whole(), self._loop).result(PATIENCE + 10)

    def leave(self, error: BaseException | None = None) -> None:
        self.run(self.inner.__aexit__(type(error) if error else None, error, None))

    def end(self) -> None:
        super().end()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


class _Awaited:
    """An object of the asyncio API whose methods wait."""

    def __init__(self, style: Asyncio, inner: Any) -> None:
        self._style, self._inner = style, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._waiting(found) if callable(found) else found

    def _waiting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            async def made() -> Any:
                answer = method(*arguments, **named)
                return await answer if asyncio.iscoroutine(answer) else answer

            found = self._style.run(made())
            return _Awaited(self._style, found) if type(found).__module__.startswith("client_lib.aio") else found

        return call


class PikaStyle(Threaded):
    def __init__(self, urls: list[str], **options: Any) -> None:
        self.connection = FailoverConnection(
            urls, open_timeout=PATIENCE, publish_timeout=PATIENCE, **{**QUICK, **options}
        )
        self._sessions = {}

    def session(self, number: int) -> Any:
        if number not in self._sessions:
            self._sessions[number] = self.connection.channel()
        return self._sessions[number]

    def publish(
        self,
        key: str,
        body: Any = b"",
        headers: Any = None,
        number: int = 0,
        exchange: str = "",
        mandatory: bool = False,
    ) -> None:
        properties = pika.BasicProperties(headers=headers)
        self.session(number).basic_publish(exchange, key, body, properties, mandatory)

    def post(self, key: str, body: Any = b"", number: int = 0, mandatory: bool = False) -> None:
        self.session(number).basic_publish("", key, body, None, mandatory)  # with publish_window

    def declare(self, queue: str, arguments: Any = None, number: int = 0) -> None:
        self.session(number).queue_declare(queue, arguments=arguments)

    def consume(self, queue: str, arguments: Any = None, number: int = 0) -> None:
        self.session(number).basic_consume(queue, lambda *_: None, arguments=arguments)

    def get(self, queue: str, number: int = 0) -> None:
        self.session(number).basic_get(queue)

    def sync(self, number: int = 0) -> None:
        self.session(number).wait_for_confirms(PATIENCE)

    def begin(self, number: int) -> None:
        self.session(number).tx_select()

    def commit(self, number: int) -> None:
        self.session(number).tx_commit()

    def roll_back(self, number: int) -> None:
        self.session(number).tx_rollback()

    def close(self, **arguments: Any) -> Any:
        return self.connection.close()

    def end(self) -> None:
        try:
            self.connection.close()
        except Exception:
            pass


STYLES: list[Any] = [Threaded, Asyncio, PikaStyle]
Open = Callable[..., Any]


@contextmanager
def opened(store: Store | None = None) -> Iterator[tuple[ScriptedBroker, Open]]:
    """A broker, and a function that connects a style to it; all is closed at the end."""
    broker = ScriptedBroker(store)
    styles: list[Any] = []

    def connect(style: Any, **options: Any) -> Any:
        styles.append(style([broker.url], **options))
        return styles[-1]

    try:
        yield broker, connect
    finally:
        for style in styles:
            style.end()
        broker.kill()
