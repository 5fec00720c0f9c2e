"""The rules that are in force in one broker, and what one user may do by them.                                 Pure.

`AclAccess` is one object per user: connections keep it, and other rules change it.  Without rules it allows everything.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from qpidd_py.security.acl.rule_set import QUEUES, QUOTAS, Quota, RuleSet, Summary
from qpidd_py.security.acl.rules import Lookup, Verdict, identity, substitutes
from qpidd_py.security.acl.words import EXCHANGE, KEY, NAME, PUBLISH

KEPT: Final = 4096
"""Answers about publishes that are kept for a user."""
_PUBLISH: Final = (PUBLISH, EXCHANGE)


class AclAccess:
    """What one user may do."""

    def __init__(self, user: str = "") -> None:
        self._identity, self._names = identity(user), substitutes(user)
        self._known: dict[tuple[str, str], Verdict] = {}
        self.become(None)

    def become(self, rules: RuleSet | None) -> None:
        """These are in force now."""
        self._rules = rules
        self._known.clear()
        found = rules.summary(self._identity) if rules is not None else Summary(True, True, True)
        self.everything, self.publishes = found.everything, found.publishes
        self.silent = found.silent and (rules is None or QUEUES not in rules.quotas)
        """It need not be asked: nothing is refused, logged or counted."""

    @property
    def file(self) -> str:
        return self._rules.file if self._rules is not None else ""

    def verdict(self, lookup: Lookup) -> Verdict | None:
        """None: no rule is in force."""
        return None if self._rules is None else self._rules.verdict(self._identity, self._names, lookup)

    def publish(self, exchange: str, key: str) -> Verdict | None:
        """The same for a publish, whose answer is kept."""
        known = self._known.get((exchange, key))
        if known is None and self._rules is not None:
            if len(self._known) >= KEPT:
                self._known.clear()
            lookup = Lookup(_PUBLISH, {NAME: exchange, KEY: key})
            known = self._known[exchange, key] = self._rules.verdict(self._identity, self._names, lookup)
        return known

    def enters(self, peer: str) -> Verdict | None:
        """Whether it may connect from HOST:PORT."""
        return None if self._rules is None else self._rules.enters(self._identity, peer)

    def quota(self, kind: str) -> Quota | None:
        """None: none for this user, nor for all."""
        return None if self._rules is None else self._rules.quota(kind, self._identity)


class Acl:
    """Of one broker."""

    def __init__(self) -> None:
        self._accesses: WeakValueDictionary[str, AclAccess] = WeakValueDictionary()
        self.rules: RuleSet | None = None
        self.otherwise: dict[str, int] = {}
        """Quotas of users that have none in a file with some."""
        self.loaded = 0
        """When, µs since 1970."""
        self.denials = 0
        """Since the broker's start."""

    def access(self, user: str) -> AclAccess:
        found = self._accesses.get(user)
        if found is None:
            found = self._accesses[user] = AclAccess(user)
            found.become(self.rules)
        return found

    def use(self, rules: RuleSet | None, now: int) -> None:
        """`now`: µs since 1970."""
        self.rules, self.loaded = rules, now
        for access in list(self._accesses.values()):
            access.become(rules)

    def counts(self, kind: str) -> bool:
        """Whether there are quotas of this kind: then each user has one."""
        return self.rules is not None and kind in self.rules.quotas

    def quota(self, kind: str, access: AclAccess) -> Quota | None:
        """None: there are none of this kind."""
        return (access.quota(kind) or Quota(self.otherwise.get(kind, 0), 0)) if self.counts(kind) else None

    def shown(self) -> dict[str, object]:
        rules = self.rules or RuleSet()
        return {
            "file": rules.file,
            "enforcing": self.rules is not None,
            "rules": rules.count,
            "groups": rules.groups,
            "default": "allow" if self.rules is None or rules.default.allows else "deny",
            "judges_publishes": self.rules is not None and rules.judges_publishes,
            "loaded": self.loaded / 1e6,
            "denials": self.denials,
            "quotas": {kind: {user: each.most for user, each in rules.quotas.get(kind, {}).items()} for kind in QUOTAS},
        }
