"""The broker beside `qpid-shovel`.                                                                            Shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client_lib.urls.url import Endpoint
from qpidd_py.broker.parameters import SHOVEL
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, RequestRefused, Target

Json = dict[str, Any]


class Broker:
    """The one beside this program; its methods block."""

    def __init__(self, target: Target, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._socket: ManagementSocket | None = None

    def report(self, shovels: list[Json]) -> list[Json]:
        """What shall run.  Raises BrokerError, OSError."""
        return self.ask("shovel.report", {"shovels": shovels})  # type: ignore[no-any-return]

    def clear(self, host: str, name: str, uid: int) -> None:
        """Unless the parameter was set anew.  Raises BrokerError, OSError."""
        self.ask("parameter.clear", {"component": SHOVEL, "vhost": host, "name": name, "uid": uid})

    def another(self) -> Broker:
        """With a connection of its own."""
        return Broker(self._target, self._seconds)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, method: str, arguments: Json) -> Any:
        """Raises BrokerError, OSError."""
        deadline = Deadline(self._seconds)
        try:
            if self._socket is None:
                self._socket = ManagementSocket(self._target, deadline)
            return self._socket.request(method, arguments, deadline)
        except RequestRefused:
            raise
        except (BrokerError, OSError):
            self.close()
            raise

    def address(self, virtual_host: str) -> tuple[Endpoint, Mapping[str, Any]]:
        """For `client_lib`."""
        host, port, login, tls, *_ = self._target
        end = Endpoint(host, port, login.user, login.password, virtual_host, "tcp" if tls is None else "ssl")
        options = {"ssl_context": tls, "sasl_mechanisms": login.mechanism or None}
        return end, {name: value for name, value in options.items() if value is not None}
