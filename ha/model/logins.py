"""Passwords that were verified, for the backups: after a fail-over all clients log in at once, and each verification
costs tens of milliseconds of a processor.

A primary sends digests, never passwords, and never to disk.  A digest is made under the user's hash, which all brokers
have in their user files: one whose entry differs has another digest, and verifies the password itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Protocol

from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import LinkError

MOST: Final = 1000
"""Digests in one frame; one frame for each link and tick."""
DIGEST: Final = 32
"""Octets."""
Told = tuple[int, int]


class KnownLogins(Protocol):
    """The users of this broker (`qpidd_py.security.users.Users`)."""

    def news(self, told: Told, most: int) -> tuple[Told, dict[str, bytes]]: ...

    def learn(self, digests: Mapping[str, bytes]) -> None: ...


def encode_logins(digests: Mapping[str, bytes]) -> bytes:
    return json.dumps({name: digest.hex() for name, digest in digests.items()}, separators=(",", ":")).encode()


def decode_logins(body: bytes) -> dict[str, bytes]:
    """Raises LinkError."""
    try:
        found = {name: bytes.fromhex(digest) for name, digest in read_object(body).items()}
    except (ValueError, TypeError) as error:
        raise LinkError(f"frame of logins: {error}") from error
    if any(len(digest) != DIGEST for digest in found.values()):
        raise LinkError(f"frame of logins: a digest that has not {DIGEST} octets")
    return found
