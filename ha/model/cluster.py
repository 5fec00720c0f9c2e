"""The brokers of the cluster as this one knows them: where they are, what they answer, and who hears whom.

Their addresses are those of the newest in-sync set that is stored here, or of `ha-brokers-url` until the list is
changed at run time.  A set that others only told of (`heard_of`) is used to find brokers, never to decide.

Invariant: every answer is judged (`judge`) before anything is taken from it.
Who may call: every part of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ha.model.disk import DiskWatch
from ha.model.environment import Answer, Environment, Outcome
from ha.model.hearing import Hearing
from ha.model.membership import HaState, InSync, Member, newest_of
from ha.model.position import epochs_in, far_ahead
from ha.model.refusals import Refusals
from ha.model.safety import Safety
from ha.model.settings import NodeSettings
from ha.model.survey import Round
from ha.model.twins import Sightings
from ha.model.view import Survey
from qpidd_py.errors import LinkError


class Local(Protocol):
    """What the cluster needs of this broker (`LocalMember`)."""

    env: Environment
    settings: NodeSettings
    safety: Safety
    persisted: HaState
    instance: str
    disk: DiskWatch
    sightings: Sightings

    @property
    def id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def member(self) -> Member: ...

    def set_address(self, address: str, ports: tuple[int, ...] = ()) -> None: ...

    def look_for_namesake(self, in_sync: InSync) -> None: ...


class Cluster:
    """What one broker knows of the others."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self.refusals = Refusals(local.env, local.settings.refusal_settle)
        self.ports: dict[str, tuple[int, ...]] = {}
        """On which other brokers said that they listen, by address."""
        self._hearing = Hearing(local.env)
        self._disbelieved = 0
        self._heard = InSync()

    @property
    def brokers(self) -> tuple[str, ...]:
        """Addresses of the cluster's members, as in the newest in-sync set that we know, else as in ha-brokers-url."""
        return self._local.safety.voters(self._local.persisted.in_sync)

    def is_broker(self, address: str, in_sync: InSync | None = None) -> bool:
        """True if `address` is on the list of this set, or of the newest set that we know (ha-brokers-url until the
        list is changed at run time).  An empty address is on no list: no broker could ask that one."""
        brokers = self._local.safety.voters(in_sync or self._local.persisted.in_sync)
        return not brokers or address in brokers

    def others(self, in_sync: InSync | None = None) -> list[str]:
        """Addresses of all other brokers of the cluster, as in this set or in the newest that we know."""
        in_sync = in_sync or self._local.persisted.in_sync
        members = [member.address for member in in_sync.members if member.id != self._local.id]
        addresses = dict.fromkeys([*self._local.safety.voters(in_sync), *members])
        return [address for address in addresses if address and address != self._local.settings.address]

    def everybody(self) -> list[str]:
        """`others`, those of ha-brokers-url, and those that others told us of: the set on our disk may be old."""
        addresses = dict.fromkeys([*self.others(), *self._local.settings.brokers, *self.others(self._heard)])
        return [address for address in addresses if address != self._local.settings.address]

    def latest(self) -> list[str]:
        """`others` by the newest set that we have or that others told us of."""
        return self.others(newest_of(self._local.persisted.in_sync, self._heard))

    def survey(self, answers: Mapping[str, Answer]) -> Survey:
        """Evaluate the answers of other brokers."""
        return Survey.of(self._local.id, answers, self._local.instance)

    def judge(self, address: str, answer: Answer) -> Answer:
        """An answer as it counts (`refusals.py`).  A broker with an epoch that is not believed is SILENT: it may hold
        what we lack, and nothing that it says of votes and sets counts."""
        try:
            for epoch in epochs_in(answer.result):
                self.check_epoch(epoch, address)
        except LinkError:
            return Answer(Outcome.SILENT)
        return self.refusals.judge(address, answer)

    def check_epoch(self, named: int, who: object) -> None:
        """Raises LinkError for an epoch of another broker that is not believed."""
        if why := far_ahead(named, self._local.epoch):
            if named != self._disbelieved:
                self._local.env.log("error", f"{who}: {why}")
            self._disbelieved = named
            raise LinkError(f"{who}: {why}")

    def ask_all(
        self,
        timeout: float,
        done: Callable[[dict[str, Answer]], None],
        enough: Callable[[Answer], bool] = lambda answer: False,
        addresses: Iterable[str] | None = None,
    ) -> Round:
        """Ask every other broker for its view.  Our ballot is in the request: it deposes a primary with a lower one."""
        ballot = {"epoch": self._local.epoch, "leader": self._local.persisted.leader}
        asker = {**ballot, **self._local.member.to_json(), "heard": self.ages()}

        def finish(answers: dict[str, Answer]) -> None:
            self._note(answers)
            done(answers)

        asked = self.others() if addresses is None else addresses
        return Round(self._local.env, asked, "ha.ask", asker, timeout, finish, enough, judge=self.judge)

    def ages(self) -> dict[str, float]:
        """The brokers that we have heard.  One that cannot store a vote helps no promotion, so it says nothing."""
        return {} if self._local.disk.error else self._hearing.ages()

    def asked(self, asker: Member, heard: Mapping[str, float]) -> None:
        """Another broker asks for our view, or follows us and was asked."""
        if asker.id != self._local.id and asker.address in self.brokers:
            self._hearing.said(asker.address, heard, self._local.settings.address)

    def apart(self, since: float) -> int:
        """How many brokers have heard each other since then, without us."""
        others = (address for address in self.brokers if address != self._local.settings.address)
        return self._hearing.apart(others, since)

    def _note(self, answers: Mapping[str, Answer]) -> None:
        """Take from any answers: our own address, twins, a newer set, who hears whom."""
        for address, answer in answers.items():
            if (answer.result.get("id"), answer.result.get("instance", "")) == (self._local.id, self._local.instance):
                self._local.set_address(address)  # the answer is our own, so others reach us at this address
        survey = self.survey(answers)
        self.ports |= {view.address: view.ports for view in survey.views if view.ports}
        for twin in survey.twins:
            self._local.sightings.seen(twin.member, self._local.member, "it answers our questions")
        for view in survey.views:
            if view.address in self.brokers:
                self._hearing.said(view.address, dict(view.heard), self._local.settings.address)
                self._hearing.answered(view.address)
        self.heard_of(view.in_sync for view in survey.views)

    def heard_of(self, sets: Iterable[InSync]) -> None:
        """Other brokers, or the registry, name these sets."""
        self._heard = newest_of(self._heard, *sets)
        self._local.look_for_namesake(self._heard)
