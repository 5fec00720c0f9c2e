"""PLAIN (RFC 4616), AMQPLAIN (user and password in a field table), and the names of the others.  Pure; both sides.

SCRAM is in `scram`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from qpidd_py.amqp.fields import FieldError, decode_pairs, encode_table
from qpidd_py.errors import ConnectionException, ReplyCode

MECHANISMS: Final = ("PLAIN", "AMQPLAIN")
EXTERNAL: Final = "EXTERNAL"
"""Offered to a client with a certificate; `qpidd_py.amqp.handshake`."""
ANONYMOUS: Final = "ANONYMOUS"
"""RFC 4505: no login; offered if there is a user for it."""
SCRAM: Final = "SCRAM-SHA-256"
"""Offered if a user has an entry for it."""
NOBODY: Final = "anonymous"
"""That user, where logins are not checked."""


Ask = Callable[[bytes, Callable[[bytes], None]], None]
"""Sends a challenge; the second argument is called with the response, if one comes."""


def no_ask(challenge: bytes, answered: Callable[[bytes], None]) -> None:
    """Of a login that has no challenge."""


class Attempt(NamedTuple):
    """One login."""

    peer: str
    """HOST:PORT."""
    mechanism: str
    response: bytes
    wanted: Callable[[], bool] = lambda: True
    """False once the peer no longer waits for the answer."""
    ask: Ask = no_ask


Decided = Callable[[str | None], None]
"""Called with the user's name, or with None if the login is refused."""
Authenticate = Callable[[Attempt, Decided], None]
"""Verifies a login and calls `Decided` once, now or later; not at all if the answer is no longer wanted."""


def credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """User and password of a response.  Raises ValueError for a malformed response."""
    if mechanism == "PLAIN":
        parts = response.split(b"\x00")
        if len(parts) != 3:
            raise FieldError("a PLAIN response has three parts")
        return parts[1].decode(), parts[2].decode()
    table = decode_pairs(response, 0, len(response))
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str):
        raise FieldError("an AMQPLAIN response needs LOGIN and PASSWORD")
    return user, password


def response(mechanism: str, user: str, password: str) -> bytes:
    """The response of a client."""
    if mechanism == "PLAIN":
        return b"\x00" + user.encode() + b"\x00" + password.encode()
    return encode_table({"LOGIN": user, "PASSWORD": password})[4:]


def refused(mechanism: str) -> ConnectionException:
    """The one answer to every failed login: it does not tell a wrong user from a wrong password."""
    return ConnectionException(
        ReplyCode.ACCESS_REFUSED, f"login was refused using authentication mechanism {mechanism}"
    )


def accept_all(attempt: Attempt, decided: Decided) -> None:
    """An `Authenticate` for a broker without authentication: accepts any user name."""
    try:
        user = credentials(attempt.mechanism, attempt.response)[0]
    except ValueError:
        user = ""
    decided(user or NOBODY)
