"""What every role can be told; one small class per role (`primary.py`, `backup.py`) fills it in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ha.environment import Environment, Json, Link
from ha.settings import NodeSettings
from qpidd_py.core import Batch, Engine

if TYPE_CHECKING:
    from ha.node import Node


class Role(ABC):
    """A role lives from one change of role to the next; after `stop` it does nothing more."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.stopped = False

    @property
    def env(self) -> Environment:
        return self.node.env

    @property
    def engine(self) -> Engine:
        return self.node.engine

    @property
    def settings(self) -> NodeSettings:
        return self.node.settings

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @property
    @abstractmethod
    def position(self) -> int:
        """Up to here this broker holds everything, if it is whole."""

    @property
    @abstractmethod
    def primary_address(self) -> str:
        """Where the primary is, as far as we know; empty when we do not."""

    @property
    def doubt(self) -> bool:
        """See `promotion.View.doubt`."""
        return False

    @abstractmethod
    def tick(self) -> None: ...

    @abstractmethod
    def accepted(self, link: Link, properties: Json) -> None: ...

    @abstractmethod
    def frame(self, link: Link, kind: int, position: int, body: bytes) -> None: ...

    @abstractmethod
    def closed(self, link: Link, reason: str) -> None: ...

    def batches(self, link: Link, position: int) -> None:
        """Batches were applied; only a backup gets any."""
        return

    def batch(self, batch: Batch) -> None:
        """A batch of our own was sealed; only a primary makes any."""
        return

    def unfreeze(self) -> None:
        """A survey has found no rival."""
        return

    def members(self) -> list[Json]:
        return []
