"""Names and passwords.

The user file is YAML, `name: scrypt$LOG2N$R$P$SALT$HASH` (salt and hash in hexadecimal); `qpid-passwd` writes it.  An
entry may be one for SCRAM instead (`scram`).
scrypt is slow on purpose (tens of milliseconds): `logins` says when it runs, and `verifier` runs it in threads.
The users of the cluster are settings (`entries`).  Their hashes may be RabbitMQ's, too: `sha256$SALT$HASH`,
`sha512$SALT$HASH`.
"""

import hashlib
import hmac
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qpidd_py.amqp.scram import Keys, prepared
from qpidd_py.errors import ConfigError
from qpidd_py.security import scram

DEFAULT_USER: Final = ("guest", "guest")
LOG2N: Final = 14
_R, _P = 8, 1
_MEMORY: Final = 256 * 1024**2  # octets scrypt may use
_RABBIT: Final = re.compile(r"(sha256|sha512)\$([0-9a-f]{8})\$([0-9a-f]+)")
_HASH: Final = re.compile(r"scrypt\$(\d{1,2})\$(\d{1,2})\$(\d{1,2})\$([0-9a-f]+)\$([0-9a-f]+)")


def hash_password(password: str, salt: bytes | None = None, log2n: int = LOG2N) -> str:
    """The entry of the user file for `password`."""
    salt = os.urandom(16) if salt is None else salt
    found = hashlib.scrypt(password.encode(), salt=salt, n=1 << log2n, r=_R, p=_P, maxmem=_MEMORY)
    return f"scrypt${log2n}${_R}${_P}${salt.hex()}${found.hex()}"


def password_matches(password: str, stored: str) -> bool:
    """Slow, without the interpreter's lock.  `stored` was checked when it was read."""
    if (fast := _RABBIT.fullmatch(stored)) is not None:
        made = hashlib.new(fast[1], bytes.fromhex(fast[2]) + password.encode()).hexdigest()
        return hmac.compare_digest(made, fast[3])
    if (keys := scram.keys_of(stored)) is not None:
        return scram.matches(password, keys)
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


Told = tuple[int, int]
"""How far another broker was told which passwords are right; (0, 0): of none."""


class Users:
    """The known users: those of the file, of this process, and of the cluster; a name counts where it comes first.

    Once a password was found to be right, a digest of it is kept, under the user's hash as key.  Brokers with the same
    hash of a user make the same digest, so that a primary can tell it to its backups; who has no such entry can neither
    make nor guess it."""

    def __init__(self, hashes: Mapping[str, str] | None = None) -> None:
        self._key = os.urandom(32)
        self._own = os.urandom(87).hex()  # the key of names without an entry, as long as a hash
        self._added: dict[str, bytes] = {}
        self._right: dict[str, bytes] = {}
        self._hashes: dict[str, str] = {}
        self._file: Mapping[str, str] = {}
        self._cluster: dict[str, str] = {}
        self._costs: Counter[str] = Counter()
        self._order: list[str] = []
        self._scram: list[str] = []
        """The entries for SCRAM, sorted; empty: they are to be looked for."""
        self._version = 0
        self.loopback: frozenset[str] = frozenset()
        """Users that may log in from this machine only."""
        self.replace(hashes or {})

    def __contains__(self, name: str) -> bool:
        return name in self._hashes or name in self._added

    def add(self, name: str, password: str) -> None:
        """A user of this process only."""
        self._added[name] = b""
        self._added[name] = self.digest(name, password)
        self._set(name, self._file.get(name))

    def local(self, name: str) -> bool:
        """Whether it is a user of the file or of this process."""
        return name in self._file or name in self._added

    def names(self) -> set[str]:
        """The users of the file and of this process."""
        return {*self._file, *self._added}

    def replace(self, hashes: Mapping[str, str]) -> None:
        """The content of the file has changed; who has the same hash as before stays verified."""
        before, self._file = self._file, dict(hashes)
        for name in {**before, **hashes}:
            self._set(name, self._file.get(name, self._cluster.get(name)))
        self._tell_again()

    def keep(self, name: str, stored: str | None) -> None:
        """A user of the cluster has this hash now; None: it is gone."""
        if stored is None:
            self._cluster.pop(name, None)
        else:
            self._cluster[name] = stored
        if not self.local(name) and self._hashes.get(name) != stored:
            self._set(name, stored)
            self._tell_again()

    def _set(self, name: str, stored: str | None) -> None:
        if stored is not None and stored.startswith(scram.KIND) and scram.keys_of(stored) is None:
            stored = ""  # of a broker that knows others: no password fits
        before = self._hashes.pop(name, None)
        if before != stored:
            self._right.pop(name, None)
            self._scram = []
        if before:
            self._costs[_cost(before)] -= 1
        if stored is not None:
            self._hashes[name] = stored
            self._costs[_cost(stored)] += bool(stored)

    def digest(self, name: str, password: str) -> bytes:
        key = self._own if name in self._added else self._hashes.get(name, self._own)
        return hmac.digest(key.encode(), f"{len(name)}:{name}{password}".encode(), "sha256")

    def verified(self, name: str, digest: bytes) -> bool:
        """Fast: True if this is known to be right."""
        known = (self._added.get(name), self._right.get(name))
        return any(each is not None and hmac.compare_digest(each, digest) for each in known)

    def stored(self, name: str) -> str:
        """What `password_matches` compares with; for an unknown name a hash that costs as much and matches nothing."""
        if found := self._hashes.get(name):
            return found
        secret = hmac.digest(self._key, f"decoy {name}".encode(), "sha256")
        costs = sorted(cost for cost, count in self._costs.items() if count > 0) or [f"scrypt${LOG2N}${_R}${_P}"]
        cost = costs[secret[0] % len(costs)]
        if cost.startswith(scram.KIND):
            return scram.entry_of(scram.decoy(cost, secret))
        return f"{cost}${'00' * 16}${'00' * 64}" if cost.startswith("scrypt") else f"{cost}$00000000$00"

    @property
    def has_scram(self) -> bool:
        """Whether anybody can log in with SCRAM."""
        return any(count > 0 and cost.startswith(scram.KIND) for cost, count in self._costs.items())

    def keys(self, name: str) -> tuple[str, Keys, bool]:
        """For SCRAM: the name as it is spelled here, keys, and whether they are its own.  Others fit nothing, and are
        the same ones each time: after a restart, too, and on each broker with the same entries, as a user's are."""
        spelled = name if name in self._hashes else prepared(name)
        if not self._scram:
            entries = sorted(each for each in self._hashes.values() if each.startswith(scram.KIND))
            self._scram = entries or [f"{scram.KIND}${scram.ITERATIONS}$$"]  # the last one went after our offer
        secret = hmac.digest(self._scram[0].encode(), f"decoy {prepared(name)}".encode(), "sha256")
        decoy = scram.entry_of(scram.decoy(_cost(self._scram[secret[0] % len(self._scram)]), secret))
        stored = self._hashes.get(spelled, "")
        own = stored.startswith(scram.KIND)
        found = scram.keys_of(stored if own else decoy)  # the same work for both: its time tells nothing
        assert found is not None, "`_set` takes no other"
        return spelled, found, own

    def remember(self, name: str, digest: bytes, stored: str) -> bool:
        """The password of this digest matches `stored`.  False if that is no longer the user's hash."""
        if self._hashes.get(name) != stored:
            return False
        self._keep(name, digest)
        return True

    def news(self, told: Told, most: int) -> tuple[Told, dict[str, bytes]]:
        """Name -> digest of up to `most` right passwords beyond `told`, and how far they are."""
        at = told[1] if told[0] == self._version else 0
        names = self._order[at : at + most]
        shared = {name: self._right[name] for name in names if name not in self._added}
        return (self._version, at + len(names)), shared

    def learn(self, digests: Mapping[str, bytes]) -> None:
        """Another broker has found these to be right.  One that was made under another hash matches nothing."""
        for name, digest in digests.items():
            if name in self._hashes and name not in self._right and name not in self._added:
                self._keep(name, digest)

    def _keep(self, name: str, digest: bytes) -> None:
        if self._right.get(name) != digest:
            self._right[name] = digest
            self._order.append(name)
            if len(self._order) > 2 * len(self._hashes):
                self._tell_again()

    def _tell_again(self) -> None:
        self._order = list(self._right)
        self._version += 1


def read_users(file: Path | None) -> Users:
    """Without a file there is one user, guest/guest, for clients on this machine.  Raises `ConfigError`."""
    if file is not None:
        return Users(read_user_file(file))
    users = Users()
    users.add(*DEFAULT_USER)
    users.loopback = frozenset(DEFAULT_USER[:1])
    return users


def read_user_file(file: Path) -> dict[str, str]:
    """Name -> hash.  Raises `ConfigError`."""
    import yaml  # here: a fifteenth of the time in which a broker starts, and most have no user file

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"cannot read the user file {file}: {' '.join(str(error).split())}") from None
    return _checked(file, content)


def _checked(file: Path, content: object) -> dict[str, str]:
    if not isinstance(content, dict):
        raise ConfigError(f"user file {file}: found {type(content).__name__}, expected lines `name: hash`")
    for name, stored in content.items():
        if (
            not isinstance(name, str)
            or not isinstance(stored, str)
            or not stored.startswith(("scrypt", scram.KIND))
            or not usable(stored)
        ):
            raise ConfigError(f"user file {file}: the entry of {name!r} is no entry of qpid-passwd")
    return content


def _cost(stored: str) -> str:
    """What a verification costs: the hash without its salt."""
    return stored.rpartition("$")[0].rpartition("$")[0]


def usable(stored: str) -> bool:
    """Checks a hash early, so that one that scrypt refuses does not fail at the first login."""
    if (fast := _RABBIT.fullmatch(stored)) is not None:
        return len(fast[3]) == (64 if fast[1] == "sha256" else 128)
    if scram.keys_of(stored) is not None:
        return True
    match = _HASH.fullmatch(stored)
    if match is None or len(match[4]) % 2 or len(match[5]) % 2:
        return False
    log2n, r, p = (int(match[i]) for i in (1, 2, 3))
    return 1 <= log2n <= 20 and 1 <= r <= 32 and 1 <= p <= 16 and 128 * r * (1 << log2n) < _MEMORY
