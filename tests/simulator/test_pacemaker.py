"""The simulated Pacemaker says what a real one has said (`tests/unit/ha/test_registry_view.py` has its answers)."""

from __future__ import annotations

from functools import partial

import pytest

from ha.model.membership import HaState
from ha.registry.view import ClusterNode, NodeView, encode, parse
from tests.simulator import tools
from tests.simulator.cib import GONE, LOST, MEMBER, PENDING, Cib
from tests.simulator.pacemaker import Pacemaker
from tests.simulator.scenario import Action, Scenario
from tests.simulator.simulation import Simulation
from tests.simulator.tools import ATTRIBUTE


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither brokers nor helpers die in an exchange."""
    monkeypatch.setattr(tools, "DIES", 0.0)
    monkeypatch.setattr(tools, "HELPER_DIES", 0.0)


OPTION = {"token": 0.1, "lag": 0.02, "device": 0.05, "apart": False, "times": False}


@pytest.mark.parametrize("times", [False, True])
def test_a_copy_is_read_as_a_real_one(times: bool) -> None:
    cib = Cib(("a", "b", "c", "d", "e")).written("a", "QQ==").raised(3)
    cib = cib.seen({"a": MEMBER, "b": LOST, "c": GONE, "d": PENDING}, True)
    nodes = (ClusterNode("a", online=True), ClusterNode("b"), ClusterNode("c", gone=True), ClusterNode("d"))
    assert parse(cib.document(ATTRIBUTE, times)) == NodeView((*nodes, ClusterNode("e")), True, (("a", "QQ=="),), 3)


def test_the_same_value_again_is_no_change() -> None:
    cib = Cib(("a",)).written("a", "x")
    assert (cib.generation, cib.written("a", "x").generation) == ((0, 1, 0), (0, 1, 0))
    assert cib.raised(1).written("a", "y").generation == (1, 2, 0)


def run(until: float, *actions: Action, fencing: bool = False, brokers: int = 3) -> Pacemaker:
    options = {"managers": 0, "pacemaker": OPTION, "fencing": fencing}
    simulation = Simulation(Scenario("pacemaker", "registry", brokers, 9.0, options, (), actions))
    simulation.scheduler.run_until(until)
    assert simulation.registry.pacemaker is not None
    return simulation.registry.pacemaker


def view(pacemaker: Pacemaker, name: str) -> NodeView:
    return parse(pacemaker.document(pacemaker.nodes[name]))


def gone(found: NodeView) -> str:
    return "".join(node.name for node in found.nodes if node.gone)


CUT = Action(0.5, "ring-cut", {"side": "a", "for": 1.0})
WAY = {"who": "a", "for": 1.0}


def test_who_is_cut_off_has_an_old_copy_first_and_no_quorum_later() -> None:
    early = run(0.55, CUT)
    assert view(early, "a").quorum and view(early, "a").online == {"a", "b", "c"}
    late = run(1.0, CUT)
    assert not view(late, "a").quorum and view(late, "a").online == {"a"}
    assert view(late, "b").quorum and view(late, "b").online == {"b", "c"}
    assert gone(view(late, "b")) == "", "lost, and neither fenced nor stopped"
    assert view(run(2.0, CUT), "a").online == {"a", "b", "c"}


def test_both_halves_of_a_pair_have_quorum() -> None:
    pair = run(1.0, CUT, brokers=2)
    assert view(pair, "a").quorum and view(pair, "b").quorum
    assert gone(view(pair, "a")) == gone(view(pair, "b")) == ""


@pytest.mark.parametrize(
    ("action", "fencing", "found"),
    [
        (Action(0.5, "stack-stop", WAY), False, "a"),
        (Action(0.5, "crash", {**WAY, "power": True}), False, ""),
        (Action(0.5, "crash", {**WAY, "power": True}), True, "a"),
        (Action(0.5, "crash", {**WAY, "power": False}), True, ""),
        (CUT, True, "a"),
    ],
)
def test_a_node_is_gone_when_it_was_fenced_or_stopped_until_it_is_back(
    action: Action, fencing: bool, found: str
) -> None:
    assert gone(view(run(0.8, action, fencing=fencing), "b")) == found
    back = view(run(4.0, action, fencing=fencing), "b")
    assert (gone(back), back.online) == ("", {"a", "b", "c"})


def test_of_two_copies_that_come_together_the_one_with_more_changes_is_for_all() -> None:
    pacemaker = run(1.0, CUT)
    one, two, three = (encode(HaState("id-x", epoch)) for epoch in (1, 2, 3))
    for name, values in {"a": (one, two, three), "b": (one, two)}.items():
        for value in values:
            pacemaker.corosync.send(pacemaker.nodes[name], partial(Cib.written, node=name, value=value))
    pacemaker.simulation.scheduler.run_until(1.1)
    assert dict(view(pacemaker, "a").entries) == {"a": three}
    assert dict(view(pacemaker, "c").entries) == {"b": two}
    pacemaker.simulation.scheduler.run_until(2.0)
    assert dict(view(pacemaker, "c").entries) == {"a": three}, "no matter which part had quorum"
