"""The shipped example of vagrant/, with the lab's addresses: its scripts, the package, `ocf-tester`, its resources."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ha.qpid_cluster.cluster_file import parse
from ha.qpid_cluster.render.kinds import render
from qpidd_py.security.users import hash_password
from tests.pacemaker.lab.host import Node
from tests.pacemaker.lab.lab import Lab
from tests.pacemaker.lab.names import PROJECT, SUBNET, VIRTUAL_ADDRESS, node_names
from tests.pacemaker.lab.package import package
from tests.support.system import needs
from tests.support.wait import wait_for

EXAMPLE = PROJECT / "config" / "examples" / "vagrant.yaml"
AGENT = "/usr/lib/ocf/resource.d/qpid/qpidd"
CONFIG = "/etc/qpid/qpidd.conf"
NOT_CONFIGURED = 6
TESTER = "/usr/sbin/ocf-tester"


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    text = EXAMPLE.read_text().replace("192.168.56.", SUBNET).replace("eth1", "eth0")
    return dict(render(parse(text), "vagrant"))


@pytest.fixture(scope="module")
def lab(lab_possible: None, rendered: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """All nodes are members; no resources yet."""
    directory = tmp_path_factory.mktemp("rendered")
    for name, content in rendered.items():
        (directory / name).write_text(content)
    (directory / "users.yaml").write_text(f"app: {hash_password('secret')}\n")
    with Lab(3, fencing=False, package=package(), config=directory) as lab:
        lab.wait(lambda state: state.online == set(node_names(3)), 60, "all nodes are members")
        yield lab


def act(node: Node, action: str) -> None:
    """Calls the agent as Pacemaker would."""
    words = ["OCF_ROOT=/usr/lib/ocf", "OCF_RESOURCE_INSTANCE=qpidd", f"OCF_RESKEY_config={CONFIG}", AGENT, action]
    node.run("env", *words, check=True)


@needs(TESTER)
def test_ocf_tester_passes(lab: Lab):
    for node in lab.others(1):
        act(node, "start")  # two of three have to answer before the third one may be promoted
    done = lab.node(1).run("ocf-tester", "-n", "qpidd", "-o", f"config={CONFIG}", AGENT, timeout=120)
    for node in lab.others(1):
        act(node, "stop")
    assert done.returncode == 0, done.stdout + done.stderr
    complaints = re.findall(r"^\* .*", done.stdout, re.MULTILINE)
    assert complaints == ["* Your agent does not support the reload action (optional)"]
    assert f"{AGENT} passed all tests" in done.stdout


@needs(TESTER)
def test_ocf_tester_finds_what_is_wrong(lab: Lab):
    """No other broker is there to be asked, so promote fails, and that must be noticed."""
    done = lab.node(1).run("ocf-tester", "-n", "qpidd", "-o", f"config={CONFIG}", AGENT, timeout=120)
    act(lab.node(1), "stop")
    assert done.returncode != 0 and "Promote failed" in done.stdout


def test_pacemaker_reads_the_agent(lab: Lab):
    node = lab.node(1)
    metadata = node.run("crm_resource", "--show-metadata", "ocf:qpid:qpidd", check=True).stdout
    assert '<resource-agent name="qpidd"' in metadata
    validate = ["crm_resource", "--validate", "--class", "ocf", "--provider", "qpid", "--agent", "qpidd"]
    assert node.run(*validate, f"config={CONFIG}").returncode == 0
    assert node.run(*validate, f"config={CONFIG}", "port=abc").returncode == NOT_CONFIGURED


def test_the_example_is_a_cluster_with_a_broker(lab: Lab, rendered: dict[str, str]):
    lab.cib_load(rendered["cib.xml"])
    lab.wait(lambda state: state.promoted("qpidd") and state.where("vip"), 60, "a promoted broker")
    state = lab.settled(60)
    primary = state.promoted("qpidd")[0]
    assert state.where("vip") == [primary] and state.where("qpidd") == node_names(3)
    expected = {name: "active" if name == primary else "ready" for name in node_names(3)}
    wait_for(lambda: {n.name: n.run("qpid-ha", "status").stdout.strip() for n in lab.nodes} == expected, what="ready")
    through_the_address = lab.others(primary)[0].run(
        "qpid-ha", "status", "-b", f"app/secret@{VIRTUAL_ADDRESS}:5672", check=True
    )  # fmt: skip
    assert through_the_address.stdout.strip() == "active"
    assert lab.node(primary).run("crm_verify", "-L").returncode == 0
