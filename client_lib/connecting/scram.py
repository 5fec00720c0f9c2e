"""The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677): the password is not sent; the server has to know it.  Pure.

    client first    n,,n=NAME,r=NONCE
    server first    r=NONCE...,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE...,p=PROOF
    server final    v=SIGNATURE                 answered with nothing

Whoever poses as the server gets a PROOF for a SALT of his own, from which passwords can be guessed, at the price of
ITERATIONS each: fewer than LEAST are refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from functools import lru_cache

SCRAM = "SCRAM-SHA-256"
LEAST, MOST = 4096, 5_000_000
"""Iterations; MOST takes seconds."""
LONGEST = 2048
"""Octets of a challenge."""
_CHALLENGE = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,9})(?:,[A-Za-z]=[^,\0]*)*")


class Scram:
    """One login: send `first`, then `answer` each challenge; in the end `proved` is true."""

    def __init__(self, name: str, password: str, nonce: str) -> None:
        self._password, self._nonce = password, nonce
        self._bare = f"n={prepared(name).replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self.first = f"n,,{self._bare}".encode()
        self._signature: bytes | None = None
        self.proved = False
        """The server knows the password, or what it keeps of it."""

    def answer(self, challenge: bytes) -> bytes:
        """Raises ValueError."""
        if self._signature is None:
            return self._final(challenge)
        if self.proved or not hmac.compare_digest(challenge, self._signature):
            raise ValueError("the server does not know the password")
        self.proved = True
        return b""

    def _final(self, challenge: bytes) -> bytes:
        text = challenge.decode() if len(challenge) <= LONGEST else ""
        match = _CHALLENGE.fullmatch(text)
        if match is None:
            raise ValueError(f"the challenge is {challenge[:60]!r}, expected r=NONCE,s=SALT,i=ITERATIONS")
        nonce, iterations = match[1], int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ValueError("the nonce of the server does not begin with ours")
        if not LEAST <= iterations <= MOST:
            raise ValueError(f"the server wants {iterations} iterations, expected {LEAST} to {MOST}")
        salted = _salted(self._password, b64decode(match[2]), iterations)
        said = f"c=biws,r={nonce}"
        everything = f"{self._bare},{text},{said}"
        key = _mac(salted, "Client Key")
        mask = _mac(hashlib.sha256(key).digest(), everything)
        self._signature = b"v=" + b64encode(_mac(_mac(salted, "Server Key"), everything))
        return f"{said},p={b64encode(bytes(a ^ b for a, b in zip(key, mask, strict=True))).decode()}".encode()


@lru_cache(32)
def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    """Tenths of a second.  Kept: all brokers with the same users have the same salt, so that a fail-over costs none."""
    return hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)


def prepared(text: str) -> str:
    """SASLprep (RFC 4013), without its prohibitions: a password that was set in spite of them is still one."""
    if text.isascii():
        return text
    mapped = (" " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each))
    return unicodedata.ucd_3_2_0.normalize("NFKC", "".join(mapped))


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
