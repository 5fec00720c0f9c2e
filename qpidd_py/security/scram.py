"""The entry of a user who may log in with SCRAM: `scram-sha-256$ITERATIONS$SALT$STORED:SERVER`, in hexadecimal.  Pure.

A password that comes with PLAIN is compared with it, too.
"""

from __future__ import annotations

import hmac
import os
import re
from typing import Final

from qpidd_py.amqp.scram import LEAST, MOST, Keys, make_keys

ITERATIONS: Final = 600_000
"""What OWASP recommends for PBKDF2 with SHA-256; RFC 7677 wants 4096 at least."""
KIND: Final = "scram-sha-256"
_ENTRY: Final = re.compile(rf"{KIND}\$([1-9]\d{{3,6}})\$((?:[0-9a-f]{{2}}){{8,64}})\$([0-9a-f]{{64}}):([0-9a-f]{{64}})")


def scram_entry(password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> str:
    return entry_of(make_keys(password, os.urandom(16) if salt is None else salt, iterations))


def keys_of(entry: str) -> Keys | None:
    """None if it is an entry of another kind, or none."""
    match = _ENTRY.fullmatch(entry)
    if match is None or not LEAST <= int(match[1]) <= MOST:
        return None
    return Keys(int(match[1]), *map(bytes.fromhex, match.groups()[1:]))


def matches(password: str, keys: Keys) -> bool:
    """Slow, without the interpreter's lock."""
    return hmac.compare_digest(make_keys(password, keys.salt, keys.iterations).stored, keys.stored)


def decoy(cost: str, secret: bytes) -> Keys:
    """Keys that cost as much as others (`scram-sha-256$ITERATIONS`), and that no password has."""
    salt, stored = (hmac.digest(secret, word, "sha256") for word in (b"salt", b"stored"))
    return Keys(int(cost.rpartition("$")[2]), salt[:16], stored, stored)


def entry_of(keys: Keys) -> str:
    return f"{KIND}${keys.iterations}${keys.salt.hex()}${keys.stored.hex()}:{keys.server.hex()}"
