"""The methods of the classes exchange and queue, as handlers of a channel; called by `methods`."""

from pamqp import commands

from qpidd_py.amqp.codec import make, routing_key_octets
from qpidd_py.broker.access import check_source, refuse
from qpidd_py.broker.addressing import REPLY_TO
from qpidd_py.broker.client_channel import ClientChannel
from qpidd_py.broker.deduplication import check_same
from qpidd_py.broker.routing import MANAGEMENT
from qpidd_py.errors import ReplyCode

Exchange, Queue = commands.Exchange, commands.Queue


def queue_declare(channel: ClientChannel, command: commands.Queue.Declare) -> None:
    if command.passive or (command.queue or "").startswith(REPLY_TO):
        _queue_passive(channel, command)
        return
    name = command.queue or f"amq.gen-{channel.connection.broker.token()}"
    queue, position = channel.vhost.declare_queue(
        channel.connection,
        name,
        bool(command.durable),
        bool(command.exclusive),
        bool(command.auto_delete),
        command.arguments or {},
    )
    channel.last_queue = name
    reply = make(Queue.DeclareOk, queue=name, message_count=queue.core.ready, consumer_count=queue.core.consumer_count)
    channel.reply_when_safe(position, reply, command.nowait)


def _queue_passive(channel: ClientChannel, command: commands.Queue.Declare) -> None:
    name = channel.queue_name(command.queue)
    ready = consumers = position = 0
    if name == REPLY_TO:
        consumers = 1
    elif name != MANAGEMENT:
        queue = channel.vhost.find_queue(name, channel.connection)
        check_same(channel.vhost.called("queue", name), command.arguments or {}, queue.arguments)
        ready, consumers, position = queue.core.ready, queue.core.consumer_count, queue.position
    channel.last_queue = name
    reply = make(Queue.DeclareOk, queue=name, message_count=ready, consumer_count=consumers)
    channel.reply_when_safe(position, reply, command.nowait)


def queue_bind(channel: ClientChannel, command: commands.Queue.Bind) -> None:
    name = channel.queue_name(command.queue)
    check_source(command.exchange)
    queue = channel.find_queue(name)
    key = _binding_key(channel, command.queue, command.routing_key)
    _may_bring(channel, command.exchange)
    position = channel.vhost.bindings.bind(command.exchange, queue, key, command.arguments or {})
    channel.reply_when_safe(position, Queue.BindOk(), command.nowait)


def _may_bring(channel: ClientChannel, source: str) -> None:
    """A binding brings a message where the source keeps its last one: who binds thousands is a publisher."""
    exchange = channel.vhost.exchanges.get(source)
    if exchange is not None and exchange.initial:
        channel.connection.publishes()


def queue_unbind(channel: ClientChannel, command: commands.Queue.Unbind) -> None:
    name = channel.queue_name(command.queue)
    queue = channel.find_queue(name) if name in channel.vhost.queues else None
    key = _binding_key(channel, command.queue, command.routing_key)
    position = channel.vhost.bindings.unbind(command.exchange, queue, key, command.arguments or {})
    channel.reply_when_safe(position, Queue.UnbindOk())


def _binding_key(channel: ClientChannel, queue: str, routing_key: str) -> bytes:
    """When neither a queue nor a key is named, the key is the name of the queue declared last."""
    return routing_key_octets(routing_key if queue or routing_key else channel.last_queue)


def queue_purge(channel: ClientChannel, command: commands.Queue.Purge) -> None:
    queue = channel.vhost.purgeable_queue(channel.connection, channel.queue_name(command.queue))
    count = channel.emptied(queue, "purged")
    if count is not None:
        channel.reply_when_safe(channel.vhost.purged(queue), Queue.PurgeOk(count), command.nowait)


def queue_delete(channel: ClientChannel, command: commands.Queue.Delete) -> None:
    name = channel.queue_name(command.queue)
    if_unused, if_empty = bool(command.if_unused), bool(command.if_empty)
    begun = channel.emptying
    if_unused = if_unused and begun is None  # a consumer that comes between two slices does not keep the queue
    queue = channel.vhost.deletable_queue(channel.connection, name, if_unused, if_empty)
    dropped = 0 if queue is None and begun is None else channel.emptied(queue, "deleted")
    if dropped is None:
        return
    if begun is not None and queue is not begun.queue:
        count, position = 0, channel.vhost.engine.changed  # somebody else has deleted it meanwhile
    else:
        count, position = channel.vhost.delete_queue(channel.connection, name, if_unused, if_empty)
    channel.reply_when_safe(position, Queue.DeleteOk(dropped + count), command.nowait)


def exchange_declare(channel: ClientChannel, command: commands.Exchange.Declare) -> None:
    vhost, name = channel.vhost, command.exchange
    if name == "":
        raise refuse(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")
    if command.passive:
        position = _exchange_passive(channel, command)
    else:
        position = vhost.declare_exchange(
            name,
            command.exchange_type,
            bool(command.durable),
            bool(command.auto_delete),
            bool(command.internal),
            command.arguments or {},
        )
    channel.reply_when_safe(position, Exchange.DeclareOk(), command.nowait)


def _exchange_passive(channel: ClientChannel, command: commands.Exchange.Declare) -> int:
    """The position to wait for."""
    if command.exchange in channel.vhost.routing.internal_exchanges:
        return 0
    exchange = channel.vhost.find_exchange(command.exchange)
    check_same(channel.vhost.called("exchange", exchange.name), command.arguments or {}, exchange.arguments)
    return exchange.position


def exchange_delete(channel: ClientChannel, command: commands.Exchange.Delete) -> None:
    position = channel.vhost.delete_exchange(command.exchange, bool(command.if_unused))
    channel.reply_when_safe(position, Exchange.DeleteOk(), command.nowait)


def exchange_bind(channel: ClientChannel, command: commands.Exchange.Bind) -> None:
    destination = channel.vhost.find_exchange(command.destination)
    key = routing_key_octets(command.routing_key)
    _may_bring(channel, command.source)
    position = channel.vhost.bindings.bind(command.source, destination, key, command.arguments or {})
    channel.reply_when_safe(position, Exchange.BindOk(), command.nowait)


def exchange_unbind(channel: ClientChannel, command: commands.Exchange.Unbind) -> None:
    destination = channel.vhost.exchanges.get(command.destination)
    key = routing_key_octets(command.routing_key)
    position = channel.vhost.bindings.unbind(command.source, destination, key, command.arguments or {})
    channel.reply_when_safe(position, Exchange.UnbindOk(), command.nowait)
