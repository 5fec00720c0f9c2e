"""The cluster file: what is read, and that every fault names the wrong value."""

from dataclasses import replace
from pathlib import Path

import pytest

from ha.qpid_cluster.cluster_file import Watch, built_in, load, parse
from ha.qpid_cluster.cluster_values import duration
from ha.qpid_cluster.processes import config_path, write_config
from qpidd_py.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "config" / "cluster.yaml"

SMALL = """
cluster: small
nodes:
  - {name: a, port: 5001}
  - {name: b, port: 0, options: {auth: no, log-enable: debug+}}
options: {ha-replicate: all, auth: yes, ha-username: u, ha-password: p}
supervisor: {hang-timeout: 250ms, restart-delay: 2}
"""


def test_the_example_in_config_is_valid():
    spec = load(EXAMPLE)
    assert [node.name for node in spec.nodes] == ["node1", "node2", "node3"]
    assert spec.username == "qpid-ha"
    assert spec.watch.hang_timeout == 1.0


def test_the_built_in_cluster_has_another_password_in_each_folder():
    spec = built_in()
    assert [node.address for node in spec.nodes] == ["127.0.0.1:5801", "127.0.0.1:5802", "127.0.0.1:5803"]
    assert str(spec.directory) == "qpid-cluster-data"
    assert len(spec.password) > 20
    assert spec.password != built_in().password


def test_options_of_a_node_override_those_of_the_cluster():
    spec = parse(SMALL)
    assert spec.node("a").options["auth"] == "yes"
    assert spec.node("b").options == {
        "ha-replicate": "all", "auth": "no", "ha-username": "u", "ha-password": "p", "log-enable": "debug+",
    }  # fmt: skip
    assert (spec.username, spec.password) == ("u", "p")


def test_durations_have_units_and_defaults():
    spec = parse(SMALL)
    assert spec.watch == Watch(hang_timeout=0.25, restart_delay=2.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1.5", 1.5), (2, 2.0), ("20ms", 0.02), ("2 min", 120.0), (".5", 0.5), ("1h", 3600.0)]
)
def test_duration(text, seconds):
    assert duration(text, "x") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "-1", "1 fortnight", True, None, "1.2.3"])
def test_no_duration(text):
    with pytest.raises(ConfigError, match=r"hang-timeout.*no duration"):
        duration(text, "hang-timeout")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: []", "at least one"),
        ("cluster: x", "nodes must be a list"),
        ("- a", "must be a mapping"),
        ("nodes: [{name: a, port: 1}]\nnode: 3", "unknown name 'node'"),
        ("nodes: [{name: a, port: 1, prot: 3}]", "unknown name 'prot'"),
        ("nodes: [{name: a, port: 99999}]", "99999"),
        ("nodes: [{name: a, port: true}]", "True"),
        ("nodes: [{name: ../a, port: 1}]", "'../a'"),
        ("nodes: [{port: 1}]", "needs a name"),
        ("nodes: [{name: a, port: 1}, {name: a, port: 2}]", "two nodes have the name 'a'"),
        ("nodes: [{name: a, port: 1}, {name: b, port: 1}]", "two nodes have the address '127.0.0.1:1'"),
        ("nodes: [{name: a, port: 1}]\nsupervisor: {hang-timeout: soon}", "'soon'"),
        ("nodes: [{name: a, port: 1}]\nsupervisor: {hang: 1}", "unknown name 'hang'"),
        ("nodes: [{name: a, port: 1}]\noptions: {a: [1]}", "one value"),
        ("nodes: [{name: a, port: 1}]\noptions: {port: 1}", "set by the supervisor"),
        ("nodes: [{name: a, port: 1}]\nsafety: high", "safety: found 'high', wanted manager, availability, quorum"),
        ("nodes: [{name: a, port: 1}]\nregistry: pacemaker", "registry: found 'pacemaker', wanted file, none"),
        ("nodes: [{name: a, port: 1}]\noptions: {ha-registry: none}", "ha-registry is set by the supervisor"),
        ("nodes: [", "x.yaml"),
    ],
)
def test_every_fault_is_named(text, expected):
    with pytest.raises(ConfigError) as caught:
        parse(text, "x.yaml")
    assert expected in str(caught.value)
    assert "x.yaml" in str(caught.value)


def test_ports_zero_are_no_double():
    spec = parse("nodes: [{name: a, port: 0}, {name: b, port: 0}]")
    assert len(spec.nodes) == 2


def test_the_file_written_for_a_broker(tmp_path):
    spec = replace(parse(SMALL), directory=tmp_path)
    write_config(spec, spec.node("a"))
    lines = config_path(spec, spec.node("a")).read_text().splitlines()
    assert {"broker-name=a", "port=5001", "ha-cluster=yes", "auth=yes", f"data-dir={tmp_path}/a"} <= set(lines)
    assert "ha-brokers-url=127.0.0.1:5001,127.0.0.1:0" in lines
    assert config_path(spec, spec.node("a")).stat().st_mode & 0o077 == 0


def written(text, directory):
    spec = replace(parse(text), directory=directory)
    write_config(spec, spec.node("a"))
    return config_path(spec, spec.node("a")).read_text().splitlines()


def test_a_manager_keeps_a_registry_in_its_directory(tmp_path):
    lines = written(SMALL, tmp_path)
    assert {"ha-safety=manager", "ha-registry=file", f"ha-registry-file={tmp_path}/registry.json"} <= set(lines)
    assert "ha-cluster-name=small" in lines


@pytest.mark.parametrize("more", ["registry: none", "safety: availability", "safety: quorum"])
def test_no_registry_otherwise(more, tmp_path):
    lines = written(f"{SMALL}{more}", tmp_path)
    wanted = ["ha-registry=none"] if more == "registry: none" else []
    assert [line for line in lines if line.startswith("ha-registry")] == wanted
    safety = more.removeprefix("safety: ") if "safety" in more else "manager"
    assert f"ha-safety={safety}" in lines


def test_the_mode_may_stand_among_the_options(tmp_path):
    lines = written(SMALL.replace("ha-replicate: all", "ha-replicate: all, ha-safety: quorum"), tmp_path)
    assert [line for line in lines if line.startswith(("ha-safety", "ha-registry"))] == ["ha-safety=quorum"]


def test_an_unknown_node_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match="a, b"):
        parse(SMALL).node("c")


def test_a_missing_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "none.yaml")


def test_the_example_qpidd_conf_is_valid():
    from ha.model.settings import HaSettings
    from qpidd_py.config import GROUPS
    from qpidd_py.options import load as load_settings

    settings = load_settings([*GROUPS, HaSettings], ["--config", str(EXAMPLE.with_name("qpidd.conf"))], {})
    assert settings[HaSettings].ha_cluster
    assert settings[HaSettings].ha_replicate == "all"
