"""Opens a connection: carries out the planner's actions, several attempts at a time, and reports the results to it
(shell).

Each attempt has a transport of its own.  The first one that opens is handed over; later events of the others are
ignored.  An attempt that has already sent connection.open is closed with a handshake once it is open, the others are
aborted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from client_lib.connecting import tls
from client_lib.connecting.attempts import Abandon, Action, Attempt, GiveUp, LookUp, Start, Wait
from client_lib.connecting.conversation import AnotherProtocol
from client_lib.connecting.lookup import Resolver
from client_lib.connecting.parameters import connection_parameters
from client_lib.connecting.retry import Planner
from client_lib.connecting.transport import (
    CLIENT_ID,
    CONN_ID,
    Aborted,
    Listener,
    Loop,
    Target,
    Timer,
    Transport,
    describe,
    root,
)
from client_lib.errors import AuthenticationFailure, ConnectError, VersionError
from client_lib.events import EventLog
from client_lib.options import Options
from client_lib.urls.url import Endpoint, learned_addresses, primary_in_refusal

LOGGER = logging.getLogger("client_lib")
CONNECTION_FORCED = 320
DENIED = (403, 530)
"""Reply codes for a wrong login or virtual host."""
PROMOTED = "(recovering)"
"""In the text of a backup that is being promoted."""
POLITE_CLOSE = 1.0  # seconds for connection.close-ok


@dataclass(frozen=True)
class DialerOwner:
    """Receives `opened` or `gave_up`, and later the events of the transport that was handed over."""

    opened: Callable[[Transport, Attempt], None]
    gave_up: Callable[[ConnectError], None]
    lost: Callable[[Transport, BaseException], None]
    blocked: Callable[[Transport], None]


class Dialer:
    """One per link; in the loop's thread only."""

    def __init__(
        self,
        addresses: Iterable[Endpoint],
        options: Options,
        loop: Loop,
        events: EventLog,
        client_id: str,
        owner: DialerOwner,
    ) -> None:
        self.started = 0
        """Attempts so far."""
        self._options = options
        self._loop = loop
        self._events = events
        self._client_id = client_id
        self._owner = owner
        self._planner = Planner(addresses, options.retry_policy())
        self._resolver = Resolver(loop.call_threadsafe)
        self._attempts: dict[Transport, Attempt] = {}
        self._losers: set[Transport] = set()  # to be closed with a handshake
        self._timer: Timer | None = None
        self._complained: dict[str, str] = {}  # which address, and the text
        self._denial: type[ConnectError] = ConnectError
        """Of the last broker that denied us."""

    # -- for the link

    @property
    def trouble(self) -> str:
        """The last failure as `; last: ADDRESS: reason`, or empty."""
        return self._planner.trouble

    def start(self) -> None:
        """Opens the first connection."""
        self._do(self._planner.start(time.monotonic()))

    def lost(self, now: float, hint: Endpoint | None, hung: bool) -> None:
        """The connection that was handed over is lost: opens another one."""
        self._do(self._planner.lost(now, hint, hung))

    def stop(self) -> None:
        """Ends all attempts; one whose broker is about to accept is closed with a handshake once it is open."""
        self._do(self._planner.stop())
        self._resolver.forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hang_up(self) -> None:
        """As `stop`, but without closing handshakes."""
        self.stop()
        for loser in self._losers:
            loser.abort(Aborted("closed"))

    def forked(self) -> None:
        """In the child after fork(2)."""
        for transport in [*self._attempts, *self._losers]:
            transport.forget()

    def hint(self, reply_text: str, via: Endpoint) -> Endpoint | None:
        """The primary that a broker names when it ends a connection."""
        return primary_in_refusal(reply_text, via, self._planner.places.addresses)

    def conn_id(self, attempt: Attempt) -> str:
        return f"{self._client_id}#{attempt.number}"

    # -- what the planner says

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Start(attempt):
                    self._connect(attempt)
                case LookUp(address):
                    self._look_up(address)
                case Abandon(attempt, reason, hung):
                    self._abandon(attempt, reason, hung)
                case Wait(until):
                    self._wait(until)
                case GiveUp(reason, denied):
                    self._give_up((self._denial if denied else ConnectError)(reason))

    def _wait(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, until - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._do(self._planner.tick(time.monotonic()))

    def _look_up(self, address: Endpoint) -> None:
        def answer(ips: Sequence[str], reason: str) -> None:
            if not ips:
                self._complain(address, reason)
            self._do(self._planner.looked_up(address, ips, time.monotonic(), reason))

        self._resolver.look_up(address, answer)

    def _connect(self, attempt: Attempt) -> None:
        self.started += 1
        self._fact("connect", attempt, attrs={"delay_s": attempt.pause, "ip": attempt.ip})
        listener = Listener(self._opened, self._failed, self._lost, self._reached, self._owner.blocked)
        try:
            parameters = connection_parameters(attempt.address, self._options)
            identity = {CLIENT_ID: self._client_id, CONN_ID: self.conn_id(attempt)}
            target = Target(parameters, attempt.ip, attempt.address.port, identity)
            self._attempts[self._loop.connect(target, listener)] = attempt
        except Exception as error:
            if not isinstance(error, (ConnectError, ValueError)):  # a defect; the planner must be told
                LOGGER.exception("%s: cannot connect to %s", self._client_id, attempt.address)
            reason = str(error)
            self._loop.call_soon(lambda: self._attempt_failed(attempt, reason))

    def _abandon(self, attempt: Attempt, reason: str, hung: bool) -> None:
        self._fact("connect_refused", attempt, result="timeout" if hung else "abandoned", reason=reason)
        if hung:
            self._complain(attempt.address, reason)
        transport = next((t for t, a in self._attempts.items() if a == attempt), None)
        if transport is None:
            return
        del self._attempts[transport]
        if transport.nearly_open and not hung:
            self._losers.add(transport)
            self._loop.call_later(POLITE_CLOSE, lambda: transport.abort(Aborted(reason)))
        else:
            transport.abort(Aborted(reason))

    def _give_up(self, error: ConnectError) -> None:
        self.stop()
        self._owner.gave_up(error)

    # -- what became of an attempt

    def _reached(self, transport: Transport) -> None:
        if transport in self._attempts:
            self._planner.reached(self._attempts[transport])

    def _opened(self, transport: Transport) -> None:
        attempt = self._attempts.pop(transport, None)
        if attempt is None:  # abandoned when it was nearly open
            transport.close()
            return
        self._learn(transport, attempt)
        self._complained.clear()
        self._do(self._planner.connected(attempt, time.monotonic()))
        self._owner.opened(transport, attempt)

    def _lost(self, transport: Transport, error: BaseException) -> None:
        self._losers.discard(transport)
        self._owner.lost(transport, error)

    def _failed(self, transport: Transport, error: BaseException) -> None:
        attempt = self._attempts.pop(transport, None)
        if attempt is None:
            self._losers.discard(transport)
            return
        self._learn(transport, attempt)
        cause = transport.cause or root(error)
        if transport.refusal is not None:
            self._refused(attempt, *transport.refusal)
        elif isinstance(cause, AuthenticationFailure):
            self._denied(attempt, AuthenticationFailure, str(cause), "unreachable")
        elif isinstance(cause, AnotherProtocol):
            self._denied(attempt, VersionError, str(cause), "unreachable")
        elif tls.is_wrong(cause):
            self._denied(attempt, ConnectError, tls.explain(cause) or describe(cause), "unreachable")
        else:
            refused = tls.ENDED if attempt.address.tls and transport.hung_up else ""
            self._attempt_failed(attempt, tls.explain(cause) or refused or describe(cause))

    def _learn(self, transport: Transport, attempt: Attempt) -> None:
        learned = learned_addresses(transport.conversation.server_properties, attempt.address)
        if learned:
            self._planner.learned(learned)

    def _attempt_failed(self, attempt: Attempt, reason: str) -> None:
        self._complain(attempt.address, reason)
        self._fact("connect_refused", attempt, result="unreachable", reason=reason)
        self._do(self._planner.failed(attempt, time.monotonic(), reason))

    def _denied(self, attempt: Attempt, kind: type[ConnectError], reason: str, result: str) -> None:
        self._denial = kind
        self._complain(attempt.address, reason)
        self._fact("connect_refused", attempt, result=result, reason=reason)
        self._do(self._planner.denied(attempt, time.monotonic(), reason))

    def _refused(self, attempt: Attempt, code: int, text: str) -> None:
        now, reason = time.monotonic(), f"{code} {text}"
        if code in DENIED:
            self._denied(attempt, AuthenticationFailure, reason, str(code))
            return
        forced = code == CONNECTION_FORCED
        self._complain(attempt.address, reason, logging.INFO if forced else logging.WARNING)
        self._fact("connect_refused", attempt, result=str(code), reason=text)
        if forced:
            hint = self.hint(text, attempt.address)
            self._do(self._planner.refused(attempt, now, reason, hint, PROMOTED in text))
        else:
            self._do(self._planner.failed(attempt, now, reason))

    def _complain(self, address: Endpoint, reason: str, level: int = logging.WARNING) -> None:
        """Logs each reason once until connected."""
        where = str(address)
        level = logging.DEBUG if self._complained.get(where) == reason else level
        self._complained[where] = reason
        LOGGER.log(level, "%s: cannot connect to %s: %s", self._client_id, where, reason)

    def _fact(self, kind: str, attempt: Attempt, **fields: Any) -> None:
        self._events.fact(kind, peer=str(attempt.address), conn_id=self.conn_id(attempt), **fields)
