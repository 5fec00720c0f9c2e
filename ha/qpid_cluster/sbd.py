"""The part `sbd` of a cluster file's section `deployment`: nodes without power control that reset themselves.  Pure.

sbd without a disk feeds the watchdog of its node while Corosync and Pacemaker answer and there is a majority; a node
that it no longer feeds is reset.  The others wait for that, `fencing_timeout`, and take the node for dead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ha.qpid_cluster.cluster_values import at_least, mapping, matching, refuse_unknown
from qpidd_py.errors import ConfigError

KIND = "watchdog"
WHERE = "deployment: sbd"
LEAST = 5.0
"""Seconds, sbd's own default: pacemakerd looks at one of its six daemons a second, so a healthy one may say nothing new
to sbd for five seconds."""
LEAST_WITH_DEVICE = 11.0
"""Corosync answers nobody while a new membership waits for the quorum device's vote, 6 s at most."""
NOTICED = 7.0
"""Seconds until sbd feeds no more after the majority was lost: it looks once a second, and believes what Pacemaker said
last for four seconds.  Two more for the clocks of whole seconds that it reckons with."""
LONGEST = 75.0
"""systemd gives sbd 90 s to start, the delay after a reset included."""
_DEVICE = re.compile(r"/dev/watchdog[0-9]*")


@dataclass(frozen=True)
class Sbd:
    """Durations in whole seconds, as sbd takes them."""

    device: str
    watchdog_timeout: int
    """Without food for so long the watchdog resets the node."""
    fencing_timeout: int
    """`stonith-watchdog-timeout`: the others take a lost node for reset after that time."""


def parse_sbd(value: object, quorum_device: bool) -> Sbd:
    """From `watchdog`, or a mapping with what shall differ from the defaults."""
    values = _values(value)
    least = LEAST_WITH_DEVICE if quorum_device else LEAST
    timeout = _whole(values, "watchdog-timeout", least, least)
    safe = max(2 * timeout, timeout + NOTICED)
    waits = _whole(values, "stonith-watchdog-timeout", safe, safe)
    if waits > LONGEST:
        raise ConfigError(f"{WHERE}: stonith-watchdog-timeout: found {waits:g} s, wanted {LONGEST:g} s or less")
    device = matching(values.get("device", "/dev/watchdog"), _DEVICE, f"{WHERE}: device", "/dev/watchdog[NUMBER]", True)
    return Sbd(device, round(timeout), round(waits))


def _values(value: object) -> Mapping[str, Any]:
    if value == KIND:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{WHERE}: found {value!r}, wanted {KIND}, or a mapping (sbd with a disk is not rendered)")
    values = mapping(value, WHERE)
    refuse_unknown(values, ("device", "watchdog-timeout", "stonith-watchdog-timeout"), WHERE)
    return values


def _whole(values: Mapping[str, Any], name: str, default: float, least: float) -> float:
    seconds = at_least(values, name, default, least, WHERE)
    if abs(seconds - round(seconds)) > 1e-9:
        raise ConfigError(f"{WHERE}: {name}: found {seconds:g} s, wanted whole seconds")
    return seconds
