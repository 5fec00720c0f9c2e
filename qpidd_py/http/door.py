"""One HTTP request's way to the broker: a connection with the login of that request.                           Shell.

The broker judges every login and every right; this process has no users of its own.  Management requests go to the
local broker, which may be a backup; declarations and messages are for a primary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import (
    AuthenticationFailure,
    BrokerError,
    ConnectionClosed,
    Deadline,
    ManagementSocket,
    RequestRefused,
    Target,
)
from qpidd_py.errors import ReplyCode
from qpidd_py.security.entries import HOST

SECONDS: Final = 10.0
"""For the whole of one request."""
NO_VHOST: Final = re.compile(r"NOT_ALLOWED - vhost .* not found")
_CLOSED: Final = re.compile(r"ConnectionClosedByBroker: \((\d+)\)")
_T = TypeVar("_T")


class Problem(Exception):
    """What the client is told: a status, RabbitMQ's word for it, a reason, and what else is in the answer."""

    def __init__(self, status: int, error: str, reason: str, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{status} {error}: {reason}")
        self.status, self.error, self.reason, self.more = status, error, reason, more or {}
        self.judged = False
        """The broker has accepted the login, and refused what was asked."""


class WrongLogin(Problem):
    """No user with this password."""

    def __init__(self) -> None:
        super().__init__(401, "not_authorised", "Login failed")


def bad_request(reason: str) -> Problem:
    return Problem(400, "bad_request", reason)


def not_found() -> Problem:
    return Problem(404, "Object Not Found", "Not Found")


def not_authorised(reason: str) -> Problem:
    return Problem(401, "not_authorised", reason)


@dataclass(frozen=True)
class Door:
    """Of one request; `target` has its login.  Every method raises Problem."""

    target: Target
    vhost: str = HOST
    """That of the request's path."""

    def ask(self, method: str, **arguments: Any) -> Any:
        """The result of a management request."""
        return self.ask_all([(method, arguments)])[0]

    def ask_all(self, requests: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        """The same for several, over one connection."""
        with told(), self.open() as broker:
            return [broker.request(method, arguments) for method, arguments in requests]

    def open(self) -> ManagementSocket:
        """For several requests; the broker chooses a virtual host that the user may enter."""
        with told():
            return ManagementSocket(self.target._replace(vhost=""), Deadline(SECONDS))

    def on_channel(self, work: Callable[[BlockingChannel], _T], vhost: str | None = None) -> _T:
        """What `work` does with a channel, in this virtual host or (None) that of the request."""
        login: Login = self.target.login
        host = self.vhost if vhost is None else vhost
        parameters = pika.ConnectionParameters(
            self.target.host,
            self.target.port,
            host,
            credentials=pika.PlainCredentials(login.user, login.password),
            ssl_options=pika.SSLOptions(self.target.tls, self.target.host) if self.target.tls else None,
            socket_timeout=SECONDS,
            blocked_connection_timeout=SECONDS,
            stack_timeout=SECONDS,
        )
        with told():
            try:
                connection = pika.BlockingConnection(parameters)
            except pika.exceptions.ProbableAccessDeniedError:
                self._check_seen(host)
                raise
            try:
                return work(connection.channel())
            finally:
                if connection.is_open:
                    connection.close()

    def _check_seen(self, host: str) -> None:
        """Raises Problem: who does not see a virtual host is told the same of one that is there and one that is not."""
        try:
            with self.open() as broker:
                broker.request("queue.count", {"vhost": host})
        except RequestRefused as error:
            if error.code != ReplyCode.ACCESS_REFUSED:
                raise
            reason = f"access to vhost {host[:64]!r} refused for user {self.target.login.user[:64]!r}"
            raise _judged(not_authorised(reason)) from None


@contextmanager
def told() -> Iterator[None]:
    """What the broker answers as what the client is told."""
    try:
        yield
    except AuthenticationFailure:
        raise WrongLogin from None
    except (pika.exceptions.ProbableAuthenticationError, pika.exceptions.ProbableAccessDeniedError) as error:
        raise _unopened(str(error)) from None
    except RequestRefused as error:
        raise _judged(_closed(error.code, str(error))) from None
    except pika.exceptions.ChannelClosedByBroker as error:
        raise _judged(_closed(error.reply_code, f"{error.reply_code} {error.reply_text}")) from None
    except pika.exceptions.ConnectionClosedByBroker as error:
        raise _ended(error.reply_code, f"{error.reply_code} {error.reply_text}") from None
    except (pika.exceptions.ShortStringTooLong, pika.exceptions.UnsupportedAMQPFieldException) as error:
        raise bad_request(f"not to be sent by AMQP: {str(error)[:200]}") from None
    except ConnectionClosed as error:
        raise _ended(error.code, str(error)) from None
    except (BrokerError, OSError, pika.exceptions.AMQPError) as error:
        raise Problem(503, "service_unavailable", str(error) or type(error).__name__) from None


def _unopened(text: str) -> Problem:
    """pika takes each end before connection.open-ok for a refused login or virtual host, and keeps its text only.  A
    backup closes connections there, too, and a broker can be lost."""
    found = _CLOSED.search(text)
    code = int(found[1]) if found else 0
    return WrongLogin() if code == ReplyCode.ACCESS_REFUSED else _ended(code, text)


def _judged(problem: Problem) -> Problem:
    problem.judged = problem.status != 503
    return problem


def _ended(code: int, text: str) -> Problem:
    """The connection, not the channel.  A broker that was lost gives no code."""
    if not code:
        return Problem(503, "service_unavailable", text)
    if code == ReplyCode.NOT_ALLOWED:
        return _judged(not_found() if NO_VHOST.search(text) else not_authorised(text))
    return _closed(code, text)


def _closed(code: int, text: str) -> Problem:
    """A backup says 320."""
    if code == ReplyCode.NOT_FOUND:
        return not_found()
    if code == ReplyCode.CONNECTION_FORCED:
        return Problem(503, "service_unavailable", text)
    if code == ReplyCode.INTERNAL_ERROR:
        return Problem(500, "internal_error", text)
    return not_authorised(text) if code == ReplyCode.ACCESS_REFUSED else bad_request(text)
