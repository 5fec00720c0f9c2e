"""The pika style API: `FailoverConnection`, which fails over under a program written for pika.BlockingConnection.

connection     FailoverConnection: channels, events, timers
channel        FailoverChannel: publishing and transactions; consuming: callbacks, generator, settling; topology
core           the session below a channel, and how a channel ends
publisher, consumer, content    the library's sender and receiver, with messages in pika's form
inbox (timers, events for the application's thread), tags (delivery tags over fail-overs), parameters, errors
"""

from client_lib.failover.channel import FailoverChannel
from client_lib.failover.connection import Failover, FailoverConnection

__all__ = ["Failover", "FailoverChannel", "FailoverConnection"]
