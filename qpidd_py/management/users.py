"""Requests about the users of the cluster and what they may do; changes are answered when they are safe.

    user.self         {}                                        {name, tags}: who asks
    user.list         {}                                        [{name, tags, password: has one?, cluster?, limits}]
    user.export       {}                                        [{name, tags, hash, limits}] of those of the cluster
    user.put          {user, hash, tags}                        makes or changes it; what is left out stays as it is
    user.delete       {user}                                    with permissions and limits; its connections are closed
    permission.list   {}                                        [{user, vhost, configure, write, read}]
    permission.set    {user, vhost, configure, write, read}
    permission.clear  {user, vhost}                         a user of the cluster cannot enter without one
    topic.list        {}                                        [{user, vhost, exchange, write, read}]
    topic.set         {user, vhost, exchange, write, read}
    topic.clear       {user, vhost, exchange=all}

A hash is one of `qpid-passwd`, `sha256$SALT$HASH` or `sha512$SALT$HASH` of RabbitMQ, or empty: no password fits.
Users of the user file are listed, too; they are not changed here, but may get a permission.
"""

from collections.abc import Iterator, Mapping

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.quotas import USER_LIMITS
from qpidd_py.broker.settings import Key
from qpidd_py.management.request import Json, NotFound, RequestError, text
from qpidd_py.management.settings import Change, List, SettingRequests, named
from qpidd_py.security.entries import CONFIGURE, PERMISSION, READ, TOPIC, USER, WRITE
from qpidd_py.security.rights import PatternError, compiled, expanded
from qpidd_py.security.users import usable


class UserRequests(SettingRequests):
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.lists: Mapping[str, List] = {
            "user.list": self._users,
            "user.export": self._hashes,
            "permission.list": self._permissions,
            "topic.list": self._topics,
        }
        self.changes: Mapping[str, Change] = {
            "user.put": self._put_user,
            "user.delete": self._delete_user,
            "permission.set": self._set_permission,
            "permission.clear": self._clear_permission,
            "topic.set": self._set_topic,
            "topic.clear": self._clear_topic,
        }

    # ---- lists

    def _users(self) -> Iterator[Json]:
        cluster = {key.name: value for key, value in self.settings.of(USER)}
        for name in sorted({*cluster, *self.broker.rights.names()}):
            value = cluster.get(name)
            tags, password = ([], True) if value is None else (value["tags"], bool(value["hash"]))
            known = {"name": name, "tags": tags, "password": password, "cluster": value is not None}
            yield {**known, "limits": self._limits(name)}

    def _hashes(self) -> Iterator[Json]:
        for key, value in sorted(self.settings.of(USER)):
            known = {"name": key.name, "tags": value["tags"], "hash": value["hash"], "cluster": True}
            yield {**known, "limits": self._limits(key.name)}

    def _limits(self, name: str) -> Mapping[str, int]:
        return self.settings.get(Key(USER_LIMITS, "", name)) or {}

    def _permissions(self) -> Iterator[Json]:
        for key, value in sorted(self.settings.of(PERMISSION)):
            yield {"user": key.name, "vhost": key.host, **value}

    def _topics(self) -> Iterator[Json]:
        for key, value in sorted(self.settings.of(TOPIC)):
            for exchange, patterns in sorted(value.items()):
                yield {"user": key.name, "vhost": key.host, "exchange": exchange, **patterns}

    # ---- changes

    def _put_user(self, arguments: Json) -> tuple[Json, int]:
        key = Key(USER, "", named(arguments, "user"))
        if self.broker.rights.local(key.name):
            raise RequestError(f"user {key.name!r} is one of the user file, or of the brokers")
        before = self.settings.get(key) or {"hash": "", "tags": []}
        stored = text(arguments, "hash", before["hash"])
        if stored and not usable(stored):
            raise RequestError("the hash is none of qpid-passwd's, and none of RabbitMQ's")
        return self.put(key, {"hash": stored, "tags": arguments.get("tags", before["tags"])})

    def _delete_user(self, arguments: Json) -> tuple[Json, int]:
        name = named(arguments, "user")
        if self.settings.get(Key(USER, "", name)) is None:
            raise NotFound(f"no user {name!r} of the cluster")
        self.check_primary()
        keys = [Key(kind, "", name) for kind in (USER, USER_LIMITS)]
        keys += [Key(kind, vhost.name, name) for vhost in self.broker.vhosts for kind in (PERMISSION, TOPIC)]
        return {}, max(self.settings.delete(key) for key in keys if self.settings.get(key) is not None)

    def _set_permission(self, arguments: Json) -> tuple[Json, int]:
        key = self._key(PERMISSION, arguments)
        value = {name: _pattern(arguments, name, key) for name in (CONFIGURE, WRITE, READ)}
        return self.put(key, value)

    def _clear_permission(self, arguments: Json) -> tuple[Json, int]:
        key = self._key(PERMISSION, arguments)
        self.check_primary()
        return {}, self.settings.delete(key)

    def _set_topic(self, arguments: Json) -> tuple[Json, int]:
        key, exchange = self._key(TOPIC, arguments), named(arguments, "exchange")
        patterns = {name: _pattern(arguments, name, key) for name in (WRITE, READ)}
        return self.put(key, {**(self.settings.get(key) or {}), exchange: patterns})

    def _clear_topic(self, arguments: Json) -> tuple[Json, int]:
        key, exchange = self._key(TOPIC, arguments), text(arguments, "exchange", "")
        self.check_primary()
        found = dict(self.settings.get(key) or {})
        left = {name: patterns for name, patterns in found.items() if exchange and name != exchange}
        return self.keep(key, left)

    def _key(self, kind: str, arguments: Json) -> Key:
        """Of a user that there is, in a virtual host that there is."""
        host = self.virtual_host(arguments)
        return Key(kind, host, self.user_of(arguments))


def _pattern(arguments: Json, name: str, key: Key) -> str:
    found = text(arguments, name)
    try:
        compiled(expanded(found, key.name, key.host) if key.kind == TOPIC else found)
    except (PatternError, UnicodeEncodeError) as error:
        raise RequestError(f"{name}: {error}") from None
    return found
