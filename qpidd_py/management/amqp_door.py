"""The AMQP door: requests published to the exchange `qpid.management`, answers from the pseudo queue of that name.

The routing key is the method, the body its arguments as a JSON object (an empty body counts as `{}`); the answer is a
delivery on the same channel with the request's correlation id and a JSON body as `model` describes it; a long list
comes in several deliveries, all but the last one with `"more": true`.  A client consumes from `qpid.management`
(no-ack) before it sends requests; without a consumer answers are dropped.  Errors of a request are in its answer and
never close the channel: several requests may be outstanding on it.  `turns` says when each is answered; those to HA,
which answers at once or later, do not wait.
"""

import json
import logging
from typing import Any

from qpidd_py.amqp.codec import decode_properties
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.errors import InvariantError, ReplyCode, one_line
from qpidd_py.management.model import Management
from qpidd_py.management.request import Json, Reply
from qpidd_py.management.turns import Defer, Slices, Turns

log = logging.getLogger(__name__)

MAX_REQUEST = 1 << 18
"""Octets of a request's body; requests are small."""


class AmqpDoor:
    """What `Broker.management` is set to."""

    def __init__(self, management: Management, defer: Defer | None = None) -> None:
        self._management = management
        clocks = management.broker.clocks
        self._turns = Turns(defer, lambda: clocks()[1] / 1e6)

    def __call__(
        self, connection: ClientConnection, channel: int, routing_key: bytes, header: bytes, body: bytes
    ) -> None:
        """May raise `ConnectionException` 502 for a content header that cannot be read."""
        correlation_id = str(decode_properties(header).get("correlation_id", ""))

        def reply(answer: Json) -> None:
            if "error" in answer:
                answer = {**answer, "error": one_line(str(answer["error"]))}
            # The connection drops answers for a closed channel.
            connection.answer(channel, correlation_id, json.dumps(answer, separators=(",", ":")).encode())

        method = routing_key.decode("utf-8", "backslashreplace")
        try:
            arguments = read_arguments(body)
        except ValueError as error:
            reply({"ok": False, "error": f"{method}: {error}", "code": ReplyCode.SYNTAX_ERROR})
            return
        slices = self._guarded(method, self._management.work(method, arguments, reply, connection), reply)
        if method.startswith("ha."):
            for _ in slices:
                pass
        else:
            self._turns.add(connection.channels[channel], slices)

    @staticmethod
    def _guarded(method: str, slices: Slices, reply: Reply) -> Slices:
        """A defect in a handler must fail one request, not the broker; the log has the details."""
        try:
            yield from slices
        except InvariantError:
            raise
        except Exception as error:
            log.exception("management request %s failed", method)
            text = f"internal error: {type(error).__name__}: {error}"
            reply({"ok": False, "error": text, "code": ReplyCode.INTERNAL_ERROR})


def install(broker: Broker, version: str = "", defer: Defer | None = None) -> Management:
    """Opens the door; returns the core, for other doors."""
    management = Management(broker, version, defer)
    broker.management = AmqpDoor(management, defer)
    return management


def read_arguments(body: bytes) -> Json:
    """Raises `ValueError` with the found and the expected form."""
    if len(body) > MAX_REQUEST:
        raise ValueError(f"arguments of {len(body)} octets, at most {MAX_REQUEST} are taken")
    if not body:
        return {}
    try:
        arguments: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"arguments are not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments are a JSON {type(arguments).__name__}, wanted an object")
    return arguments
