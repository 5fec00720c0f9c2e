"""The life of a connection over all its fail-overs, for the threaded and the asyncio API (shell).

Theory.  Everything here runs in the loop of the connection, except `post`, `wake` and reading.

    IDLE --start--> CONNECTING --open-ok--> CONNECTED --lost--> CONNECTING ... --gives up--> FAILED
    any --shut_down--> CLOSED

* The dialer opens connections, with several attempts at a time; in CONNECTED it is idle.
* The watchdog gives up a silent broker before one and a half heartbeat intervals have passed, whatever the
  application does.
* While a receiver without a limit has too much in its buffer nothing is read, unless a request waits for its answer (a
  callback may publish and wait for the confirm) or a call waits for a message of another receiver.
* Before anything is written to a new connection every session has put its unconfirmed messages back
  (`connection_lost`), so no delivery tag of an old channel is ever applied to a new one.
* `state` and `error` change with the monitor held, and waiting threads or tasks are notified.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from client_lib.connecting import tls
from client_lib.connecting.attempts import Attempt
from client_lib.connecting.dialer import POLITE_CLOSE as POLITE_CLOSE
from client_lib.connecting.dialer import Dialer, DialerOwner
from client_lib.connecting.lending import Lending
from client_lib.connecting.transport import Aborted, HeartbeatLost, Loop, Timer, Transport, describe
from client_lib.errors import ConnectionClosed, HeartbeatTimeout, MessagingError
from client_lib.events import RUN_SECONDS, EventLog
from client_lib.link.sessions import LinkUser, Sessions
from client_lib.link.watchdog import Watchdog
from client_lib.monitor import Monitor
from client_lib.options import Options, effective
from client_lib.unheard import Unheard
from client_lib.urls.url import Endpoint

LOGGER = logging.getLogger("client_lib")


class LinkState(Enum):
    IDLE = "idle"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    CLOSED = "closed"


class Link:
    """One per connection of the application."""

    def __init__(self, addresses: Sequence[Endpoint], options: Options, loop: Loop, monitor: Monitor) -> None:
        self.options = options
        self.monitor = monitor
        self.client_id = options.client_id or f"client-{uuid.uuid4().hex[:8]}"
        self.events = EventLog(self.client_id, options.event_log, options.on_event, options.cluster)
        self.state = LinkState.IDLE
        self.error: MessagingError | None = None
        self.address: Endpoint | None = None
        self.conn_id = ""
        """The id of the present connection, or of the last one."""
        self.failed: Callable[[MessagingError], None] = lambda _error: None
        """Called when it gives up."""
        self.failovers = 0
        self.sessions = Sessions()
        self.calls_back = False
        """A sender has a callback, which is called in the I/O thread only."""
        self._loop = loop
        owner = DialerOwner(self._opened, self._give_up, self._lost, self._blocked)
        self._dialer = Dialer(addresses, options, loop, self.events, self.client_id, owner)
        self._transport: Transport | None = None
        self._lost_at: float | None = None
        self._wake_pending = False
        self._jobs: deque[Callable[[], None]] = deque()
        self._ended: list[Callable[[], None]] = []
        self._over = False
        self._timers: dict[str, Timer] = {}

    @property
    def attempts(self) -> int:
        """Attempts to connect so far."""
        return self._dialer.started

    @property
    def trouble(self) -> str:
        """Why the last attempt to connect failed, as `; last: ADDRESS: reason`, or empty."""
        return self._dialer.trouble

    # -- from any thread

    def wake(self) -> None:
        """Schedules a look at all sessions in the I/O thread."""
        if not self._wake_pending:
            # Set before posting and cleared before looking: a change in between may post twice, but is never missed
            self._wake_pending = True
            self._loop.call_soon(self._work)

    def post(self, job: Callable[[], None]) -> None:
        """Schedules a call in the I/O thread."""
        self._jobs.append(job)
        self.wake()

    @property
    def lending(self) -> Lending | None:
        """How threads that wait read the present connection."""
        transport = self._transport
        return None if transport is None else transport.lending

    @property
    def quiet(self) -> bool:
        """Any thread may read now: all that follows is done in any thread."""
        return not (self.calls_back or self.sessions.recovery.active or self.sessions.careful)

    # -- start and end

    def start(self) -> None:
        """Connects, now and whenever the connection is lost."""
        self._set_state(LinkState.CONNECTING)
        self._loop.call_soon(self._start_anew)
        if self.events.enabled:
            self._loop.call_soon(self._flush_events)

    def shut_down(self, left: Unheard, patience: float, ended: Callable[[], None]) -> None:
        """Fails the sessions, adds what was refused or is in doubt to `left`, closes the connection; calls `ended`.

        The broker has `patience` seconds to answer, but at most POLITE_CLOSE."""
        self._ended.append(ended)
        if self.state is LinkState.CLOSED:
            if self._over:
                self._end()
            return
        self._set_state(LinkState.CLOSED, ConnectionClosed("the connection is closed"))
        left += self.sessions.close(ConnectionClosed("the connection is closed"))
        self._dialer.hang_up()
        transport = self._transport
        if transport is None or not transport.is_open:
            self._transport = None
            # one more turn of the loop lets the sockets close
            self._later("end", 0.01, self._end)
            return
        transport.read_on(True)
        if transport.lending is not None:
            transport.lending.recall()
        transport.close()
        self._later("end", min(patience, POLITE_CLOSE), lambda: self._close_hard(transport))

    def _close_hard(self, transport: Transport) -> None:
        transport.abort(Aborted("no connection.close-ok"))
        self._later("end", 0.05, self._end)

    def _end(self) -> None:
        self._over = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        ended, self._ended = self._ended, []
        for told in ended:
            told()

    def forked(self) -> None:
        """In the child after fork(2): connection and loop belong to the parent.  Takes no lock and no loop."""
        self.state, self.error = LinkState.FAILED, ConnectionClosed("the connection belongs to the parent process")
        self.events.forked()
        self._dialer.forked()
        if self._transport is not None:
            self._transport.forget()

    def _set_state(self, state: LinkState, error: MessagingError | None = None) -> None:
        with self.monitor:
            self.state = state
            self.error = error
            self.monitor.notify_all()

    # -- work

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay, callback)

    def _later(self, name: str, delay: float, callback: Callable[[], None]) -> None:
        """Replaces the timer of that name."""
        before = self._timers.pop(name, None)
        if before is not None:
            before.cancel()
        self._timers[name] = self._loop.call_later(max(0.0, delay), callback)

    def adopt(self, session: LinkUser) -> None:
        """A new session joins: now if connected, else with the next connection."""
        self.sessions.all.append(session)
        if self.state in (LinkState.FAILED, LinkState.CLOSED):
            session.fail(self.error or ConnectionClosed("the connection is closed"))
        elif self._transport is not None and self.state is LinkState.CONNECTED:
            self.sessions.open_on(self._transport)

    def dismiss(self, session: LinkUser) -> None:
        """A session leaves."""
        session.close_channel()
        if session in self.sessions.all:
            self.sessions.all.remove(session)

    def _work(self) -> None:
        self._wake_pending = False
        for _ in range(len(self._jobs)):
            self._jobs.popleft()()
        more = bool(self._jobs)
        if self.sessions.work(self._transport) or more:
            self.wake()

    def hold(self) -> None:
        """Some receiver is overfull: stops reading."""
        self.sessions.overfull = True
        lending = self.lending
        if lending is not None and lending.lent:  # another thread has read it
            self.wake()
        else:
            self.sessions.regulate(self._transport)

    def _flush_events(self) -> None:
        self.events.flush_runs()
        self._later("events", RUN_SECONDS, self._flush_events)

    # -- connecting

    def _start_anew(self) -> None:
        if self.state is LinkState.CONNECTING:
            self._dialer.start()

    def _opened(self, transport: Transport, attempt: Attempt) -> None:
        now = time.monotonic()
        self._transport, self.address, self.conn_id = transport, attempt.address, self._dialer.conn_id(attempt)
        outage, self._lost_at = None if self._lost_at is None else now - self._lost_at, None
        attrs = {
            "broker": transport.conversation.broker or None,
            "peer_wall": transport.conversation.broker_wall(),
            "outage_us": None if outage is None else int(outage * 1e6),
        }
        said = {name: value for name, value in attrs.items() if value is not None}
        self.events.fact("connected", peer=str(self.address), conn_id=self.conn_id, attrs=said or None)
        LOGGER.info("%s: connected to %s", self.client_id, self.address)
        self._set_state(LinkState.CONNECTED)
        self._begin_watch(transport)
        self.sessions.opened(transport)

    def _give_up(self, error: MessagingError) -> None:
        LOGGER.error("%s: %s", self.client_id, error)
        self._set_state(LinkState.FAILED, error)
        self.sessions.fail(error)
        self.failed(error)

    # -- connected

    def _blocked(self, transport: Transport) -> None:
        """The broker asks to pause publishing, or allows it again."""
        if transport is not self._transport:
            return
        if transport.blocked:
            LOGGER.info("%s: %s asks us not to publish: %s", self.client_id, self.address, transport.blocked)
            self.events.fact("blocked", peer=str(self.address), conn_id=self.conn_id, reason=transport.blocked)
        else:
            self.events.fact("unblocked", peer=str(self.address), conn_id=self.conn_id)
            self.wake()

    def _begin_watch(self, transport: Transport) -> None:
        """Uses our own interval; a broker that proposed no heartbeats is watched only if it sends some."""
        assert self.address is not None
        interval = effective(self.options, self.address).heartbeat
        if interval:
            self._watch(transport, Watchdog(interval, time.monotonic(), transport.conversation.bytes_received))

    def _watch(self, transport: Transport, watchdog: Watchdog) -> None:
        if transport is not self._transport or self.state is not LinkState.CONNECTED:
            return
        if not transport.reading:
            self._later("watch", watchdog.pause, lambda: self._begin_watch(transport))
            return
        now = time.monotonic()
        silent = watchdog.is_silent(now, transport.conversation.bytes_received)
        if silent and (transport.conversation.heartbeat_offered or transport.conversation.heartbeats_received):
            transport.abort(HeartbeatLost(f"nothing heard for {watchdog.silence(now):.1f} s"))
            return
        self._later("watch", watchdog.pause, lambda: self._watch(transport, watchdog))

    def _lost(self, transport: Transport, error: BaseException) -> None:
        """The open connection ended, closed by either side or lost."""
        if transport is not self._transport:
            return
        self._transport = None
        if self.state is not LinkState.CONNECTED:  # closed by shut_down
            self.events.fact("disconnected", peer=str(self.address), conn_id=self.conn_id, planned=True)
            self._later("end", 0, self._end)
            return
        hint = None
        if transport.refusal is not None and self.address is not None:
            hint = self._dialer.hint(transport.refusal[1], self.address)
        cause = transport.cause or error
        reason = tls.explain(cause) or describe(cause)
        self._begin_again(reason, hint, isinstance(error, HeartbeatLost), transport.refusal)

    def _begin_again(
        self, reason: str, hint: Endpoint | None = None, hung: bool = False, refusal: tuple[int, str] | None = None
    ) -> None:
        now = time.monotonic()
        self._lost_at = now
        self.failovers += 1
        self._set_state(LinkState.CONNECTING)
        in_doubt = self.sessions.lost(now, refusal)
        LOGGER.warning("%s: lost %s (%s); %d messages unconfirmed", self.client_id, self.address, reason, in_doubt)
        where = {"peer": str(self.address), "conn_id": self.conn_id}
        self.events.fact("disconnected", **where, reason=reason, attrs={"unconfirmed": in_doubt})
        if hung and not self.options.reconnect:
            self._give_up(HeartbeatTimeout(f"{self.address}: {reason}; reconnecting is off"))
            return
        self._dialer.lost(now, hint, hung)

    def abandon(self, reason: str) -> None:
        """Replaces the connection, whatever its state, after a defect here."""
        transport, self._transport = self._transport, None
        was_connected = self.state is LinkState.CONNECTED
        try:
            self._dialer.hang_up()
            if transport is not None:
                transport.abort(Aborted(reason))
        except Exception:
            LOGGER.debug("abort failed", exc_info=True)
        if was_connected:
            self._begin_again(reason)
        elif self.state is LinkState.CONNECTING:
            self._later("again", self.options.reconnect_interval_max, self._start_anew)
        else:
            self._end()
