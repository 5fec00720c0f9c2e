"""What a node's copy of Pacemaker's configuration says, and when an exchange counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from ha.model.membership import HaState
from ha.registry.attributes import AttributeRegistry
from ha.registry.commands import LocalTools
from ha.registry.view import ClusterNode, NodeView, decode, encode, parse, query
from ha.registry.worker import RegistryError

ANSWER = """<xpath-query>
  <cib crm_feature_set="3.16.1" validate-with="pacemaker-3.9" epoch="11" num_updates="8" have-quorum="1"/>
  <node id="1" uname="node1"/>
  <nvpair id="nodes-1-qpid-ha-state" name="qpid-ha-state" value="Zmlyc3Q="/>
  <node id="2" uname="node2" type="member"/>
  <nvpair id="nodes-2-qpid-ha-state" name="qpid-ha-state" value="QjE="/>
  <node id="remote1" uname="remote1" type="remote"/>
  <node_state id="1" uname="node1" in_ccm="false" crmd="offline" crm-debug-origin="x" join="down" expected="EXPECTED"/>
  <node_state id="2" uname="node2" in_ccm="true" crmd="online" crm-debug-origin="x" join="member" expected="member"/>
  <node_state remote_node="true" id="remote1" uname="remote1" in_ccm="true"/>
</xpath-query>
"""
"""As Pacemaker 2.1.5 has answered in the lab, after node1 was lost (expected="member") and fenced ("down")."""


def up(name: str) -> ClusterNode:
    return ClusterNode(name, online=True)


def test_an_answer_of_a_real_cluster() -> None:
    view = parse(ANSWER.replace("EXPECTED", "member"))
    assert view == NodeView((ClusterNode("node1"), up("node2")), True, (("node1", "Zmlyc3Q="), ("node2", "QjE=")))
    assert parse(ANSWER.replace("EXPECTED", "down")).nodes[0] == ClusterNode("node1", gone=True)


def test_an_answer_of_a_newer_pacemaker_has_times_for_truth() -> None:
    text = ANSWER.replace('crmd="online"', 'crmd="1700000000"').replace('in_ccm="true"', 'in_ccm="1700000000"')
    text = text.replace('crmd="offline"', 'crmd="0"').replace('in_ccm="false"', 'in_ccm="0"')
    for expected in ("member", "down"):
        assert parse(text.replace("EXPECTED", expected)) == parse(ANSWER.replace("EXPECTED", expected))


@pytest.mark.parametrize(
    ("state", "node"),
    [
        ('in_ccm="true" crmd="online" join="member" expected="member"', ClusterNode("n", online=True)),
        ('in_ccm="true" crmd="online" join="pending" expected="member"', ClusterNode("n")),
        ('in_ccm="true" crmd="offline" join="down" expected="member"', ClusterNode("n")),
        ('in_ccm="true" crmd="offline" join="down" expected="down"', ClusterNode("n", gone=True)),
        ('in_ccm="true" crmd="online" join="member" expected="down"', ClusterNode("n", online=True)),
        ('in_ccm="false" crmd="offline" join="down"', ClusterNode("n")),
    ],
)
def test_a_node_is_online_or_gone_or_neither(state: str, node: ClusterNode) -> None:
    assert parse(f'<x><node uname="n"/><node_state uname="n" {state}/></x>').nodes == (node,)


def test_an_attribute_whose_id_says_nothing_belongs_to_no_node() -> None:
    text = ANSWER.replace("nodes-1-", "others-1-").replace("EXPECTED", "down")
    assert parse(text).entries == (("", "Zmlyc3Q="), ("node2", "QjE="))
    assert parse(text).left_behind == ()
    assert parse(ANSWER.replace("EXPECTED", "down")).left_behind == ("Zmlyc3Q=",)


def test_a_node_that_was_never_seen_is_neither_online_nor_gone() -> None:
    assert parse('<x><node uname="n"/></x>').nodes == (ClusterNode("n"),)


def test_no_answer_is_an_error() -> None:
    with pytest.raises(RegistryError, match="not an answer of cibadmin"):
        parse("Signon to CIB failed")


def test_a_value_that_is_no_state_is_an_error() -> None:
    with pytest.raises(RegistryError, match="attribute qpid-ha-state cannot be used"):
        decode(["bm9uc2Vuc2U="], "qpid-ha-state")


def test_the_query_names_the_attribute() -> None:
    assert "nvpair[@name='qpid-ha-state-orders']" in query("qpid-ha-state-orders")


# ---- when an exchange counts

LOST, GONE = ClusterNode("b"), ClusterNode("b", gone=True)


@pytest.mark.parametrize(
    ("view", "reached", "text"),
    [
        (NodeView((up("a"), up("b")), True), "ab", ""),
        (NodeView((up("a"), up("b")), True), "a", "b may go on without us"),
        (NodeView((up("a"), LOST), True), "a", "b may go on without us"),
        (NodeView((up("a"), GONE), True), "a", ""),
        (NodeView((up("a"), GONE), False), "a", "no quorum"),
        (NodeView((up("a"),), True), "a", ""),
        (NodeView((), True), "a", "node a is not an active member"),
        (NodeView((ClusterNode("a"), up("b")), True), "ab", "node a is not an active member"),
        (NodeView((up("a"), LOST, up("c")), True), "ac", ""),
        (NodeView((up("a"), LOST, up("c")), True), "a", "b, c may go on without us"),
        (NodeView((up("a"), GONE, up("c")), True), "a", "c may go on without us"),
        (NodeView((up("a"), LOST, up("c"), up("d")), True), "ac", "b, d may go on without us"),
        (NodeView((up("a"), LOST, up("c"), up("d")), True), "acd", ""),
    ],
)
def test_an_exchange_counts_or_not(view: NodeView, reached: str, text: str) -> None:
    objection = view.objection("a", set(reached))
    assert text in objection
    assert bool(text) == bool(objection)


def cuts(names: str) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """Two parts of a cluster that has been cut, none of them empty; a node that is in neither is switched off."""
    for sides in itertools.product((0, 1, 2), repeat=len(names)):
        one, other = (frozenset(n for n, side in zip(names, sides, strict=True) if side == part) for part in (1, 2))
        if one and other:
            yield one, other


@pytest.mark.parametrize("names", ["ab", "abc", "abcd", "abcde"])
@pytest.mark.parametrize("two_node", [False, True])
def test_of_two_parts_that_are_cut_apart_one_at_most_goes_on(names: str, two_node: bool) -> None:
    """Neither was fenced, neither has seen the other stop; nodes that are off may have been stopped in order."""
    for one, other in cuts(names):
        verdicts = []
        for part in (one, other):
            far = other if part == one else one
            nodes = tuple(ClusterNode(n, n in part, n not in part and n not in far) for n in names)
            quorum = two_node or 2 * len(part) > len(names)
            verdicts.append(NodeView(nodes, quorum).objection(min(part), part))
        assert any(verdicts), (one, other)


def test_that_check_fails_with_quorum_alone() -> None:
    """What `two_node` says to both halves of a pair."""
    halves = [NodeView((up(name),), True).objection(name, name) for name in "ab"]
    assert halves == ["", ""]


def test_who_is_gone_on_one_node_may_live_on_another() -> None:
    """A cloned node has a broker with the same identity: fencing it says nothing of the original."""
    nodes = (up("a"), ClusterNode("b", gone=True))
    view = NodeView(nodes, True, (("a", encode(HaState("twin"))), ("b", encode(HaState("twin", 3)))))
    registry = AttributeRegistry("", LocalTools())
    registry._view = view
    assert registry._gone() == frozenset()
    registry._view = NodeView(nodes, True, (("a", encode(HaState("other"))), ("b", encode(HaState("twin", 3)))))
    assert registry._gone() == {"twin"}
