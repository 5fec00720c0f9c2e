"""Pacemaker, Corosync, pcs, crmsh, systemd, Compose take what was rendered; those not installed are skipped by name."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.slow import mostly_slow
from tests.support.system import missing, needs, skip_without, which
from tests.unit.ha.rendering import CONFIG, ROOT

CLUSTERS = [path.parent for path in sorted(CONFIG.rglob("cib.xml"))]
SCHEMA = "/usr/share/pacemaker/pacemaker-3.9.rng"
AGENT = "/usr/lib/ocf/resource.d/heartbeat/IPaddr2"
AGENTS = Path(AGENT).parents[1]
SLOW = [CONFIG / "pacemaker" / name for name in ("two-nodes-fencing", "three-nodes", "three-nodes-sbd")]
"""Everything that there is, with fencing, without, and with sbd: pcs takes half a second for each of its commands."""
each_cluster = pytest.mark.parametrize("directory", CLUSTERS, ids=lambda path: path.name)
few_clusters = pytest.mark.parametrize("directory", SLOW, ids=lambda path: path.name)

IN_A_NODE = """
set -e
mount -t overlay -o lowerdir="$1/agents:$2" overlay "$2"
if [ -d /var/log/crmsh ]; then mount -t tmpfs -o mode=755 none /var/log/crmsh; fi
shift 2
exec "$@"
"""
"""With our agent among the installed ones, as pcs and crmsh want to see it; seen by this process alone."""


def run(*command, **environment):
    result = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "LC_ALL": "C", **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def unshared(*command, kind="--mount"):
    """In a namespace of that kind; as somebody else than root in a user namespace, too."""
    return ("unshare", kind, *(() if os.geteuid() == 0 else ("--map-root-user",)), *command)


def can_overlay(tmp_path):
    """None, or why our agent cannot be laid over the installed ones."""
    if reason := missing(AGENT):
        return reason
    (tmp_path / "agents").mkdir()
    shutil.copytree(ROOT / "resource_agents" / "ocf", tmp_path / "agents" / "qpid")
    check = unshared("sh", "-c", IN_A_NODE, "sh", tmp_path, AGENTS, "true")
    result = subprocess.run([str(word) for word in check], capture_output=True, text=True)
    return f"no overlay in a mount namespace: {result.stderr.strip()}" if result.returncode else None


@pytest.fixture
def inside(tmp_path):
    reason = can_overlay(tmp_path)
    if reason:
        pytest.skip(reason)
    return lambda *command, **environment: run(
        *unshared("sh", "-c", IN_A_NODE, "sh", tmp_path, AGENTS, *command), **environment
    )


@pytest.fixture
def empty(tmp_path):
    """A CIB as that of a cluster which has just been installed."""
    path = tmp_path / "empty.xml"
    path.write_text(run("cibadmin", "--empty"))
    return path


def canonical(path):
    """What a CIB says, whatever the order and the ids of sets and values."""
    root = ElementTree.parse(path).getroot().find("configuration")
    sets = {"instance_attributes", "meta_attributes", "cluster_property_set", "nvpair", "op", "expression"}
    return _canonical(root, sets)


def _canonical(element, without_id):
    attributes = {name: value for name, value in element.items() if name != "id" or element.tag not in without_id}
    if attributes.get("boolean-op") == "and":
        del attributes["boolean-op"]  # the default; pcs writes it
    children = [_canonical(child, without_id) for child in element if isinstance(child.tag, str)]
    return element.tag, tuple(sorted(attributes.items())), tuple(sorted(children))


@needs("crm_verify")
@each_cluster
def test_crm_verify_finds_nothing(directory):
    assert run("crm_verify", "--xml-file", directory / "cib.xml", "-V") == ""


@needs("crm_verify")
def test_crm_verify_would_find_something(tmp_path):
    cib = (CLUSTERS[0] / "cib.xml").read_text()
    (tmp_path / "cib.xml").write_text(cib.replace('with-rsc="qpidd-clone"', 'with-rsc="qpidd-clown"'))
    with pytest.raises(AssertionError, match="qpidd-clown"):
        run("crm_verify", "--xml-file", tmp_path / "cib.xml", "-V")


@needs("xmllint", SCHEMA)
@each_cluster
def test_the_cib_is_valid_against_the_schema(directory):
    run("xmllint", "--noout", "--relaxng", SCHEMA, directory / "cib.xml")


@needs("cibadmin")
@each_cluster
def test_a_cluster_takes_it_as_a_change_and_not_as_the_whole(directory, empty):
    """The command of README.md, twice; with the other one `nodes` would be lost."""
    load = ("cibadmin", "--modify", "--allow-create", "--scope", "configuration", "--xml-file", directory / "cib.xml")
    for _ in range(2):
        run(*load, CIB_file=str(empty))
        assert canonical(empty) == canonical(directory / "cib.xml")
    with pytest.raises(AssertionError, match="older than existing"):
        run("cibadmin", "--replace", "--xml-file", directory / "cib.xml", CIB_file=str(empty))


@needs("cibadmin")
def test_later_changes_leave_the_registry_alone(empty):
    directory = CLUSTERS[0]
    node = '<node id="1" uname="node1"/>'
    run("cibadmin", "--create", "--scope", "nodes", "--xml-text", node, CIB_file=str(empty))
    where = ("--node", "node1", "--lifetime", "forever", "--name", "qpid-ha-state-qpid")
    run("crm_attribute", *where, "--update", "ours", CIB_file=str(empty))
    load = ("--scope", "configuration", "--xml-file", directory / "cib.xml")
    run("cibadmin", "--modify", "--allow-create", *load, CIB_file=str(empty))
    for part in ("resources", "constraints", "crm_config", "rsc_defaults", "alerts"):
        run("cibadmin", "--replace", "--scope", part, "--xml-file", directory / "cib.xml", CIB_file=str(empty))
    assert "ours" in run("crm_attribute", *where, "--query", CIB_file=str(empty))


def fence_agents(path):
    """The programs that fence in those commands: pcs and crmsh want to read their metadata."""
    return sorted(set(re.findall(r"\bfence_\w+", path.read_text())))


@needs("pcs", "cibadmin", "unshare")
@pytest.mark.parametrize("directory", mostly_slow(SLOW, 1), ids=lambda path: path.name)
def test_the_commands_for_pcs_say_the_same(directory, inside, empty):
    skip_without(*fence_agents(directory / "cluster.pcs.sh"))
    if (directory / "sbd").exists():
        skip_without("sbd")  # pcs refuses its timeout where it is not enabled
    inside("sh", directory / "cluster.pcs.sh", empty)
    assert canonical(empty) == canonical(directory / "cib.xml")


@needs("pcs")
@pytest.mark.parametrize("directory", sorted((CONFIG / "pacemaker").iterdir()), ids=lambda path: path.name)
def test_pcs_sets_corosync_up_as_rendered(directory, tmp_path):
    comment = (directory / "cluster.pcs.sh").read_text().split("pcs cluster setup ")[1].split("pcs cluster start")[0]
    words = comment.replace("\\\n#", " ").rstrip("#\n ").split()
    run("pcs", "cluster", "setup", "--corosync_conf", tmp_path / "corosync.conf", *words)
    extra = {"cluster_uuid", "timestamp", "version"}  # what one has that the other has not
    assert corosync(tmp_path / "corosync.conf", extra) == corosync(directory / "corosync.conf", extra)


def corosync(path, without):
    """The settings in a corosync.conf, those of a node together."""
    lines = (line.strip() for line in path.read_text().splitlines())
    blocks = " ".join(line for line in lines if line and not line.startswith("#")).split("}")
    found = [sorted(re.findall(r"(\w+): (\S+)", block)) for block in blocks]
    return sorted([item for item in block if item[0] not in without] for block in found if block)


@needs("crm", "cibadmin", "unshare")
@few_clusters
def test_the_commands_for_crmsh_say_the_same(directory, inside, empty):
    skip_without(*fence_agents(directory / "cluster.crmsh"))
    inside("crm", "configure", "load", "update", directory / "cluster.crmsh", CIB_file=str(empty))
    assert canonical(empty) == canonical(directory / "cib.xml")


def test_two_configurations_that_differ_are_told_apart():
    first, second, *_ = CLUSTERS
    assert canonical(first / "cib.xml") != canonical(second / "cib.xml")


@needs("corosync", "unshare", "ip")
@each_cluster
def test_corosync_takes_its_configuration(directory, tmp_path):
    run("corosync-keygen", "-k", tmp_path / "authkey")
    hosts = [line.split()[0] for line in (directory / "hosts").read_text().splitlines()]
    config = directory / "corosync.conf"
    # It looks for itself among the nodes, by the addresses of this machine.
    key = 'mount -t tmpfs none /etc/corosync && cp "$3" /etc/corosync/authkey'
    script = f'ip link set lo up && ip address add "$1" dev lo && {key} && exec corosync -t -c "$2"'
    check = subprocess.run(unshared("true", kind="--net"), capture_output=True, text=True)
    if check.returncode:
        pytest.skip(f"no network namespace for us: {check.stderr.strip()}")
    words = ("sh", "-c", script, "sh", f"{hosts[0]}/32", config, tmp_path / "authkey")
    run(*unshared("unshare", "--mount", *words, kind="--net"))


@needs("sh")
@pytest.mark.parametrize("path", sorted(CONFIG.rglob("*.sh")), ids=lambda path: path.parent.name)
def test_scripts_are_shell(path):
    run("sh", "-n", path)


@needs("systemd-analyze")
def test_systemd_takes_the_drop_in(tmp_path):
    units = tmp_path / "units"
    shutil.copytree(ROOT / "packaging" / "systemd", units)
    shutil.copytree(CONFIG / "systemd" / "qpidd.service.d", units / "qpidd.service.d")
    unit = units / "qpidd.service"
    unit.write_text(unit.read_text().replace("/usr/bin/qpidd", "/bin/true").replace("file:///usr/share/doc", "man:a"))
    found = run("systemd-analyze", "verify", "--man=no", unit, SYSTEMD_UNIT_PATH=f"{units}:")
    assert "cluster.conf" not in found


def compose_command():
    """`docker compose`, or the older program."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    return None


@pytest.mark.parametrize("name", ["compose.yaml", "one-container/compose.yaml"])
def test_compose_takes_its_file(name):
    command = compose_command()
    if command is None:
        pytest.skip("docker compose is not installed (package docker-compose)")
    run(*command, "--file", CONFIG / "compose" / name, "config", "--quiet")
