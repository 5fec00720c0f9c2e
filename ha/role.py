"""The common interface of the roles, implemented in `primary.py` and `backup.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ha.model.clock_readings import ClockReadings
from ha.model.environment import Environment, Json, Link
from ha.model.local_member import LocalMember
from ha.model.public_url import public_address
from ha.model.settings import NodeSettings
from ha.model.view import Survey, View
from ha.promotion.score import Outlook
from qpidd_py.core import Batch, Engine
from qpidd_py.errors import LinkError


class Role(ABC):
    """A role exists from one change of role to the next; after `stop` it has no effect."""

    def __init__(self, local: LocalMember) -> None:
        self.local = local
        self.env: Environment = local.env
        self.engine: Engine = local.engine
        self.stopped = False
        self.trouble = ""
        """A fault that the administrator must correct before this role can work; empty if there is none."""

    @property
    def settings(self) -> NodeSettings:
        return self.local.settings

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    def note_clock(self, peer: str, readings: ClockReadings, body: bytes) -> None:
        """Take the clock reading in a heartbeat of the broker `peer`."""
        reading = readings.hear(body, self.env.now(), self.env.wall())
        if reading is not None:
            self.env.event("clock", peer=peer, attrs={"peer_wall": reading})

    @property
    @abstractmethod
    def position(self) -> int:
        """The position up to which this broker holds everything, if it is whole."""

    @property
    @abstractmethod
    def primary_address(self) -> str:
        """Address of the primary; empty if it is not known."""

    @property
    def survey(self) -> Survey | None:
        """The last survey of a search that found no primary."""
        return None

    @property
    def hushed(self) -> frozenset[str]:
        """Addresses that recently gave no answer until the timeout."""
        return frozenset()

    @property
    def outlook(self) -> Outlook:
        """What the promotion score depends on, apart from our own view."""
        return Outlook()

    @property
    def doubt(self) -> bool:
        """See `view.View.doubt`."""
        return False

    @property
    def stood(self) -> bool:
        """See `view.View.stood`."""
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
        """Batches were applied; called on a backup only."""
        return

    def batch(self, batch: Batch) -> None:
        """Our engine sealed a batch; called on a primary only."""
        return

    def durable(self) -> None:
        """More of our log is on disk."""
        return

    @property
    def patience(self) -> float:
        """How many times `ha-slow-backup-timeout` the disk of our journal may hang, until the process ends."""
        return 1.0

    def limited(self) -> None:
        """`local.limited` has changed."""
        return

    def members(self) -> list[Json]:
        return []

    def view(self) -> View:
        """Our answer to `ha.ask`."""
        return self.local.view(self)

    def refusal_text(self, client: bool = False) -> str:
        """The reply text of a backup; names the primary if it is known, for a client by its public address."""
        address, settings = self.primary_address, self.settings
        if client:
            address = public_address(address, settings.brokers, settings.public_url)
        where = f"the primary is {address}" if address else "the primary is not known"
        return f"CONNECTION_FORCED - {self.local.member} is a backup ({self.local.state.value}); {where}"

    def isolation_text(self) -> str:
        """The reply text for clients of an isolated primary; empty if this is not one."""
        reason = self.isolation
        return f"CONNECTION_FORCED - isolated: {self.local.member} ({reason})" if reason else ""

    def break_link(self, link: Link, error: LinkError) -> None:
        """Close the link after a fault of the peer."""
        self.env.log("warning", f"replication link closed: {error}")
        link.close()
        self.closed(link, str(error))

    @property
    def isolation(self) -> str:
        """Why a primary refuses clients; empty if it does not."""
        return ""

    def stall(self) -> Json | None:
        """Why confirms wait, see `stall.py`."""
        return None
