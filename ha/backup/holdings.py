"""What a backup that joins holds, and the primary may lack or take for something else.

Before the difference it drops what names other messages at the primary and what it cannot read back, so that these are
sent again.  Then it says what it holds.  For a whole member the drops are part of the difference (`staging.py`): they
are made when that is complete, and what they are going to drop is not said to be held.

Who may call: `Joining`, once, when what may be the only copy is put aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ha.backup.staging import Staging
from ha.model.difference import Lineage, foreign_epochs, normalise, of_epochs, shared, subtract
from ha.model.local_member import LocalMember
from ha.model.protocol import KEYS, Kind, encode_drop, encode_held, encode_merge
from qpidd_py.core import Queue, decode_ids, encode_ids


class Holdings:
    """The content of one broker, compared with the history of one primary."""

    def __init__(self, local: LocalMember, staging: Staging, lineage: Lineage, position: int) -> None:
        """`lineage`: the primary's; `position`: up to where we were whole."""
        self._local = local
        self._staging = staging
        self._lineage = lineage
        self._position = position

    def settle(self) -> Iterator[bytes]:
        """Drop, now or with the difference, and say what is held: a frame for each queue."""
        for queue, _ in self._local.configuration.replicated():
            # Remains of an unfinished difference, and the places of removed messages, must not block the next one: a
            # deposed primary may be sent again what it had dequeued on its own.
            merge = partial(self._local.engine.merge, queue.number)
            self._staging.change(merge, Kind.MERGE, encode_merge(queue.number))
        self._staging.add(self._local.journal.differ)
        self._staging.add(self._drop_rotten)
        foreign = foreign_epochs(self._local.lineage, self._lineage)
        self._staging.add(lambda: self._prune(foreign))
        return self._held(foreign)

    def _drop_rotten(self) -> None:
        """What cannot be read is no longer held, so the primary sends it.  A whole broker has no such messages."""
        for queue, _ in self._local.configuration.replicated() if self._local.hole else ():
            if ids := queue.rotten():
                self._drop(queue, ids)
        self._local.hole = ""

    def _prune(self, epochs: set[int]) -> None:
        """Drop messages whose ids name other messages at the primary."""
        # Until we are complete we may hold messages of both histories.
        self._local.lineage = {**self._local.lineage, **self._lineage}
        for queue, _ in self._local.configuration.replicated() if epochs else ():
            if ids := of_epochs(normalise(decode_ids(queue.held())), epochs):
                self._drop(queue, encode_ids(ids))

    def _drop(self, queue: Queue, ids: bytes) -> None:
        drop = partial(self._local.engine.drop, queue.number, ids)
        self._staging.change(drop, Kind.DROP, encode_drop(queue.number, ids))

    def _held(self, foreign: set[int]) -> Iterator[bytes]:
        for queue, uid in self._local.configuration.replicated():
            held = queue.held()
            if foreign and held:
                ids = normalise(decode_ids(held))
                held = encode_ids(subtract(ids, of_epochs(ids, foreign)))
            if held:
                yield encode_held(queue.number, uid, held)
            if queue.window is not None and (known := self._known_keys(queue.window.newest)):
                yield encode_held(KEYS + queue.number, uid, encode_ids([(1, known)]))

    def _known_keys(self, newest: int) -> int:
        """The keys of messages up to here are those that the primary had remembered, too; 0 when that is not known.
        Keys of messages that the primary lacks may have displaced some of them."""
        known = shared(self._local.lineage, self._lineage, self._position) if self._local.whole else 0
        return known if newest <= known else 0
