"""What requests about settings have in common."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.setting_kinds import check_setting
from qpidd_py.broker.settings import MOST, Key
from qpidd_py.management.request import Json, NotFound, NotPrimary, RequestError, text
from qpidd_py.security.entries import HOST, USER

NAME_MAX: Final = 255
"""Octets of a name."""
List = Callable[[], Iterator[Json]]
Change = Callable[[Json], tuple[Json, int]]
"""Gives the result, and the position at which it is safe."""


class SettingRequests:
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.settings = broker.settings

    def put(self, key: Key, value: Mapping[str, Any]) -> tuple[Json, int]:
        """The answer to a change, which says whether it was `made`, or there already, and its position.  Raises
        RequestError for a value that is none, or one too many."""
        self.check(key, value)
        made = self.settings.get(key) is None
        if made and len(self.settings) >= MOST:
            raise RequestError(f"{MOST} settings are there, no more are possible")
        return {"made": True} if made else {}, self.settings.put(key, value)

    def keep(self, key: Key, left: Mapping[str, Any]) -> tuple[Json, int]:
        """What is left of a setting; without anything it goes."""
        return {}, self.put(key, left)[1] if left else self.settings.delete(key)

    def check(self, key: Key, value: Mapping[str, Any]) -> None:
        """Raises RequestError for a value that is none, and NotPrimary on a backup."""
        self.check_primary()
        try:
            check_setting(key.kind, value)
            encode_table(value)  # a number may be too large for the log
        except ValueError as error:
            raise RequestError(f"{key.kind} {key.name!r}: {error}") from None

    def check_room(self, key: Key, most: int, called: str = "kind") -> None:
        """Raises RequestError for one more of a kind in a virtual host, or what that is called, than there may be."""
        there = (each for each, _ in self.settings.of(key.kind) if each.host == key.host)
        if self.settings.get(key) is None and sum(1 for _ in there) >= most:
            raise RequestError(f"{most} of this {called} are there, no more are possible")

    def present(self, key: Key) -> Key:
        """One that may be deleted.  Raises NotFound, and NotPrimary on a backup."""
        self.check_primary()
        if self.settings.get(key) is None:
            raise NotFound(f"no {key.kind} {key.name!r}")
        return key

    def virtual_host(self, arguments: Json) -> str:
        """The name of one that there is.  Raises NotFound."""
        host = text(arguments, "vhost", HOST)
        if self.broker.vhosts.get(host) is None:
            raise NotFound(f"no virtual host {host[:64]!r}")
        return host

    def user_of(self, arguments: Json) -> str:
        """The user that they name.  Raises NotFound for one that is not there."""
        name = named(arguments, "user")
        if self.settings.get(Key(USER, "", name)) is None and not self.broker.rights.local(name):
            raise NotFound(f"no user {name!r}")
        return name

    def check_primary(self) -> None:
        if self.broker.passive:
            raise NotPrimary("users, policies and parameters are replicated and this broker is a backup")


def named(arguments: Json, name: str) -> str:
    """A name among the arguments.  Raises RequestError."""
    found = text(arguments, name)
    try:
        octets = len(found.encode())
    except UnicodeEncodeError:
        raise RequestError(f"{name} {found[:64]!a} is no text") from None
    if not found or octets > NAME_MAX or not found.isprintable():
        raise RequestError(f"{name} {found[:64]!r} has {octets} octets, wanted 1 to {NAME_MAX} that can be printed")
    return found
