"""What the lab understands of crm_mon's XML."""

import pytest

from tests.pacemaker.lab.state import Failure, parse

# Written by Pacemaker 2.1.5 after kill -9 of the promoted toy on node1, shortened.
FAILED = """
<pacemaker-result api-version="2.25" request="crm_mon -1 -A --output-as=xml">
  <summary>
    <current_dc present="true" version="2.1.5-a3f44794f94" name="node1" id="1" with_quorum="true"/>
  </summary>
  <nodes>
    <node name="node1" id="1" online="true" standby="false" pending="false" unclean="false" is_dc="true"/>
    <node name="node2" id="2" online="true" standby="true" pending="false" unclean="false" is_dc="false"/>
    <node name="node3" id="3" online="true" standby="false" pending="true" unclean="false" is_dc="false"/>
    <node name="node4" id="4" online="false" standby="false" pending="false" unclean="true" is_dc="false"/>
  </nodes>
  <resources>
    <clone id="toy-clone" multi_state="true">
      <resource id="toy" role="Promoted" active="true" failed="true" nodes_running_on="1">
        <node name="node1" id="1" cached="true"/>
      </resource>
      <resource id="toy" role="Unpromoted" active="true" failed="false" pending="Monitoring" nodes_running_on="1">
        <node name="node2" id="2" cached="true"/>
      </resource>
      <resource id="toy" role="Stopped" active="false" failed="false" nodes_running_on="0"/>
    </clone>
    <group id="addresses">
      <resource id="vip" role="Started" active="true" failed="false" nodes_running_on="1">
        <node name="node1" id="1" cached="true"/>
      </resource>
    </group>
  </resources>
  <node_attributes>
    <node name="node1"><attribute name="master-toy" value="100"/></node>
  </node_attributes>
  <node_history><node name="node1"><resource_history id="toy"/></node></node_history>
  <failures>
    <failure op_key="toy_monitor_1000" node="node1" exitstatus="not running" exitreason="killed" exitcode="7" call="25"
             status="complete" last-rc-change="2026-11-21 10:51:06Z" interval="1000" task="monitor"/>
  </failures>
</pacemaker-result>
"""
NO_CONTROLLER = """<pacemaker-result><summary><current_dc present="false"/></summary><nodes/></pacemaker-result>"""


def test_nodes_and_quorum():
    state = parse(FAILED)
    assert state.quorum and state.dc == "node1"
    assert state.online == {"node1", "node2"}
    assert state.nodes["node2"].standby and state.nodes["node4"].unclean and not state.nodes["node4"].online


def test_resources_by_their_own_id_and_by_their_clone():
    state = parse(FAILED)
    assert state.promoted("toy") == state.promoted("toy-clone") == ["node1"]
    assert state.where("toy") == ["node1", "node2"] and state.where("toy", "Unpromoted") == ["node2"]
    assert state.where("vip") == ["node1"] and state.where("unknown") == []
    assert [resource.pending for resource in state.resources] == ["", "Monitoring", "", ""]
    assert [resource.failed for resource in state.resources] == [True, False, False, False]


def test_failures_and_attributes():
    state = parse(FAILED)
    assert state.failures == (Failure("node1", "toy_monitor_1000", "complete", 7, "killed"),)
    assert state.attributes == {"node1": {"master-toy": "100"}}


def test_before_there_is_a_controller():
    state = parse(NO_CONTROLLER)
    assert (state.quorum, state.dc, state.nodes, state.resources) == (False, "", {}, ())


def test_what_is_no_xml_is_refused():
    with pytest.raises(ValueError, match="crm_mon"):
        parse("crm_mon: Connection to cluster failed")
