"""The registry as node attributes of Pacemaker, through its command line tools.                                 Shell.

Each broker writes the attribute of its own node only, permanently (it outlives a restart of the cluster stack); the
value is JSON in base64, because it travels through an XML document.

Is that linearizable?  Pacemaker orders all changes of its configuration; whoever has made one has seen those before it.
That holds within one partition.  A partition without quorum takes changes, too, and forgets them later: so we look for
quorum before *and after*; after, because a change that is made while the ring breaks is delivered to those that are
left, and by then quorum is known to be lost.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from typing import Final
from xml.etree import ElementTree

import sh

from ha.membership import HaState
from ha.registry_worker import RegistryError
from qpidd_py.errors import QpiddError

logging.getLogger("sh").setLevel(logging.WARNING)  # else it reports every command

FOUND_OR_NOT: Final = (0, 6, 105)
"""Exit codes of cibadmin; 105, in older versions 6: there is no such element."""


class PacemakerRegistry:
    """`registry_worker.Store`."""

    def __init__(self, cluster: str) -> None:
        self.attribute = f"qpid-ha-state-{cluster}" if cluster else "qpid-ha-state"
        self._node = ""

    def exchange(self, state: HaState | None, timeout: float) -> tuple[HaState, ...]:
        """Raises RegistryError."""
        deadline = time.monotonic() + timeout
        _need_quorum(deadline)
        if state is not None:
            self._write(encode(state), deadline)
        path = f"//nodes/node/instance_attributes/nvpair[@name='{self.attribute}']"
        found = _run(deadline, "cibadmin", "--query", "--xpath", path, codes=FOUND_OR_NOT)
        _need_quorum(deadline)
        return decode(found, self.attribute)

    def _write(self, value: str, deadline: float) -> None:
        if not self._node:
            self._node = _run(deadline, "crm_node", "--name").strip()
        where = ("--node", self._node, "--name", self.attribute, "--lifetime", "forever")
        _run(deadline, "crm_attribute", *where, "--update", value)


def _need_quorum(deadline: float) -> None:
    found = _run(deadline, "crm_node", "--quorum").strip()
    if found != "1":
        raise RegistryError(f"this partition of the cluster has no quorum (crm_node --quorum: {found!r}, expected 1)")


def _run(deadline: float, name: str, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    """What the command prints.  Raises RegistryError when it fails or has not ended in time."""
    left = max(0.001, deadline - time.monotonic())
    try:
        return str(sh.Command(name)(*words, _timeout=left, _new_session=True, _ok_code=codes, _tty_out=False))
    except sh.TimeoutException:
        raise RegistryError(f"{name} has not ended in time") from None
    except sh.CommandNotFound:
        raise RegistryError(f"{name} is not there: is Pacemaker installed?") from None
    except sh.ErrorReturnCode as error:
        text = error.stderr.decode(errors="replace").strip().splitlines()
        raise RegistryError(f"{name} ended with code {error.exit_code}: {text[-1] if text else ''}") from None


def encode(state: HaState) -> str:
    return base64.b64encode(json.dumps(state.to_json(), separators=(",", ":")).encode()).decode()


def decode(document: str, attribute: str) -> tuple[HaState, ...]:
    """The states in an answer of cibadmin; empty when there is none.  Raises RegistryError."""
    if not document.strip():
        return ()
    try:
        pairs = ElementTree.fromstring(document).iter("nvpair")
        values = [pair.get("value", "") for pair in pairs if pair.get("name") == attribute]
        return tuple(HaState.from_json(json.loads(base64.b64decode(value, validate=True))) for value in values)
    except (ElementTree.ParseError, ValueError, KeyError, TypeError, QpiddError) as error:
        raise RegistryError(f"attribute {attribute} cannot be used: {error!r}") from error
