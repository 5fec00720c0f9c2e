"""The two mechanisms: PLAIN (RFC 4616) and AMQPLAIN (user and password in a field table).  Pure; both sides."""

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from qpidd_py.amqp.fields import FieldError, decode_pairs, encode_table
from qpidd_py.errors import ConnectionException, ReplyCode

MECHANISMS: Final = ("PLAIN", "AMQPLAIN")

Authenticate = Callable[[str, bytes], str]
"""(mechanism, response) -> user; raises `ConnectionException` 403."""


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


def password_check(users: Mapping[str, str]) -> Authenticate:
    """An `Authenticate` over a table of passwords; the table may change later."""

    def authenticate(mechanism: str, answer: bytes) -> str:
        try:
            user, password = credentials(mechanism, answer)
        except ValueError as error:
            raise refused(mechanism) from error
        expected = users.get(user)
        matches = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not matches:
            raise refused(mechanism)
        return user

    return authenticate


def accept_all(mechanism: str, answer: bytes) -> str:
    """An `Authenticate` for a broker without authentication: accepts any user name."""
    try:
        return credentials(mechanism, answer)[0] or "anonymous"
    except ValueError:
        return "anonymous"
