"""Error families, by cause and consequence, and the AMQP reply codes.

An error of a peer closes its channel (`ChannelException`), its connection (`ConnectionException`) or its replication
link (`LinkError`).  A broken invariant of the broker (`InvariantError`) ends the process: it reaches `__main__`, which
ends with a documented exit code, because a broker in a contradictory state must not confirm.
"""

from enum import IntEnum
from typing import Final

EXIT_DISK: Final = 4
"""Exit code of a broker whose journal cannot be written, or whose page file cannot be read (`qpidd_py.__main__`)."""


class ReplyCode(IntEnum):
    """Reply codes of AMQP 0-9-1 (specification, section 1.2, "constants")."""

    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


LINE_MAX: Final = 1000
"""Characters of a reason that a person is given; what was found may have been a megabyte."""


def one_line(text: str) -> str:
    """The text without line breaks, and cut in the middle if it is long: the end says what was expected."""
    line = " ".join(filter(None, (each.strip() for each in text.splitlines())))
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX // 2]} ... {line[-LINE_MAX // 2 :]}"


class QpiddError(Exception):
    """Base of all errors that this package defines."""


class AmqpError(QpiddError):
    """A peer broke a rule of AMQP; carries the arguments of `close`."""

    def __init__(self, reply_code: int, reply_text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(f"{reply_code} {reply_text}")
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.class_id = class_id
        self.method_id = method_id


class ChannelException(AmqpError):
    """Closes the channel; the connection goes on."""


class ConnectionException(AmqpError):
    """Closes the connection; others are not affected."""


class LinkError(QpiddError):
    """The peer of a replication link broke the replication protocol; closes the link."""


class InvariantError(QpiddError):
    """An invariant of the broker is broken; ends the process."""


class PageError(InvariantError):
    """A message that has left memory cannot be read back; ends the process, with `EXIT_DISK`, where it cannot wait."""


class RotError(LinkError):
    """A request needs a message that cannot be read back."""


class ConfigError(QpiddError):
    """A setting is unknown or has an unusable value; the text names the value and the expectation, in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))
