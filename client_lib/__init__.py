"""A client for AMQP 0-9-1 that fails over, over pika.

    from client_lib import Connection, Message

    with Connection("node1,node2,node3", heartbeat=2) as connection:
        session = connection.session()
        session.declare_queue("orders", durable=True)
        sender = session.sender("orders")
        sender.send(Message(b"one"))
        receiver = session.receiver("orders", drop_duplicates=True)
        message = receiver.fetch(timeout=5)
        session.acknowledge(message)

`client_lib.session` says what survives a fail-over and what may arrive twice.
"""

from client_lib import errors
from client_lib.connection import Connection
from client_lib.core.ledger import ACCEPTED, REJECTED, RELEASED, Disposition
from client_lib.core.subscription import UNLIMITED
from client_lib.dedup import DuplicateFilter
from client_lib.errors import *  # noqa: F403
from client_lib.failover import Failover, FailoverChannel, FailoverConnection
from client_lib.message import Message
from client_lib.options import Options
from client_lib.session import Receiver, Sender, Session

__all__ = [  # noqa: PLE0604
    "ACCEPTED",
    "REJECTED",
    "RELEASED",
    "UNLIMITED",
    "Connection",
    "Disposition",
    "DuplicateFilter",
    "Failover",
    "FailoverChannel",
    "FailoverConnection",
    "Message",
    "Options",
    "Receiver",
    "Sender",
    "Session",
    *errors.__all__,
]
