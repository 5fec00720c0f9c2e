"""The states of a session's channel; the I/O thread makes all changes (`channel_worker`).

LOST --open_on--> OPENING --select-ok--> RESTORING --last ok--> READY
  ^                  |                      |                     |
  +------------------+--- connection_lost --+---------------------+
  any -> FAILED (channel closed by the broker; the connection gave up)      any -> CLOSED (by the application)
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    LOST = "lost"
    OPENING = "opening"
    RESTORING = "restoring"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


ENDED = (State.FAILED, State.CLOSED)
