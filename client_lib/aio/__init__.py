"""The client that fails over, for asyncio: the names, options, errors and semantics of `client_lib`, awaited.

    import asyncio
    from client_lib import Message, aio

    async def main():
        async with aio.Connection("node1,node2,node3", heartbeat=2) as connection:
            session = await connection.session()
            sender = await session.sender("orders; {create: always}", capacity=1000)
            await sender.send(Message("one"))                        # returns when the broker has it
            for number in range(100_000):
                await sender.send(Message(str(number)), sync=False)  # waits only while 1000 are without a confirm
            await sender.sync()                                      # now the broker has them all

            receiver = await session.receiver("orders", capacity=100)
            async for message in receiver:                           # ends when receiver, session or connection close
                print(message.content)
                await session.acknowledge(message, sync=False)

    asyncio.run(main())

Everything that may wait for the broker is a coroutine; `unsettled()`, `available()` and the attributes are not.
`client_lib.session` says what survives a fail-over and what may arrive twice; the options are those of `client_lib`
(`help(client_lib.Options)`), and so are the errors, which are exported here as well.

**Tasks.**  Sessions, senders and receivers may be shared by many tasks.  Messages are sent in the order of the calls.

    async with asyncio.TaskGroup() as group:
        for order in orders:
            group.create_task(sender.send(order))    # one round trip for many

**Time.**  The error of a call with `timeout=` says what happened: InsufficientCapacity (not taken), InDoubt (taken, and
still sent again after a fail-over), Empty, Timeout.  `asyncio.timeout` and cancelling a task also work and lose
nothing: a cancelled `fetch` has taken no message; a cancelled `send` was not taken (with sync=False always so), or the
message stays with the library, counted in `unsettled()`, and a failure is raised by the next `send` or `sync`; a
cancelled `close` stops waiting for confirms and closes.

    try:
        await sender.send(order, timeout=2)
    except aio.InDoubt:
        ...                                          # not lost: `await sender.sync()` later waits for it

**Callbacks.**  `on_settled(message, message_id, error)` of a sender and `on_event(event)` of a connection are plain
functions, called in the event loop; a coroutine function is refused with TypeError.  They may create tasks.

**One loop.**  A connection belongs to the event loop in which it was made; calls from another loop or thread raise
RuntimeError.  The library starts no tasks and no threads (but one to look a host name up), so a handler that blocks the
loop also stops the library.  The library does not count that time as silence of the broker, but the broker may close a
client that was silent for two heartbeats.  Run long work in `asyncio.to_thread`.

**The end.**  `close` never hangs and returns the messages that are in doubt.  If a loop ends with the connection open,
`asyncio.run` closes it, with a ResourceWarning and two seconds for the confirms; messages still in doubt are logged, at
the latest when the interpreter exits.
"""

from client_lib import errors
from client_lib.aio.connection import Connection
from client_lib.aio.session import Receiver, Sender, Session
from client_lib.core.ledger import ACCEPTED, REJECTED, RELEASED, Disposition
from client_lib.core.subscription import UNLIMITED
from client_lib.dedup import DuplicateFilter
from client_lib.errors import *  # noqa: F403
from client_lib.message import Message
from client_lib.options import Options

__all__ = [  # noqa: PLE0604
    "ACCEPTED",
    "REJECTED",
    "RELEASED",
    "UNLIMITED",
    "Connection",
    "Disposition",
    "DuplicateFilter",
    "Message",
    "Options",
    "Receiver",
    "Sender",
    "Session",
    *errors.__all__,
]
