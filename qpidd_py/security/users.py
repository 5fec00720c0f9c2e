"""Names and passwords.

The user file is YAML, `name: scrypt$LOG2N$R$P$SALT$HASH` (salt and hash in hexadecimal); print a line for it with

    python -m qpidd_py.security.users NAME      (the password is read from standard input)

scrypt is slow on purpose (tens of milliseconds) and the broker has one thread, so a correct password is remembered for
the life of the process as a digest under a random key; so are a few wrong ones.
"""

import getpass
import hashlib
import hmac
import os
import re
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Final

from qpidd_py.errors import ConfigError

DEFAULT_USER: Final = ("guest", "guest")
_LOG2N, _R, _P = 14, 8, 1
_MEMORY: Final = 256 * 1024**2  # octets scrypt may use
_WRONG_KEPT: Final = 1000
_HASH: Final = re.compile(r"scrypt\$(\d{1,2})\$(\d{1,2})\$(\d{1,2})\$([0-9a-f]+)\$([0-9a-f]+)")


def hash_password(password: str, salt: bytes | None = None, log2n: int = _LOG2N) -> str:
    """The entry of the user file for `password`."""
    salt = os.urandom(16) if salt is None else salt
    found = hashlib.scrypt(password.encode(), salt=salt, n=1 << log2n, r=_R, p=_P, maxmem=_MEMORY)
    return f"scrypt${log2n}${_R}${_P}${salt.hex()}${found.hex()}"


def password_matches(password: str, stored: str) -> bool:
    """Slow.  `stored` was checked when the file was read."""
    match = _HASH.fullmatch(stored)
    if match is None:
        return False
    expected = bytes.fromhex(match[5])
    found = hashlib.scrypt(
        password.encode(),
        salt=bytes.fromhex(match[4]),
        n=1 << int(match[1]),
        r=int(match[2]),
        p=int(match[3]),
        maxmem=_MEMORY,
        dklen=len(expected),
    )
    return hmac.compare_digest(found, expected)


class Users:
    """The known users.  `check` is cheap after the first time for each name and password."""

    def __init__(self, hashes: dict[str, str] | None = None) -> None:
        self._hashes = dict(hashes or {})
        self._key = os.urandom(32)
        self._right: dict[str, bytes] = {}
        self._wrong: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._hashes or name in self._right

    def add(self, name: str, password: str) -> None:
        """A user of this process only; its password is not kept, only a digest."""
        self._right[name] = self._digest(name, password)

    def check(self, name: str, password: str) -> bool:
        digest = self._digest(name, password)
        known = self._right.get(name)
        if known is not None and hmac.compare_digest(known, digest):
            return True
        stored = self._hashes.get(name)
        if stored is None or digest in self._wrong:
            return False
        if password_matches(password, stored):
            self._right[name] = digest
            return True
        self._remember_wrong(digest)
        return False

    def _digest(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{len(name)}:{name}{password}".encode(), "sha256")

    def _remember_wrong(self, digest: bytes) -> None:
        self._wrong[digest] = None
        if len(self._wrong) > _WRONG_KEPT:
            self._wrong.popitem(last=False)


def read_users(file: Path | None) -> Users:
    """Without a file there is one user, guest/guest.  Raises `ConfigError`."""
    if file is None:
        users = Users()
        users.add(*DEFAULT_USER)
        return users
    import yaml  # here: a fifteenth of the time in which a broker starts, and most have no user file

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the user file {file}: {error}") from None
    return Users(_checked(file, content))


def _checked(file: Path, content: object) -> dict[str, str]:
    if not isinstance(content, dict):
        raise ConfigError(f"user file {file}: found {type(content).__name__}, expected lines `name: hash`")
    for name, stored in content.items():
        if not isinstance(name, str) or not isinstance(stored, str) or not _usable(stored):
            raise ConfigError(f"user file {file}: the entry of {name!r} is no hash scrypt$LOG2N$R$P$SALT$HASH")
    return content


def _usable(stored: str) -> bool:
    """Checks a hash at start, so that one that scrypt refuses does not fail at the first login."""
    match = _HASH.fullmatch(stored)
    if match is None or len(match[4]) % 2 or len(match[5]) % 2:
        return False
    log2n, r, p = (int(match[i]) for i in (1, 2, 3))
    return 1 <= log2n <= 20 and 1 <= r <= 32 and 1 <= p <= 16 and 128 * r * (1 << log2n) < _MEMORY


def main() -> None:
    import yaml

    if len(sys.argv) != 2:
        sys.exit("usage: python -m qpidd_py.security.users NAME < password")
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    print(yaml.safe_dump({sys.argv[1]: hash_password(password)}, width=1000), end="")


if __name__ == "__main__":
    main()
