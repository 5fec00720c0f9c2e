r"""Reads the text of an ACL file.                                                                               Pure.

    group NAME {USER | GROUP} ... [\]                                     the group goes on in the next line
    acl {allow | allow-log | deny | deny-log} {USER | GROUP | all} {ACTION | all} [{OBJECT | all} [PROPERTY=VALUE ...]]
    acl PERMISSION {USER | GROUP | all} create connection host={ADDRESS | ADDRESS,ADDRESS | localhost | all}
    quota {connections | queues} NUMBER {USER | GROUP | all} ...

`acl PERMISSION all all` is the last rule; without it what no rule allows is denied.  What can have no effect is an
error, and so is a word that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn, TypeVar

from qpidd_py.security.acl.hosts import Range, ranges_of
from qpidd_py.security.acl.names import Names
from qpidd_py.security.acl.rule_set import EVERYONE, QUOTAS, HostRule, Quota, RuleSet
from qpidd_py.security.acl.rules import SUBSTITUTE, Condition, Limit, Rule, Text, key_of
from qpidd_py.security.acl.topics import WILD, split
from qpidd_py.security.acl.words import (
    ACTIONS,
    ALL,
    CLASS,
    CLASSES,
    CONNECTION,
    CREATE,
    FLAGS,
    HOST,
    KEY,
    LIMITS,
    LOWER,
    OBJECTS,
    OLD_NAMES,
    PAIRS,
    POLICIES,
    POLICY,
    PROPERTIES,
    UPPER,
    WHY_NOT,
    Pair,
)

Found = TypeVar("Found")
Steps = Generator[None, None, Found]
SLICE: Final = 20
"""Lines."""
PERMISSIONS: Final = {
    "allow": (True, False),
    "allow-log": (True, True),
    "deny": (False, False),
    "deny-log": (False, True),
}
"""Whether it allows, and whether it is logged; what is denied is so in any case."""
MOST_QUOTA: Final = 65530
MOST_LIMIT: Final = (1 << 63) - 1
SHOWN: Final = 80
"""Characters of a word in an error."""


class AclError(ValueError):
    """What is wrong with which line, and what was expected."""


def read_acl(text: str, file: str) -> RuleSet:
    """Raises AclError."""
    return run_through(in_slices(text, file))


def in_slices(text: str, file: str) -> Steps[RuleSet]:
    """The same, a few milliseconds of work with each step."""
    reader = _Reader(file)
    for number, line in _lines(text, file):
        reader.line(number, line)
        if number % SLICE == 0:
            yield
    return reader.finish()


def run_through(steps: Steps[Found]) -> Found:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found


def _lines(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Those that say something, each with its number, lines of a group joined."""
    begun, held = 0, ""
    number = 0
    for number, line in enumerate(text.split("\n"), 1):
        said = line.strip()
        if not begun and (not said or said.startswith("#")):
            continue
        try:
            words, goes_on = _checked(line.removesuffix("\r"), bool(begun))
        except ValueError as error:
            raise AclError(f"{file} line {number}: found {said[:SHOWN]!a}, expected {error}") from None
        begun, held = begun or number, f"{held} {words}"
        if not goes_on:
            yield begun, held
            begun, held = 0, ""
    if begun:
        raise AclError(f"{file} line {number}: found the end of the file, expected more names of the group")


def _checked(line: str, continues: bool) -> tuple[str, bool]:
    """The words, and whether they go on in the next line.  Raises ValueError with what was expected."""
    goes_on = line.endswith("\\")
    words = line[:-1] if goes_on else line
    if not line.isascii() or not words.replace("\t", " ").isprintable():
        raise ValueError("ASCII characters only")
    if "\\" in words:
        raise ValueError("a \\ as the last sign of a line only")
    if not words.strip() or (continues and words.lstrip().startswith("#")):
        raise ValueError("more names of the group")
    if goes_on and not continues and words.split()[0] != "group":
        raise ValueError("one line, since only lines of groups go on in the next one")
    return words, goes_on


class _Reader:
    def __init__(self, file: str) -> None:
        self._found = RuleSet(file)
        self._line, self._text = 0, ""
        self._names = Names()
        self._last = ""  # the rule after which none may follow
        self._parts: Mapping[str, Callable[[list[str]], None]] = {
            "group": self._group,
            "acl": self._acl,
            "quota": self._quota,
        }

    def line(self, number: int, text: str) -> None:
        words = text.split()
        self._line, self._text = number, " ".join(words)
        part = self._parts.get(words[0])
        if part is None:
            self._wrong(words[0], "group, acl, quota or #")
        part(words[1:])

    def finish(self) -> RuleSet:
        self._found.groups = len(self._names.groups)
        self._found.know_users(self._names.audiences())
        return self._found

    def _wrong(self, found: str, expected: str) -> NoReturn:
        raise AclError(f"{self._found.file} line {self._line}: found {found[:SHOWN]!a}, expected {expected}")

    def _useless(self, why: str) -> NoReturn:
        raise AclError(f"{self._found.file} line {self._line}: {self._text[:SHOWN]!a} can have no effect: {why}")

    # ---- names

    def _named(self, look: Callable[[], Found]) -> Found:
        try:
            return look()
        except ValueError as error:
            self._wrong(*error.args)

    def _group(self, words: list[str]) -> None:
        if len(words) < 2:
            self._wrong(self._text, "group NAME USER...")
        self._named(lambda: self._names.define(words[0], words[1:], self._line))

    def _audience(self, name: str) -> str:
        """Of a rule."""
        return EVERYONE if name == ALL else self._named(lambda: self._names.audience(name, self._line))

    # ---- quotas

    def _quota(self, words: list[str]) -> None:
        if len(words) < 3:
            self._wrong(self._text, "quota connections|queues NUMBER USER...")
        kind, number, *names = words
        if kind not in QUOTAS:
            self._wrong(kind, " or ".join(QUOTAS))
        quota = Quota(self._number(number, MOST_QUOTA), self._line)
        known = self._found.quotas.setdefault(kind, {})
        for name in names:
            users = (ALL,) if name == ALL else self._named(partial(self._names.users, name, self._line))
            known.update(dict.fromkeys(users, quota))

    def _number(self, text: str, most: int) -> int:
        if not re.fullmatch("[0-9]{1,19}", text) or int(text) > most:
            self._wrong(text, f"a number from 0 to {most}")
        return int(text)

    # ---- rules

    def _acl(self, words: list[str]) -> None:
        if len(words) < 3:
            self._wrong(self._text, "acl PERMISSION USER ACTION [OBJECT [PROPERTY=VALUE...]]")
        if self._last:
            self._useless(f"{self._last} decides all that follows, expected it as the last rule")
        permission, name, action, *rest = words
        if permission not in PERMISSIONS:
            self._wrong(permission, ", ".join(PERMISSIONS))
        self._known(action, (*ACTIONS, ALL))
        what = rest[0] if rest else ALL
        self._known(what, (*OBJECTS, ALL))
        pairs = [each for each in PAIRS if action in (ALL, each[0]) and what in (ALL, each[1])]
        values = self._values(rest[1:])
        properties = tuple(values)
        self._found.count += 1
        rule = Rule(self._found.count, self._line, self._text, *PERMISSIONS[permission])
        if what == CONNECTION or HOST in values:
            self._connection(rule, name, (action, what), values)
            return
        limits = tuple(self._limits(values, rule.allows))
        rule = replace(rule, conditions=tuple(map(self._condition, values.items())), limits=limits)
        if (name, action, what) == (ALL, ALL, ALL) and not properties:
            self._found.default, self._last = rule, f"line {self._line}"
        else:
            self._add(rule, name, pairs, properties)

    def _add(self, rule: Rule, name: str, pairs: Sequence[Pair], properties: Sequence[str]) -> None:
        possible = [pair for pair in pairs if PAIRS[pair].issuperset(properties)]
        if not pairs:
            self._useless(f"that is not done to this object; there are {', '.join(map(' '.join, PAIRS))}")
        if not possible:
            self._useless(_no_property(pairs, properties))
        self._found.add(rule, possible, self._audience(name))

    def _known(self, word: str, words: Sequence[str]) -> None:
        if word in WHY_NOT:
            self._useless(f"{word}: {WHY_NOT[word]}")
        if word not in words:
            self._wrong(word, f"one of {', '.join(words)}")

    def _values(self, words: list[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for word in words:
            name, _, value = word.partition("=")
            name = OLD_NAMES.get(name, name)
            if not value:
                self._wrong(word, "PROPERTY=VALUE")
            self._known(name, PROPERTIES)
            if name in found:
                self._wrong(word, f"{name} once")
            found[name] = value
        return found

    def _condition(self, pair: tuple[str, str]) -> Condition:
        name, value = pair
        if "${" in SUBSTITUTE.sub("", value):
            self._wrong(value, "${user}, ${domain} or ${userdomain}")
        if name == KEY:
            if any(sign in word for word in split(value) for sign in WILD if word not in WILD):
                self._wrong(value, "* and # in a routing key as whole words only, as in a.* and a.#")
            return key_of(value)
        prefix = value.endswith("*")
        text = value.removesuffix("*")
        words = {POLICY: POLICIES, CLASS: CLASSES, **dict.fromkeys(FLAGS, ("true", "false"))}.get(name)
        if words is not None and not any(word.startswith(text) if prefix else word == text for word in words):
            self._wrong(value, f"{name} of {', '.join(words)}")
        return Text(name, text, prefix)

    def _limits(self, values: dict[str, str], allows: bool) -> Iterator[Limit]:
        """They leave `values`."""
        for name in [name for name in values if name in LIMITS]:
            if not allows:
                self._useless(f"{name} of a rule that denies; give it to one that allows, which denies what is beyond")
            number = self._number(values.pop(name), MOST_LIMIT)
            if number:  # 0: none
                yield Limit(name.removesuffix(LOWER).removesuffix(UPPER), name.endswith(UPPER), number)

    # ---- connections

    def _connection(self, rule: Rule, name: str, pair: Pair, values: Mapping[str, str]) -> None:
        if pair != (CREATE, CONNECTION) or set(values) != {HOST}:
            self._wrong(self._text, "acl PERMISSION USER create connection host=ADDRESS")
        ranges = self._ranges(values[HOST])
        if name == ALL and ranges is None:
            if self._found.host_default.line:
                self._useless(f"line {self._found.host_default.line} says it for all users and hosts")
            self._found.host_default = rule
        else:
            self._found.hosts.setdefault(self._audience(name), []).append(HostRule(rule, ranges))

    def _ranges(self, text: str) -> tuple[Range, ...] | None:
        if text == ALL:
            return None
        try:
            return ranges_of(text)
        except ValueError as error:
            self._wrong(text, str(error))


def _no_property(pairs: Sequence[Pair], properties: Sequence[str]) -> str:
    if len(pairs) > 1:
        return f"nothing that is looked up has all of {', '.join(properties)}"
    known = PAIRS[pairs[0]]
    lacking = ", ".join(name for name in properties if name not in known)
    return f"{' '.join(pairs[0])} has no {lacking}, it has {', '.join(sorted(known)) or 'no properties'}"
