"""The rules of an ACL file as a system of rights (`judging`), for one client.                           Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pamqp.base import Frame
from pamqp.commands import Queue

from qpidd_py.broker.acl_lookups import lookups
from qpidd_py.broker.judging import DEFAULT, Channel, Refused
from qpidd_py.logrules import NOTICE, Floods
from qpidd_py.security.acl import words
from qpidd_py.security.acl.in_force import Acl, AclAccess
from qpidd_py.security.acl.rule_set import CONNECTIONS, QUEUES
from qpidd_py.security.acl.rules import Lookup, Verdict
from qpidd_py.security.refusals import shown

CONNECT: Final = "create connection"


class AclRights:
    """See `System`."""

    def __init__(self, acl: Acl, user: str, peer: str, host: str, lines: Floods) -> None:
        """`host`: the virtual host, for texts: rules hold in all of them."""
        self._host = host
        self.access: AclAccess = acl.access(user)
        self._acl = acl
        self._user, self._peer = user, peer
        self._lines = lines

    @property
    def silent(self) -> bool:
        return self.access.silent

    @property
    def publishes(self) -> bool:
        return self.access.publishes

    def method(self, channel: Channel, command: Frame) -> Refused | None:
        return self.refused(lookups(channel, command)) or self._too_many_queues(channel, command)

    def _too_many_queues(self, channel: Channel, command: Frame) -> Refused | None:
        if not isinstance(command, Queue.Declare) or command.passive or command.queue in channel.vhost.queues:
            return None
        number = channel.vhost.configuration.common.queues_of[self._user]
        return self._beyond(QUEUES, number, f"cannot declare queue '{command.queue}' of user '{self._user}'")

    def _beyond(self, kind: str, number: int, text: str) -> Refused | None:
        quota = self._acl.quota(kind, self.access)
        if quota is None or number < quota.most:
            return None
        self._acl.denials += 1
        where = f"line {quota.line}" if quota.line else "no line is for it, nor for all"
        why = f"{self.access.file} {where}: quota {kind} {quota.most}"
        return Refused(f"{text}: quota {kind} ({quota.most}) is reached", f"have {number + 1} {kind}", why)

    def publish(self, exchange: str, key: str) -> Refused | None:
        name = exchange or DEFAULT
        verdict = self.access.publish(name, key)
        if verdict is None or (verdict.allowed and not verdict.rule.logs):
            return None
        return self._told(Lookup((words.PUBLISH, words.EXCHANGE), {words.NAME: name, words.KEY: key}), verdict)

    def refused(self, wanted: Iterable[Lookup]) -> Refused | None:
        """All of these have to be allowed."""
        for lookup in () if self.access.silent else wanted:
            verdict = self.access.verdict(lookup)
            refused = self._told(lookup, verdict) if verdict is not None else None
            if refused is not None:
                return refused
        return None

    def enters(self, number: int | None) -> Refused | None:
        """Whether the client may connect from where it is; `number`: its user's connections, None for one that is not
        counted."""
        verdict = self.access.enters(self._peer)
        if verdict is None:
            return None
        refused = self._judged(CONNECT, f"access to vhost '{self._host}' refused for user '{self._user}'", verdict)
        if refused is None and number is not None:
            refused = self._beyond(CONNECTIONS, number, f"connection refused for user '{self._user}'")
        return refused

    def _told(self, lookup: Lookup, verdict: Verdict) -> Refused | None:
        text = f"access to {lookup.pair[1]} '{lookup.name}' in vhost '{self._host}' refused for user '{self._user}'"
        return self._judged(str(lookup), text, verdict)

    def _judged(self, what: str, text: str, verdict: Verdict) -> Refused | None:
        why = f"{self.access.file} {verdict}"
        if not verdict.allowed:
            self._acl.denials += 1
            return Refused(text, what, why)
        if verdict.rule.logs:
            self._lines.write(NOTICE, "allowed: %s from %s may %s (%s)", shown(self._user), self._peer, what, why)
        return None
