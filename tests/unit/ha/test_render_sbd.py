"""sbd without a disk: what is rendered, and which mistakes of an administrator are refused."""

import re
from xml.etree import ElementTree

import pytest

from ha.qpid_cluster.cluster_file import parse
from ha.qpid_cluster.render.kinds import KINDS, render
from qpidd_py.errors import ConfigError
from tests.unit.ha.rendering import cluster


def rendered(section="sbd: watchdog", nodes=3, safety="quorum", kind="pacemaker"):
    return render(parse(cluster(nodes, f"deployment: {{{section}}}\n", safety=safety)), kind)


def properties(files):
    return {pair.get("name"): pair.get("value") for pair in ElementTree.fromstring(files["cib.xml"]).iter("nvpair")}


def settings(files):
    return dict(re.findall(r"^(SBD_\w+)=(.*)$", files["sbd"], re.M))


def test_the_defaults_are_those_of_sbd_and_what_follows_from_them():
    files = rendered()
    assert settings(files) == {
        "SBD_PACEMAKER": "yes", "SBD_WATCHDOG_DEV": "/dev/watchdog", "SBD_WATCHDOG_TIMEOUT": "5",
        "SBD_DELAY_START": "15", "SBD_STARTMODE": "always", "SBD_SYNC_RESOURCE_STARTUP": "yes",
    }  # fmt: skip
    found = properties(files)
    assert (found["stonith-enabled"], found["stonith-watchdog-timeout"]) == ("true", "12s")
    assert (found["no-quorum-policy"], found["dc-deadtime"]) == ("demote", "20s")
    assert found["pcmk_host_list"] == "node1 node2 node3" and "have-watchdog" not in found
    assert "pacemaker-cli-utils sbd`" in files["README.md"] and "/etc/default/sbd" in files["README.md"]
    assert "restarts by itself within 15 s" in files["README.md"]
    assert "two_node" not in files["corosync.conf"] and "auto_tie_breaker" not in files["corosync.conf"]


def test_without_it_nothing_is_said_of_it():
    files = rendered("token: 1s")
    assert "sbd" not in files and "watchdog" not in "".join(files.values())


def test_pcs_and_crmsh_say_the_same():
    files = rendered()
    for name in ("cluster.pcs.sh", "cluster.crmsh"):
        assert re.search('stonith-watchdog-timeout="?12s', files[name]) and "fence_watchdog" in files[name]


def test_what_is_given_is_rendered():
    more = "{device: /dev/watchdog1, watchdog-timeout: 10s, stonith-watchdog-timeout: 30s}"
    files = rendered(f"token: 2s, sbd: {more}")
    found = settings(files)
    assert (found["SBD_WATCHDOG_DEV"], found["SBD_WATCHDOG_TIMEOUT"]) == ("/dev/watchdog1", "10")
    assert found["SBD_DELAY_START"] == "35", "fencing, token and consensus, rounded up"
    assert properties(files)["stonith-watchdog-timeout"] == "30s"
    assert "finds /dev/watchdog1" in files["README.md"]


@pytest.mark.parametrize(("timeout", "waits"), [("5s", "12s"), ("6s", "13s"), ("7", "14s"), ("8s", "16s")])
def test_the_others_wait_for_sbd_and_for_the_watchdog(timeout, waits):
    assert properties(rendered(f"sbd: {{watchdog-timeout: {timeout}}}"))["stonith-watchdog-timeout"] == waits


def test_a_pair_with_a_quorum_device_waits_for_its_vote():
    files = rendered("sbd: watchdog, quorum-device: 192.0.2.20", 2, "manager")
    [sync] = re.findall(r"sync_timeout: (\d+)", files["corosync.conf"])
    assert int(settings(files)["SBD_WATCHDOG_TIMEOUT"]) == 11 > int(sync) / 1000
    assert properties(files)["stonith-watchdog-timeout"] == "22s"
    assert "priority-fencing-delay" not in properties(files), "they do not shoot each other"


def test_virtual_machines_get_its_settings():
    assert rendered(kind="vagrant")["sbd"] == rendered()["sbd"]


def test_it_is_too_slow_for_brokers_that_rely_on_fencing_alone():
    """They go on alone after 2 x link-heartbeat-interval and ha-isolation-wait, 3 s; a reset takes 11."""
    with pytest.raises(ConfigError, match="safety: manager and registry: none, wanted a registry"):
        rendered("sbd: watchdog, registry: none", safety="manager")
    assert "sbd" in rendered("sbd: watchdog, registry: pacemaker", safety="manager")


FAULTS = [
    ("sbd: yes", "deployment: sbd: found True, wanted watchdog, or a mapping"),
    ("sbd: ", "deployment: sbd: found None, wanted watchdog"),
    ("sbd: /dev/sdb", "sbd: found '/dev/sdb', wanted watchdog, or a mapping (sbd with a disk is not rendered)"),
    ("sbd: whatchdog", "sbd: found 'whatchdog', wanted watchdog"),
    ("sbd: {timeout: 5s}", "unknown name 'timeout' in deployment: sbd; known are device, stonith-watchdog-timeout"),
    ("sbd: {device: /dev/sda}", "sbd: device: found '/dev/sda', wanted /dev/watchdog[NUMBER]"),
    ("sbd: {device: /dev/null}", "sbd: device: found '/dev/null'"),
    ('sbd: {device: "/dev/watchdog\\nSBD_OPTS=-Z"}', "device must have one value, on one line"),
    ("sbd: {device: }", "sbd: device must have one value, on one line; found None"),
    ("sbd: {device: ''}", "sbd: device: found '', wanted /dev/watchdog[NUMBER]"),
    ("sbd: {watchdog-timeout: 5ms}", "sbd: watchdog-timeout: found 0.005 s, wanted 5 s or more"),
    ("sbd: {watchdog-timeout: 4s}", "sbd: watchdog-timeout: found 4 s, wanted 5 s or more"),
    ("sbd: {watchdog-timeout: 5500ms}", "sbd: watchdog-timeout: found 5.5 s, wanted whole seconds"),
    ("sbd: {watchdog-timeout: -1}", "sbd: watchdog-timeout: -1 is no duration"),
    ("sbd: {watchdog-timeout: 5min}", "stonith-watchdog-timeout: found 600 s, wanted 75 s or less"),
    ("sbd: {stonith-watchdog-timeout: 4s}", "stonith-watchdog-timeout: found 4 s, wanted 12 s or more"),
    ("sbd: {stonith-watchdog-timeout: -1}", "stonith-watchdog-timeout: -1 is no duration"),
    ("sbd: {stonith-watchdog-timeout: 0}", "stonith-watchdog-timeout: found 0 s, wanted 12 s or more"),
    ("sbd: {watchdog-timeout: 10s, stonith-watchdog-timeout: 12s}", "found 12 s, wanted 20 s or more"),
    ("sbd: {stonith-watchdog-timeout: 76s}", "found 76 s, wanted 75 s or less"),
    ("sbd: watchdog, fencing: {agent: fence_x}", "sbd: found with fencing, wanted one of them"),
    ("sbd: {watchdog-timeout: 6s}, quorum-device: 192.0.2.20", "watchdog-timeout: found 6 s, wanted 11 s or more"),
]


@pytest.mark.parametrize(("section", "reason"), FAULTS)
def test_a_mistake_is_named(section, reason):
    with pytest.raises(ConfigError) as caught:
        rendered(section)
    assert reason in str(caught.value)


def test_a_pair_without_a_quorum_device_is_refused():
    with pytest.raises(ConfigError, match="sbd: found with 2 nodes, wanted a quorum-device, too"):
        rendered(nodes=2, safety="manager")


def test_without_journals_a_broken_switch_would_take_every_copy():
    text = cluster(3, "deployment: {sbd: watchdog}\n").replace("options: {", "options: {journal: no, ")
    with pytest.raises(ConfigError, match="sbd: found without journals, wanted journal: yes"):
        render(parse(text), "pacemaker")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("pacemaker", "vagrant")])
def test_where_it_would_do_nothing_it_is_refused(kind):
    with pytest.raises(ConfigError, match=f"sbd: found with {kind}, wanted one of pacemaker, vagrant"):
        rendered(kind=kind)
