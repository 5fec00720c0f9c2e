"""Refusals: what a client may not use, and the exception that says so."""

from collections.abc import Mapping

from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.qpid_arguments import BROWSE_ONLY
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.errors import ChannelException, ReplyCode


def refuse(code: ReplyCode, text: str) -> ChannelException:
    """A channel exception; its class and method are those of the method that is being handled."""
    return ChannelException(code, text)


def find_exchange(exchanges: Mapping[str, Exchange], name: str, host: str) -> Exchange:
    """Raises 404.  `exchanges`: those of the virtual host `host`."""
    exchange = exchanges.get(name)
    if exchange is None:
        raise refuse(ReplyCode.NOT_FOUND, f"no exchange '{name}' in vhost '{host}'")
    return exchange


def check_ours(item: DeclaredQueue | Exchange, what: str, passive: bool) -> None:
    """Raises 403 for a replicated object while this broker is a backup (`passive`)."""
    if passive and item.position:
        raise refuse(ReplyCode.ACCESS_REFUSED, f"{what} is replicated and this broker is a backup")


def check_free(queue: DeclaredQueue) -> None:
    """Raises 403 while a plug-in keeps the queue's messages to itself."""
    if queue.reserved:
        raise refuse(ReplyCode.ACCESS_REFUSED, f"queue '{queue.name}' in vhost '{queue.host}' {queue.reserved}")


def check_consumable(queue: DeclaredQueue) -> None:
    """Raises 403 for a queue whose messages no client may take."""
    if queue.browse_only:
        where = f"queue '{queue.name}' in vhost '{queue.host}'"
        text = f"{where} is for browsing only ('{BROWSE_ONLY}'): use queue.peek"
        raise refuse(ReplyCode.ACCESS_REFUSED, text)


def check_source(name: str) -> None:
    """Raises 403 for the default exchange, which has the bindings that it has."""
    if name == "":
        raise refuse(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")
