"""Management requests are answered in slices, one in each turn of the event loop, so that none stops the broker.

* A request is a generator; each step is a slice.  A step that answers a Reading waits for the page file, and others
  take its place meanwhile; the next step is made in the call that says that it has come.  Until the last step the
  frames of its channel are kept aside, which bounds what a channel may ask for at a time (`MAX_STASH` of the core).
* Connections take turns.  One whose output is not read is left out (BACKLOG), as the consumers of a full connection
  are; after PATIENCE it is closed, since its request may hold on to a list of all objects.
* AT_ONCE connections are served at a time: the others have no such list yet.

Pure: `defer` calls later, of the event loop.  Without it everything is done at once.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from qpidd_py.broker.client_channel import ClientChannel, Owner
from qpidd_py.errors import ReplyCode
from qpidd_py.management.patience import Reading

Slices = Iterator[Reading | None]
Defer = Callable[[float, Callable[[], None]], None]
"""(seconds, work)"""

BACKLOG: Final = 1 << 20
"""Octets of output that a connection may leave unread before it gets no further answer."""
AGAIN: Final = 0.05
"""Seconds between two looks at connections that do not read, or have ended while they wait for the page file."""
PATIENCE: Final = 30.0
"""Seconds."""
AT_ONCE: Final = 8


class Job(NamedTuple):
    """One request."""

    channel: ClientChannel
    slices: Slices

    @property
    def alive(self) -> bool:
        connection = self.channel.connection
        return connection.opened and connection.channels.get(self.channel.number) is self.channel


class Turns:
    """The requests of all connections."""

    def __init__(self, defer: Defer | None, now: Callable[[], float]) -> None:
        """`now` in seconds."""
        self._defer = defer
        self._now = now
        self._served: OrderedDict[Owner, deque[Job]] = OrderedDict()
        self._waiting: OrderedDict[Owner, deque[Job]] = OrderedDict()
        self._unread: dict[Owner, float] = {}
        """Connections of `_waiting` that do not read: when they have to, in seconds."""
        self._asleep: dict[Owner, Reading] = {}
        """Connections of `_waiting` that wait for the page file."""
        self._scheduled = False

    def add(self, channel: ClientChannel, slices: Slices) -> None:
        if self._defer is None:
            for _ in slices:
                pass
            return
        connection = channel.connection
        jobs = self._served.get(connection)
        if jobs is None:
            jobs = self._waiting.setdefault(connection, deque())
        channel.core.pause()
        jobs.append(Job(channel, slices))
        self._admit()
        self._schedule()

    def _schedule(self) -> None:
        if self._defer is not None and not self._scheduled and (self._served or self._waiting):
            self._scheduled = True
            self._defer(0.0 if self._served else AGAIN, self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._look_again()
        self._admit()
        if self._served:
            connection, jobs = next(iter(self._served.items()))
            self._served.move_to_end(connection)
            if connection.core.backlog > BACKLOG:
                self._unread.setdefault(connection, self._now() + PATIENCE)
                self._waiting[connection] = self._served.pop(connection)
            else:
                self._serve(connection, jobs)
        self._schedule()

    def _serve(self, connection: Owner, jobs: deque[Job]) -> None:
        """One slice of the first request of a connection of `_served`."""
        reading = self._step(jobs)
        if reading is not None or not jobs:
            del self._served[connection]
        if reading is not None:
            self._waiting[connection], self._asleep[connection] = jobs, reading
            reading.on_come = partial(self._come, connection, reading)

    def _come(self, connection: Owner, reading: Reading) -> None:
        if self._asleep.get(connection) is reading:
            del self._asleep[connection]
            if connection.core.backlog <= BACKLOG:
                self._served[connection] = jobs = self._waiting.pop(connection)
                self._serve(connection, jobs)

    @staticmethod
    def _step(jobs: deque[Job]) -> Reading | None:
        """One slice of the first request; what it waits for, if it does."""
        job = jobs[0]
        try:
            if job.alive:
                return next(job.slices)
        except StopIteration:
            pass
        jobs.popleft()
        if job.alive:
            job.channel.core.resume()  # which may add the next request
        return None

    def _admit(self) -> None:
        for connection in list(self._waiting):
            if len(self._served) >= AT_ONCE:
                return
            if connection not in self._unread and connection not in self._asleep:
                self._served[connection] = self._waiting.pop(connection)

    def _look_again(self) -> None:
        """At connections that did not read; the requests of one that has ended go."""
        for connection in [each for each in self._asleep if not self._waiting[each][0].alive]:
            del self._asleep[connection]
        for connection, until in list(self._unread.items()):
            if not connection.opened:
                del self._unread[connection], self._waiting[connection]
            elif connection.core.backlog <= BACKLOG:
                del self._unread[connection]
            elif self._now() >= until:
                connection.close(ReplyCode.RESOURCE_ERROR, f"answers were not read for {PATIENCE:g} s")
