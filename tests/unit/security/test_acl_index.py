"""The index of rules against what it stands for: the lines of the file, one after the other."""

from fnmatch import fnmatchcase
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.amqp.topic import TopicTrie
from qpidd_py.security.acl.reader import read_acl
from qpidd_py.security.acl.rules import Lookup, identity, substitutes

GROUPS = {"g": ("anna", "bob"), "h": ("bob", "kim")}
HEAD = "".join(f"group {group} {' '.join(f'{user}@QPID' for user in users)}\n" for group, users in GROUPS.items())

rules = st.builds(
    lambda permission, who, pair, name, key: f"acl {permission} {who} {pair}{name}{key}",
    st.sampled_from(("allow", "deny", "allow-log")),
    st.sampled_from(("anna", "g", "h", "all")),
    st.sampled_from(("publish exchange", "all exchange")),
    st.sampled_from(("", " name=x", " name=x*", " name=${user}")),
    st.sampled_from(("", " routingkey=a.#", " routingkey=*.b", " routingkey=${user}")),
)
LOOKUPS = list(product(("anna", "bob", "otto"), ("x", "xz", "anna"), ("a.b", "a", "anna", "")))


def matched(pattern: str, key: str) -> bool:
    trie: TopicTrie[int] = TopicTrie()
    trie.add(pattern.encode(), 1)
    return bool(trie.match(key.encode()))


def by_hand(lines: list[str], user: str, name: str, key: str) -> tuple[bool, int]:
    for number, line in enumerate(lines, 1 + len(GROUPS)):
        _, permission, who, _, _, *values = line.split()
        fits = [who in ("all", user) or user in GROUPS.get(who, ())]
        for value in values:
            of, _, text = value.replace("${user}", user).partition("=")
            fits.append(fnmatchcase(name, text) if of == "name" else matched(text, key))
        if all(fits):
            return permission != "deny", number
    return False, 0


@given(st.lists(rules, max_size=8))
def test_the_first_line_that_matches_decides(lines: list[str]) -> None:
    found, pair = read_acl(HEAD + "\n".join(lines), "x"), ("publish", "exchange")
    for user, name, key in LOOKUPS:
        verdict = found.verdict(identity(user), substitutes(user), Lookup(pair, {"name": name, "routingkey": key}))
        assert (verdict.allowed, verdict.rule.line) == by_hand(lines, user, name, key)
        if found.closed(identity(user), pair) is None:
            assert verdict.allowed
        if found.silent(identity(user), pair):
            assert verdict.allowed and not verdict.rule.logs
