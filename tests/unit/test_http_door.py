"""What `qpid-http` makes of the broker's refusals: each by its code, never by its text."""

from __future__ import annotations

import pika.exceptions
import pytest

from qpidd_py.cli.client_socket import AuthenticationFailure, BrokerError, ConnectionClosed, RequestRefused
from qpidd_py.http.door import Problem, WrongLogin, told


def refused_host(error: Exception) -> Exception:
    """As pika takes whatever ends a connection that has sent connection.open."""
    found: Exception = pika.exceptions.ProbableAccessDeniedError(repr(error))
    return found


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestRefused("no queue 'q'", 404), 404),
        (RequestRefused("no such luck", 406), 400),
        (RequestRefused("requests to HA give none"), 400),
        (RequestRefused("anna has no tag", 403), 401),
        (RequestRefused("this broker is a backup", 320), 503),
        (RequestRefused("internal error: x", 541), 500),
        (ConnectionClosed("a:1: connection aborted"), 503),
        (ConnectionClosed("a:1: 320 a is a backup", 320), 503),
        (ConnectionClosed("a:1: 530 access to vhost '/' refused for user 'anna'", 530), 401),
        (ConnectionClosed("a:1: 501 frame error", 501), 400),
        (BrokerError("a:1: 530 refused for user, says a text"), 503),
        (OSError("no route"), 503),
        (refused_host(pika.exceptions.ConnectionClosedByBroker(320, "b is a backup (530)")), 503),
        (refused_host(pika.exceptions.ConnectionClosedByBroker(530, "access refused for user 'a (320)'")), 401),
        (refused_host(pika.exceptions.ConnectionClosedByBroker(530, "NOT_ALLOWED - vhost x not found")), 404),
        (refused_host(pika.exceptions.StreamLostError("lost (530)")), 503),
        (pika.exceptions.ProbableAuthenticationError(repr(pika.exceptions.StreamLostError("lost"))), 503),
    ],
)
def test_a_status_by_the_code(error: Exception, status: int) -> None:
    with pytest.raises(Problem) as problem, told():
        raise error
    assert problem.value.status == status


def test_a_wrong_login_istold_from_a_missing_right() -> None:
    with pytest.raises(WrongLogin), told():
        raise AuthenticationFailure("a:1: 403")
    with pytest.raises(WrongLogin), told():
        raise pika.exceptions.ProbableAuthenticationError(
            repr(pika.exceptions.ConnectionClosedByBroker(403, "ACCESS_REFUSED"))
        )
    with pytest.raises(Problem) as problem, told():
        raise RequestRefused("no right", 403)
    assert not isinstance(problem.value, WrongLogin)
