"""Clients that wait for a primary, instead of asking again and again.                                          Shell.

Theory.  After a primary has died nobody is primary until the manager has promoted somebody.  If backups refused clients
meanwhile, each would try all of them every few milliseconds, and the more clients there are the later the promotion
would be: a thousand make four thousand attempts in a third of a second, which cost the backups more than the
promotion.  So a backup that knows no primary, or that is about to become it, lets `connection.open` wait:

    it is promoted               the client is admitted, without another attempt
    it hears of another primary  the client is refused, and told where
    PATIENCE has passed          the client is refused, as by a backup that does not wait

While a client waits nothing more of it is read.  Links and administrators never wait.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ha.node import Node
from qpidd_py.broker.client_connection import ClientConnection

PATIENCE: Final = 1.0
"""Seconds: less than what clients allow for an attempt (`connect_timeout` of ours is 2 s)."""
AT_ONCE: Final = 32
"""Clients of which one turn decides."""


class WaitingClients:
    """One per member of a cluster; `look` is called after every change of what it knows of the primary."""

    def __init__(self, node: Node) -> None:
        self._node, self._env = node, node.local.env
        self._ends: dict[ClientConnection, float] = {}
        """Until when each may wait, the first one first."""
        self._looks = self._sleeps = False
        node.noticed = self.look

    def __len__(self) -> int:
        return len(self._ends)

    def keeps(self, connection: ClientConnection) -> bool:
        """Of a client that would be refused: true if it waits."""
        if self._primary_is_known():
            return False
        now = self._env.now()
        end = self._ends.setdefault(connection, now + PATIENCE)
        self._sleep(now)
        return now < end

    def _primary_is_known(self) -> bool:
        node = self._node
        if node.local.state.is_primary:
            return True
        return bool(node.role.primary_address) and node.promoter is None and node.takeover is None

    def look(self) -> None:
        """Not in this turn, in which the state may change further."""
        if self._ends and not self._looks:
            self._looks = True
            self._env.after(0.0, self._decide)

    def _decide(self) -> None:
        self._looks = False
        now = self._env.now()
        due = [connection for connection, end in islice(self._ends.items(), AT_ONCE) if self._is_due(end, now)]
        for connection in due:
            connection.ask_again()
            if not connection.put_off:
                del self._ends[connection]
        if due:
            self.look()
        else:
            self._sleep(now)

    def _is_due(self, end: float, now: float) -> bool:
        return now >= end or self._primary_is_known()

    def _sleep(self, now: float) -> None:
        """Until the first may wait no longer."""
        if self._ends and not self._sleeps:
            self._sleeps = True
            self._env.after(max(next(iter(self._ends.values())) - now, 0.001), self._wake)

    def _wake(self) -> None:
        self._sleeps = False
        self.look()
