"""SCRAM-SHA-256 (RFC 5802, RFC 7677).  Octets in, octets out; nonces are arguments.  Pure; both sides.

    client first    n,,n=NAME,r=NONCE
    server first    r=NONCE...,s=SALT,i=ITERATIONS           NONCE is the client's, ours behind it
    client final    c=biws,r=NONCE...,p=PROOF                the client knows the password
    server final    v=SIGNATURE                              the server has its keys

The password is never sent.  A server keeps `Keys`, from which nobody can log in; from what goes over the line passwords
can be guessed, at the price of ITERATIONS each.  Channel binding is not offered, and a client that wants it (`p=`) is
refused, as RFC 5802 says; one that could do it (`y`) is not: nobody has taken an offer away.

`client_lib` stands alone, and has the client's side once more (`client_lib/connecting/scram.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from functools import lru_cache
from typing import Final, NamedTuple

LEAST: Final = 4096
"""Iterations (RFC 7677)."""
MOST: Final = 5_000_000
"""Iterations that a client takes part in: seconds of its processor."""
LONGEST: Final = 2048
"""Octets of a message."""
_NONCE: Final = r"[!-+\--~]+"
_FIRST: Final = re.compile(rf"([ny],(?:a=([^,\0]*))?,)(n=((?:[^,=\0]|=2C|=3D)+),r=({_NONCE})(?:,[A-Za-z]=[^,\0]*)*)")
_CHALLENGE: Final = re.compile(rf"r=({_NONCE}),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{{0,9}})(?:,[A-Za-z]=[^,\0]*)*")
_FINAL: Final = re.compile(rf"(c=([A-Za-z0-9+/=]+),r=({_NONCE})(?:,[A-Za-z]=[^,\0]*)*),p=([A-Za-z0-9+/=]+)")


class Keys(NamedTuple):
    """What a server has of a password."""

    iterations: int
    salt: bytes
    stored: bytes
    server: bytes


def make_keys(password: str, salt: bytes, iterations: int) -> Keys:
    """Slow, without the interpreter's lock."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
    return Keys(iterations, salt, _stored(salted), _mac(salted, "Server Key"))


def prepared(text: str) -> str:
    """SASLprep (RFC 4013).  What that forbids stays, since a password may have been set elsewhere."""
    if text.isascii():
        return text
    mapped = (" " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each))
    return unicodedata.ucd_3_2_0.normalize("NFKC", "".join(mapped))


class ServerSide:
    """One login: `challenge`, then `verify`."""

    def __init__(self, first: bytes, nonce: str) -> None:
        """`first`: of the client.  Raises ValueError."""
        text = _text(first)
        if text.startswith("p="):
            raise ValueError("channel binding is not offered")
        match = _FIRST.fullmatch(text)
        if match is None:
            raise ValueError("the first message is not n,,n=NAME,r=NONCE")
        self._header, acting, self._first, name, theirs = match.groups()
        if acting not in (None, name):
            raise ValueError("logs in to act for another user")
        self.name = name.replace("=2C", ",").replace("=3D", "=")
        self._nonce = theirs + nonce
        self._challenge = ""
        self.keys = Keys(0, b"", b"", b"")

    def challenge(self, keys: Keys) -> bytes:
        self.keys = keys
        self._challenge = f"r={self._nonce},s={b64encode(keys.salt).decode()},i={keys.iterations}"
        return self._challenge.encode()

    def verify(self, final: bytes) -> bytes | None:
        """The last message of the server; None if the client does not know the password.  Raises ValueError."""
        match = _FINAL.fullmatch(_text(final))
        if match is None:
            raise ValueError("the final message is not c=HEADER,r=NONCE,p=PROOF")
        said, header, nonce, proof = match.groups()
        if header != b64encode(self._header.encode()).decode():
            raise ValueError("the header of the first message comes back changed")
        if nonce != self._nonce:
            raise ValueError("the nonce is of another login")
        everything = f"{self._first},{self._challenge},{said}"
        key = _xor(_mac(self.keys.stored, everything), b64decode(proof))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self.keys.stored):
            return None
        return b"v=" + b64encode(_mac(self.keys.server, everything))


class ClientSide:
    """One login: sends `first`, answers with `final` and an empty message; then `proved` says who the server is."""

    def __init__(self, name: str, password: str, nonce: str) -> None:
        self._nonce, self._password = nonce, password
        self._first = f"n={prepared(name).replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self.first = f"n,,{self._first}".encode()
        self._signature: bytes | None = None
        self.proved = False
        """The server has the keys of the password."""

    def answer(self, message: bytes) -> bytes:
        """Raises ValueError."""
        if self._signature is None:
            return self._final(_text(message))
        if self.proved or message != self._signature:
            raise ValueError("the server does not know the password")
        self.proved = True
        return b""

    def _final(self, challenge: str) -> bytes:
        match = _CHALLENGE.fullmatch(challenge)
        if match is None:
            raise ValueError("the challenge of the server is not r=NONCE,s=SALT,i=ITERATIONS")
        nonce, salt, iterations = match[1], b64decode(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ValueError("the nonce of the server does not begin with ours")
        if not LEAST <= iterations <= MOST:
            raise ValueError(f"the server wants {iterations} iterations, expected {LEAST} to {MOST}")
        salted = _salted(self._password, salt, iterations)
        said = f"c=biws,r={nonce}"
        everything = f"{self._first},{challenge},{said}"
        proof = _xor(_mac(_stored(salted), everything), _mac(salted, "Client Key"))
        self._signature = b"v=" + b64encode(_mac(_mac(salted, "Server Key"), everything))
        return f"{said},p={b64encode(proof).decode()}".encode()


@lru_cache(32)
def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    """Kept, so that the next login with the same keys costs nothing."""
    return hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)


def _stored(salted: bytes) -> bytes:
    return hashlib.sha256(_mac(salted, "Client Key")).digest()


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    """Raises ValueError unless they have the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _text(message: bytes) -> str:
    if len(message) > LONGEST:
        raise ValueError(f"a message of {len(message)} octets, at most {LONGEST} are taken")
    return message.decode()
