"""What the broker says of itself, and what Pacemaker is to make of it.  Pure.

The score is the broker's own: only it knows who holds more.  Pacemaker promotes the highest one, and nobody without.
"""

from qpidd_agent.ocf import OCF_ERR_GENERIC, OCF_RUNNING_PROMOTED, OCF_SUCCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PRIMARY = frozenset({"recovering", "active"})
BACKUP = frozenset({"joining", "catchup", "ready"})
STANDALONE = "standalone"
CODES = {
    **dict.fromkeys(PRIMARY, OCF_RUNNING_PROMOTED),
    **dict.fromkeys(BACKUP, OCF_SUCCESS),
    STANDALONE: OCF_SUCCESS,
}
"""The words of `qpid-ha status`, and what a monitor answers to each."""

NEVER = "-INFINITY"
BY_STATE = {"active": "100", "recovering": "100", "ready": "100", "joining": "5", "catchup": NEVER, STANDALONE: ""}
"""For a broker that gives no score.  Whether a joining one may be promoted it decides itself when it is told to."""


def code(state: str) -> int:
    return CODES.get(state, OCF_ERR_GENERIC)


def promoted(state: str) -> bool:
    return state in PRIMARY


def score(state: str, given: "str | None") -> str:
    """What to write; empty: nothing, and what was written goes.  `given` is the broker's, None: it has said nothing."""
    if given is None:
        return BY_STATE.get(state, "")
    if not given:
        return NEVER if state == "catchup" else ""
    return given if given == NEVER or given.lstrip("-").isdigit() else ""


def parse(datagram: bytes) -> "dict[str, str]":
    """The variables of a message in the words of sd_notify."""
    pairs = (line.partition("=") for line in datagram.decode(errors="replace").splitlines())
    return {name: value for name, equals, value in pairs if equals}


class Standing:
    """A broker's state, score, and whether its end would lose what no other has."""

    def __init__(self, state: str = "", given: "str | None" = None, last: bool = False) -> None:
        self.state = state
        self.given = given
        self.last = last

    def told(self, values: "Mapping[str, str]") -> "Standing":
        """After a message; what it does not name is as it was."""
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
