"""Limits of users and of virtual hosts, as settings: the cluster has them, and they change at any time.       Pure.

kind            host    name      value
user-limits             user      max-connections, max-channels
vhost-limits    host    limits    max-connections, max-queues

A negative number is no limit, 0 refuses all.  A limit that is lowered ends nothing that is there.  Limits of users do
not hold for brokers and for the tools of administrators (`ClientConnection.limited`), those of the host for no
administrative connection.  Texts and codes are RabbitMQ's.
"""

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.broker.settings import Settings
from qpidd_py.errors import ChannelException, ConnectionException, ReplyCode

USER_LIMITS: Final = "user-limits"
VHOST_LIMITS: Final = "vhost-limits"
KINDS: Final = (USER_LIMITS, VHOST_LIMITS)
NAME: Final = "limits"
"""Of the setting of a virtual host."""
CONNECTIONS: Final = "max-connections"
CHANNELS: Final = "max-channels"
QUEUES: Final = "max-queues"
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    USER_LIMITS: (CONNECTIONS, CHANNELS),
    VHOST_LIMITS: (CONNECTIONS, QUEUES),
}
_LARGEST: Final = 1 << 53


def check_limits(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of this kind."""
    for name, most in value.items():
        if name not in NAMES[kind]:
            raise ValueError(f"{name!r:.60} is no limit, expected some of {', '.join(NAMES[kind])}")
        if not isinstance(most, int) or isinstance(most, bool) or abs(most) > _LARGEST:
            raise ValueError(f"{name} {most!r:.60}, expected a whole number; negative: no limit")


class Quotas:
    """Of one broker; each check raises for one that is too many, and is told how many there are."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check_user(self, user: str, number: int) -> None:
        """Of connections.  Raises ConnectionException."""
        most = self._of_user(user, CONNECTIONS)
        if 0 <= most <= number:
            raise _refused(f"connection refused for user '{user}': user connection limit ({most}) is reached")

    def check_host(self, host: str, user: str, number: int) -> None:
        """Of connections.  Raises ConnectionException."""
        most = self._of_host(host, CONNECTIONS)
        if 0 <= most <= number:
            raise _refused(f"access to vhost '{host}' refused for user '{user}': connection limit ({most}) is reached")

    def check_channel(self, user: str, number: int) -> None:
        """Raises ConnectionException."""
        most = self._of_user(user, CHANNELS)
        if 0 <= most <= number:
            text = f"number of channels opened for user '{user}' has reached the maximum allowed user limit of ({most})"
            raise _refused(text)

    def check_queue(self, host: str, name: str, number: int) -> None:
        """Raises ChannelException."""
        most = self._of_host(host, QUEUES)
        if 0 <= most <= number:
            text = f"cannot declare queue '{name}': queue limit in vhost '{host}' ({most}) is reached"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)

    def _of_user(self, user: str, name: str) -> int:
        """Negative: none."""
        return int((self._settings.get((USER_LIMITS, "", user)) or {}).get(name, -1))

    def _of_host(self, host: str, name: str) -> int:
        return int((self._settings.get((VHOST_LIMITS, host, NAME)) or {}).get(name, -1))


def _refused(text: str) -> ConnectionException:
    return ConnectionException(ReplyCode.NOT_ALLOWED, text)
