"""Records of `journalctl -o export` as the JSON lines that `-o json` would have written (pure).

A record is `NAME=VALUE` lines up to an empty one; a value that holds control characters has its name alone in a line,
then eight octets of its length (little endian), the value, and a line feed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

_NAMES = (b"__CURSOR=", b"__REALTIME_TIMESTAMP=")


def is_export(line: str | bytes) -> bool:
    """Of a file's first line."""
    return isinstance(line, bytes) and line.startswith(_NAMES)


def records(lines: Iterable[str | bytes]) -> Iterator[tuple[int, str, bool]]:
    """As `survey.texts`: (number of the record's first line, JSON, torn)."""
    found: dict[str, str] = {}
    first, whole = 1, True
    numbered = enumerate((line if isinstance(line, bytes) else line.encode() for line in lines), 1)
    for number, line in numbered:
        text = line.removesuffix(b"\n")
        whole = text != line
        if not text:
            yield from _made(found, first, False)
            found, first = {}, number + 1
            continue
        name, equals, value = text.partition(b"=")
        if not equals:
            value, whole = _long(numbered)
        found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    yield from _made(found, first, not whole)


def _made(found: dict[str, str], first: int, torn: bool) -> Iterator[tuple[int, str, bool]]:
    if found:
        yield first, json.dumps(found), torn


def _long(lines: Iterator[tuple[int, bytes]]) -> tuple[bytes, bool]:
    """A value with its length in front, and whether all of it was there."""
    data = b""
    for _, line in lines:
        data += line
        if len(data) > 8 and len(data) > 8 + (length := int.from_bytes(data[:8], "little")):
            return data[8 : 8 + length], True
    return data[8:], False
