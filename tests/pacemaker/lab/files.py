"""Configuration of a lab that tests no configuration of ours: Corosync, host names, a toy service.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.pacemaker.lab.names import VIRTUAL_ADDRESS, node_address


def cluster_env(names: Sequence[str]) -> str:
    """What `qpid-cluster render --for vagrant` writes for the scripts, as far as they need it."""
    addresses = " ".join(node_address(name) for name in names)
    return f"QPID_NODES='{' '.join(names)}'\nQPID_ADDRESSES='{addresses}'\n"


def corosync_conf(names: Sequence[str], token: int) -> str:
    """`token` in ms.  Knet's ping times are left to Corosync: shorter ones make links flap on a busy machine."""
    nodes = "".join(_corosync_node(number, name) for number, name in enumerate(names, 1))
    two_node = "    two_node: 1\n    wait_for_all: 0\n" if len(names) == 2 else ""
    return f"""totem {{
    version: 2
    cluster_name: lab
    transport: knet
    token: {token}
    token_coefficient: 0
    consensus: {token * 6 // 5}
    crypto_cipher: none
    crypto_hash: none
}}
nodelist {{
{nodes}}}
quorum {{
    provider: corosync_votequorum
{two_node}}}
system {{
    move_to_root_cgroup: no
}}
logging {{
    to_stderr: no
    to_syslog: no
    to_logfile: yes
    logfile: /var/log/corosync/corosync.log
    timestamp: hires
}}
"""


def _corosync_node(number: int, name: str) -> str:
    address = node_address(name)
    return f"    node {{\n        name: {name}\n        nodeid: {number}\n        ring0_addr: {address}\n    }}\n"


def toy_cib(names: Sequence[str], fencing: bool, virtual_address: str = VIRTUAL_ADDRESS) -> str:
    """The toy agent, promotable, with the virtual address next to the promoted instance.

    No load-threshold: on a busy machine Pacemaker does fewer things at once, and the figures would be the load's.
    """
    without_quorum = "ignore" if len(names) == 2 else "stop"
    return f"""<configuration>
  <crm_config>
    <cluster_property_set id="cib-bootstrap-options">
      <nvpair id="cib-bootstrap-options-stonith-enabled" name="stonith-enabled" value="{str(fencing).lower()}"/>
      <nvpair id="cib-bootstrap-options-no-quorum-policy" name="no-quorum-policy" value="{without_quorum}"/>
      <nvpair id="cib-bootstrap-options-load-threshold" name="load-threshold" value="0%"/>
    </cluster_property_set>
  </crm_config>
  <resources>
    <clone id="toy-clone">
      <meta_attributes id="toy-clone-meta">
        <nvpair id="toy-clone-promotable" name="promotable" value="true"/>
        <nvpair id="toy-clone-max" name="promoted-max" value="1"/>
        <nvpair id="toy-clone-interleave" name="interleave" value="true"/>
      </meta_attributes>
      <primitive id="toy" class="ocf" provider="lab" type="toy">
        <meta_attributes id="toy-meta">
          <nvpair id="toy-migration" name="migration-threshold" value="1"/>
          <nvpair id="toy-failure" name="failure-timeout" value="10s"/>
        </meta_attributes>
        <operations>
          <op id="toy-start" name="start" interval="0" timeout="20s"/>
          <op id="toy-stop" name="stop" interval="0" timeout="20s"/>
          <op id="toy-monitor-promoted" name="monitor" role="Promoted" interval="1s" timeout="10s"/>
          <op id="toy-monitor-unpromoted" name="monitor" role="Unpromoted" interval="2s" timeout="10s"/>
        </operations>
      </primitive>
    </clone>
    <primitive id="vip" class="ocf" provider="heartbeat" type="IPaddr2">
      <instance_attributes id="vip-parameters">
        <nvpair id="vip-ip" name="ip" value="{virtual_address}"/>
        <nvpair id="vip-netmask" name="cidr_netmask" value="24"/>
        <nvpair id="vip-nic" name="nic" value="eth0"/>
      </instance_attributes>
      <operations>
        <op id="vip-monitor" name="monitor" interval="2s" timeout="10s"/>
      </operations>
    </primitive>{_fence_device(names) if fencing else ""}
  </resources>
  <constraints>
    <rsc_colocation id="vip-with-promoted" rsc="vip" with-rsc="toy-clone" with-rsc-role="Promoted" score="INFINITY"/>
    <rsc_order id="promote-then-vip" first="toy-clone" first-action="promote" then="vip" then-action="start"/>
  </constraints>
</configuration>
"""


def _fence_device(names: Sequence[str]) -> str:
    return f"""
    <primitive id="power" class="stonith" type="fence_lab">
      <instance_attributes id="power-parameters">
        <nvpair id="power-hosts" name="pcmk_host_list" value="{" ".join(names)}"/>
        <nvpair id="power-check" name="pcmk_host_check" value="static-list"/>
      </instance_attributes>
      <operations>
        <op id="power-monitor" name="monitor" interval="60s" timeout="10s"/>
      </operations>
    </primitive>"""
