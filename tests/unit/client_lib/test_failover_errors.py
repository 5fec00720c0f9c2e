"""Errors that are pika's and ours at once."""

import pika.exceptions
import pytest

from client_lib import errors
from client_lib.failover.errors import Nacked, Unroutable, translate
from client_lib.message import Message

SERVER = errors.server_error(404, "NOT_FOUND - no queue 'q'")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (errors.ConnectError("x"), "AMQPConnectionError"),
        (errors.AuthenticationFailure("x"), "ProbableAuthenticationError"),
        (errors.ConnectionClosed("x"), "ConnectionWrongStateError"),
        (errors.HeartbeatTimeout("x"), "AMQPHeartbeatTimeout"),
        (errors.TransactionAborted("x"), "AMQPConnectionError"),
        (errors.TransactionUnknown("x"), "AMQPConnectionError"),
        (errors.InDoubt("x"), "ConnectionBlockedTimeout"),
        (errors.InsufficientCapacity("x"), "AMQPConnectionError"),
        (SERVER, "ChannelClosedByBroker"),
        (errors.server_error(403, "ACCESS_REFUSED"), "ChannelClosedByBroker"),
    ],
)
def test_both(ours: errors.MessagingError, theirs: str) -> None:
    error = translate(ours)
    assert isinstance(error, getattr(pika.exceptions, theirs))
    family = errors.ServerError if isinstance(ours, errors.ServerError) else type(ours)
    assert isinstance(error, family)
    assert translate(error) is error


def test_a_channel_error_looks_as_in_pika() -> None:
    error = translate(SERVER)
    original = pika.exceptions.ChannelClosedByBroker(404, "NOT_FOUND - no queue 'q'")
    assert (error.reply_code, error.reply_text) == (original.reply_code, original.reply_text)  # type: ignore[attr-defined]
    assert (str(error), repr(error)) == (str(original), repr(original))


def test_a_bad_address_stays_what_it_is() -> None:
    bad = errors.UrlError("port must be a number", "a:b", 2)
    assert translate(bad) is bad


def test_what_was_not_taken() -> None:
    message = Message(b"x")
    unroutable = Unroutable(errors.Returned(312, "NO_ROUTE", message), ["returned"])
    assert isinstance(unroutable, (pika.exceptions.UnroutableError)) and isinstance(unroutable, errors.Returned)
    assert (unroutable.messages, unroutable.message, unroutable.reply_code) == (["returned"], message, 312)
    nacked = Nacked(errors.Rejected("not taken", message))
    assert isinstance(nacked, pika.exceptions.NackError) and isinstance(nacked, errors.Rejected)
    assert (nacked.messages, nacked.message) == ([], message)
