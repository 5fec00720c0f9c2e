"""The broker that a tool asks, for one call of the program.                                                Shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from qpidd_py.cli.method_socket import MethodSocket


@dataclass
class Ask:
    """`(method, **arguments)` -> the result of a request; raises RequestRefused."""

    _broker: ManagementSocket
    target: Target
    deadline: Deadline

    def __call__(self, method: str, **arguments: Any) -> Any:
        return self._broker.request(method, arguments)

    def methods(self, vhost: str) -> MethodSocket:
        """Another connection, for declarations in this virtual host."""
        return MethodSocket(self.target._replace(vhost=vhost), self.deadline)
