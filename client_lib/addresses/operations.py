"""One method of an address's conversation with the broker, and its answer (pure); see `resolve`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from client_lib.errors import InvalidOption, NotFound, ResolutionError, UnauthorizedAccess

T = TypeVar("T")
MANAGEMENT = "qpid.management"
"""The pseudo queue that identifies a qpidd-py broker and takes management requests."""
NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED, ACCESS_REFUSED = 404, 405, 406, 403


@dataclass(frozen=True)
class Operation:
    """A method of pika's channel, and its arguments."""

    method: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """`reply_code` 0: done; else the code and text with which the broker closed the channel.  `count`: the messages
    that are ready in the queue that was asked for."""

    reply_code: int = 0
    reply_text: str = ""
    count: int = 0


Resolution = Generator[Operation, Answer, T]


def demand_ours(what: str) -> Resolution[None]:
    """Other brokers ignore it silently."""
    answer = yield Operation("queue_declare", {"queue": MANAGEMENT, "passive": True})
    if answer.reply_code:
        reason = f"{answer.reply_code} {answer.reply_text}"
        raise InvalidOption(f"{what}: beyond AMQP 0-9-1; qpidd-py offers it, and this broker does not ({reason})")


def demand(operation: Operation) -> Resolution[None]:
    answer = yield operation
    if answer.reply_code:
        raise error_of(f"{operation.method} {dict(operation.arguments)}", answer)


def error_of(what: str, answer: Answer) -> Exception:
    text = f"{what}: {answer.reply_code} {answer.reply_text}"
    if answer.reply_code == ACCESS_REFUSED:
        return UnauthorizedAccess(answer.reply_code, f"{what}: {answer.reply_text}")
    return (NotFound if answer.reply_code == NOT_FOUND else ResolutionError)(text)
