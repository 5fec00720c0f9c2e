"""Data types of the local supervisor: nodes, reports of brokers, effects, and the state of an election.  Pure.

`supervisor.py` and `election.py` contain the theory and the decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ha.model.status import RECOVERING_JOURNAL
from ha.promotion.score import COPY

BACKUP_STATES = ("joining", "catchup", "ready")
PRIMARY_STATES = ("recovering", "active")
REST_FIRST = 0.05  # seconds between two rounds of an election; doubles
REST_LIMIT = 2.0


class Process(Enum):
    """State of a node's operating system process."""

    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    HUNG = "hung"


@dataclass(frozen=True)
class Report:
    """A broker's last report about itself (the answer to `ha.ask`)."""

    state: str
    epoch: int = 0
    position: int = 0  # epoch in the upper 16 bits, sequence in the lower 48
    version: int = 0  # of the in-sync set
    members: tuple[str, ...] = ()  # names of the in-sync set
    successor: str = ""  # address of the primary that a joining broker is going to follow
    score: int | None = None  # for promotion, see `ha.promotion.score`; None: it must not be promoted now

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> "Report":
        score = answer.get("score")
        in_sync, state = answer.get("in_sync") or {}, str(answer.get("state", "unknown"))
        members = in_sync.get("members") or () if isinstance(in_sync, dict) else ()
        return cls(
            state=state,
            epoch=int(answer.get("epoch") or 0),
            position=int(answer.get("position") or 0),
            version=int(in_sync.get("version") or 0) if isinstance(in_sync, dict) else 0,
            members=tuple(str(m.get("name", m)) if isinstance(m, dict) else str(m) for m in members),
            successor=str(answer.get("primary") or "") if state == "joining" else "",
            score=score if isinstance(score, int) else None,
        )

    @property
    def is_primary(self) -> bool:
        return self.state in PRIMARY_STATES

    @property
    def starting(self) -> bool:
        """It reads its journal: it lives, and is no candidate yet."""
        return self.state == RECOVERING_JOURNAL

    @property
    def worth(self) -> int:
        """The score of a broker that is known to hold every confirmed message; 0 if it is not known (yet)."""
        return self.score if self.score is not None and self.score > COPY else 0


# Effects, which the shell executes.


@dataclass(frozen=True)
class Start:
    node: str


@dataclass(frozen=True)
class Signal:
    node: str
    number: int


@dataclass(frozen=True)
class Ask:
    """Send `ha.ask`; `answered` gets the answer, with the same serial."""

    node: str
    serial: int


@dataclass(frozen=True)
class Promote:
    """Send `ha.promote`; `promoted` gets the answer, with the same serial."""

    node: str
    serial: int


@dataclass(frozen=True)
class Relocate:
    """Send `ha.relocate` to the primary; `relocated` gets the answer, with the same serial."""

    node: str
    target: str
    serial: int


@dataclass(frozen=True)
class Note:
    """A decision or an observation, with its reason; written to the log and to the events."""

    kind: str
    text: str
    node: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)


Effect = Start | Signal | Ask | Promote | Relocate | Note


class Refused(Exception):
    """A command that is not possible now; the text is for the administrator."""


@dataclass
class ManagedBroker:
    """Everything the supervisor knows of one broker that it manages; times are `now` of the shell."""

    name: str
    process: Process = Process.DOWN
    pid: int = 0
    wanted: bool = True
    paused: bool = False  # stopped by our own SIGSTOP
    connected: bool = False
    report: Report | None = None
    silent_since: float | None = None  # the oldest question without an answer, or the lost connection
    asked: int = 0  # serial of the last question, 0 when all are answered
    next_ping: float = 0.0
    started_at: float = 0.0
    restart_at: float | None = None
    kill_at: float | None = None  # when SIGKILL follows a SIGTERM without effect
    insist_at: float | None = None  # when a second SIGTERM follows one that the broker may have refused
    quick_deaths: int = 0
    starts: int = 0

    @property
    def is_primary(self) -> bool:
        return self.process is Process.UP and self.report is not None and self.report.is_primary


class ElectionPhase(Enum):
    ASKING = "asking"
    PROMOTING = "promoting"
    RESTING = "resting"


@dataclass
class Election:
    """The search for a primary, from its loss to the accepted promotion."""

    reason: str
    begun: float
    phase: ElectionPhase = ElectionPhase.RESTING
    deadline: float = 0.0  # of the phase
    waiting: dict[str, int] = field(default_factory=dict)  # node: serial of the question
    candidates: list[str] = field(default_factory=list)
    promoting: str = ""
    serial: int = 0  # of the promotion
    rounds: int = 0
    told: str = ""  # the last excuse, to log it once and not in every round
    refusals: dict[str, str] = field(default_factory=dict)  # the last of each node, for the same reason


@dataclass(frozen=True)
class SwitchOver:
    """A planned hand-over that was requested from the primary."""

    source: str
    target: str
    serial: int
    begun: float
    deadline: float


def rank(reports: Mapping[str, Report], preferred: str = "") -> list[str]:
    """Candidates for promotion, best first; see `election.py`.  `preferred` is first among its equals."""
    backups = [name for name, report in reports.items() if report.state in BACKUP_STATES]
    return sorted(backups, key=lambda name: (-reports[name].worth, name != preferred, -reports[name].position))


def rest(rounds: int) -> float:
    """Seconds before the next round of an election: 0.05, 0.1, 0.2 ... 2."""
    return float(min(REST_LIMIT, REST_FIRST * 2 ** min(rounds - 1, 10)))


def show_position(position: int) -> str:
    """The position as text: `epoch.sequence`."""
    return f"{position >> 48}.{position & (1 << 48) - 1}"
