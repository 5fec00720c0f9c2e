"""Which permission which method needs: RabbitMQ's table, the one place where a client's rights are judged.     Pure.

    exchange.declare    configure the exchange; a new one with an alternate exchange: read it, write that
    exchange.delete     configure the exchange
    exchange.bind       write the destination, read the source                (unbind: the same)
    queue.declare       configure the queue; a new one with an exchange for dead letters, or an alternate one: read it,
                        write that
    queue.delete        configure the queue
    queue.bind          write the queue, read the exchange                    (unbind: the same)
    queue.purge         read the queue                                        (basic.get, basic.consume: the same)
    basic.publish       write the exchange

Nothing is needed for a passive declaration, nor for requests to the broker itself, which have a table of their own
(`management`).  The default exchange is named `amq.default` in patterns.  A binding to a topic exchange needs its
routing key to fit the user's pattern for reading there, a publish the one for writing.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from pamqp.base import Frame
from pamqp.commands import Basic, Queue
from pamqp.commands import Exchange as ExchangeClass

from qpidd_py.broker.access import refuse
from qpidd_py.broker.addressing import REPLY_TO
from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.routing import MANAGEMENT
from qpidd_py.broker.vhost import VHost
from qpidd_py.errors import ReplyCode
from qpidd_py.logrules import Floods
from qpidd_py.security.entries import CONFIGURE, READ, WRITE
from qpidd_py.security.refusals import shown
from qpidd_py.security.rights import Access

TOPIC: Final = "topic"
DEFAULT: Final = "amq.default"
GENERATED: Final = f"amq.gen-{'0' * 32}"
"""Stands for a name that the broker chooses."""


class Need(NamedTuple):
    permission: str
    kind: str
    name: str
    topic: str | None = None
    """The routing key of a binding or publish, which matters if the exchange is one of topics."""


class Channel(Protocol):
    """What is asked of the channel."""

    last_queue: str
    vhost: VHost


def needs(channel: Channel, command: Frame) -> Iterator[Need]:
    """Of one method."""
    found = _NEEDS.get(type(command))
    if found is not None:
        yield from found(channel, command)


def lacking(access: Access, need: Need, exchanges: Mapping[str, Exchange]) -> str:
    """What the user may not do, as RabbitMQ says it; empty if it may.  `exchanges`: those that there are."""
    permission, kind, name, key = need
    name = name or DEFAULT
    if not access.may(permission, name):
        return f"access to {kind} '{name}' in vhost '{access.host}' refused for user '{access.user}'"
    found = exchanges.get(name) if key is not None else None
    if key is not None and found is not None and found.type == TOPIC and not access.may_topic(permission, name, key):
        where = f"in exchange '{name}' in vhost '{access.host}'"
        return f"access to topic '{key}' {where} refused for user '{access.user}'"
    return ""


def judge(access: Access, need: Need, exchanges: Mapping[str, Exchange], peer: str, lines: Floods) -> None:
    """Raises 403 for what the user may not do, which is logged."""
    text = lacking(access, need, exchanges)
    if text:
        name = shown(need.name) if need.topic is None else f"{shown(need.name)}, topic {shown(need.topic)}"
        pattern = shown(access.pattern(need.permission))
        refused = "%s from %s has no permission to %s %s %s (pattern %s): 403"
        lines.write(logging.WARNING, refused, shown(access.user), peer, need.permission, need.kind, name, pattern)
        raise refuse(ReplyCode.ACCESS_REFUSED, text)


def _queue(channel: Channel, command: Any) -> str:
    return command.queue or channel.last_queue


def _queue_declare(channel: Channel, command: Any) -> Iterator[Need]:
    if command.passive or (command.queue or "").startswith(REPLY_TO):
        return
    name, arguments = command.queue or GENERATED, command.arguments or {}
    yield Need(CONFIGURE, "queue", name)
    if name not in channel.vhost.queues:
        yield from _onward("queue", name, arguments, "x-dead-letter-exchange", "alternate-exchange")


def _onward(kind: str, name: str, arguments: Mapping[str, Any], *wanted: str) -> Iterator[Need]:
    """Messages go on from here to the exchanges that are named in these arguments."""
    for target in filter(None, (arguments.get(argument) for argument in wanted)):
        if isinstance(target, str):
            yield Need(READ, kind, name)
            yield Need(WRITE, "exchange", target)


def _queue_bind(channel: Channel, command: Any) -> Iterator[Need]:
    yield Need(WRITE, "queue", _queue(channel, command))
    key = command.routing_key if command.queue or command.routing_key else channel.last_queue
    yield Need(READ, "exchange", command.exchange, key)


def _queue_read(channel: Channel, command: Any) -> Iterator[Need]:
    name = _queue(channel, command)
    if name not in (MANAGEMENT, REPLY_TO):
        yield Need(READ, "queue", name)


def _queue_delete(channel: Channel, command: Any) -> Iterator[Need]:
    yield Need(CONFIGURE, "queue", _queue(channel, command))


def _exchange_declare(channel: Channel, command: Any) -> Iterator[Need]:
    if not command.passive:
        yield Need(CONFIGURE, "exchange", command.exchange)
        if command.exchange not in channel.vhost.exchanges:
            yield from _onward("exchange", command.exchange, command.arguments or {}, "alternate-exchange")


def _exchange_delete(channel: Channel, command: Any) -> Iterator[Need]:
    yield Need(CONFIGURE, "exchange", command.exchange)


def _exchange_bind(channel: Channel, command: Any) -> Iterator[Need]:
    yield Need(WRITE, "exchange", command.destination)
    yield Need(READ, "exchange", command.source, command.routing_key)


_NEEDS: Final[Mapping[type[Frame], Callable[[Channel, Any], Iterator[Need]]]] = {
    Queue.Declare: _queue_declare,
    Queue.Bind: _queue_bind,
    Queue.Unbind: _queue_bind,
    Queue.Purge: _queue_read,
    Queue.Delete: _queue_delete,
    ExchangeClass.Declare: _exchange_declare,
    ExchangeClass.Delete: _exchange_delete,
    ExchangeClass.Bind: _exchange_bind,
    ExchangeClass.Unbind: _exchange_bind,
    Basic.Get: _queue_read,
    Basic.Consume: _queue_read,
}
