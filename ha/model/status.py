"""The states of a broker in a cluster and every legal step between them.

    standalone   not a member of a cluster
    joining      started or deposed; no primary of the present epoch has been heard yet
    catchup      a primary feeds this broker, whose content is incomplete: not promotable while a complete member lives
    ready        listed by the primary: it holds everything that is confirmed
    recovering   promoted; serves clients, confirms nothing until the expected backups are back or given up
    active       promoted; confirms

        joining ──first frame──▶ catchup ──listed──▶ ready ──promoted──▶ recovering ──expected back──▶ active
           ▲ ╲                      ▲                 │                   ▲    │                         │
           │  ╲─────promoted────────┼─────────────────┼───────────────────┘    │                         │
           │                        └──not listed─────┘                        │                         │
           └───────────────────── a higher epoch was seen, or stepped down ────┴─────────────────────────┘

Before joining, while its journal is read, a broker is `recovering-journal`: it answers that, and is no member yet
(`shell/recovering.py`).

A step that is not in the table raises `InvariantError`: a broker in an inconsistent state must not confirm.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from qpidd_py.errors import InvariantError

RECOVERING_JOURNAL: Final = "recovering-journal"
"""As in `qpidd_py.doorman`.  No `State`: nobody decides anything by it, so no view may have it."""


class State(Enum):
    """States by the names that `qpid-ha status` prints."""

    STANDALONE = "standalone"
    JOINING = "joining"
    CATCHUP = "catchup"
    READY = "ready"
    RECOVERING = "recovering"
    ACTIVE = "active"

    @property
    def is_primary(self) -> bool:
        return self in (State.RECOVERING, State.ACTIVE)

    @property
    def is_backup(self) -> bool:
        return self in (State.JOINING, State.CATCHUP, State.READY)


TRANSITIONS: dict[tuple[State, State], str] = {
    (State.STANDALONE, State.JOINING): "start as a member of a cluster",
    (State.JOINING, State.CATCHUP): "first frame from the primary",
    (State.JOINING, State.RECOVERING): "promoted, and no other broker holds more",
    (State.CATCHUP, State.READY): "listed by the primary",
    (State.CATCHUP, State.RECOVERING): "promoted: no whole member is left, or by force",
    (State.READY, State.CATCHUP): "not listed by the primary",
    (State.READY, State.RECOVERING): "promoted",
    (State.RECOVERING, State.ACTIVE): "every expected backup is back or given up",
    (State.RECOVERING, State.JOINING): "deposed by a higher epoch, or stepped down",
    (State.ACTIVE, State.JOINING): "deposed by a higher epoch, or stepped down",
}


def check_transition(old: State, new: State) -> str:
    """The reason for the step.  Raises InvariantError for an illegal one."""
    reason = TRANSITIONS.get((old, new))
    if reason is None:
        raise InvariantError(f"illegal state transition: {old.value} to {new.value}")
    return reason


EXPECTATIONS: dict[str, frozenset[str]] = {
    **{state.value: frozenset([state.value]) for state in State},
    RECOVERING_JOURNAL: frozenset([RECOVERING_JOURNAL]),
    "primary": frozenset(state.value for state in State if state.is_primary),
    "backup": frozenset(state.value for state in State if state.is_backup),
}
"""The words of `qpid-ha status --expect WORD`, and the words that satisfy each."""
