"""As `three_ways`, and over a restart of a broker with a journal, and over a fail-over to a backup that joined late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.members import Members
from tests.support.process import BrokerProcess
from tests.support.three_ways import WAYS, Client, Site

FIVE_WAYS = (*WAYS, "restart", "joined")


class Restarted(Site):
    """Its clients publish what is kept."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__("restart", broker)
        self._broker = broker

    def client(self, **options: Any) -> Client:
        client = super().client(**options)
        client.persistent = True
        return client

    def middle(self) -> Client:
        self.client().declare("the-middle")  # on disk, and with it what came before
        self._broker.kill()
        self._broker.start()
        return self.client()


class Joined(Site):
    """One backup is away until the middle, gets the difference, and becomes the primary."""

    def __init__(self, members: Members) -> None:
        super().__init__("joined", members)
        self._members, self._away = members, ""

    def begin(self) -> Joined:
        super().begin()
        self._away = self.backups[-1]
        self._members.brokers[self._away].kill()
        self._members.settled(self._primary)
        return self

    def _fail_over(self) -> None:
        self._members.brokers[self._away].start()
        self._members.settled(self._primary)
        self._members.caught_up(self._away, self._primary)
        self._members.brokers[self._primary].kill()
        self._primary = self._members.promote_newest(self._away, behind=True)  # clients may be at work to the end
        self._members.settled(self._primary)


def site(way: str, brokers: BrokerProcess | Members) -> Site:
    if isinstance(brokers, BrokerProcess):
        return (Restarted(brokers) if way == "restart" else Site(way, brokers)).begin()
    return (Joined(brokers) if way == "joined" else Site(way, brokers)).begin()


def restarting(directory: Path) -> BrokerProcess:
    return BrokerProcess(directory, "--journal", "yes")
