"""Which function handles which method of a channel: the whole table, except the data path, which is in the core."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx

from qpidd_py.amqp.codec import ids
from qpidd_py.broker import topology
from qpidd_py.broker.client_channel import ClientChannel
from qpidd_py.errors import ConnectionException, ReplyCode

HANDLERS: Final[Mapping[type[Frame], Callable[[ClientChannel, Any], None]]] = {
    Channel.Flow: ClientChannel.flow,
    Channel.FlowOk: ClientChannel.flow_ok,
    Basic.Qos: ClientChannel.qos,
    Basic.Consume: ClientChannel.consume,
    Basic.Cancel: ClientChannel.cancel,
    Basic.CancelOk: ClientChannel.cancel_ok,
    Basic.Get: ClientChannel.get,
    Basic.Recover: ClientChannel.recover,
    Basic.RecoverAsync: ClientChannel.recover_async,
    Confirm.Select: ClientChannel.confirm_select,
    Tx.Select: ClientChannel.tx_select,
    Tx.Commit: ClientChannel.tx_commit,
    Tx.Rollback: ClientChannel.tx_rollback,
    Queue.Declare: topology.queue_declare,
    Queue.Bind: topology.queue_bind,
    Queue.Unbind: topology.queue_unbind,
    Queue.Purge: topology.queue_purge,
    Queue.Delete: topology.queue_delete,
    Exchange.Declare: topology.exchange_declare,
    Exchange.Delete: topology.exchange_delete,
    Exchange.Bind: topology.exchange_bind,
    Exchange.Unbind: topology.exchange_unbind,
}


def handle(channel: ClientChannel, command: Frame) -> None:
    """One method.  Raises `AmqpError`; ids of class and method are added by the caller."""
    handler = HANDLERS.get(type(command))
    if handler is None:
        raise ConnectionException(ReplyCode.COMMAND_INVALID, f"{command.name} on a channel", *ids(command))
    if not channel.connection.judge.silent:
        channel.connection.judge.method(channel, command)
    handler(channel, command)
