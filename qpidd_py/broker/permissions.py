"""Which permission which method needs: RabbitMQ's table, as a system of rights (`judging`).                     Pure.

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

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pamqp.base import Frame
from pamqp.commands import Basic, Queue
from pamqp.commands import Exchange as ExchangeClass

from qpidd_py.broker.addressing import REPLY_TO
from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.judging import DEFAULT, GENERATED, TOPIC, Channel, Refused, named_queue
from qpidd_py.broker.routing import MANAGEMENT
from qpidd_py.security.entries import CONFIGURE, READ, WRITE
from qpidd_py.security.refusals import shown
from qpidd_py.security.rights import Access


class Need(NamedTuple):
    permission: str
    kind: str
    name: str
    topic: str | None = None
    """The routing key of a binding or publish, which matters if the exchange is one of topics."""


class Permissions:
    """Of one client; see `System`."""

    def __init__(self, access: Access, exchanges: Mapping[str, Exchange]) -> None:
        """`exchanges`: those that there are."""
        self._access = access
        self._exchanges = exchanges

    @property
    def silent(self) -> bool:
        return self._access.everything

    @property
    def publishes(self) -> bool:
        return self._access.everything

    def method(self, channel: Channel, command: Frame) -> Refused | None:
        if self._access.everything:
            return None
        return next(filter(None, map(self._refused, needs(channel, command))), None)

    def publish(self, exchange: str, key: str) -> Refused | None:
        return None if self._access.everything else self._refused(Need(WRITE, "exchange", exchange, key))

    def _refused(self, need: Need) -> Refused | None:
        text = lacking(self._access, need, self._exchanges)
        if not text:
            return None
        name = shown(need.name) if need.topic is None else f"{shown(need.name)}, topic {shown(need.topic)}"
        pattern = shown(self._access.pattern(need.permission))
        return Refused(text, f"{need.permission} {need.kind} {name}", f"pattern {pattern}")


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
    yield Need(WRITE, "queue", named_queue(channel, command))
    key = command.routing_key if command.queue or command.routing_key else channel.last_queue
    yield Need(READ, "exchange", command.exchange, key)


def _queue_read(channel: Channel, command: Any) -> Iterator[Need]:
    name = named_queue(channel, command)
    if name not in (MANAGEMENT, REPLY_TO):
        yield Need(READ, "queue", name)


def _queue_delete(channel: Channel, command: Any) -> Iterator[Need]:
    yield Need(CONFIGURE, "queue", named_queue(channel, command))


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
