"""One message in the salvage files of several brokers: restored from one of them, it counts as restored in all.

A deposed primary and its backup may have put the same messages aside.  The broker that restores tells the others, batch
by batch, and they note it in their files.  A message is identified by its *key*: the broker that assigned its id, the
id, the queue.  The id alone is not enough, since two rivals may have claimed one epoch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from ha.model.position import text
from ha.model.salvaged import HOST, Record
from ha.salvage.files import SalvageFiles
from ha.salvage.lines import SalvageError, read_position

Key = tuple[str, int, str, str]
"""(id of the broker that assigned the id, id, queue, its virtual host)"""


def key_to_json(record: Record) -> list[str]:
    """`/` is not named: older versions know no other."""
    return [record.leader, text(record.id), record.queue, *([] if record.host == HOST else [record.host])]


def keys_from_json(value: Any) -> list[Key]:
    """Raises SalvageError."""
    try:
        return [_key(*item) for item in value]
    except (TypeError, ValueError, AttributeError) as error:
        raise SalvageError(f"not the keys of messages: {error}") from error


def _key(leader: Any, id: Any, queue: Any, host: Any = HOST) -> Key:
    return str(leader), read_position(id), str(queue), str(host)


class _Index:
    """Finds messages in one file; 16 octets for each."""

    def __init__(self, size: int, records: Iterable[tuple[int, Record]]) -> None:
        """`size`: octets of the file, to detect that it has grown."""
        self.size = size
        self._places: dict[tuple[str, str, str], tuple[array[int], array[int]]] = {}
        for number, record in records:
            ids, numbers = self._places.setdefault(_place(record), (array("Q"), array("Q")))
            ids.append(record.id)
            numbers.append(number)

    def numbers(self, keys: Iterable[Key]) -> Iterator[int]:
        for leader, id, queue, host in keys:
            ids, numbers = self._places.get((leader, queue, host), (array("Q"), array("Q")))
            # Messages of one queue are written in the order of their ids.
            at = bisect_left(ids, id)
            if at < len(ids) and ids[at] == id:
                yield numbers[at]


def _place(record: Record) -> tuple[str, str, str]:
    return record.leader, record.queue, record.host


class Copies:
    """The messages in the files of this broker, by their keys."""

    def __init__(self, files: SalvageFiles) -> None:
        self._files = files
        self._indexes: dict[str, _Index] = {}

    def restored_elsewhere(self, keys: Iterable[Key], but: str = "") -> int:
        """Mark as restored in every file except `but`.  Returns how many were marked.

        Raises SalvageError and OSError."""
        keys, noted = list(keys), 0
        for name in self._files.names():
            if name == but:
                continue
            restored = self._files.marks(name).restored
            fresh = [number for number in self._index(name).numbers(keys) if number not in restored]
            if fresh:
                self._files.mark(name, "restored", fresh)
            noted += len(fresh)
        return noted

    def _index(self, name: str) -> _Index:
        size = self._files.size(name)
        index = self._indexes.get(name)
        if index is None or index.size != size:
            index = self._indexes[name] = _Index(size, self._files.records(name))
        return index
