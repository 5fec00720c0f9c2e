"""The process that runs Pacemaker's tools for one broker: a line of JSON in, a line of JSON out.                 Shell.

    {"state": {...} or null, "timeout": seconds}  ->  {"states": [...], "gone": [id, ...]} or {"error": "why"}

A broker may hold many GiB.  Starting a command from it (`sh` forks) would copy its page tables and pause it for that
time; so the broker starts this small process once (`registry/pacemaker.py`), which starts the commands.  It ends with
its broker: the kernel kills it and a command under way, or it finds its input closed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

from ha.model.membership import HaState
from ha.registry.attributes import AttributeRegistry
from ha.registry.commands import LocalTools, die_with_parent, finish
from ha.registry.steps import Steps
from ha.registry.worker import RegistryError

PLACES = ("/usr/sbin", "/sbin")
"""Directories of Pacemaker's tools; not in the PATH of every user."""


def answer(registry: AttributeRegistry, line: str) -> Steps[dict[str, Any]]:
    """The answer to one line of the broker."""
    request = json.loads(line)
    state = None if request["state"] is None else HaState.from_json(request["state"])
    try:
        end = yield from registry.exchange(state, float(request["timeout"]))
    except (RegistryError, OSError) as error:
        return {"error": str(error)}
    return {"states": [state.to_json() for state in end.states], "gone": sorted(end.gone)}


def serve(registry: AttributeRegistry, lines: IO[str], out: IO[str]) -> None:
    for line in lines:
        out.write(json.dumps(finish(answer(registry, line))) + "\n")
        out.flush()


def main() -> None:
    """Arguments: the name of the cluster, and the pid of the broker."""
    cluster, broker = sys.argv[1:]
    die_with_parent(int(broker))
    found = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*found, *(place for place in PLACES if place not in found)])
    serve(AttributeRegistry(cluster, LocalTools()), sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
