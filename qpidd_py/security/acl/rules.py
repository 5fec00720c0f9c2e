"""One rule of an ACL file, and whether it decides a lookup.                                                    Pure.

A rule matches a lookup if all its conditions hold.  Limits of a queue are no conditions: a rule that allows denies what
is beyond them, and no later rule is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from qpidd_py.security.acl.topics import Words, compiled
from qpidd_py.security.acl.words import KEY, NAME, Pair

REALM: Final = "QPID"
"""Of users whose names have none, as in Qpid by default."""
NO_LIMIT: Final = 1 << 64
"""Of a queue: beyond each upper limit."""
SHOWN: Final = 255
"""Characters of a property in the log."""
SUBSTITUTE: Final = re.compile(r"\$\{(?:userdomain|user|domain)\}")
"""What stands for the user, or a part of it."""


def identity(user: str) -> str:
    """A user as rules know it: NAME@REALM."""
    return user if "@" in user else f"{user}@{REALM}"


def substitutes(user: str) -> dict[str, str]:
    """What stands for ${...} in values, for one user."""
    name, _, domain = identity(user).translate(str.maketrans(".", "_")).partition("@")
    domain = domain.replace("@", "_")
    return {"${userdomain}": f"{name}_{domain}", "${user}": name, "${domain}": domain}


def substituted(text: str, names: Mapping[str, str]) -> str:
    """Once: a name that looks like a variable stays."""
    return SUBSTITUTE.sub(lambda found: names[found[0]], text) if "${" in text else text


class Lookup(NamedTuple):
    """What a client wants to do.  A property that is not there does not match; a key may be a `Pattern`."""

    pair: Pair
    properties: Mapping[str, str | int]

    @property
    def name(self) -> str:
        return str(self.properties.get(NAME, ""))

    def __str__(self) -> str:
        """Without what a client has left out."""
        named = [ascii(self.name[:SHOWN])] if NAME in self.properties else []
        others = [each for each in self.properties.items() if each[0] != NAME and each[1] not in ("false", NO_LIMIT)]
        return " ".join([*self.pair, *named, *(f"{name}={_shown(value)}" for name, value in others)])


def _shown(value: str | int) -> str:
    return str(value) if isinstance(value, int) or value == "true" else ascii(str(value)[:SHOWN])


class Condition(Protocol):
    @property
    def property(self) -> str: ...

    def fits(self, value: str, names: Mapping[str, str], allows: bool) -> bool: ...


class Text(NamedTuple):
    """`text`, or (`prefix`) what begins with it."""

    property: str
    text: str
    prefix: bool = False

    def fits(self, value: str, names: Mapping[str, str], allows: bool) -> bool:
        wanted = substituted(self.text, names)
        return value.startswith(wanted) if self.prefix else value == wanted


class Key(NamedTuple):
    """A routing key, which is matched as by a topic exchange.  What stands for a user is no wildcard."""

    text: str
    words: Words | None
    """None: a user stands in it."""
    property: str = KEY

    def fits(self, value: str, names: Mapping[str, str], allows: bool) -> bool:
        words = self.words or compiled(self.text, substituted(self.text, names))
        return words.fits(value, allows)


def key_of(text: str) -> Key:
    return Key(text, None if "${" in text else compiled(text, text))


class Limit(NamedTuple):
    """Of a queue that is declared."""

    property: str
    upper: bool
    number: int

    def holds(self, value: int) -> bool:
        return value <= self.number if self.upper else value >= self.number


@dataclass(frozen=True, eq=False)
class Rule:
    """`number`: the place in the file; the first rule that matches decides."""

    number: int
    line: int
    text: str
    allows: bool
    logs: bool = False
    conditions: tuple[Condition, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def passes(self) -> bool:
        """Allows whatever is looked up."""
        return self.allows and not (self.conditions or self.limits)

    @property
    def whole_name(self) -> str | None:
        """The only name that it can match."""
        for condition in self.conditions:
            if isinstance(condition, Text) and condition.property == NAME:
                return None if condition.prefix or "${" in condition.text else condition.text
        return None

    @property
    def key(self) -> str | None:
        """The routing key that it is about, unless a user stands in it."""
        return next((each.text for each in self.conditions if isinstance(each, Key) and each.words is not None), None)

    def decides(self, properties: Mapping[str, str | int], names: Mapping[str, str]) -> bool | None:
        """Whether it allows this; None: it does not match."""
        for condition in self.conditions:
            value = properties.get(condition.property)
            if not isinstance(value, str) or not condition.fits(value, names, self.allows):
                return None
        for limit in self.limits:
            if limit.property not in properties:
                return None
        return self.allows and all(limit.holds(int(properties[limit.property])) for limit in self.limits)


class Verdict(NamedTuple):
    allowed: bool
    rule: Rule

    def __str__(self) -> str:
        """Where it comes from."""
        return f"line {self.rule.line}: {self.rule.text}" if self.rule.line else self.rule.text
