"""The connection that fails over: one I/O thread that owns pika, and an interface for all other threads (shell).

Theory.  The I/O thread runs pika's loop and is the only one that touches pika.  Other threads change a session's
state under its lock and call `wake`, which posts one callback into the loop however many messages were added since.

    IDLE --open()--> CONNECTING --open-ok--> CONNECTED --lost--> CONNECTING ... --gives up--> FAILED
    any --close()--> CLOSED

* `Reconnect` (retry.py) says which address comes next and when.  An attempt has `connect_timeout` seconds from the SYN
  to open-ok, enforced by pika, and half as much again including the name look-up, enforced here.
* The watchdog gives a silent broker up after 1.75 heartbeat intervals; looking eight times an interval it notices
  before two have passed, whatever the application does.  Each attempt gets its own Transport; callbacks of
  an abandoned one are ignored.
* Before anything is written to a new connection every session has put its unconfirmed messages back
  (`connection_lost`), so no delivery tag of an old channel is ever applied to a new one.
* close() waits, at most its timeout, for confirms; then closes politely, and after a moment impolitely.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from client_lib.channel_worker import State
from client_lib.errors import AuthenticationFailed, ClientError, Closed, ConnectionFailed, Timeout
from client_lib.events import RUN_SECONDS, EventLog
from client_lib.message import Message
from client_lib.options import Options
from client_lib.retry import Attempt, GiveUp, Reconnect
from client_lib.session import Session
from client_lib.transport import Aborted, HeartbeatLost, Loop, Transport, describe, parameters
from client_lib.url import Address, parse_urls, primary_in_refusal

LOGGER = logging.getLogger("client_lib")
CONNECTION_FORCED = 320
NEVER_RETRY = {403: "access refused", 530: "not allowed"}  # login, virtual host
SILENCE = 1.75  # heartbeat intervals
LOOKS = 8  # in one interval
POLITE_CLOSE = 1.0  # seconds for connection.close-ok
EXIT_CLOSE = 2.0

_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Link(Enum):
    IDLE = "idle"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    CLOSED = "closed"


class Connection:
    """`urls`: see `client_lib.url`; options: see `client_lib.options.Options`.  Raises UrlError, ValueError."""

    def __init__(self, urls: str | Iterable[str], **options: Any) -> None:
        self.options = Options(**options)
        addresses = parse_urls(urls)
        more = parse_urls(self.options.reconnect_urls) if self.options.reconnect_urls else []
        self.client_id = self.options.client_id or f"client-{uuid.uuid4().hex[:8]}"
        self.events = EventLog(self.client_id, self.options.event_log, self.options.on_event, self.options.cluster)
        self.link = Link.IDLE
        self.address: Address | None = None
        self.error: ClientError | None = None
        self.attempts = 0
        self.failovers = 0
        self._reconnect = Reconnect([*addresses, *(a for a in more if a not in addresses)], self.options.retry_policy())
        self._changed = threading.Condition()
        self._sessions: list[Session] = []
        self._loop: Any = None
        self._thread: threading.Thread | None = None
        self._transport: Transport | None = None
        self._target: Address | None = None
        self._attempt_began = 0.0
        self._slow_timer: Any = None
        self._lost_at: float | None = None
        self._wake_pending = False
        self._jobs: list[Callable[[], None]] = []
        self._stopping = False
        self._heard = (0, 0.0)
        self._watched = 0.0

    @classmethod
    def establish(cls, urls: str | Iterable[str], **options: Any) -> Connection:
        """A connection, opened."""
        return cls(urls, **options).open()

    # -- for the application

    def open(self, timeout: float | None = None) -> Connection:
        """Connects; without `timeout` for as long as the reconnect options allow.

        Raises ConnectionFailed, AuthenticationFailed, Timeout (it goes on trying; close() ends that)."""
        with self._changed:
            if self.link is Link.IDLE:
                self._start()
            done = self._changed.wait_for(lambda: self.link is not Link.CONNECTING, timeout)
        if not done:
            raise Timeout(f"not connected within {timeout} s")
        if self.error is not None:
            raise self.error
        return self

    @property
    def is_connected(self) -> bool:
        return self.link is Link.CONNECTED

    def session(self) -> Session:
        """A new session; opens the connection if it is not."""
        if self.link is Link.IDLE:
            self.open()
        with self._changed:
            if self.error is not None:
                raise self.error
            session = Session(self, f"{self.client_id}-{len(self._sessions) + 1}")
            self._sessions.append(session)
        self._post(lambda: self._adopt(session))
        return session

    def close(self, timeout: float = 5.0) -> list[Message]:
        """Waits up to `timeout` seconds for confirms, then closes.  Returns the messages that are in doubt; they are
        also logged.  Never hangs, may be called twice."""
        if self.in_io_thread():
            raise RuntimeError("close() would wait for its own thread")
        with self._changed:
            if self.link in (Link.IDLE, Link.CLOSED) or self._thread is None:
                self.link = Link.CLOSED
                return []
        deadline = time.monotonic() + timeout
        self._drain(deadline)
        left: list[Message] = []
        with self._changed:
            sessions = list(self._sessions)
        self._post(lambda: self._shut_down(left, max(0.1, deadline - time.monotonic())))
        self._thread.join(max(0.1, deadline - time.monotonic()) + 2 * POLITE_CLOSE)
        if self._thread.is_alive():
            LOGGER.error("%s: the I/O thread did not end", self.client_id)
            for session in sessions:
                left += [entry.message for entry in session.fail(Closed("the connection is closed"), closed=True)]
        if left:
            LOGGER.warning("%s: closed with %d messages in doubt", self.client_id, len(left))
        self.events.close(attrs={"unsettled": len(left)})
        return left

    def __enter__(self) -> Connection:
        return self.open() if self.link is Link.IDLE else self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- for sessions, from any thread

    def in_io_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """Lets the I/O thread look at all sessions soon."""
        if not self._wake_pending:
            # Set before posting and cleared before looking: a change made in between posts once more, never once less
            self._wake_pending = True
            self._loop.add_callback_threadsafe(self._work)

    def close_session(self, session: Session, deadline: float | None) -> None:
        done = threading.Event()

        def close() -> None:
            session.close_channel()
            if session in self._sessions:
                self._sessions.remove(session)
            done.set()

        if self._thread is not None and self._thread.is_alive() and not self.in_io_thread():
            self._post(close)
            done.wait(None if deadline is None else max(0.1, deadline - time.monotonic()))

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """I/O thread only."""
        self._loop.call_later(delay, callback)

    # -- start and end

    def _start(self) -> None:
        self.link = Link.CONNECTING
        self._loop = Loop()
        self._thread = threading.Thread(target=self._run, name=f"{self.client_id} I/O", daemon=True)
        self._thread.start()
        _open_connections.add(self)

    def _run(self) -> None:
        self._reconnect.start(time.monotonic())
        self._loop.add_callback_threadsafe(self._next_attempt)
        if self.events.enabled:
            self._loop.add_callback_threadsafe(self._flush_events)
        while not self._stopping:
            try:
                self._loop.start()
            except Exception:
                # A defect, here or in pika.  The connection's state is unknown: take a new one.
                LOGGER.exception("%s: error in the I/O thread", self.client_id)
                self._abandon("error in the I/O thread")
        self._loop.close()
        _open_connections.discard(self)

    def _post(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        self.wake()

    def _drain(self, deadline: float) -> None:
        with self._changed:
            sessions = list(self._sessions)
        busy = [session for session in sessions if not session.idle()]
        if not busy:
            return
        self.events.fact("drain_begin", attrs={"unsettled": sum(session.unsettled() for session in busy)})
        for session in busy:
            try:
                session.sync(max(0.0, deadline - time.monotonic()))
            except ClientError as error:
                LOGGER.debug("%s: %s", session.name, error)
        self.events.fact("drain_end", attrs={"unsettled": sum(session.unsettled() for session in busy)})

    def _shut_down(self, left: list[Message], patience: float) -> None:
        """I/O thread: fails the sessions, closes the connection, ends the loop."""
        self._set_link(Link.CLOSED, Closed("the connection is closed"))
        for session in self._sessions:
            left += [entry.message for entry in session.fail(Closed("the connection is closed"), closed=True)]
        transport = self._transport
        if transport is None or not transport.is_open:
            if transport is not None:
                self._transport = None
                transport.abort(Aborted("closed"))
            # one more turn of the loop lets the socket close
            self._loop.call_later(0.01, self._stop)
            return
        transport.close()
        self._loop.call_later(min(patience, POLITE_CLOSE), lambda: self._close_hard(transport))

    def _close_hard(self, transport: Transport) -> None:
        transport.abort(Aborted("no connection.close-ok"))
        self._loop.call_later(0.05, self._stop)

    def _stop(self) -> None:
        self._stopping = True
        self._loop.stop()

    def _set_link(self, link: Link, error: ClientError | None = None) -> None:
        with self._changed:
            self.link = link
            self.error = error
            self._changed.notify_all()

    # -- I/O thread: work

    def _work(self) -> None:
        self._wake_pending = False
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job()
        more = False
        for session in list(self._sessions):
            more = session.flush() or more
        if more:
            self.wake()

    def _adopt(self, session: Session) -> None:
        """A new session joins: now if connected, else with the next connection."""
        if self.link in (Link.FAILED, Link.CLOSED):
            session.fail(self.error or Closed("the connection is closed"))
        elif self._transport is not None and self.link is Link.CONNECTED and session.state is State.LOST:
            session.open_on(self._transport)

    def _flush_events(self) -> None:
        self.events.flush_runs()
        self._loop.call_later(RUN_SECONDS, self._flush_events)

    # -- I/O thread: connecting

    def _next_attempt(self) -> None:
        if self.link is not Link.CONNECTING:
            return
        step = self._reconnect.next(time.monotonic())
        if isinstance(step, GiveUp):
            self._give_up(ConnectionFailed(step.reason))
        elif step.delay > 0:
            self._loop.call_later(step.delay, lambda: self._connect(step))
        else:
            self._connect(step)

    def _connect(self, step: Attempt) -> None:
        if self.link is not Link.CONNECTING:
            return
        self.attempts += 1
        self._target, self._attempt_began = step.address, time.monotonic()
        self.events.fact("connect", peer=str(step.address), conn_id=self._conn_id(), attrs={"delay_s": step.delay})
        transport = Transport(
            parameters(step.address, self.options), self._loop, self._opened, self._failed, self._lost, self._blocked
        )
        self._transport = transport
        if self._slow_timer is not None:
            self._loop.remove_timeout(self._slow_timer)
        self._slow_timer = self._loop.call_later(1.5 * self.options.connect_timeout, lambda: self._too_slow(transport))

    def _conn_id(self) -> str:
        return f"{self.client_id}#{self.attempts}"

    def _too_slow(self, transport: Transport) -> None:
        """pika's timeouts do not cover the name look-up, ours does."""
        if transport is self._transport and self.link is Link.CONNECTING:
            self._attempt_failed(transport, "timed out", hung=True)
            transport.abort(Aborted("timed out"))

    def _opened(self, transport: Transport) -> None:
        if transport is not self._transport or self._target is None:
            transport.abort(Aborted("too late"))
            return
        now = time.monotonic()
        outage = None if self._lost_at is None else now - self._lost_at
        self._lost_at = None
        self.address = self._target
        self._reconnect.connected(self._target)
        attrs = {} if outage is None else {"outage_us": int(outage * 1e6)}
        self.events.fact("connected", peer=str(self._target), conn_id=self._conn_id(), attrs=attrs or None)
        LOGGER.info("%s: connected to %s", self.client_id, self._target)
        self._set_link(Link.CONNECTED)
        if self.options.heartbeat:
            self._heard, self._watched = (transport.bytes_received, now), now
            self._watch(transport)
        for session in list(self._sessions):
            session.open_on(transport)

    def _failed(self, transport: Transport, error: BaseException) -> None:
        if transport is not self._transport:
            return
        elapsed = time.monotonic() - self._attempt_began
        if transport.refusal is None:
            self._attempt_failed(transport, describe(error), hung=elapsed >= 0.9 * self.options.connect_timeout)
            return
        code, text = transport.refusal
        address = self._target
        assert address is not None
        self._transport = None
        self.events.fact("connect_refused", peer=str(address), conn_id=self._conn_id(), result=str(code), reason=text)
        if code in NEVER_RETRY:
            self._give_up(AuthenticationFailed(f"{address}: {code} {text}"))
            return
        if code == CONNECTION_FORCED:
            self._reconnect.refused(address, text, primary_in_refusal(text))
        else:
            self._reconnect.failed(address, f"{code} {text}")
        self._loop.add_callback_threadsafe(self._next_attempt)

    def _attempt_failed(self, transport: Transport, reason: str, hung: bool) -> None:
        address = self._target
        assert address is not None
        self._transport = None
        self._reconnect.failed(address, reason, hung)
        result = "timeout" if hung else "unreachable"
        self.events.fact("connect_refused", peer=str(address), conn_id=self._conn_id(), result=result, reason=reason)
        self._loop.add_callback_threadsafe(self._next_attempt)

    def _lost(self, transport: Transport, error: BaseException) -> None:
        """The open connection ended, whoever ended it."""
        if transport is not self._transport:
            return
        self._transport = None
        if self.link is not Link.CONNECTED:  # closed by close()
            self.events.fact("disconnected", peer=str(self.address), conn_id=self._conn_id(), planned=True)
            self._loop.call_later(0, self._stop)
            return
        hint = primary_in_refusal(transport.refusal[1]) if transport.refusal else None
        self._begin_again(describe(error), hint, isinstance(error, HeartbeatLost))

    def _blocked(self, transport: Transport) -> None:
        """The broker asks us to pause, or lets us go on."""
        if transport is not self._transport:
            return
        if transport.blocked:
            LOGGER.info("%s: %s asks us not to publish: %s", self.client_id, self.address, transport.blocked)
            self.events.fact("blocked", peer=str(self.address), conn_id=self._conn_id(), reason=transport.blocked)
        else:
            self.events.fact("unblocked", peer=str(self.address), conn_id=self._conn_id())
            self.wake()

    def _begin_again(self, reason: str, hint: Address | None = None, hung: bool = False) -> None:
        now = time.monotonic()
        self._lost_at = now
        self.failovers += 1
        self._set_link(Link.CONNECTING)
        in_doubt = sum(session.connection_lost() for session in self._sessions)
        LOGGER.warning("%s: lost %s (%s); %d messages unconfirmed", self.client_id, self.address, reason, in_doubt)
        self.events.fact(
            "disconnected",
            peer=str(self.address),
            conn_id=self._conn_id(),
            reason=reason,
            attrs={"unconfirmed": in_doubt},
        )
        self._reconnect.lost(now, hint, hung)
        self._loop.add_callback_threadsafe(self._next_attempt)

    def _abandon(self, reason: str) -> None:
        """Takes a new connection whatever state the present one is in."""
        transport, self._transport = self._transport, None
        was_connected = self.link is Link.CONNECTED
        if transport is not None:
            try:
                transport.abort(Aborted(reason))
            except Exception:
                LOGGER.debug("abort failed", exc_info=True)
        if was_connected:
            self._begin_again(reason)
        elif self.link is Link.CONNECTING:
            self._loop.call_later(self.options.reconnect_interval_max, self._next_attempt)
        else:
            self._stop()

    def _give_up(self, error: ClientError) -> None:
        LOGGER.error("%s: %s", self.client_id, error)
        self._set_link(Link.FAILED, error)
        for session in self._sessions:
            session.fail(error)

    # -- I/O thread: heartbeat

    def _watch(self, transport: Transport) -> None:
        """Looks LOOKS times an interval whether anything arrived."""
        if transport is not self._transport or self.link is not Link.CONNECTED:
            return
        now, interval = time.monotonic(), float(self.options.heartbeat)
        received, since = self._heard
        # If this very thread was held up (the process was paused), what the broker said meanwhile is still unread
        overslept = now - self._watched > interval
        if transport.bytes_received != received or overslept:
            self._heard = (transport.bytes_received, now)
        elif now - since >= SILENCE * interval:
            transport.abort(HeartbeatLost(f"nothing heard for {now - since:.1f} s"))
            return
        self._watched = now
        self._loop.call_later(interval / LOOKS, lambda: self._watch(transport))


def _close_all() -> None:
    """At interpreter exit: what was not confirmed is waited for a moment and then said."""
    for connection in list(_open_connections):
        try:
            connection.close(EXIT_CLOSE)
        except Exception:
            LOGGER.exception("%s: error in close at exit", connection.client_id)


atexit.register(_close_all)
