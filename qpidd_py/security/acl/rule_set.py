"""All rules of an ACL file, indexed, so that a lookup costs the rules that may match and not all.               Pure.

Rules are kept for each (action, object) and each audience: everyone, a group, a user; of these those with a whole name
by that name.  A user is asked for by its audiences, so a group of thousands costs no more than one of two.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qpidd_py.amqp.topic import TopicTrie
from qpidd_py.security.acl.hosts import Range, address_of, within
from qpidd_py.security.acl.rules import Lookup, Rule, Verdict
from qpidd_py.security.acl.topics import Pattern
from qpidd_py.security.acl.words import ALL, EXCHANGE, KEY, PAIRS, PUBLISH, Pair

LAST: Final = Rule(1 << 62, 0, "", True)
"""Stands for no rule."""
EVERYONE: Final = ""
"""The audience of rules for all."""
CONNECTIONS: Final = "connections"
QUEUES: Final = "queues"
QUOTAS: Final = (CONNECTIONS, QUEUES)


def place(rule: Rule) -> int:
    return rule.number


class Summary(NamedTuple):
    """Of what a user may do."""

    everything: bool
    silent: bool
    """And nothing is to be logged."""
    publishes: bool
    """The same of publishes."""


class Quota(NamedTuple):
    most: int
    line: int


@dataclass(frozen=True)
class HostRule:
    """Who may connect; `ranges` None: from everywhere."""

    rule: Rule
    ranges: tuple[Range, ...] | None


class Bucket:
    """Rules with the same name, or without one."""

    def __init__(self) -> None:
        self._plain: list[Rule] = []
        self._keyed: list[Rule] = []
        self._keys: TopicTrie[Rule] | None = None

    def add(self, rule: Rule) -> None:
        key = rule.key
        if key is None:
            self._plain.append(rule)
            return
        self._keyed.append(rule)
        self._keys = self._keys or TopicTrie()
        self._keys.add(key.encode(), rule)

    def candidates(self, key: str | int | None) -> list[Rule]:
        """Those that may match, in the order of the file."""
        if self._keys is None or key is None:
            return self._plain
        pattern = isinstance(key, Pattern)
        keyed = self._keyed if pattern else self._keys.match(str(key).encode("utf-8", "surrogateescape"))
        return sorted([*self._plain, *keyed], key=place) if keyed else self._plain


class Rules:
    """For one (action, object) and one audience."""

    def __init__(self) -> None:
        self._named: dict[str, Bucket] = {}
        self._others = Bucket()
        self.passing = self.refusing = self.noted = LAST
        """The first rule that lets everything pass, that may refuse something, that is to be logged."""

    def add(self, rule: Rule) -> None:
        name = rule.whole_name
        (self._others if name is None else self._named.setdefault(name, Bucket())).add(rule)
        if rule.passes:
            self.passing = min(self.passing, rule, key=place)
        if not rule.allows or rule.limits:
            self.refusing = min(self.refusing, rule, key=place)
        if rule.allows and rule.logs:
            self.noted = min(self.noted, rule, key=place)

    def candidates(self, lookup: Lookup) -> Iterator[list[Rule]]:
        key = lookup.properties.get(KEY)
        if (named := self._named.get(lookup.name)) is not None:
            yield named.candidates(key)
        yield self._others.candidates(key)


@dataclass
class RuleSet:
    """What one file says.  `audiences`: of each user that it names."""

    file: str = ""
    count: int = 0
    groups: int = 0
    default: Rule = Rule(1 << 61, 0, "no rule allows it", False)
    audiences: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quotas: dict[str, dict[str, Quota]] = field(default_factory=dict)
    hosts: dict[str, list[HostRule]] = field(default_factory=dict)
    """By audience; those of EVERYONE come first."""
    host_default: Rule = Rule(1 << 61, 0, "no rule denies it", True)
    _rules: dict[Pair, dict[str, Rules]] = field(default_factory=dict)
    _summaries: dict[tuple[str, ...], Summary] = field(default_factory=dict)

    def add(self, rule: Rule, pairs: Iterable[Pair], audience: str) -> None:
        for pair in pairs:
            self._rules.setdefault(pair, {}).setdefault(audience, Rules()).add(rule)

    def know_users(self, audiences: Mapping[str, Iterable[str]]) -> None:
        """All rules are there: keeps those audiences that have some, so that many users have the same."""
        known = {*self.hosts}.union(*self._rules.values())
        kept = ((user, tuple(each for each in of if each in known)) for user, of in audiences.items())
        self.audiences = {user: of for user, of in kept if of}

    def summary(self, user: str) -> Summary:
        audiences = self.audiences.get(user, ())
        if audiences not in self._summaries:
            everything = not any(self.closed(user, pair) for pair in PAIRS)
            silent = all(self.silent(user, pair) for pair in PAIRS)
            self._summaries[audiences] = Summary(everything, silent, self.silent(user, (PUBLISH, EXCHANGE)))
        return self._summaries[audiences]

    def verdict(self, user: str, names: Mapping[str, str], lookup: Lookup) -> Verdict:
        """`user`: its identity; `names`: what stands for it in values."""
        lists = [each for rules in self._of(user, lookup.pair) for each in rules.candidates(lookup) if each]
        candidates = lists[0] if len(lists) == 1 else heapq.merge(*lists, key=place)
        for rule in candidates:
            allowed = rule.decides(lookup.properties, names)
            if allowed is not None:
                return Verdict(allowed, rule)
        return Verdict(self.default.allows, self.default)

    def closed(self, user: str, pair: Pair) -> Rule | None:
        """The first rule that may refuse something to the user; None: it may do everything."""
        found = self._of(user, pair)
        refusing = min([each.refusing for each in found], default=LAST, key=place)
        passing = min([each.passing for each in found], default=LAST, key=place)
        first = min(refusing, LAST if self.default.allows else self.default, key=place)
        last = min(passing, self.default if self.default.allows else LAST, key=place)
        return first if place(first) < place(last) else None

    def silent(self, user: str, pair: Pair) -> bool:
        """Whether nothing is refused and nothing is to be logged, so that no lookup is needed."""
        if self.closed(user, pair) is not None:
            return False
        found = self._of(user, pair)
        noted = min([place(each.noted) for each in found], default=place(LAST))
        passing = min([place(each.passing) for each in found], default=place(LAST))
        return min(passing, LAST.number if self.default.logs else self.default.number) < noted

    def enters(self, user: str, peer: str) -> Verdict:
        """Whether it may connect from `peer`.  What is not connected by TCP/IP may."""
        address = address_of(peer)
        for each in self._host_rules(user) if address is not None else ():
            if each.ranges is None or (address is not None and within(address, each.ranges)):
                return Verdict(each.rule.allows, each.rule)
        return Verdict(self.host_default.allows or address is None, self.host_default)

    def enters_from_somewhere(self, user: str) -> bool:
        for each in self._host_rules(user):
            if each.rule.allows or each.ranges is None:
                return each.rule.allows
        return self.host_default.allows

    def quota(self, kind: str, user: str) -> Quota | None:
        """None: there is none for this user, nor for all."""
        known = self.quotas.get(kind, {})
        return known.get(user) or known.get(ALL)

    @property
    def judges_publishes(self) -> bool:
        return any(pair[0] == PUBLISH for pair in self._rules) or not self.default.allows or self.default.logs

    def _host_rules(self, user: str) -> list[HostRule]:
        own = [each for audience in self.audiences.get(user, ()) for each in self.hosts.get(audience, ())]
        return [*self.hosts.get(EVERYONE, ()), *sorted(own, key=lambda each: each.rule.number)]

    def _of(self, user: str, pair: Pair) -> Sequence[Rules]:
        rules = self._rules.get(pair)
        if not rules:
            return ()
        return [found for each in (EVERYONE, *self.audiences.get(user, ())) if (found := rules.get(each)) is not None]
