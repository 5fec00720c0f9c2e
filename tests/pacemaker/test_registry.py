"""The registry of Pacemaker, for real: all nodes exchange at once, as the broker's user, in all kinds of trouble.

A pair of brokers that uses it: test_registry_pair.py.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.pacemaker.cluster import Setup, boot
from tests.pacemaker.lab.lab import Lab
from tests.support.wait import wait_for

PYTHON: Final = "/usr/lib/qpidd/bin/python"
LOAD: Final = Path(__file__).with_name("registry_load.py")
AS_BROKER: Final = ("setpriv", "--reuid", "qpidd", "--regid", "qpidd", "--init-groups", PYTHON)
UP: Final = 90.0
TIME: Final = 30.0


@dataclass(frozen=True)
class Exchange:
    """One that has ended."""

    node: str
    wrote: int
    began: float
    ended: float
    seen: dict[str, int]
    error: str


@pytest.fixture(scope="module")
def lab(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three nodes without fencing, and without a broker that runs."""
    made, _ = boot(Setup(nodes=3), tmp_path_factory.mktemp("registry"))
    with made:
        made.wait(lambda state: len(state.online) == 3 and state.quorum, UP, "three nodes")
        made.settled(UP)
        yield made


def load(lab: Lab, seconds: float, event: Callable[[], object] = lambda: None, timeout: float = 2.0) -> list[Exchange]:
    """All nodes exchange for so long, and meanwhile something happens; `timeout` in seconds, of one exchange."""
    processes = {}
    for node in lab.nodes:
        with LOAD.open() as program:
            words = (*AS_BROKER, "-", node.name, str(seconds), str(timeout))
            processes[node.name] = node.popen(*words, stdin=program, stdout=subprocess.PIPE, text=True)
    for process in processes.values():
        assert process.stdout.readline() == "ready\n"
    event()
    lines = {name: process.communicate(timeout=seconds + TIME)[0].splitlines() for name, process in processes.items()}
    return [Exchange(node=name, **json.loads(line)) for name, found in lines.items() for line in found]


def blind(exchanges: list[Exchange]) -> list[tuple[Exchange, Exchange]]:
    """Pairs that have both succeeded and of which neither has seen the other."""
    good = [each for each in exchanges if not each.error]
    return [
        (one, other)
        for one in good
        for other in good
        if one.node < other.node
        and one.seen.get(other.node, 0) < other.wrote
        and other.seen.get(one.node, 0) < one.wrote
    ]


def test_of_two_exchanges_one_sees_the_other(lab: Lab) -> None:
    exchanges = load(lab, 4.0, timeout=20.0)
    assert [each for each in exchanges if each.error] == []
    assert blind(exchanges) == []
    times = [each.ended - each.began for each in exchanges]
    print(f"{len(times)} exchanges of three at once, median {1000 * statistics.median(times):.0f} ms")
    assert {each.node for each in exchanges} == {"node1", "node2", "node3"}
    assert statistics.median(times) < 5.0


def test_who_is_cut_off_fails_and_the_others_go_on(lab: Lab) -> None:
    cut = threading.Event()
    times: list[float] = []

    def pull() -> None:
        lab.cut("node1")
        times.append(time.monotonic())
        wait_for(lambda: not lab.crm_mon("node1").quorum, TIME, "node1 has noticed")
        cut.set()

    try:
        exchanges = load(lab, 8.0, pull)
    finally:
        lab.heal("node1")
    assert cut.is_set()
    late = [each for each in exchanges if each.began > times[0] + 0.2]
    assert blind(exchanges) == []
    assert {each.node for each in late if not each.error} == {"node2", "node3"}
    assert [each for each in late if each.node == "node1"]
    lab.wait(lambda state: len(state.online) == 3 and state.quorum, UP, "three nodes again")
    lab.settled(UP)


def test_exchanges_go_on_while_there_is_no_controller(lab: Lab) -> None:
    """The cluster elects another one; the configuration does not need it."""
    dc = lab.crm_mon().dc
    exchanges = load(lab, 5.0, lambda: lab.node(dc).signal("pacemaker-controld"))
    assert blind(exchanges) == []
    others = [each for each in exchanges if each.node != dc]
    longest = max(each.ended - each.began for each in others if not each.error)
    print(f"longest {longest:.2f} s; failed: {sum(bool(each.error) for each in exchanges)} of {len(exchanges)}")
    assert [each for each in others if not each.error]
