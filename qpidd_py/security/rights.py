"""What a user may do in a virtual host: RabbitMQ's permissions.                                               Pure.

`configure`, `write` and `read` are patterns for names of queues and exchanges, and those of a topic exchange for
routing keys.  They are searched for, not matched as a whole, by an engine whose time is linear in the text (RE2).  An
empty pattern fits the empty name only, as in RabbitMQ.

    user                                                         may
    of brokers (ha-username), or where logins are not checked    everything
    of the user file, without a permission in the settings       everything, in all virtual hosts
    of a certificate (EXTERNAL), unknown to the settings         the same
    any other                                                    what its permission says; without one it cannot enter

`Access` is one object per user: connections keep it, and a change of a setting changes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from qpidd_py.security.entries import ADMINISTRATOR, HOST, MANAGEMENT, PERMISSION, TAGS, TOPIC, USER

log = logging.getLogger(__name__)

KEPT: Final = 4096
"""Answers that are kept for a user."""
_MEMORY: Final = 1 << 20
"""Octets that a compiled pattern may use."""


class Matcher(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None: ...


class Lookup(Protocol):
    """The settings of the cluster (`broker.settings`)."""

    def get(self, key: tuple[str, str, str]) -> Mapping[str, Any] | None: ...


class PatternError(ValueError):
    """The pattern cannot be used; says why."""


def compiled(pattern: str) -> Matcher:
    """Raises PatternError."""
    import re2  # here: most brokers have no permissions

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        found: Matcher = re2.compile(pattern or "^$", options)
    except re2.error as error:
        text = error.args[0] if error.args else error
        reason = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        raise PatternError(f"pattern {pattern!r:.80}: {reason:.200}") from None
    return found


def expanded(pattern: str, user: str, host: str) -> str:
    """With the variables of a pattern for routing keys."""
    for name, value in (("{username}", user), ("{vhost}", host)):
        if name in pattern:
            pattern = pattern.replace(name, _escaped(value))
    return pattern


def _escaped(text: str) -> str:
    import re2

    found: str = re2.escape(text)
    return found


class Access:
    """What one user may do in one virtual host."""

    def __init__(self, user: str, host: str, certified: bool = False) -> None:
        """`certified`: an authority of ours has signed the name."""
        self.user = user
        self.host = host
        self.certified = certified
        self.everything = True
        self.enters = True
        self.tags: frozenset[str] = frozenset(TAGS)
        self._patterns: Mapping[str, Any] = {}
        self._topics: Mapping[str, Any] = {}
        self._matchers: dict[str, Matcher | None] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def become(
        self, permission: Mapping[str, Any] | None, topics: Mapping[str, Any], tags: frozenset[str], everything: bool
    ) -> None:
        """The settings of this user are these now."""
        self.everything, self.enters, self.tags = everything, everything or permission is not None, tags
        self._patterns, self._topics = permission or {}, topics
        self._matchers.clear()
        self._known.clear()

    def pattern(self, permission: str) -> str:
        return str(self._patterns.get(permission, ""))

    def may(self, permission: str, name: str) -> bool:
        """`name`: of a queue or exchange."""
        if self.everything:
            return True
        known = self._known.get((permission, name))
        if known is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            known = self._known[permission, name] = self._fits(self.pattern(permission), name)
        return known

    def may_topic(self, permission: str, exchange: str, key: str) -> bool:
        """Everything, where no pattern is set for the exchange."""
        found = self._topics.get(exchange)
        if self.everything or not isinstance(found, dict):
            return True
        return self._fits(expanded(str(found.get(permission, "")), self.user, self.host), key)

    def may_topics(self, permission: str, exchange: str, key: str | None) -> bool:
        """`key` None: any."""
        if key is None:
            return self.everything or not isinstance(self._topics.get(exchange), dict)
        return self.may_topic(permission, exchange, key)

    def has(self, tag: str) -> bool:
        """An administrator has all tags, and who has any has the tag management."""
        return ADMINISTRATOR in self.tags or tag in self.tags or (tag == MANAGEMENT and bool(self.tags))

    def _fits(self, pattern: str, text: str) -> bool:
        if not self.enters:
            return False
        if pattern not in self._matchers:
            try:
                self._matchers[pattern] = compiled(pattern)
            except PatternError as error:  # the primary has checked it, with another version of the library
                log.error("user %r may do nothing by a %s", self.user, error)
                self._matchers[pattern] = None
        matcher = self._matchers[pattern]
        return matcher is not None and matcher.search(text) is not None


class Rights:
    """Of all users.  A user that was deleted has none, if it is connected still."""

    def __init__(self, settings: Lookup) -> None:
        self._settings = settings
        self._accesses: WeakValueDictionary[tuple[str, str, bool], Access] = WeakValueDictionary()
        self.checked = False
        """Whether logins are; where they are not, every user may do everything."""
        self.trusted: Callable[[str], bool] = lambda user: False
        """Whether it is a user of brokers."""
        self.local: Callable[[str], bool] = lambda user: False
        """Whether it is a user of the user file, or of this process."""
        self.names: Callable[[], Collection[str]] = tuple
        """All of these."""
        self.hosts: Callable[[], Collection[str]] = lambda: (HOST,)
        """The names of the virtual hosts."""

    def access(self, user: str, host: str, certified: bool = False) -> Access:
        found = self._accesses.get((user, host, certified))
        if found is None:
            found = self._accesses[user, host, certified] = Access(user, host, certified)
            self._look(found)
        return found

    def entered(self, user: str, certified: bool = False) -> frozenset[str]:
        """The virtual hosts that it may enter."""
        hosts = frozenset(self.hosts())
        if self.access(user, HOST, certified).everything:
            return hosts
        return frozenset(host for host in hosts if self._settings.get((PERMISSION, host, user)) is not None)

    def home(self, user: str, certified: bool = False) -> str:
        """The virtual host of a tool that names none: `/`, or the first one that the user may enter."""
        hosts = self.entered(user, certified)
        return min(hosts) if hosts and HOST not in hosts else HOST

    def changed(self, user: str | None = None) -> None:
        """To be called when a setting of this user was changed, or (None) the user file."""
        for access in [each for each in self._accesses.values() if user in (None, each.user)]:
            self._look(access)

    def _has_permission(self, user: str) -> bool:
        """In any virtual host: who has one somewhere has no others."""
        return any(self._settings.get((PERMISSION, host, user)) is not None for host in self.hosts())

    def _look(self, access: Access) -> None:
        user, host = access.user, access.host
        entry = self._settings.get((USER, "", user))
        permission = self._settings.get((PERMISSION, host, user))
        unset = entry is None and (access.certified or self.local(user)) and not self._has_permission(user)
        unlimited = not self.checked or self.trusted(user) or unset
        tags = TAGS if unlimited else (entry or {}).get("tags", ())
        access.become(permission, self._settings.get((TOPIC, host, user)) or {}, frozenset(tags), unlimited)
