"""Texts as AMQP's short strings."""

from __future__ import annotations

from qpidd_py.amqp.constants import SHORTSTR_MAX
from qpidd_py.errors import ReplyCode


def reply_text(code: int, text: str) -> str:
    """The name of the code in front, as clients expect it; cut to a short string."""
    name = ReplyCode(code).name if code in ReplyCode.__members__.values() else str(code)
    return cut(text if text.startswith(name) else f"{name} - {text}")


def cut(text: str) -> str:
    """What of it fits a short string."""
    return text.encode()[:SHORTSTR_MAX].decode("utf-8", "ignore")
