"""The supervisor's decisions as events, in the brokers' format (`ha.shell.events`), with `source` `qpid-cluster`.

`peer` is the node concerned, `attrs.text` the log line.  Shell.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ha.qpid_cluster.supervision import Note
from ha.shell.events import EventLog

_OWN_FIELDS = ("old", "new", "reason")


class SupervisorEvents(EventLog):
    """The event log of one supervisor, in DIRECTORY/events of its cluster."""

    def __init__(self, directory: Path, cluster: str) -> None:
        super().__init__(directory / "events", "supervisor", lambda: self._epoch, cluster)
        self._epoch = 0  # the highest that a broker named
        self._common.update(source="qpid-cluster", proc=self._common["proc"].replace("qpidd", "qpid-cluster"))

    def note(self, note: Note) -> None:
        self._epoch = max(self._epoch, int(note.attrs.get("term", 0)))
        own: Mapping[str, Any] = {name: note.attrs[name] for name in _OWN_FIELDS if name in note.attrs}
        rest = {name: value for name, value in note.attrs.items() if name not in (*_OWN_FIELDS, "term")}
        self.write(note.kind, peer=note.node, attrs={"text": note.text, **rest}, **own)
