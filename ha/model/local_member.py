"""This broker as a member of its cluster: its ports, its vote, its state, and the addresses of the others.

    state        one of `status.State`; every step is checked against the table there
    persisted    ballot and in-sync set, on disk before they are acted upon
    whole        we hold everything up to the role's position (see `promotion.py`)
    lineage      under whose claim the content of each epoch was written, and what that leader held when it took over
    acknowledged up to where we have told a primary that we hold everything
    led          the epochs in which we were primary, since this process began

Invariants:  ballot and in-sync key never go back;  nothing depends on a vote or a set that is not on disk.
Who may call: every part of the core.  It knows none of them; `changed` tells the score that something has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ha.environment import Answer, Configuration, Environment
from ha.model.difference import Lineage
from ha.model.disk import DiskWatch
from ha.model.membership import HaState, InSync, Member
from ha.model.safety import Safety
from ha.model.status import State, check_transition
from ha.model.survey import Round
from ha.model.twins import Sightings
from ha.model.view import Survey, View
from ha.settings import NodeSettings
from qpidd_py.core import Engine


class Standing(Protocol):
    """What a view says of the role (`ha.role.Role`)."""

    @property
    def position(self) -> int: ...

    @property
    def primary_address(self) -> str: ...

    @property
    def doubt(self) -> bool: ...

    @property
    def stood(self) -> bool: ...

    @property
    def isolation(self) -> str: ...


class LocalMember:
    """One broker, for one life of its process."""

    def __init__(
        self,
        settings: NodeSettings,
        engine: Engine,
        configuration: Configuration,
        env: Environment,
        state: HaState,
        instance: str = "",
    ) -> None:
        """`instance`: a name of this life of the process that no other life has, also not one under the same id."""
        self.settings = settings
        self.instance = instance
        self.engine = engine
        self.configuration = configuration
        self.env = env
        self.persisted = state
        self.state = State.STANDALONE
        self.whole = False
        self.lineage: Lineage = {}
        self.acknowledged = 0
        self.led: set[int] = set()
        self.safety = Safety(settings.safety, settings.brokers, settings.isolation_wait)
        self.stopped = False
        self.changed: Callable[[], None] = lambda: None
        """Called after every change that the promotion score may depend on."""
        self.sightings = Sightings(env)
        self.disk = DiskWatch(env, lambda: self.changed())
        self._heard = InSync()  # the newest set that we were told of; good for finding brokers, not for deciding

    # ---- who we are -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.persisted.id

    @property
    def epoch(self) -> int:
        return self.persisted.epoch

    @property
    def member(self) -> Member:
        return Member(self.id, self.settings.name, self.settings.address, self.instance)

    @property
    def ever_whole(self) -> bool:
        """Has this process held everything at some time?  Then it may have what no other broker has."""
        return self.whole or bool(self.acknowledged or self.led)

    def view(self, role: Standing) -> View:
        """What we say of ourselves when we are asked."""
        return View(
            self.id,
            self.settings.name,
            self.settings.address,
            self.state,
            self.epoch,
            self.persisted.leader,
            role.position,
            self.whole,
            self.persisted.in_sync,
            role.primary_address,
            role.doubt,
            role.stood,
            self.safety.mode == "quorum" and bool(role.isolation),
            self.instance,
        )

    def set_address(self, address: str) -> None:
        """Where other brokers reach us, once the ports are open."""
        self.settings = replace(self.settings, address=address or self.settings.address)

    # ---- vote and state -------------------------------------------------------------------------------------------

    def persist(self, **changes: Any) -> None:
        """Change the vote or the set; it is on disk when this returns.  Raises StateNotStored: then nothing has
        changed, and what depends on it must not happen (README, "A disk that fails")."""
        state = self.persisted.advance(**changes)
        if state != self.persisted:
            self.disk.store(state)
            self.persisted = state

    def can_store(self) -> bool:
        """Does the disk take our vote and set?  Tries, if the last write has failed."""
        return self.disk.works(self.persisted)

    def set_state(self, new: State, position: int) -> None:
        """`position`: the role's.  Raises InvariantError for an illegal step."""
        old, reason = self.state, check_transition(self.state, new)
        self.state = new
        self.env.log("notice", f"{old.value} -> {new.value}: {reason}")
        self.env.event("state", old=old.value, new=new.value, reason=reason, last_pos=position)
        self.changed()

    # ---- the others -----------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> tuple[str, ...]:
        """Addresses of the cluster's members, as in the newest in-sync set that we know, else as in ha-brokers-url."""
        return self.safety.voters(self.persisted.in_sync)

    def is_broker(self, address: str, in_sync: InSync | None = None) -> bool:
        """By this set, or by the newest that we know; by ha-brokers-url while the list was not changed at run time.
        A broker that does not know its address cannot be looked up, and counts for no majority."""
        brokers = self.safety.voters(in_sync or self.persisted.in_sync)
        return not brokers or not address or address in brokers

    def others(self, in_sync: InSync | None = None) -> list[str]:
        """Addresses of all other brokers of the cluster, as in this set or in the newest that we know."""
        in_sync = in_sync or self.persisted.in_sync
        members = [member.address for member in in_sync.members if member.id != self.id]
        addresses = dict.fromkeys([*self.safety.voters(in_sync), *members])
        return [address for address in addresses if address and address != self.settings.address]

    def everybody(self) -> list[str]:
        """`others`, those of ha-brokers-url, and those that we were told of: what we have on disk may be old."""
        addresses = dict.fromkeys([*self.others(), *self.settings.brokers, *self.others(self._heard)])
        return [address for address in addresses if address != self.settings.address]

    def latest(self) -> list[str]:
        """`others` by the newest set that we have or were told of."""
        return self.others(max(self.persisted.in_sync, self._heard, key=lambda in_sync: in_sync.key))

    def survey(self, answers: Mapping[str, Answer]) -> Survey:
        """What these answers say of the others."""
        return Survey.of(self.id, answers, self.instance)

    def ask_all(
        self,
        timeout: float,
        done: Callable[[dict[str, Answer]], None],
        enough: Callable[[Answer], bool] = lambda answer: False,
        addresses: Iterable[str] | None = None,
    ) -> Round:
        """Ask every other broker for its view.  Our ballot goes with the question: a primary below it is deposed."""
        asker = {"epoch": self.epoch, "leader": self.persisted.leader, **self.member.to_json()}

        def finish(answers: dict[str, Answer]) -> None:
            self._note(answers)
            done(answers)

        asked = self.others() if addresses is None else addresses
        return Round(self.env, asked, "ha.ask", asker, timeout, finish, enough)

    def _note(self, answers: Mapping[str, Answer]) -> None:
        """What is worth knowing whatever was asked for: our own address, twins, a newer set."""
        for address, answer in answers.items():
            if (answer.result.get("id"), answer.result.get("instance", "")) == (self.id, self.instance):
                self.set_address(address)  # we have asked ourselves: so that is where others reach us
        survey = self.survey(answers)
        for twin in survey.twins:
            self.sightings.seen(twin.member, self.member, "it answers our questions")
        sets = [self._heard, *(view.in_sync for view in survey.views)]
        self._heard = max(sets, key=lambda in_sync: in_sync.key)
