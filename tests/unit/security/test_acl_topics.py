"""Keys of rules against all keys of a small language: what a pattern stands for is counted out."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.amqp.topic import TopicTrie
from qpidd_py.security.acl.topics import Pattern, compiled

WORDS = ("a", "b")
MOST = 3
KEYS = [".".join(words) for length in range(2 * MOST + 1) for words in product(WORDS, repeat=length)]
"""Two patterns that have a key in common have one of these."""
patterns = st.lists(st.sampled_from(("a", "b", "*", "#")), max_size=MOST).map(".".join)


def matched(pattern: str) -> set[str]:
    """By the topic exchange."""
    trie: TopicTrie[int] = TopicTrie()
    trie.add(pattern.encode(), 1)
    return {key for key in KEYS if trie.match(key.encode())}


@given(patterns)
def test_a_key_is_matched_as_by_the_exchange(rule: str) -> None:
    words = compiled(rule, rule)
    assert {key for key in KEYS if words.fits(key, True)} == matched(rule)


@given(patterns, patterns)
def test_a_rule_that_allows_has_all_keys_and_one_that_denies_has_one(rule: str, binding: str) -> None:
    words = compiled(rule, rule)
    if words.fits(Pattern(binding), True):
        assert matched(binding) <= matched(rule)
    assert words.fits(Pattern(binding), False) == bool(matched(binding) & matched(rule))
    if "#" not in binding.split(".") and "*" not in binding.split("."):
        assert words.fits(Pattern(binding), True) == words.fits(binding, True)


def test_many_wildcards_cost_their_number() -> None:
    rule = ".".join(["#", "a"] * 60 + ["b"])
    key = ".".join(["#", "a"] * 60)
    assert not compiled(rule, rule).fits("a." * 120 + "c", True)
    assert compiled(rule, rule).fits(Pattern(key + ".#"), False)
