"""Fail-over times of the toy agent: what Pacemaker gives to an agent that does nothing special.      Shell.

    python -m tests.pacemaker.lab.toy_figures [--runs 5] [--no-fencing]

From the event until another instance (for the kill of a process: any instance) answers as promoted through the virtual
address, as seen by a client that tries every 20 ms; median, least, most; seconds.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import time
from collections.abc import Callable
from typing import Final

from tests.pacemaker.lab.files import toy_cib
from tests.pacemaker.lab.lab import Lab
from tests.pacemaker.lab.names import VIRTUAL_ADDRESS
from tests.support.wait import wait_for

PORT: Final = 5672
PATIENCE: Final = 0.2
"""Seconds that the client gives one attempt."""
SERVER: Final = "python3 -S -c"
"""Command line of the toy's server."""
Event = Callable[[Lab, str], None]


def says(lab: Lab, address: str = VIRTUAL_ADDRESS) -> list[str]:
    """Node and role, as a client hears them; empty when no broker answers."""
    try:
        with lab.clients.inside(), socket.create_connection((address, PORT), PATIENCE) as connection:
            connection.settimeout(PATIENCE)
            return connection.recv(100).decode().split()
    except OSError:
        return []


def move(lab: Lab, old: str) -> None:
    target = lab.others(old)[0].name
    lab.node(old).run("crm_resource", "--move", "-r", "toy-clone", "--promoted", "-N", target, check=True)


def kill_process(lab: Lab, old: str) -> None:
    lab.node(old).signal(SERVER)


def kill_node(lab: Lab, old: str) -> None:
    lab.node(old).kill_init()


EVENTS: Final[dict[str, Event]] = {
    "process kill -9": kill_process,
    "node kill": kill_node,
    "network cut": Lab.cut,
    "planned switch-over": move,
}


def outage(lab: Lab, event: Event) -> float:
    """Seconds."""
    old = lab.crm_mon().promoted("toy")[0]
    wait_for(lambda: says(lab) == [old, "promoted"], 60, f"{old} answers")
    began = time.monotonic()
    event(lab, old)

    def another() -> bool:
        answer = says(lab)
        return answer[1:] == ["promoted"] and answer[0] != old

    wait_for(another, 60, f"another than {old} is promoted", poll=0.02)
    return time.monotonic() - began


def repair(lab: Lab) -> None:
    for node in lab.nodes:
        lab.heal(node.name)
        node.on()
    lab.settled(90, failures=True)
    lab.node(1).run("crm_resource", "--clear", "-r", "toy-clone")
    lab.refresh()
    lab.wait(lambda state: state.promoted("toy") and state.where("vip"), 60, "a promoted toy")
    lab.settled(60)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fail-over times of the toy agent in the lab.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-fencing", action="store_true")
    options = parser.parse_args()
    with Lab(3, fencing=not options.no_fencing) as lab:
        lab.cib_load(toy_cib([node.name for node in lab.nodes], not options.no_fencing))
        for name, event in EVENTS.items():
            times = []
            for _ in range(options.runs):
                repair(lab)
                times.append(outage(lab, event))
            figures = f"{statistics.median(times):.2f}  {min(times):.2f}-{max(times):.2f}"
            print(f"{name:20} {figures}  ({len(times)} runs)", flush=True)


if __name__ == "__main__":
    main()
