"""What `render` writes, and what it refuses; no tool of a cluster manager is needed here."""

import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from ha.model.settings import HaSettings
from ha.qpid_cluster.cluster_file import load, parse
from ha.qpid_cluster.processes import config_text
from ha.qpid_cluster.render.kinds import KINDS, render
from qpidd_py.config import GROUPS, BrokerSettings, DataSettings, NetworkSettings
from qpidd_py.errors import ConfigError
from qpidd_py.options import load as load_settings
from tests.unit.ha.rendering import CONFIG, cluster, examples, fenced, unfenced

EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.file.stem)
def test_what_is_shipped_is_what_is_rendered(example):
    files = render(load(example.file), example.kind)
    found = {str(path.relative_to(example.output)): path for path in example.output.rglob("*") if path.is_file()}
    for name in ("users.yaml", "authkey"):
        found.pop(name, None)  # not shipped, but made there to try the example
    assert sorted(found) == sorted(files)
    for name, text in files.items():
        assert found[name].read_bytes() == text.encode(), f"{found[name]}: render {example.file} again, with --force"


def test_every_kind_has_an_example():
    assert {example.kind for example in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize("path", sorted(CONFIG.rglob("qpidd-*.conf")), ids=lambda path: str(path.relative_to(CONFIG)))
def test_a_broker_takes_the_rendered_options(path):
    settings = load_settings([*GROUPS, HaSettings], ["--config", str(path)], {})
    assert path.name == f"qpidd-{settings[BrokerSettings].broker_name}.conf"
    assert settings[DataSettings].data_dir == Path("/var/lib/qpidd")
    assert settings[HaSettings].ha_cluster and settings[HaSettings].ha_replicate == "all"
    addresses = settings[HaSettings].ha_brokers_url
    assert len(addresses) == len(list(path.parent.glob("qpidd-*.conf")))
    assert {address.port for address in addresses} == {settings[NetworkSettings].port}


def test_a_broker_takes_the_rendered_environment():
    services = yaml.safe_load((CONFIG / "compose" / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        settings = load_settings([*GROUPS, HaSettings], [], service["environment"], default_file="/nowhere")
        assert settings.warnings == []
        assert settings[BrokerSettings].broker_name == name
        assert [address.host for address in settings[HaSettings].ha_brokers_url] == list(services)


def test_the_cluster_of_one_container_is_a_cluster_file():
    spec = load(CONFIG / "compose" / "one-container" / "cluster.yaml")
    assert [node.address for node in spec.nodes] == ["127.0.0.1:5801", "127.0.0.1:5802", "127.0.0.1:5803"]
    assert (spec.username, spec.password) == ("qpid-ha", "change-me"), "the manager logs in with it, too"
    assert {"ha-safety=quorum", "ha-replicate=all"} <= set(config_text(spec, spec.nodes[0]).splitlines())


def test_options_of_single_nodes_are_kept_in_containers():
    files = render(parse(cluster(3, "", "options: {{heartbeat: {0}}}")), "compose")
    spec = parse(files["one-container/cluster.yaml"])
    assert [node.options["heartbeat"] for node in spec.nodes] == ["1", "2", "3"]
    services = yaml.safe_load(files["compose.yaml"])["services"]
    assert [each["environment"]["QPID_HEARTBEAT"] for each in services.values()] == ["1", "2", "3"]


def test_two_nodes_record_their_set_in_pacemaker():
    config = render(fenced(2, "manager"), "pacemaker")["qpidd-node1.conf"].splitlines()
    assert {"ha-safety=manager", "ha-registry=pacemaker", "ha-public-url=192.0.2.10:5672"} <= set(config)
    config = render(fenced(2, "manager"), "rgmanager")["qpidd-node1.conf"].splitlines()
    assert [line for line in config if line.startswith("ha-registry")] == ["ha-registry=none"]


def test_options_of_the_file_and_of_one_node():
    text = cluster(3, "", "options: {{log-enable: debug+, log-to-syslog: true, heartbeat: {0}}}")
    config = render(parse(text), "pacemaker")["qpidd-node2.conf"].splitlines()
    assert {"log-enable=debug+", "log-to-syslog=yes", "heartbeat=2"} <= set(config)
    assert "log-to-stderr=no" not in config, "who logs elsewhere decides about all of it"


def test_an_address_of_version_six_is_in_brackets():
    nodes = "".join(f"  - {{name: n{i}, host: '2001:db8::{i}', port: 5672}}\n" for i in (1, 2, 3))
    text = f"nodes:\n{nodes}safety: quorum\noptions: {{ha-username: a, ha-password: b}}\n"
    spec = parse(text + "deployment: {virtual-ip: '2001:db8::a/64'}\n")
    config = render(spec, "pacemaker")["qpidd-n1.conf"].splitlines()
    assert "ha-brokers-url=[2001:db8::1]:5672,[2001:db8::2]:5672,[2001:db8::3]:5672" in config
    assert "ha-public-url=[2001:db8::a]:5672" in config


def test_corosync_of_two_and_of_three_nodes():
    two, three = (render(fenced(nodes, "manager"), "pacemaker")["corosync.conf"] for nodes in (2, 3))
    assert "two_node: 1" in two and "wait_for_all: 1" in two
    assert "two_node: 1" not in three
    assert "nodeid: 3" in three and "ring0_addr: 192.0.2.13" in three


def test_a_quorum_device_decides_instead_of_who_shoots_first():
    more = "deployment: {quorum-device: 192.0.2.20, fencing: {agent: fence_x}}\n"
    files = render(parse(cluster(2, more, safety="manager")), "pacemaker")
    assert "host: 192.0.2.20" in files["corosync.conf"] and "algorithm: ffsplit" in files["corosync.conf"]
    assert "two_node" not in files["corosync.conf"] and "wait_for_all" not in files["corosync.conf"]
    for name in ("cib.xml", "cluster.pcs.sh", "cluster.crmsh"):
        assert "priority-fencing-delay" not in files[name] and 'name="priority"' not in files[name]
    assert "corosync-qdevice-net-certutil -Q -n test 192.0.2.20 node1 node2" in files["README.md"]
    assert "pacemaker-cli-utils fence-agents corosync-qdevice`" in files["README.md"]
    assert "pcs quorum device add" in files["cluster.pcs.sh"]
    values = {pair.get("name"): pair.get("value") for pair in ElementTree.fromstring(files["cib.xml"]).iter("nvpair")}
    assert values["transition-delay"] == "300ms", "with 50ms the controller sleeps twice: updates wait for the vote"
    other = render(fenced(2, "manager"), "pacemaker")
    assert "qdevice" not in "".join(other.values()).lower() and "priority-fencing-delay" in other["cib.xml"]


def test_times_are_written_as_their_readers_take_them():
    more = "deployment: {token: 1500ms, failure-timeout: 90s, heartbeat: 750ms, dc-deadtime: 2}\n"
    files = render(parse(cluster(3, more)), "pacemaker")
    assert "token: 1500\n" in files["corosync.conf"] and "consensus: 1800\n" in files["corosync.conf"]
    values = {pair.get("name"): pair.get("value") for pair in ElementTree.fromstring(files["cib.xml"]).iter("nvpair")}
    assert values["heartbeat"] == "750ms" and values["dc-deadtime"] == "2s"
    assert values["transition-delay"] == "50ms", "without it the controller sleeps for a second when a node is lost"
    assert "failure-timeout=90s" in files["cluster.pcs.sh"]


def test_one_device_for_all_nodes():
    more = "deployment: {fencing: {agent: fence_pdu, action: 'off', options: {ip: 'a b', password: \"it's $5\"}}}\n"
    files = render(parse(cluster(3, more)), "pacemaker")
    values = {pair.get("name"): pair.get("value") for pair in ElementTree.fromstring(files["cib.xml"]).iter("nvpair")}
    assert values["pcmk_host_list"] == "node1 node2 node3"
    assert (values["password"], values["stonith-action"]) == ("it's $5", "off")
    assert "password=it's $5" in shlex.split(files["cluster.pcs.sh"].replace("\\\n", " "), comments=True)
    more = more.replace("ip: 'a b'", "pcmk_host_map: 'node1:1;node2:2;node3:3'")
    assert "pcmk_host_list" not in render(parse(cluster(3, more)), "pacemaker")["cib.xml"]


def test_no_address_no_constraints():
    files = render(parse(cluster(3)), "pacemaker")
    assert ElementTree.fromstring(files["cib.xml"]).find("configuration/constraints") is not None
    assert "vip" not in files["cluster.pcs.sh"] + files["cluster.crmsh"]
    assert "ha-public-url" not in files["qpidd-node1.conf"]


def test_rgmanager_refers_to_what_it_has():
    root = ElementTree.fromstring(render(fenced(3), "rgmanager")["cluster.conf"])
    scripts = {script.get("name") for script in root.iterfind("rm/resources/script")}
    domains = {domain.get("name") for domain in root.iterfind("rm/failoverdomains/failoverdomain")}
    devices = {device.get("name") for device in root.iterfind("fencedevices/fencedevice")}
    assert {script.get("ref") for script in root.iterfind("rm/service/script")} == scripts
    assert {service.get("domain") for service in root.iterfind("rm/service")} == {*domains, None}
    assert {device.get("name") for device in root.iterfind("clusternodes/clusternode/fence/method/device")} == devices
    looks = [script.find("action").attrib for script in root.iterfind("rm/resources/script")]
    assert looks == 2 * [{"name": "status", "depth": "*", "interval": "1"}], "30 s are the agent's own"
    assert root.find("cman") is None
    assert ElementTree.fromstring(render(fenced(2, "manager"), "rgmanager")["cluster.conf"]).find("cman") is not None


def test_containers_get_ports_of_their_own():
    compose = yaml.safe_load(render(unfenced(), "compose")["compose.yaml"])
    assert [service["ports"] for service in compose["services"].values()] == [
        ["5672:5672"],
        ["5673:5672"],
        ["5674:5672"],
    ]


def test_a_dollar_sign_gets_through_compose():
    text = cluster(3).replace("secret", "'a$b\"c'")
    compose = yaml.safe_load(render(parse(text), "compose")["compose.yaml"])
    assert compose["services"]["node1"]["environment"]["QPID_HA_PASSWORD"] == 'a$$b"c'


def test_all_is_a_directory_for_each():
    names = set(render(unfenced(), "all"))
    assert {name.split("/")[0] for name in names} == set(KINDS)
    assert "pacemaker/cib.xml" in names and "systemd/qpidd.service.d/cluster.conf" in names


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_is_endless_and_no_blank_ends_one(kind):
    for name, text in render(fenced(3), kind).items():
        assert text.endswith("\n") and not text.endswith("\n\n")
        assert not [line for line in text.splitlines() if line != line.rstrip()], name


FENCING = "deployment: {fencing: {agent: fence_x}}\n"
TLS = cluster(3).replace("{ha-username", "{require-encryption: yes, ha-username").replace("port: 5672", "port: 5671")


@pytest.mark.parametrize("kind", ["pacemaker", "rgmanager", "systemd"])
def test_brokers_that_take_only_tls(kind):
    files = render(parse(TLS + "deployment: {virtual-ip: 192.0.2.10/24}\n"), kind)
    config = files["qpidd-node1.conf"].splitlines()
    assert "ha-brokers-url=ssl:192.0.2.11:5671,ssl:192.0.2.12:5671,ssl:192.0.2.13:5671" in config
    assert {"require-encryption=yes", "ssl-port=5671", "ha-public-url=ssl:192.0.2.10:5671"} <= set(config)
    assert {
        "ssl-ca=/etc/qpid/tls/ca.pem",
        "ssl-cert=/etc/qpid/tls/broker.crt",
        "ssl-key=/etc/qpid/tls/broker.key",
    } <= set(config)
    assert not [line for line in config if line.startswith("port=")]
    assert (
        "`/etc/qpid/tls/ca.pem`, `/etc/qpid/tls/broker.crt`, `/etc/qpid/tls/broker.key` on every node"
        in files["README.md"]
    )


def test_certificates_of_the_cluster_file_and_a_login_by_certificate():
    own = "ssl-cert: /c/both.pem, ha-ssl-ca: /c/ha.pem, ha-ssl-cert: /c/ha.crt, ha-mechanism: EXTERNAL"
    files = render(parse(TLS.replace("ha-password: secret", own)), "systemd")
    config = files["qpidd-node2.conf"].splitlines()
    assert {"ssl-cert=/c/both.pem", "ha-ssl-ca=/c/ha.pem", "ha-ssl-cert=/c/ha.crt", "ha-mechanism=EXTERNAL"} <= set(
        config
    )
    assert not [line for line in config if line.startswith(("ssl-key=", "ha-password="))]
    assert "`/etc/qpid/tls/ca.pem`, `/c/both.pem`, `/c/ha.pem`, `/c/ha.crt` on every node" in files["README.md"]


def test_addresses_of_version_six_with_tls():
    nodes = "".join(f"  - {{name: n{i}, host: '2001:db8::{i}', port: 5671}}\n" for i in (1, 2, 3))
    text = f"nodes:\n{nodes}safety: quorum\noptions: {{ha-username: a, ha-password: b, require-encryption: yes}}\n"
    config = render(parse(text), "systemd")["qpidd-n1.conf"].splitlines()
    assert "ha-brokers-url=ssl:[2001:db8::1]:5671,ssl:[2001:db8::2]:5671,ssl:[2001:db8::3]:5671" in config


REFUSED = [
    ("pacemaker", cluster(2, safety="manager"), "fencing: not given, wanted it for two nodes"),
    ("pacemaker", cluster(2, FENCING), "safety: found quorum with 2 nodes, wanted 3 or more"),
    ("pacemaker", cluster(1, FENCING, safety="manager"), "nodes: found 1, wanted two or more"),
    (
        "pacemaker",
        cluster(3, "deployment: {registry: none}\n", safety="manager"),
        "neither fencing nor a registry, wanted one of them, or safety: quorum",
    ),
    ("pacemaker", cluster(3, "", "fencing: {{ip: a}}"), "node node1: fencing: given, wanted deployment: fencing"),
    (
        "pacemaker",
        cluster(3, FENCING).replace("port: 5672}", "port: 5672, fencing: {ip: a}}", 1),
        "node node2: fencing: not given, wanted it for all nodes or for none",
    ),
    (
        "pacemaker",
        cluster(3).replace("port: 5672}", "port: 5672, links: [a, b]}", 1),
        "node node2: number of links: found 0, wanted 2 as node1 has",
    ),
    (
        "systemd",
        cluster(3).replace("192.0.2.12", "127.0.0.1"),
        "node node2: host: found '127.0.0.1', wanted an address",
    ),
    ("rgmanager", cluster(3).replace("192.0.2.12", "localhost"), "node node2: host: found 'localhost'"),
    ("systemd", cluster(3).replace("192.0.2.12", "0.0.0.0"), "node node2: host: found '0.0.0.0'"),
    ("systemd", cluster(3).replace("port: 5672}", "port: 0}", 1), "node node1: port: found 0 (any free one)"),
    (
        "systemd",
        cluster(3).replace("port: 5672}", "port: 1}", 1),
        "node node2: port: found 5672, wanted 1 as node1 has",
    ),
    ("compose", cluster(3).replace("ha-password: secret", ""), "options: ha-password: not given"),
    ("compose", TLS, "require-encryption: found with compose, wanted one of pacemaker, rgmanager, systemd"),
    ("vagrant", TLS, "require-encryption: found with vagrant"),
    ("all", TLS, "require-encryption: found with compose"),
    (
        "systemd",
        cluster(3, each="options: {{require-encryption: {0}}}").replace("n: 2", "n: yes"),
        "node node3: require-encryption: found no",
    ),
    ("systemd", TLS.replace("ha-password: secret", "ha-mechanism: PLAIN"), "options: ha-password: not given"),
    (
        "pacemaker",
        cluster(3, "deployment: {virtual-ip: 192.0.2.12/24}\n"),
        "virtual-ip: found 192.0.2.12, which is an address of node2 itself",
    ),
    (
        "pacemaker",
        cluster(3, "deployment: {ping-targets: [192.0.2.1, 192.0.2.12]}\n"),
        "ping-targets: found 192.0.2.12, which is node2; wanted a router",
    ),
    (
        "pacemaker",
        cluster(3, "deployment: {virtual-ip: 192.0.2.10/24, ping-targets: [192.0.2.10]}\n"),
        "ping-targets: found 192.0.2.10, which is the virtual address",
    ),
    (
        "pacemaker",
        cluster(2, "deployment: {quorum-device: node2, fencing: {agent: fence_x}}\n", safety="manager"),
        "quorum-device: found node2, which is node2; wanted another machine",
    ),
    (
        "pacemaker",
        cluster(3, "deployment: {quorum-device: 192.0.2.20}\n"),
        "quorum-device: found with 3 nodes, wanted an even number",
    ),
]


@pytest.mark.parametrize(("kind", "text", "reason"), REFUSED)
def test_what_cannot_work_is_refused(kind, text, reason):
    with pytest.raises(ConfigError) as caught:
        render(parse(text), kind)
    assert reason in str(caught.value)


FAULTS = [
    ("{virtual-ip: 192.0.2.10}", "virtual-ip: found '192.0.2.10', wanted ADDRESS/BITS"),
    ("{virtual-ip: 192.0.2.300/24}", "virtual-ip: found '192.0.2.300/24'"),
    ("{token: 100ms}", "deployment: token: found 0.1 s, wanted 0.2 s or more"),
    ("{token: 1s, consensus: 1s}", "deployment: consensus: found 1 s, wanted 1.2 s or more"),
    ("{token: soon}", "deployment: token: 'soon' is no duration"),
    ("{failure-timeout: 0}", "failure-timeout: found 0 s, wanted 1 s or more"),
    ("{interface: 'eth 0'}", "interface: found 'eth 0', wanted the name of a network interface"),
    ("{registry: file}", "deployment: registry: found 'file', wanted pacemaker, none"),
    ("{netmask: 24}", "unknown name 'netmask' in deployment; known are consensus, dc-deadtime"),
    ("{fencing: {agent: ipmi}}", "agent: found 'ipmi', wanted fence_NAME"),
    ("{fencing: {}}", "agent: found '', wanted fence_NAME"),
    ("{fencing: {agent: fence_x, action: kill}}", "action: found 'kill', wanted reboot, off"),
    ("{fencing: {agent: fence_x, port: 3}}", "unknown name 'port' in deployment: fencing"),
    ("{fencing: {agent: fence_x, options: {a b: 3}}}", "found 'a b', wanted the name of a parameter"),
    ("{fencing: {agent: fence_x, options: {ip: [1]}}}", "ip must have one value, on one line; found [1]"),
    ("{fencing: {agent: fence_x, options: {pcmk_host_list: a}}}", "pcmk_host_list follows from the rest"),
    ("{ping-targets: 192.0.2.1}", "deployment: ping-targets must be a list; found '192.0.2.1'"),
    ("{ping-targets: []}", "deployment: ping-targets: found no address, wanted one or more"),
    ("{ping-targets: ['a b']}", "deployment: ping-targets: found 'a b', wanted an address"),
    ("{ping-targets: ['-f']}", "deployment: ping-targets: found '-f', wanted an address"),
    ("{ping-targets: [null]}", "deployment: ping-targets must have one value, on one line; found None"),
    ("{ping-targets: ['']}", "deployment: ping-targets: found '', wanted an address"),
    ("{quorum-device: 'a b'}", "deployment: quorum-device: found 'a b', wanted an address"),
    ("{quorum-device: }", "deployment: quorum-device must have one value, on one line; found None"),
    ("{quorum-device: [a]}", "deployment: quorum-device must have one value, on one line; found ['a']"),
    ("{quorum-devise: a}", "unknown name 'quorum-devise' in deployment"),
    ("{ping-target: [a]}", "unknown name 'ping-target' in deployment"),
    ("[a]", "deployment must be a mapping"),
]


@pytest.mark.parametrize(("section", "reason"), FAULTS)
def test_every_fault_of_the_section_is_named(section, reason):
    with pytest.raises(ConfigError) as caught:
        parse(cluster(3, f"deployment: {section}\n"), "x.yaml")
    assert str(caught.value).startswith("x.yaml: ")
    assert reason in str(caught.value)


def test_faults_of_a_node_name_it():
    with pytest.raises(ConfigError, match=r"node node1: links: found 'a b', wanted an address"):
        parse(cluster(3, "", "links: [a b]"))
    with pytest.raises(ConfigError, match=r"node node1: links: found 0 addresses, wanted 1 to 8"):
        parse(cluster(3, "", "links: []"))
    with pytest.raises(ConfigError, match="node node1: fencing must be a mapping"):
        parse(cluster(3, "", "fencing: [a]"))
