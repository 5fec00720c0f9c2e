"""Users and groups of an ACL file, while it is read.                                                           Pure.

A group has to be defined before it is used: a name that is no group yet is taken for a user's, and may not become a
group later.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from qpidd_py.security.acl.rules import identity
from qpidd_py.security.acl.words import ALL

_GROUP: Final = re.compile(r"[A-Za-z0-9_-]+")
_USER: Final = re.compile(r"[A-Za-z0-9._@/-]+")


class Names:
    """Errors are ValueErrors: what was found, and what was expected."""

    def __init__(self) -> None:
        self.groups: dict[str, set[str]] = {}
        self._used: dict[str, int] = {}
        """Names that were taken for users, and in which line."""

    def define(self, name: str, members: Collection[str], line: int) -> None:
        if not _GROUP.fullmatch(name) or name == ALL:
            raise ValueError(name, "a name of a group, of letters, digits, - and _")
        if name in self.groups:
            raise ValueError(name, "another name, since there is a group of this one")
        users: set[str] = set()
        for member in members:
            if member != name:
                users |= self.groups[member] if member in self.groups else {self._user(member, line)}
        if name in self._used:
            raise ValueError(name, f"a group before its first use, in line {self._used[name]}")
        self.groups[name] = users

    def users(self, name: str, line: int) -> Collection[str]:
        """Identities."""
        return self.groups[name] if name in self.groups else (self._user(name, line),)

    def audience(self, name: str, line: int) -> str:
        """The name of the group, or the identity of the user."""
        return name if name in self.groups else self._user(name, line)

    def _user(self, name: str, line: int) -> str:
        if not _USER.fullmatch(name) or name == ALL:
            raise ValueError(name, "a user or a group, of letters, digits and - _ . @ /")
        self._used.setdefault(name, line)
        return identity(name)

    def audiences(self) -> dict[str, tuple[str, ...]]:
        """Of each user that is named: the groups, and itself."""
        found: dict[str, list[str]] = {identity(name): [identity(name)] for name in self._used}
        for group, users in self.groups.items():
            for user in users:
                found[user].append(group)
        return {user: tuple(audiences) for user, audiences in found.items()}
