"""Which lookups in the ACL which method makes; the words are Qpid's, the methods those of AMQP 0-9-1.           Pure.

    exchange.declare    create exchange; passive: access exchange
    exchange.delete     delete exchange
    exchange.bind       bind exchange (the source), and publish exchange (the destination) with every key
    exchange.unbind     unbind exchange (the source)
    queue.declare       create queue; passive: access queue
    queue.delete        delete queue
    queue.bind          bind exchange; unbind: unbind exchange
    queue.purge         purge queue
    basic.consume       consume queue                               (basic.get: the same)
    basic.publish       publish exchange                            (each key of CC and BCC: the same)

`alternate` is the alternate exchange and the one for dead letters; who names both is looked up with each.  The default
exchange is named `amq.default`.  A binding to a topic exchange is looked up with all keys that it takes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pamqp.base import Frame
from pamqp.commands import Basic, Queue
from pamqp.commands import Exchange as ExchangeClass

from qpidd_py.broker.addressing import REPLY_TO
from qpidd_py.broker.arguments import ALTERNATE, DEAD_LETTER_EXCHANGE, DELAYED_TYPE, MAX_BYTES, MAX_LENGTH, OVERFLOW
from qpidd_py.broker.judging import DEFAULT, GENERATED, TOPIC, Channel, named_queue
from qpidd_py.broker.qpid_arguments import canonical
from qpidd_py.broker.routing import MANAGEMENT
from qpidd_py.broker.vhost import VHost
from qpidd_py.security.acl import words
from qpidd_py.security.acl.rules import NO_LIMIT, Lookup
from qpidd_py.security.acl.topics import EVERY_KEY, Pattern

_POLICIES: Final = {
    "drop-head": "ring",
    "reject-publish": "reject",
    "reject-publish-dlx": "reject",
    "self-destruct": "self-destruct",
}
_Properties = dict[str, str | int]


def lookups(channel: Channel, command: Frame) -> Iterator[Lookup]:
    """Of one method; none for those that need no right."""
    found = _LOOKUPS.get(type(command))
    if found is not None:
        yield from found(channel, command)


def of_queue(vhost: VHost, action: str, name: str) -> Iterator[Lookup]:
    """What is done to a queue, which is there or not."""
    queue = vhost.queues.get(name)
    properties: _Properties = {words.NAME: name}
    if queue is not None:
        properties |= _flags(queue.durable, queue.auto_delete, queue.exclusive) | _limits(queue.arguments)
    yield from _allowed((action, words.QUEUE), properties, queue.arguments if queue is not None else {})


def _flags(durable: Any, auto_delete: Any, exclusive: Any = None) -> _Properties:
    values = zip(words.FLAGS, (durable, auto_delete, exclusive), strict=True)
    return {name: "true" if value else "false" for name, value in values if value is not None}


def _limits(arguments: Mapping[str, Any]) -> _Properties:
    """Of a queue; without a limit of its own it is beyond each.  What is none is refused when it is declared."""
    try:
        known = canonical(arguments)
    except (KeyError, TypeError):
        known = {}
    sizes = {words.COUNT: known.get(MAX_LENGTH), words.SIZE: known.get(MAX_BYTES)}
    found: _Properties = {name: _whole(size) for name, size in sizes.items()}
    policy = known.get(OVERFLOW) or ("drop-head" if min(map(_whole, sizes.values())) < NO_LIMIT else "")
    if isinstance(policy, str) and policy in _POLICIES:
        found[words.POLICY] = _POLICIES[policy]
    return found


def _whole(value: Any) -> int:
    limited = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NO_LIMIT
    return value if limited else NO_LIMIT


def _allowed(pair: words.Pair, properties: _Properties, arguments: Mapping[str, Any]) -> Iterator[Lookup]:
    """With each exchange to which messages go on from there, and with the properties that such a lookup has."""
    known = words.PAIRS[pair] | {words.COUNT, words.SIZE} if words.LIMITS[0] in words.PAIRS[pair] else words.PAIRS[pair]
    kept = {name: value for name, value in properties.items() if name in known}
    onward = [arguments.get(name) for name in (ALTERNATE, DEAD_LETTER_EXCHANGE)] if "alternate" in known else []
    targets = dict.fromkeys(target or DEFAULT for target in onward if isinstance(target, str))
    for target in targets:
        yield Lookup(pair, {**kept, "alternate": target})
    if not targets:
        yield Lookup(pair, kept)


def _queue_declare(channel: Channel, command: Any) -> Iterator[Lookup]:
    name, arguments = command.queue or "", command.arguments or {}
    if name.startswith(REPLY_TO) or (command.passive and name == MANAGEMENT):
        return
    if command.passive:
        yield from of_queue(channel.vhost, words.ACCESS, named_queue(channel, command))
        return
    flags = _flags(command.durable, command.auto_delete, command.exclusive)
    properties = {words.NAME: name or GENERATED, **flags, **_limits(arguments)}
    yield from _allowed((words.CREATE, words.QUEUE), properties, arguments)


def _queue_of(action: str) -> Callable[[Channel, Any], Iterator[Lookup]]:
    def found(channel: Channel, command: Any) -> Iterator[Lookup]:
        name = named_queue(channel, command)
        if name not in (MANAGEMENT, REPLY_TO):
            yield from of_queue(channel.vhost, action, name)

    return found


def _binding_of(action: str) -> Callable[[Channel, Any], Iterator[Lookup]]:
    def found(channel: Channel, command: Any) -> Iterator[Lookup]:
        key = command.routing_key if command.queue or command.routing_key else channel.last_queue
        bound = {"queuename": named_queue(channel, command), words.KEY: _key(channel, command.exchange, key)}
        yield Lookup((action, words.EXCHANGE), {words.NAME: command.exchange or DEFAULT, **bound})

    return found


def _key(channel: Channel, exchange: str, key: str) -> str:
    found = channel.vhost.exchanges.get(exchange)
    topics = found is not None and TOPIC in (found.type, found.arguments.get(DELAYED_TYPE))
    return Pattern(key) if topics else key


def _exchange_bind(channel: Channel, command: Any) -> Iterator[Lookup]:
    yield _from_source(channel, command, words.BIND)
    destination = {words.NAME: command.destination or DEFAULT, words.KEY: EVERY_KEY}
    yield Lookup((words.PUBLISH, words.EXCHANGE), destination)


def _exchange_unbind(channel: Channel, command: Any) -> Iterator[Lookup]:
    yield _from_source(channel, command, words.UNBIND)


def _from_source(channel: Channel, command: Any, action: str) -> Lookup:
    key = _key(channel, command.source, command.routing_key)
    return Lookup((action, words.EXCHANGE), {words.NAME: command.source or DEFAULT, words.KEY: key})


def _exchange_declare(channel: Channel, command: Any) -> Iterator[Lookup]:
    if command.passive:
        if command.exchange not in channel.vhost.routing.internal_exchanges:
            yield from _of_exchange(channel.vhost, words.ACCESS, command.exchange)
        return
    properties = {words.NAME: command.exchange, "type": command.exchange_type}
    properties |= _flags(command.durable, command.auto_delete)
    yield from _allowed((words.CREATE, words.EXCHANGE), properties, command.arguments or {})


def _exchange_delete(channel: Channel, command: Any) -> Iterator[Lookup]:
    yield from _of_exchange(channel.vhost, words.DELETE, command.exchange)


def _of_exchange(vhost: VHost, action: str, name: str) -> Iterator[Lookup]:
    exchange = vhost.exchanges.get(name)
    properties: _Properties = {words.NAME: name or DEFAULT}
    if exchange is not None:
        properties |= {"type": exchange.type, **_flags(exchange.durable, exchange.auto_delete)}
    yield from _allowed((action, words.EXCHANGE), properties, exchange.arguments if exchange is not None else {})


_LOOKUPS: Final[Mapping[type[Frame], Callable[[Channel, Any], Iterator[Lookup]]]] = {
    Queue.Declare: _queue_declare,
    Queue.Bind: _binding_of(words.BIND),
    Queue.Unbind: _binding_of(words.UNBIND),
    Queue.Purge: _queue_of(words.PURGE),
    Queue.Delete: _queue_of(words.DELETE),
    ExchangeClass.Declare: _exchange_declare,
    ExchangeClass.Delete: _exchange_delete,
    ExchangeClass.Bind: _exchange_bind,
    ExchangeClass.Unbind: _exchange_unbind,
    Basic.Get: _queue_of(words.CONSUME),
    Basic.Consume: _queue_of(words.CONSUME),
}
