"""Signs of life (beats): how a broker is told to send them, and whether it sends them to us.

The broker sends beats (sd_notify) to the socket named in its environment as soon as it is ready, even if no process
listens.  Between two monitors no process listens and beats are lost, so every beat carries the complete state.
"""

from qpidd_agent.ocf import Operation
from qpidd_agent.parameters import Parameters, seconds
from qpidd_agent.process import Process

BEATS_IN_SILENCE = 4
"""Number of beats in the allowed silence: `qpidd` sends one each quarter of WATCHDOG_USEC."""
SLOWEST = 1.0
"""Seconds.  Beats do not come less often than for this silence, so that `heartbeat` can be lowered to it at once."""


def environment(parameters: Parameters, operation: Operation) -> "dict[str, str]":
    """The environment that makes a broker send beats to us."""
    return {
        "NOTIFY_SOCKET": operation.path("notify"),
        "WATCHDOG_USEC": str(int(min(parameters.silence, SLOWEST) * 1_000_000)),
    }


def allowed_silence(parameters: Parameters, process: Process, operation: Operation) -> float:
    """Allowed silence in seconds; 0 for a broker that was not started by us and sends us no beats.

    The parameter, as it is now, but not less than the broker's beats allow.
    """
    if process.variable("NOTIFY_SOCKET") != operation.path("notify"):
        return 0.0
    promised = seconds(f"{process.variable('WATCHDOG_USEC')}us")
    return max(promised, parameters.silence) if promised else 0.0
