"""Matching of topic exchanges: a trie over the words of binding keys (specification 3.1.3.3).

Words are separated by dots; `*` stands for one word, `#` for any number of words, none included.  An empty key has no
word, as it is for RabbitMQ.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


def has_wildcard(key: bytes) -> bool:
    """Whether a binding key takes more than one routing key."""
    return any(word in (b"*", b"#") for word in key.split(b"."))


class _Node(Generic[T]):
    __slots__ = ("children", "swallows", "values")

    def __init__(self, word: bytes = b"") -> None:
        self.children: dict[bytes, _Node[T]] = {}
        self.values: set[T] = set()
        self.swallows = word == b"#"  # stays reached whatever word comes next


class TopicTrie(Generic[T]):
    """A set of (binding key, value) that answers which values a routing key reaches."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, key: bytes, value: T) -> None:
        node = self._root
        for word in _words(key):
            if word not in node.children:
                node.children[word] = _Node(word)
            node = node.children[word]
        node.values.add(value)

    def remove(self, key: bytes, value: T) -> None:
        """No effect if the pair is not there.  Empty branches are removed."""
        path: list[tuple[_Node[T], bytes]] = []
        node = self._root
        for word in _words(key):
            if word not in node.children:
                return
            path.append((node, word))
            node = node.children[word]
        node.values.discard(value)
        while path and not node.values and not node.children:
            node, word = path.pop()
            del node.children[word]

    def match(self, routing_key: bytes) -> set[T]:
        """All values whose key matches.  Follows all matching paths at once, word by word, so that keys with many
        `#` cost words times nodes and not more."""
        nodes = _behind_hashes([self._root])
        for word in _words(routing_key):
            nodes = _behind_hashes(_step(nodes, word))
        return {value for node in nodes for value in node.values}


def _words(key: bytes) -> list[bytes]:
    return key.split(b".") if key else []


def _behind_hashes(nodes: Iterable[_Node[T]]) -> set[_Node[T]]:
    """The nodes, and those behind a `#` that swallows nothing."""
    reached = set(nodes)
    waiting = list(reached)
    while waiting:
        child = waiting.pop().children.get(b"#")
        if child is not None and child not in reached:
            reached.add(child)
            waiting.append(child)
    return reached


def _step(nodes: Iterable[_Node[T]], word: bytes) -> Iterable[_Node[T]]:
    """The nodes reached by one word.  The word "#" must not follow the wildcard's branch as a plain word;
    `_behind_hashes` enters that branch in any case."""
    for node in nodes:
        if node.swallows:
            yield node
        if b"*" in node.children:
            yield node.children[b"*"]
        if word in node.children and word != b"#":
            yield node.children[word]
