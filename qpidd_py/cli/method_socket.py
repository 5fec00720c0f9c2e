"""A blocking connection for the methods of one channel.  Shell."""

from collections.abc import Mapping
from typing import Any

from pamqp.base import Frame

from qpidd_py.amqp.method_client import Answered, ChannelReady, MethodClient, Refused
from qpidd_py.cli.client_socket import ClientSocket, Deadline, RequestRefused, Target


class MethodSocket(ClientSocket):
    """For declare, delete and bind; unusable after a `RequestRefused`."""

    def __init__(self, target: Target, deadline: Deadline, properties: Mapping[str, Any] | None = None) -> None:
        self._methods = MethodClient(target.login, properties, target.vhost)
        super().__init__(target, deadline, self._methods, ChannelReady)

    def call(self, command: Frame) -> Frame:
        """The broker's answer; raises `RequestRefused` with its reason."""
        self._methods.call(command)
        event = self._expect((Answered, Refused))
        if isinstance(event, Refused):
            raise RequestRefused(f"{event.reply_code} {event.reply_text}")
        found: Frame = event.command
        return found


def with_fields(command: Frame, **fields: Any) -> Frame:
    """Set without pamqp's constructors, which refuse names that brokers allow."""
    for name, value in fields.items():
        setattr(command, name, value)
    return command
