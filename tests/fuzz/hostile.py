"""Hostile values, and valid documents that are spoiled in a few places.  Everything comes from a `Random`."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any, Final

DEEP: Final = "@deep@"
"""Stands for a list 100,000 deep, which no encoder writes; `to_json` puts it in."""
_DEEP_TEXT: Final = "[" * 100_000 + "]" * 100_000
INTEGERS: Final = [
    0,
    -1,
    1,
    255,
    256,
    65535,
    65536,
    *((1 << n) + d for n in (31, 32, 48, 63, 64) for d in (-1, 0)),
    10**30,
]
SCALARS: Final[list[Any]] = [
    None, True, False, *INTEGERS, *(-n for n in INTEGERS), 1.5, 1e300, float("nan"), float("inf"), float("-inf"),
    "", "x", "0", "\0", "\n", "\ud800", "é" * 20, "x" * 300, "x" * 70_000, "%s%n{0}", "../../etc/passwd", "1.2.3",
    "nan", DEEP,
]  # fmt: skip
CONTAINERS: Final[list[Any]] = [
    [], {}, [[]], [None], [0, "x"], [{}], {"": None}, {"id": 1}, {"id": "x"}, {"op": []}, ["x"] * 3000,
    [[1, "x", 2]], [[1 << 70, "x", -1]], {"x": {"x": {"x": {}}}},
]  # fmt: skip
OCTETS: Final = [0, 1, 0x0A, 0x22, 0x2D, 0x3A, 0x7F, 0x80, 0xCE, 0xFF]


def value(rng: Random) -> Any:
    return copy.deepcopy(rng.choice(SCALARS if rng.random() < 0.7 else CONTAINERS))


def _places(document: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in the document."""
    found: list[tuple[Any, Any]] = []
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, inner in items:
        found.append((document, key))
        if isinstance(inner, dict | list):
            found += _places(inner)
    return found


def mutated(rng: Random, document: Any, most: int = 3) -> Any:
    """A copy with up to `most` values replaced, removed, added, or exchanged with another one of the document."""
    whole = {"": copy.deepcopy(document)}
    for _ in range(rng.randrange(most + 1)):
        places = _places(whole)
        container, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind == 0 and container is not whole:
            del container[key]
        elif kind == 1 and isinstance(container, dict) and container is not whole:
            container[rng.choice(["", "x", "\ud800", "__class__", "op"])] = value(rng)
        elif kind == 2:
            other, at = rng.choice(places)
            container[key] = copy.deepcopy(other[at])
        else:
            container[key] = value(rng)
    return whole[""]


def to_json(document: Any, **options: Any) -> bytes:
    return json.dumps(document, **options).replace(f'"{DEEP}"', _DEEP_TEXT).encode()


def spoiled(rng: Random, octets: bytes, most: int = 3) -> bytes:
    """Up to `most` places changed, cut out, doubled or inserted; now and then only a piece of it, or nothing."""
    data = bytearray(octets)
    if rng.random() < 0.05:
        del data[rng.randrange(len(data) + 1) :]
    for _ in range(rng.randrange(most + 1)):
        at, kind = rng.randrange(len(data) + 1), rng.randrange(4)
        if kind == 0 and at < len(data):
            data[at] = rng.choice(OCTETS)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(1, 30)]
        else:
            data[at:at] = rng.getrandbits(64).to_bytes(8, "big")[: rng.randrange(1, 9)]
    return bytes(data)


def spoiled_text(rng: Random, text: str, alphabet: str, most: int = 4) -> str:
    """The same for text; what comes in is of `alphabet`, or a hostile value."""
    for _ in range(rng.randrange(most + 1)):
        at, kind = rng.randrange(len(text) + 1), rng.randrange(4)
        inside = ("", rng.choice(alphabet), text[at : at + rng.randrange(1, 12)] * 2, str(rng.choice(SCALARS[:-1])))[
            kind
        ]
        text = text[:at] + inside + text[at + rng.randrange(4) :]
    return text
