"""Pauses all clients before a planned switch-over, so that nothing is left half done.

Publishers get `connection.blocked`; consumers get no more deliveries, so that they soon acknowledge what they hold.
`connection.blocked` has no answer, so a client may say at `connection.open` that it knows `channel.flow` as well
(client property `qpid.channel_flow`): on channel.flow it stops publishing on the channel, writes its pending
acknowledgements and answers with flow-ok.  The broker has then read everything that it sent before.
"""

from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_channel import ClientChannel

FLOW: Final = "qpid.channel_flow"
CAUSE: Final = "pause"


class Pause:
    """Lasts from the constructor to `end`; channels that are opened meanwhile are not asked."""

    def __init__(self, broker: Broker, reason: str) -> None:
        self._broker = broker
        broker.block(reason, CAUSE)
        self._held: list[ClientChannel] = []
        self._asked: list[ClientChannel] = []
        for connection in broker.connections:
            if connection.opened:
                answers = bool(connection.client.properties.get(FLOW))
                for channel in connection.channels.values():
                    self._begin(channel, answers)

    def _begin(self, channel: ClientChannel, answers: bool) -> None:
        if channel.core.active and channel.core.consumers:
            channel.core.active = False
            self._held.append(channel)
        if answers and not channel.core.closing:
            channel.ask_flow(False)
            self._asked.append(channel)

    def end(self) -> None:
        """Resumes all clients; channels that have closed meanwhile are skipped."""
        self._broker.unblock(CAUSE)
        for channel in self._live(self._asked):
            channel.ask_flow(True)
        for channel in self._live(self._held):
            channel.core.active = True
        self._asked, self._held = [], []

    @property
    def unanswered(self) -> int:
        """Channels that support channel.flow and have not answered yet."""
        return sum(channel.flowing for channel in self._live(self._asked))

    @property
    def unacknowledged(self) -> int:
        """Deliveries that consumers still hold."""
        channels = (channel for connection in self._broker.connections for channel in connection.channels.values())
        return sum(channel.core.unacked_count for channel in channels)

    @staticmethod
    def _live(channels: list[ClientChannel]) -> list[ClientChannel]:
        return [channel for channel in channels if channel.connection.channels.get(channel.number) is channel]
