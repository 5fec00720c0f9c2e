"""The rendered configuration before the real scheduler of Pacemaker: the reasons given in it are true."""

import pytest

from ha.qpid_cluster.cluster_file import parse
from ha.qpid_cluster.render.kinds import render
from ha.qpid_cluster.render.pacemaker import REACHED
from tests.unit.ha.rendering import cluster as text
from tests.unit.ha.rendering import fenced, unfenced
from tests.unit.ha.scheduler import MISSING, Simulated, plain

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def cluster(tmp_path):
    return Simulated(render(unfenced(3), "pacemaker")["cib.xml"], 3, tmp_path)


def changed(tmp_path, old, new):
    cib = render(unfenced(3), "pacemaker")["cib.xml"]
    assert old in cib
    return Simulated(cib.replace(old, new), 3, tmp_path)


def died(cluster):
    """The promoted broker dies; the agent takes its score away and reports that it does not run."""
    cluster.score(1, None)
    cluster.fail(1, "monitor_200", 7)
    return plain(cluster.step())


def test_the_broker_with_the_best_score_is_promoted_first(tmp_path):
    cib = render(unfenced(3), "pacemaker")["cib.xml"]
    actions = plain(Simulated(cib, 3, tmp_path, scores=(9, 10, 8)).first)
    assert "promote node2" in actions and "vip start node2" in actions
    assert "monitor=300 node1" in actions and "monitor=200 node2" in actions


def test_a_dead_primary_is_replaced_before_it_is_started_again(cluster):
    actions = died(cluster)
    assert cluster.waits_for("qpidd_promote_0 node2") == {"qpidd_demote_0 node1"}, "nothing else is on the way"
    assert not {"stop node1", "start node1"} & set(actions)
    cluster.fail(1, "monitor_300", 7)  # what the first monitor of the demoted one finds
    assert plain(cluster.step()) == ["stop node1", "start node1", "monitor=300 node1"]


def test_without_on_fail_demote_its_start_would_come_first(tmp_path):
    cluster = changed(tmp_path, 'role="Promoted" on-fail="demote"', 'role="Promoted"')
    died(cluster)
    assert "qpidd_start_0 node1" in cluster.waits_for("qpidd_promote_0 node2")


def test_the_address_waits_for_neither_demotion_nor_promotion(cluster):
    died(cluster)
    assert cluster.waits_for("vip_stop_0 node1") == set()
    assert cluster.waits_for("vip_start_0 node2") == {"vip_stop_0 node1"}


def test_a_planned_move_waits_for_nothing_but_the_demotion(cluster):
    cluster.move("node2")
    actions = plain(cluster.step())
    assert "promote node2" in actions and "vip start node2" in actions
    assert cluster.waits_for("qpidd_promote_0 node2") == {"qpidd_demote_0 node1"}


def test_a_refused_promotion_stops_no_broker(tmp_path):
    cib = render(unfenced(3), "pacemaker")["cib.xml"]
    cluster = Simulated(cib, 3, tmp_path, scores=())  # all brokers run, no broker may be promoted yet
    for number, score in ((1, 100), (2, 90)):
        cluster.score(number, score)
    cluster.step("--op-fail", "qpidd_promote_0@node1=1")
    cluster.score(1, None)
    actions = plain(cluster.step())
    assert "demote node1" in actions and "promote node2" in actions
    assert not {"stop node1", "start node1"} & set(actions)


def test_with_a_threshold_of_one_it_would(tmp_path):
    cluster = changed(tmp_path, 'name="migration-threshold" value="INFINITY"', 'name="migration-threshold" value="1"')
    cluster.score(1, None)
    cluster.fail(1, "monitor_200", 0)
    assert "stop node1" in plain(cluster.step())


def test_a_lost_role_is_repaired_in_place(cluster):
    cluster.score(1, None)
    cluster.fail(1, "monitor_200", 0)
    actions = plain(cluster.step())
    assert "demote node1" in actions and "promote node2" in actions
    assert not {"stop node1", "start node1"} & set(actions)


def test_a_dead_backup_is_started_again_at_once(cluster):
    cluster.score(2, None)
    cluster.fail(2, "monitor_300", 7)
    assert plain(cluster.step()) == ["stop node2", "start node2", "monitor=300 node2"]


def test_a_primary_stays_when_backups_are_as_good(cluster):
    for number in (1, 2, 3):
        cluster.score(number, 100)
    assert cluster.step() == []
    cluster.score(1, 90)  # but a better one is preferred
    assert "promote node2" in plain(cluster.step())


def test_the_side_without_quorum_keeps_its_brokers_running(cluster):
    actions = plain(cluster.step("--quorum", "false", "--node-down", "node2", "--node-down", "node3"))
    assert sorted(actions) == ["demote node1", "monitor=300 node1", "vip stop node1"]


def test_without_fencing_the_majority_promotes_at_once(cluster):
    actions = plain(cluster.step("--node-down", "node1"))
    assert "promote node2" in actions and "vip start node2" in actions


def test_with_fencing_the_lost_node_goes_first(tmp_path):
    cluster = Simulated(render(fenced(3), "pacemaker")["cib.xml"], 3, tmp_path)
    actions = plain(cluster.step("--node-fail", "node1"))
    fencing = next(index for index, each in enumerate(actions) if "Fencing node1 (reboot)" in each)
    assert fencing < actions.index("promote node2") and fencing < actions.index("vip start node2")


def test_no_device_runs_on_the_node_that_it_switches_off(tmp_path):
    cluster = Simulated(render(fenced(2, "manager"), "pacemaker")["cib.xml"], 2, tmp_path)
    starts = [each for each in cluster.first if each.startswith("fence-") and "start" in each]
    assert starts == ["fence-node1 start on node2", "fence-node2 start on node1"]


# ---- the clients' network


@pytest.fixture
def pinging(tmp_path):
    """All nodes hold the same, and reach the clients' network."""
    spec = parse(text(3, "deployment: {virtual-ip: 192.0.2.10/24, ping-targets: [192.0.2.1]}\n"))
    cluster = Simulated(render(spec, "pacemaker")["cib.xml"], 3, tmp_path)
    for number in (1, 2, 3):
        cluster.score(number, 100)
        cluster.attribute(number, REACHED, "1")
    assert cluster.step() == []
    return cluster


def test_a_primary_that_does_not_reach_the_clients_hands_its_role_over(pinging):
    pinging.attribute(1, REACHED, "0")
    actions = plain(pinging.step())
    assert {"demote node1", "vip stop node1"} <= set(actions) and "stop node1" not in actions
    assert {"promote node2", "promote node3"} & set(actions)
    pinging.attribute(1, REACHED, "1")
    assert pinging.step() == [], "the role does not come back"


@pytest.mark.parametrize("value", ["0", None], ids=["no answer", "no program"])
def test_when_no_node_reaches_the_clients_nothing_changes(pinging, value):
    for number in (1, 2, 3):
        pinging.attribute(number, REACHED, value)
    assert pinging.step() == []


def test_a_target_that_never_answered_changes_nothing(tmp_path):
    spec = parse(text(3, "deployment: {virtual-ip: 192.0.2.10/24, ping-targets: [192.0.2.1]}\n"))
    cluster = Simulated(render(spec, "pacemaker")["cib.xml"], 3, tmp_path, scores=(10, 10, 10))
    assert len([action for action in plain(cluster.first) if action.startswith("promote ")]) == 1


def test_what_a_broker_holds_counts_for_more_than_the_clients_network(pinging):
    pinging.attribute(1, REACHED, "0")
    for number in (2, 3):
        pinging.score(number, 90)
    assert pinging.step() == []


def test_a_broker_without_a_score_is_not_promoted_for_its_network(pinging):
    for number in (1, 2, 3):
        pinging.score(number, None)
    assert plain(pinging.step()) == ["vip stop node1", "demote node1", "monitor=300 node1"]
    assert pinging.step() == []


@pytest.mark.parametrize("score", [5, 10])
def test_the_lowest_scores_are_enough_without_the_clients_network(pinging, score):
    for number in (1, 2, 3):
        pinging.score(number, score)
        pinging.attribute(number, REACHED, "0")
    assert pinging.step() == []
