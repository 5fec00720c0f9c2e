"""The ACL file: read at the start, by SIGHUP and by request.                                                    Shell.

A file that cannot be used changes nothing.  Links of brokers carry everything, so the user as which the other brokers
log in has to be allowed everything.
"""

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from qpidd_py.broker.broker import Broker
from qpidd_py.config import SecuritySettings
from qpidd_py.errors import ConfigError
from qpidd_py.logrules import log_notice
from qpidd_py.options import Settings
from qpidd_py.security.acl.reader import AclError, Steps, in_slices, run_through
from qpidd_py.security.acl.rule_set import RuleSet
from qpidd_py.security.acl.rules import identity
from qpidd_py.security.acl.words import PAIRS

log = logging.getLogger(__name__)

MOST = 512 * 1024
"""Octets of a file."""


def named_file(settings: Settings) -> Path | None:
    """Raises ConfigError where names of users are not checked."""
    security = settings[SecuritySettings]
    if security.acl_file is not None and not security.auth:
        raise ConfigError(f"option acl-file: found {security.acl_file} with auth=no, expected auth=yes")
    return security.acl_file


def content(file: Path) -> str:
    """Raises ConfigError."""
    try:
        if not S_ISREG(file.stat().st_mode):  # one of another kind may not end
            raise ConfigError(f"option acl-file: found {file}, which is no regular file")
        with open(file, "rb") as opened:
            octets = opened.read(MOST + 1)
    except OSError as error:
        raise ConfigError(f"option acl-file: cannot read {file}: {error.strerror}") from None
    if len(octets) > MOST:
        raise ConfigError(f"option acl-file: found {file} of more than {MOST} octets, expected less")
    return octets.decode("utf-8", "replace")


def check_broker(rules: RuleSet, user: str) -> None:
    """Raises ConfigError unless links of `user` can do their work."""
    known = identity(user)
    refusing = next(filter(None, (rules.closed(known, pair) for pair in PAIRS)), None)
    if refusing is not None:
        where = f"line {refusing.line}, {refusing.text!r:.80}" if refusing.line else f"that {refusing.text}"
        expected = f"expected `acl allow {user} all all` before it, since other brokers log in with that name"
        raise ConfigError(f"option acl-file: found in {rules.file} {where}, {expected}")
    if not rules.enters_from_somewhere(known):
        expected = f"expected `acl allow {user} create connection host=...`, since other brokers log in with that name"
        raise ConfigError(f"option acl-file: found in {rules.file} that {user} may connect from nowhere, {expected}")


class Read(NamedTuple):
    number: int
    rules: RuleSet | None


class AclFile:
    """Of one broker process.  What takes long is done in slices, between which clients and links are served."""

    def __init__(self, settings: Settings, brokers: Collection[str]) -> None:
        """`brokers`: users as which other brokers log in.  Raises ConfigError."""
        self._brokers = tuple(brokers)
        self._begun = self._brought = 0  # numbers of readings: one that was overtaken is not brought
        self._file = named_file(settings)
        self._read = run_through(self._reading(self._file))

    @property
    def rules(self) -> RuleSet | None:
        return self._read.rules

    def _reading(self, file: Path | None) -> Steps[Read]:
        """Raises ConfigError."""
        self._begun += 1
        number = self._begun
        if file is None:
            return Read(number, None)
        try:
            rules = yield from in_slices(content(file), str(file))
        except AclError as error:
            raise ConfigError(f"option acl-file: {error}") from None
        for user in self._brokers:
            check_broker(rules, user)
        return Read(number, rules)

    def bring(self, broker: Broker) -> None:
        """Puts the rules in force."""
        self._brought = self._read.number
        broker.use_acl(self.rules)
        broker.reload_acl = (lambda: self._reload(broker)) if self._file is not None else None
        if self.rules is not None:
            default = "allowed" if self.rules.default.allows else "denied"
            log_notice(log, "ACL file %s: rules %d, all else is %s", self.rules.file, self.rules.count, default)

    def _reload(self, broker: Broker) -> Steps[None]:
        """By request.  Raises ConfigError."""
        self._use(broker, self._file, (yield from self._reading(self._file)))

    def prepare(self, settings: Settings) -> Steps[Callable[[Broker], None]]:
        """For SIGHUP, before anything is changed: what makes it valid.  Raises ConfigError."""
        file = named_file(settings)
        read = yield from self._reading(file)
        return lambda broker: self._use(broker, file, read)

    def _use(self, broker: Broker, file: Path | None, read: Read) -> None:
        if read.number > self._brought:
            self._file, self._read = file, read
            self.bring(broker)
