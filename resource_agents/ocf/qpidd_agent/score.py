"""Translates the broker's state and score for Pacemaker.  Pure.

The broker computes the score, since only the brokers know which one holds more.  Pacemaker promotes the broker with the
highest score, and none without a score.
"""

from qpidd_agent.ocf import OCF_ERR_GENERIC, OCF_RUNNING_PROMOTED, OCF_SUCCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PRIMARY = frozenset({"recovering", "active"})
BACKUP = frozenset({"joining", "catchup", "ready"})
STANDALONE = "standalone"
RECOVERING_JOURNAL = "recovering-journal"
"""It reads its journal: alive, and not to be promoted."""
CODES = {
    **dict.fromkeys(PRIMARY, OCF_RUNNING_PROMOTED),
    **dict.fromkeys(BACKUP, OCF_SUCCESS),
    STANDALONE: OCF_SUCCESS,
    RECOVERING_JOURNAL: OCF_SUCCESS,
}
"""Words of `qpid-ha status` -> exit code of a monitor."""

NEVER = "-INFINITY"
BY_STATE = {"active": "100", "recovering": "100", "ready": "100", "joining": "5", "catchup": NEVER} | dict.fromkeys(
    (STANDALONE, RECOVERING_JOURNAL), ""
)
"""Scores for a broker that reports none.  A joining one decides itself, at the promotion, whether it is safe."""


def code(state: str) -> int:
    return CODES.get(state, OCF_ERR_GENERIC)


def promoted(state: str) -> bool:
    return state in PRIMARY


def score(state: str, given: "str | None") -> str:
    """The score to write; empty: delete it.  `given` is the broker's own, None: it has reported none."""
    if given is None:
        return BY_STATE.get(state, "")
    if not given:
        return NEVER if state == "catchup" else ""
    return given if given == NEVER or given.lstrip("-").isdigit() else ""


def parse(datagram: bytes) -> "dict[str, str]":
    """The variables of an sd_notify message."""
    pairs = (line.partition("=") for line in datagram.decode(errors="replace").splitlines())
    return {name: value for name, equals, value in pairs if equals}


class Standing:
    """A broker's state, score, and whether it is the only one that holds some messages."""

    def __init__(self, state: str = "", given: "str | None" = None, last: bool = False) -> None:
        self.state = state
        self.given = given
        self.last = last

    def told(self, values: "Mapping[str, str]") -> "Standing":
        """The standing after a message; values that it does not name are unchanged."""
        return Standing(
            values.get("X_QPID_STATE", self.state),
            values.get("X_QPID_SCORE", self.given),
            bool(values["X_QPID_LAST"]) if "X_QPID_LAST" in values else self.last,
        )

    @property
    def score(self) -> str:
        return score(self.state, self.given)

    @property
    def promoted(self) -> bool:
        return promoted(self.state)
