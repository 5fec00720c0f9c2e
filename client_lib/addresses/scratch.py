"""Runs methods on a spare channel, which the broker may close (shell).

A broker closes the channel of a method that fails.  Queries and declarations for an address must not close the
session's channel, so they run on another channel of the same connection, which is replaced when the broker closes it.
If the connection is lost meanwhile, the session's command starts again on the next one, so every operation here may run
twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from client_lib.addresses.operations import MANAGEMENT, Answer, Operation, Resolution
from client_lib.connecting.transport import ChannelClosed
from client_lib.errors import InvalidOption

T = TypeVar("T")
LOGGER = logging.getLogger("client_lib")
Answered = Callable[[Answer | Exception], None]


class CommandStarter(Protocol):
    """The part of a session that this module uses."""

    def start_command(self, run: Callable[[Any, Callable[[Any], None]], None], what: str) -> Future[Any]: ...


class Scratch:
    """Runs operations one at a time.  I/O thread only."""

    def __init__(self, channel: Any) -> None:
        """`channel`: any open channel of the connection."""
        self._connection = channel.connection
        self._channel: Any = None
        self._answered: Answered | None = None

    def ask(self, operation: Operation, answered: Answered) -> None:
        """`answered` gets the broker's answer, or the exception of arguments that cannot be sent; nothing if the
        connection is lost."""
        self._answered = answered
        if self._channel is not None:
            self._run(operation)
            return
        self._channel = self._connection.channel(on_open_callback=lambda _channel: self._run(operation))
        self._channel.add_on_close_callback(self._closed)

    def close(self) -> None:
        self._answered = None
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def _run(self, operation: Operation) -> None:
        try:
            getattr(self._channel, operation.method)(
                **operation.arguments,
                callback=lambda frame: self._answer(Answer(count=_count(frame))),
            )
        except Exception as error:  # pika could not encode the arguments
            self._answer(error)

    def _closed(self, channel: Any, reason: Exception) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if isinstance(reason, ChannelClosed):
            self._answer(Answer(reason.reply_code, reason.reply_text))

    def _answer(self, answer: Answer | Exception) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


def _count(frame: Any) -> int:
    return int(getattr(getattr(frame, "method", None), "message_count", 0))


def start_resolution(session: CommandStarter, make: Callable[[], Resolution[T]], what: str) -> Future[T]:
    """The plan for an address, or the error; `make` begins a resolution and is called once for each connection.
    `what` names it in errors."""
    result: Future[T] = Future()

    def run(channel: Any, done: Callable[[Any], None]) -> None:
        _Resolver(Scratch(channel), make(), done).step(None)

    _follow(session.start_command(run, what), result)
    return result


def start_count(session: CommandStarter, queue: str) -> Future[int]:
    """How many messages are ready in the queue; 0 if it is not there or may not be asked for."""

    def counting() -> Resolution[int]:
        answer = yield Operation("queue_declare", {"queue": queue, "passive": True})
        return answer.count

    return start_resolution(session, counting, f"queue.declare({queue!r}, passive=True)")


def start_undo(session: CommandStarter, operations: Iterable[Operation]) -> Future[None]:
    """Runs all operations in order; one that fails (its object may be gone already) is logged and skipped."""
    result: Future[None] = Future()
    undo = list(operations)
    command = session.start_command(lambda channel, done: _Undo(Scratch(channel), list(undo), done).step(), f"{undo}")
    _follow(command, result)
    return result


def _follow(command: Future[Any], result: Future[T]) -> None:
    """Passes the command's result or exception on to the future; cancelling either one cancels the other."""

    def finished(command: Future[Any]) -> None:
        if command.cancelled() or not result.set_running_or_notify_cancel():
            return
        answer = command.exception() or command.result()
        if isinstance(answer, BaseException):
            result.set_exception(answer)
        else:
            result.set_result(answer)

    command.add_done_callback(finished)
    result.add_done_callback(lambda _result: command.cancel())


class _Resolver:
    """Drives a resolution; a generator may be resumed only when it waits, and it waits only for `step`."""

    def __init__(self, scratch: Scratch, resolution: Resolution[Any], done: Callable[[Any], None]) -> None:
        self._scratch, self._resolution, self._done = scratch, resolution, done

    def step(self, answer: Answer | Exception | None) -> None:
        try:
            if isinstance(answer, Exception):
                raise InvalidOption(f"AMQP 0-9-1, or pika, cannot carry this: {answer!r}")
            operation = self._resolution.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            self._finish(stop.value)
        except Exception as error:
            self._finish(error)
        else:
            self._scratch.ask(operation, self.step)

    def _finish(self, result: Any) -> None:
        self._scratch.close()
        self._done(result)


class _Undo:
    def __init__(self, scratch: Scratch, operations: list[Operation], done: Callable[[Any], None]) -> None:
        self._scratch, self._operations, self._done = scratch, operations, done

    def step(self, answer: Answer | Exception | None = None) -> None:
        if isinstance(answer, Exception) or (answer is not None and answer.reply_code):
            LOGGER.info("at close: %s", answer)
        if self._operations:
            self._scratch.ask(self._operations.pop(0), self.step)
        else:
            self._scratch.close()
            self._done(None)


def start_request(session: CommandStarter, method: str, body: bytes) -> Future[bytes]:
    """A management request; the body of its answer.  Raises InvalidOption where there is no management."""
    result: Future[bytes] = Future()

    def run(channel: Any, done: Callable[[Any], None]) -> None:
        _Request(channel.connection, method, body, done)

    _follow(session.start_command(run, method), result)
    return result


class _Request:
    """On a channel of its own: consume, publish, and the answer ends it."""

    def __init__(self, connection: Any, method: str, body: bytes, done: Callable[[Any], None]) -> None:
        self._method, self._body, self._done = method, body, done
        self._channel = connection.channel(on_open_callback=self._opened)
        self._channel.add_on_close_callback(self._closed)

    def _opened(self, channel: Any) -> None:
        channel.basic_consume(MANAGEMENT, self._answered, auto_ack=True)
        channel.basic_publish(MANAGEMENT, self._method, self._body)

    def _answered(self, channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
        self._done(body)
        if channel.is_open:
            channel.close()

    def _closed(self, _channel: Any, reason: Exception) -> None:
        if isinstance(reason, ChannelClosed):
            self._done(InvalidOption(f"{self._method}: {reason.reply_code} {reason.reply_text}"))
