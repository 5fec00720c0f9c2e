"""The trie against a matcher that tries everything."""

from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.amqp.topic import TopicTrie


def words(key):
    """An empty one has none, as in RabbitMQ."""
    return key.split(b".") if key else []


def naive(pattern, key):
    """Straight from the specification's words."""
    if not pattern:
        return not key
    if pattern[0] == b"#":
        return any(naive(pattern[1:], key[start:]) for start in range(len(key) + 1))
    return bool(key) and pattern[0] in (b"*", key[0]) and naive(pattern[1:], key[1:])


patterns = st.lists(st.sampled_from([b"a", b"b", b"", b"*", b"#"]), min_size=1, max_size=6).map(b".".join)
routing_keys = st.lists(st.sampled_from([b"a", b"b", b"", b"*", b"#"]), min_size=1, max_size=7).map(b".".join)


@given(st.lists(patterns, max_size=12), st.lists(routing_keys, min_size=1, max_size=6), st.data())
def test_same_as_naive(keys, messages, data):
    trie: TopicTrie = TopicTrie()
    kept = set()
    for number, key in enumerate(keys):
        trie.add(key, number)
        kept.add(number)
    for number in data.draw(st.lists(st.sampled_from(sorted(kept)), unique=True)) if kept else ():
        trie.remove(keys[number], number)
        kept.discard(number)
    for message in messages:
        assert trie.match(message) == {number for number in kept if naive(words(keys[number]), words(message))}


def test_nothing_is_left_behind():
    trie: TopicTrie = TopicTrie()
    for key in (b"a.b.c", b"a.#", b"#", b"*.*"):
        trie.add(key, key)
    for key in (b"a.b.c", b"a.#", b"#", b"*.*", b"never.added"):
        trie.remove(key, key)
    assert trie._root.children == {}


def test_many_hashes_are_not_exponential():
    trie: TopicTrie = TopicTrie()
    trie.add(b".".join([b"#", b"a"] * 15), 1)
    assert trie.match(b".".join([b"a"] * 60)) == {1}
    assert trie.match(b".".join([b"a"] * 60 + [b"b"])) == set()
