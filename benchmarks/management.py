"""Management requests over a connection that stays open, so that a promotion costs one round trip."""

from __future__ import annotations

from typing import Any

from benchmarks.processes import BenchmarkError
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, RequestRefused, Target

CONNECT_TIMEOUT = 5.0  # seconds


class RefusedError(BenchmarkError):
    """The broker refused the request."""


class Management:
    """One connection to one broker."""

    def __init__(self, port: int) -> None:
        try:
            self._socket = ManagementSocket(Target("127.0.0.1", port), Deadline(CONNECT_TIMEOUT))
        except (BrokerError, OSError) as error:
            raise BenchmarkError(f"management connection to port {port}: {error!r}") from error

    def call(self, method: str, timeout: float = 10, **arguments: Any) -> dict[str, Any]:
        """Raises RefusedError with the broker's text; BenchmarkError when it is lost or after `timeout` seconds."""
        try:
            result: dict[str, Any] = self._socket.request(method, arguments, Deadline(timeout))
        except RequestRefused as error:
            raise RefusedError(f"{method}: {error}") from error
        except (BrokerError, OSError) as error:
            raise BenchmarkError(f"{method}: {error!r}") from error
        return result

    def state(self) -> str:
        """joining, catchup, ready, recovering, active or standalone."""
        return str(self.call("ha.status")["state"])

    def close(self) -> None:
        self._socket.close()
