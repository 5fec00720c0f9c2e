"""Signs of life: how a broker is told to beat, and whether it beats for us.

It sends (sd_notify) to the socket that its environment names, from the moment it is ready, whoever listens there.
Nobody listens between two monitors, so what was sent then is lost: every beat says all that matters.
"""

from qpidd_agent.ocf import Operation
from qpidd_agent.parameters import Parameters, seconds
from qpidd_agent.process import Process

BEATS_IN_SILENCE = 4
"""As `qpidd` sends them: at a quarter of WATCHDOG_USEC."""


def environment(parameters: Parameters, operation: Operation) -> "dict[str, str]":
    """With which a broker is started, so that it beats for us."""
    return {
        "NOTIFY_SOCKET": operation.path("notify"),
        "WATCHDOG_USEC": str(int(parameters.silence * 1_000_000)),
    }


def allowed_silence(process: Process, operation: Operation) -> float:
    """Seconds; 0 for a broker that does not beat for us: somebody else has started it, its silence says nothing.

    As it was started, whatever the parameter says now.
    """
    if process.variable("NOTIFY_SOCKET") != operation.path("notify"):
        return 0.0
    return seconds(f"{process.variable('WATCHDOG_USEC')}us")
