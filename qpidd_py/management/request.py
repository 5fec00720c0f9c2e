"""The form of requests and answers, for all handlers."""

from collections.abc import Callable
from typing import Any, ClassVar

from qpidd_py.errors import ReplyCode

Json = dict[str, Any]
Reply = Callable[[Json], None]


class RequestError(Exception):
    """The request cannot be answered; code and text go to the client."""

    code: ClassVar[int] = ReplyCode.PRECONDITION_FAILED


class Forbidden(RequestError):
    """The user may not ask for this."""

    code = ReplyCode.ACCESS_REFUSED


class NotFound(RequestError):
    """What the request names is not there."""

    code = ReplyCode.NOT_FOUND


class NotPrimary(RequestError):
    """Only a primary can change this."""

    code = ReplyCode.CONNECTION_FORCED


def text(arguments: Json, name: str, default: str | None = None) -> str:
    """Raises RequestError unless it is a string."""
    value: Any = arguments.get(name, default)
    if not isinstance(value, str):
        raise RequestError(f"{name} is {value!r:.80}, wanted a string")
    return value


def flag(arguments: Json, name: str) -> bool:
    """Raises RequestError unless it is a boolean; false if it is absent."""
    value: Any = arguments.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(f"{name} is {value!r:.80}, wanted true or false")
    return value
