"""Salvage files of brokers that have no disk."""

from collections.abc import Sequence

from ha.model.salvaged import Header, Record
from qpidd_py.errors import LinkError


class MemorySalvage:
    """`ha.model.environment.SalvageFile`; a cancelled one leaves `kept`.  What a crash leaves of one stays there."""

    def __init__(self, header: Header, kept: list["MemorySalvage"], fail_after: int | None = None) -> None:
        """`fail_after`: messages that the disk still takes."""
        self.header = header
        self.records: list[Record] = []
        self.finished = False
        self._kept = kept
        self._room = fail_after
        kept.append(self)

    @property
    def name(self) -> str:
        return f"{self.header.epoch}-{self.header.broker}"

    def add(self, records: Sequence[Record]) -> None:
        if self._room is not None and len(self.records) + len(records) > self._room:
            raise LinkError("no space left on device")
        self.records += records

    def finish(self) -> None:
        self.finished = True

    def cancel(self) -> None:
        self._kept.remove(self)
