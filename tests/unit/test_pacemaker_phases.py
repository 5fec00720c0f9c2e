"""Logs of a real cluster as facts and as phases: a service that was killed, a node that was cut off."""

import time

from tests.pacemaker.phases import Phases, medians, phases, promoted_spans, throttled
from tests.pacemaker.primaries import Span, overlaps
from tests.pacemaker.timeline import merged, parse, read, story

YEAR = 2026
KILLED = """\
Nov 21 01:55:12.325 node2 pacemaker-controld  [57] (log_executor_event) 	notice: Result of monitor operation for broker on node2: not running | CIB update 51, graph action unconfirmed; call=40 key=broker_monitor_1000 rc=7
Nov 21 01:55:12.329 node3 pacemaker-controld  [51] (abort_transition_graph) 	info: Transition 12 aborted by operation broker_monitor_1000 'modify' on node2: Change in recurring result | magic=0:7;8:11:8:3977f5fc cib=1.9.190 source=process_graph_event:500
Nov 21 01:55:12.333 node3 pacemaker-controld  [51] (do_state_transition) 	notice: State transition S_IDLE -> S_POLICY_ENGINE | input=I_PE_CALC cause=C_FSA_INTERNAL origin=abort_transition_graph
Nov 21 01:55:12.401 node3 pacemaker-schedulerd[50] (log_list_item) 	notice: Actions: Promote    broker:1     ( Unpromoted -> Promoted node1 )
Nov 21 01:55:12.409 node3 pacemaker-schedulerd[50] (pcmk__log_transition_summary) 	notice: Calculated transition 14, saving inputs in /var/lib/pacemaker/pengine/pe-input-12.bz2
Nov 21 01:55:12.717 node2 pacemaker-controld  [57] (log_executor_event) 	notice: Result of stop operation for vip on node2: ok | CIB update 54, graph action confirmed; call=47 key=vip_stop_0 rc=0
Nov 21 01:55:12.725 node2 pacemaker-controld  [57] (do_lrm_rsc_op) 	notice: Requesting local execution of demote operation for broker on node2 | transition_key=7:14:0:3977f5fc op_key=broker_demote_0
Nov 21 01:55:12.729 node2 pacemaker-controld  [57] (log_executor_event) 	info: Result of monitor operation for broker on node2: Cancelled | graph action confirmed; call=40 key=broker_monitor_1000
Nov 21 01:55:12.765 node2 pacemaker-controld  [57] (log_executor_event) 	notice: Result of demote operation for broker on node2: not running | CIB update 56, graph action confirmed; call=50 key=broker_demote_0 rc=7
Nov 21 01:55:12.809 node3 pacemaker-controld  [51] (abort_transition_graph) 	info: Transition 14 aborted by status-2-fail-count-broker.demote_0 doing create fail-count-broker#demote_0=1: Transient attribute change | cib=1.9.199 source=abort_unless_down:299
Nov 21 01:55:12.849 node3 pacemaker-schedulerd[50] (log_list_item) 	notice: Actions: Promote    broker:1     ( Unpromoted -> Promoted node1 )
Nov 21 01:55:12.849 node3 pacemaker-schedulerd[50] (pcmk__log_transition_summary) 	notice: Calculated transition 15, saving inputs in /var/lib/pacemaker/pengine/pe-input-13.bz2
Nov 21 01:55:13.193 node1 pacemaker-controld  [53] (do_lrm_rsc_op) 	notice: Requesting local execution of promote operation for broker on node1 | transition_key=5:16:0:3977f5fc op_key=broker_promote_0
Nov 21 01:55:13.313 node1 pacemaker-attrd     [51] (update_attr_on_host) 	notice: Setting master-broker[node1]: 10 -> 100 | from node1 with no write delay
Nov 21 01:55:13.345 node1 pacemaker-controld  [53] (log_executor_event) 	notice: Result of promote operation for broker on node1: ok | CIB update 28, graph action confirmed; call=22 key=broker_promote_0 rc=0
Nov 21 01:55:13.513 node1 pacemaker-controld  [53] (do_lrm_rsc_op) 	notice: Requesting local execution of start operation for vip on node1 | transition_key=18:17:0:3977f5fc op_key=vip_start_0
Nov 21 01:55:13.785 node1 pacemaker-controld  [53] (log_executor_event) 	notice: Result of start operation for vip on node1: ok | CIB update 32, graph action confirmed; call=24 key=vip_start_0 rc=0
Nov 21 01:55:13.945 node3 pacemaker-controld  [51] (do_state_transition) 	notice: State transition S_TRANSITION_ENGINE -> S_IDLE | input=I_TE_SUCCESS cause=C_FSA_INTERNAL origin=notify_crmd
"""  # noqa: E501

CUT = """\
Nov 21 01:55:04.501 [26] node2 corosync notice  [TOTEM ] A processor failed, forming new configuration: token timed out (1000ms), waiting 1200ms for consensus.
Nov 21 01:55:05.709 [26] node3 corosync notice  [TOTEM ] A new membership (2.1a) was formed. Members left: 1
Nov 21 01:55:05.713 node3 pacemaker-controld  [51] (update_peer_state_iter) 	notice: Node node1 state is now lost | nodeid=1 previous=member source=crm_update_peer_proc
Nov 21 01:55:05.785 node3 pacemaker-schedulerd[50] (pe_fence_node) 	warning: Cluster node node1 will be fenced: peer is no longer part of the cluster
Nov 21 01:55:05.789 node3 pacemaker-schedulerd[50] (log_list_item) 	notice: Actions: Fence (reboot) node1 'peer is no longer part of the cluster'
Nov 21 01:55:05.805 node3 pacemaker-controld  [51] (controld_execute_fence_action) 	notice: Requesting fencing (reboot) of node node1 | action=1 timeout=60000
Nov 21 01:55:06.161 node3 pacemaker-fenced    [47] (finalize_op) 	notice: Operation 'reboot' targeting node1 by node2 for pacemaker-controld.51@node3: OK (complete) | id=d43e5649
"""  # noqa: E501


def facts(text):
    return merged([read(text.splitlines(), YEAR)])


def at(clock):
    return time.mktime(time.strptime(f"{YEAR} Nov 21 {clock}", "%Y %b %d %H:%M:%S"))


def test_lines_of_both_daemons_are_read_and_others_are_not():
    entry = parse(KILLED.splitlines()[0], YEAR)
    assert entry is not None
    assert (entry.node, entry.kind, entry["resource"], entry["result"]) == ("node2", "result", "broker", "not running")
    assert entry.at == at("01:55:12") + 0.325
    assert parse(CUT.splitlines()[0], YEAR).kind == "token_lost"
    assert parse("Set r/w permissions for uid=189", YEAR) is None
    assert all(entry.kind for entry in facts(KILLED + CUT))


def test_the_phases_of_a_killed_service():
    found = phases(facts(KILLED), at("01:55:12") + 0.1, at("01:55:20"), "broker")
    assert {name: round(value, 3) for name, value in found.moments.items()} == {
        "noticed": 0.225, "decided": 0.301, "promote asked": 1.093, "promoted": 1.245, "address asked": 1.413,
        "address": 1.685,
    }  # fmt: skip
    assert found.transitions == 2
    assert [text.split()[0] for text in found.aborts] == ["operation", "status-2-fail-count-broker.demote_0"]


def test_the_phases_of_a_node_that_was_cut_off():
    found = phases(facts(CUT), at("01:55:03") + 0.6, at("01:55:20"), "broker", others={"confirm, list": at("01:55:06")})
    assert [name for name, _ in found.moments.items()] == [
        "token", "membership", "noticed", "fencing", "fenced", "confirm, list",
    ]  # fmt: skip
    assert round(found.moments["fenced"], 3) == 2.561


def test_what_lies_outside_of_the_window_belongs_to_something_else():
    assert phases(facts(KILLED), at("01:55:14"), at("01:55:20"), "broker").moments == {}
    late = {"confirm, list": at("01:55:30")}
    assert "confirm, list" not in phases(facts(KILLED), at("01:55:12"), at("01:55:20"), "broker", others=late).moments


def test_medians_are_over_those_that_have_the_phase():
    found = [Phases({"noticed": 0.1, "fenced": 1.0}), Phases({"noticed": 0.3}), Phases({"noticed": 0.2})]
    assert medians(found) == {"noticed": 0.2, "fenced": 1.0}


def test_two_promoted_in_the_eyes_of_pacemaker():
    now = at("01:55:20")
    before = "Nov 21 01:55:00.000 node2 pacemaker-controld  [57] (log_executor_event) \tnotice: Result of promote operation for broker on node2: ok | call=1"  # noqa: E501
    spans = promoted_spans(facts(before + "\n" + KILLED), [], now, "broker")
    assert [(span.node, round(span.end - at("01:55:12"), 3)) for span in spans] == [("node2", 0.325), ("node1", 8.0)]
    assert overlaps(spans) == []


def test_an_overlap_of_promotions_is_found_and_ends_with_the_death_of_a_node():
    line = "Nov 21 01:55:0{0}.000 node{0} pacemaker-controld  [57] (log_executor_event) \tnotice: Result of promote operation for broker on node{0}: ok | call=1"  # noqa: E501
    entries = facts("\n".join(line.format(number) for number in (1, 2)))
    dead = [Span("node1", at("01:55:03"), at("01:55:09"))]
    (both,) = overlaps(promoted_spans(entries, dead, at("01:55:20"), "broker"))
    assert (both.first, both.second, round(both.length, 3)) == ("node1", "node2", 1.0)


def test_the_story_tells_each_fact_once():
    twice = CUT + CUT.splitlines()[0].replace("node2", "node3") + "\n"
    lines = story(facts(twice), at("01:55:04"))
    assert sum("A processor failed" in line for line in lines) == 1
    assert lines[0].startswith("    +501 ms  node2")
    assert all(len(line) < 160 for line in lines)


def test_a_controller_that_throttled_itself_before_is_still_throttled():
    line = "Nov 21 01:5{0}:00.000 node1 pacemaker-controld  [53] (throttle_send_command) \tinfo: New throttle mode: {1} load (was x)"  # noqa: E501
    lines = [line.format(4, "high"), line.format(6, "low")]
    entries = merged([read(lines, YEAR, at("01:55:30"))])
    assert throttled(entries, at("01:55:10")) == {"node1": "high"}
    assert throttled(entries, at("01:56:10")) == {}
