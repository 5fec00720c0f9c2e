"""The ACL file: read at the start, by SIGHUP and by request.                                                    Shell.

A file that cannot be used changes nothing.  Links of brokers carry everything, so the user as which the other brokers
log in has to be allowed everything.
"""

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from stat import S_ISREG

from qpidd_py.broker.broker import Broker
from qpidd_py.config import SecuritySettings
from qpidd_py.errors import ConfigError
from qpidd_py.logrules import log_notice
from qpidd_py.options import Settings
from qpidd_py.security.acl.reader import AclError, read_acl
from qpidd_py.security.acl.rule_set import RuleSet
from qpidd_py.security.acl.rules import identity
from qpidd_py.security.acl.words import PAIRS

log = logging.getLogger(__name__)

MOST = 512 * 1024
"""Octets of a file: what is read in half a second, for which clients and other brokers wait."""


def named_file(settings: Settings) -> Path | None:
    """Raises ConfigError where names of users are not checked."""
    security = settings[SecuritySettings]
    if security.acl_file is not None and not security.auth:
        raise ConfigError(f"option acl-file: found {security.acl_file} with auth=no, expected auth=yes")
    return security.acl_file


def read_file(file: Path, brokers: Collection[str] = ()) -> RuleSet:
    """`brokers`: users as which other brokers log in.  Raises ConfigError."""
    try:
        if not S_ISREG(file.stat().st_mode):  # one of another kind may not end
            raise ConfigError(f"option acl-file: found {file}, which is no regular file")
        with open(file, "rb") as opened:
            octets = opened.read(MOST + 1)
    except OSError as error:
        raise ConfigError(f"option acl-file: cannot read {file}: {error.strerror}") from None
    if len(octets) > MOST:
        raise ConfigError(f"option acl-file: found {file} of more than {MOST} octets, expected less")
    try:
        found = read_acl(octets.decode("utf-8", "replace"), str(file))
    except AclError as error:
        raise ConfigError(f"option acl-file: {error}") from None
    for user in brokers:
        check_broker(found, user)
    return found


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


class AclFile:
    """Of one broker process."""

    def __init__(self, settings: Settings, brokers: Collection[str]) -> None:
        """Raises ConfigError."""
        self._file = named_file(settings)
        self._brokers = tuple(brokers)
        self.rules = self._read(self._file)

    def _read(self, file: Path | None) -> RuleSet | None:
        return read_file(file, self._brokers) if file is not None else None

    def bring(self, broker: Broker) -> None:
        """Puts the rules in force."""
        broker.use_acl(self.rules)
        broker.reload_acl = (lambda: self._check(broker, self._file)()) if self._file is not None else None
        if self.rules is not None:
            default = "allowed" if self.rules.default.allows else "denied"
            log_notice(log, "ACL file %s: rules %d, all else is %s", self.rules.file, self.rules.count, default)

    def follow(self, broker: Broker) -> Callable[[Settings], Callable[[], None]]:
        """For SIGHUP (`PluginHost.on_reload`)."""
        return lambda fresh: self._check(broker, named_file(fresh))

    def _check(self, broker: Broker, file: Path | None) -> Callable[[], None]:
        rules = self._read(file)

        def use() -> None:
            self._file, self.rules = file, rules
            self.bring(broker)

        return use
