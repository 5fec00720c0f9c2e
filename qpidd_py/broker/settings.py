"""Settings: what a cluster knows next to its queues and exchanges: users and what they may do.                   Pure.

A setting is a value (a field table) under a key: its kind, a virtual host (empty if it belongs to none) and a name.  It
is an object of the configuration as a queue is: an operation of the log makes it, the position of that operation is its
uid, and a snapshot has it.  Putting it again replaces it.  It is replicated at every level of `ha-replicate`.
The kinds are in `security.entries`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.operation_log import OperationLog
from qpidd_py.broker.operations import Operation, setting_key, setting_operation
from qpidd_py.broker.snapshot import Records
from qpidd_py.core.engine import Engine

MOST: Final = 100_000
"""Settings of a cluster."""


class Key(NamedTuple):
    """See the head of this module."""

    kind: str
    host: str
    name: str


class Setting(NamedTuple):
    position: int
    value: Mapping[str, Any]


Watcher = Callable[[Key], None]
"""Is told that the setting of this key is another one, or gone."""


class Settings:
    """Of one broker."""

    def __init__(self, engine: Engine, records: Records) -> None:
        self._log = OperationLog(engine)
        self._records = records
        self._settings: dict[Key, Setting] = {}
        self.watchers: list[Watcher] = []

    def __len__(self) -> int:
        return len(self._settings)

    def get(self, key: tuple[str, str, str]) -> Mapping[str, Any] | None:
        found = self._settings.get(Key(*key))
        return None if found is None else found.value

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._settings))

    def position(self, key: Key) -> int:
        return self._settings[key].position

    def of(self, kind: str) -> Iterator[tuple[Key, Mapping[str, Any]]]:
        """All of a kind, in no order."""
        return ((key, setting.value) for key, setting in self._settings.items() if key.kind == kind)

    def positions(self) -> list[int]:
        return [setting.position for setting in self._settings.values()]

    # ---- the primary decides

    def put(self, key: Key, value: Mapping[str, Any]) -> int:
        """The position that the answer waits for.  `value` has been checked (`security.entries`)."""
        found = self._settings.get(key)
        if found is not None and encode_table(found.value) == encode_table(value):
            return self._log.unchanged(found.position)
        position, payload = self._log.append(setting_operation("setting.put", key, value))
        self._put(key, value, position, payload)
        return position

    def delete(self, key: Key) -> int:
        """The same; of what is not there, too."""
        if key not in self._settings:
            return self._log.sealed()
        position, _ = self._log.append(setting_operation("setting.delete", key))
        self.drop(key)
        return position

    # ---- a backup follows

    def apply_put(self, operation: Operation, position: int, payload: bytes) -> None:
        self._put(Key(*setting_key(operation)), operation["value"], position, payload)

    def apply_delete(self, operation: Operation) -> None:
        self.drop(Key(*setting_key(operation)))

    def drop(self, key: Key) -> None:
        found = self._settings.pop(key, None)
        if found is not None:
            self._records.drop(found.position)
            self._tell(key)

    def _put(self, key: Key, value: Mapping[str, Any], position: int, payload: bytes) -> None:
        found = self._settings.get(key)
        if found is not None:
            self._records.drop(found.position)
        self._settings[key] = Setting(position, value)
        self._records.put(position, payload)
        self._tell(key)

    def _tell(self, key: Key) -> None:
        for watcher in self.watchers:
            watcher(key)
