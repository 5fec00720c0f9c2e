"""Keys with wildcards: `*` stands for one word, `#` for any number of words, none included.                     Pure.

A lookup has the key of a message, or a `Pattern`: all keys that a binding to a topic exchange takes.  A rule that
allows has to contain all of these, one that denies has to meet one of them, so that a binding with wildcards is no way
round a rule.

The words that a rule has matched so far are bits of a number (bit n: the first n of them), so that a key costs its
words and not their combinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

ANY_WORD: Final = "*"
ANY_WORDS: Final = "#"
WILD: Final = (ANY_WORD, ANY_WORDS)


class Pattern(str):
    """A key that stands for all keys that it matches."""

    __slots__ = ()


EVERY_KEY: Final = Pattern(ANY_WORDS)


class Words:
    """The key of a rule."""

    def __init__(self, words: Sequence[tuple[str, bool]]) -> None:
        """Each word, and whether it is a wildcard if it looks like one."""
        kept = [pair for at, pair in enumerate(words) if pair != (ANY_WORDS, True) or words[at - 1 : at] != [pair]]
        self._end = 1 << len(kept)
        self._any = sum(1 << at for at, pair in enumerate(kept) if pair == (ANY_WORD, True))
        self._many = sum(1 << at for at, pair in enumerate(kept) if pair == (ANY_WORDS, True))
        self._same: dict[str, int] = {}
        for at, (word, wild) in enumerate(kept):
            if not (wild and word in WILD):
                self._same[word] = self._same.get(word, 0) | 1 << at

    def fits(self, key: str, allows: bool) -> bool:
        """Whether a rule with this key decides about `key`."""
        if not isinstance(key, Pattern):
            return self._matches(key, ())
        return self._matches(key, WILD) if allows else self._meets(key)

    def _matches(self, key: str, wild: tuple[str, ...]) -> bool:
        """`wild`: words of the key that only a wildcard takes; of these `#` only another one."""
        reached = self._passed(1)
        for word in split(key):
            stay, step = reached & self._many, self._any | self._same.get(word, 0)
            if word in wild:
                step = self._any if word == ANY_WORD else 0
            reached = self._passed(stay | (reached & step) << 1)
            if not reached:
                return False
        return bool(reached & self._end)

    def _meets(self, pattern: Pattern) -> bool:
        """Whether some key matches both."""
        reached, whole = self._passed(1), (self._end << 1) - 1
        for word in split(pattern):
            if word == ANY_WORDS:
                reached = whole & -(reached & -reached)
            else:
                step = whole & ~self._many if word == ANY_WORD else self._any | self._same.get(word, 0)
                reached = self._passed((reached & self._many) | ((reached & step) << 1 & whole))
            if not reached:
                return False
        return bool(reached & self._end)

    def _passed(self, reached: int) -> int:
        """With what is reached by a `#` that stands for nothing; two do not follow each other."""
        return reached | (reached & self._many) << 1


def split(key: str) -> list[str]:
    """An empty key has no word, as in topic exchanges."""
    return key.split(".") if key else []


@lru_cache(maxsize=4096)
def compiled(written: str, text: str) -> Words:
    """`text`: what is `written` with the user's name in it, which has no dot; a word is a wildcard as it is written."""
    return Words([(word, found in WILD) for word, found in zip(split(text), split(written), strict=True)])
