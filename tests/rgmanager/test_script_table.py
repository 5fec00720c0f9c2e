"""The scripts by table, where no broker runs: state of the world, action → exit code, words; and the files as such."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rgmanager.cluster import EXAMPLES, assignments
from tests.rgmanager.conftest import SHELLS
from tests.rgmanager.node import PROGRAMS, SCRIPTS, Node
from tests.rgmanager.steps import BOTH, clustered, stale
from tests.support.system import needs

# ---- without a broker


@pytest.mark.parametrize("make_node", SHELLS, indirect=True)
@pytest.mark.parametrize("script", BOTH)
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "Usage: "),
        (("",), 2, "Usage: "),
        (("begin",), 2, "Usage: "),
        (("reload",), 3, "reload is not implemented"),
    ],
)
def test_usage(node: Node, script: str, words: tuple[str, ...], code: int, text: str) -> None:
    found, said = node.call(script, *words)
    assert (found, text in said) == (code, True), said


def test_qpidd_primary_has_no_condrestart(node: Node) -> None:
    assert node.call("qpidd-primary", "condrestart")[0] == 2


def _no_broker(node: Node) -> None:
    node.set(QPIDD="/nonexistent/qpidd")


def _no_tool(node: Node) -> None:
    clustered(node).set(QPID_HA="/nonexistent/qpid-ha")


def _no_init(node: Node) -> None:
    node.set(QPID_INIT="/nonexistent/init")


def _no_config(node: Node) -> None:
    node.config.unlink()


def _no_user(node: Node) -> None:
    node.set(QPID_USER="no-such-user")


def _odd_wait(node: Node) -> None:
    node.set(QPID_WAIT="5s", QPID_PROMOTE_WAIT="x")


def _stale(node: Node) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    stale(node, f"{ended.pid}\n")


def _stale_foreign(node: Node) -> None:
    stale(node, f"{os.getpid()}\n")


def _garbage(node: Node) -> None:
    stale(node, "no number\n")


def _member(node: Node) -> None:
    clustered(node)


def _nothing(node: Node) -> None:
    pass


TABLE = [
    (_nothing, "qpidd", "status", 3, "qpidd is stopped"),
    (_nothing, "qpidd", "stop", 0, "not running"),
    (_nothing, "qpidd", "condrestart", 0, ""),
    (_nothing, "qpidd", "try-restart", 0, ""),
    (_nothing, "qpidd-primary", "stop", 0, "not running"),
    (_nothing, "qpidd-primary", "status", 1, "qpidd is not primary: ConnectionRefusedError: "),
    (_member, "qpidd", "status", 3, "qpidd is stopped"),
    (_member, "qpidd-primary", "status", 1, "qpidd is not primary: ConnectionRefusedError: "),
    (_no_broker, "qpidd", "start", 5, "program missing: /nonexistent/qpidd"),
    (_no_broker, "qpidd", "stop", 5, "program missing: /nonexistent/qpidd"),
    (_no_broker, "qpidd", "status", 5, "program missing: /nonexistent/qpidd"),
    (_no_broker, "qpidd-primary", "start", 5, "program missing: /nonexistent/qpidd"),
    (_no_tool, "qpidd", "status", 5, "program missing: /nonexistent/qpid-ha"),
    (_no_tool, "qpidd", "stop", 5, "program missing: /nonexistent/qpid-ha"),
    (_no_tool, "qpidd-primary", "start", 5, "program missing: /nonexistent/qpid-ha"),
    (_no_tool, "qpidd-primary", "stop", 5, "program missing: /nonexistent/qpid-ha"),
    (_no_tool, "qpidd-primary", "status", 5, "program missing: /nonexistent/qpid-ha"),
    (_no_init, "qpidd-primary", "start", 5, "script missing: /nonexistent/init"),
    (_no_init, "qpidd-primary", "status", 5, "script missing: /nonexistent/init"),
    (_no_config, "qpidd", "start", 6, "no configuration file "),
    (_no_config, "qpidd", "status", 3, "qpidd is stopped"),
    (_no_config, "qpidd", "stop", 0, "not running"),
    (_no_config, "qpidd-primary", "start", 6, "no configuration file "),
    (_no_config, "qpidd-primary", "status", 1, "qpidd is not primary: ConfigError: "),
    (_no_user, "qpidd", "start", 6, "no user no-such-user"),
    (_odd_wait, "qpidd", "start", 6, "found '5s', wanted whole seconds"),
    (_odd_wait, "qpidd-primary", "start", 6, "wanted whole seconds"),
    (_stale, "qpidd", "status", 1, "dead but its pid file exists"),
    (_stale, "qpidd", "stop", 0, "not running"),
    (_stale_foreign, "qpidd", "status", 1, "dead but its pid file exists"),
    (_stale_foreign, "qpidd", "stop", 0, "not running"),
    (_garbage, "qpidd", "status", 1, "dead but its pid file exists"),
]


@pytest.mark.parametrize(("world", "script", "action", "code", "text"), TABLE)
def test_without_a_broker(
    node: Node, world: Callable[[Node], None], script: str, action: str, code: int, text: str
) -> None:
    if world is _no_user and os.geteuid() != 0:
        pytest.skip("only root can start as another user")
    world(node)
    found, said = node.call(script, action)
    assert (found, text in said) == (code, True), said
    assert node.pid is None


def as_nobody(node: Node, script: str, action: str) -> tuple[int, str]:
    """By somebody who is not root, nor who runs the broker.  (Programs that he may see, if not these then others.)"""
    node.set(QPIDD="/bin/true", QPID_HA="/bin/true", QPID_USER="root")
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    command = [*drop, str(node.script(script)), action]
    done = subprocess.run(command, capture_output=True, text=True, env=node.environment(), check=False)
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize("action", ["start", "stop", "restart", "force-reload", "condrestart", "try-restart"])
def test_insufficient_privilege(open_node: Node, action: str) -> None:
    assert as_nobody(open_node, "qpidd", action) == (
        4,
        f"qpidd: insufficient privilege: only root and root may {action}",
    )


def test_insufficient_privilege_of_qpidd_primary(open_node: Node) -> None:
    assert as_nobody(open_node, "qpidd-primary", "start")[0] == 4
    assert as_nobody(open_node, "qpidd-primary", "stop")[0] == 4


def test_everybody_may_ask_for_the_status_and_hears_when_it_is_unknown(open_node: Node) -> None:
    assert as_nobody(open_node, "qpidd", "status")[0] == 3
    open_node.data_dir.mkdir(mode=0)
    code, text = as_nobody(open_node, "qpidd", "status")
    assert (code, "status unknown, insufficient privilege" in text) == (4, True)


# ---- settings


@pytest.mark.parametrize(
    ("where", "value", "asked"),
    [
        ("options", "--ha-cluster yes", True),
        ("options", "--ha-cluster=YES", True),
        ("options", "--port 1 --ha-cluster", True),
        ("options", "--ha-cluster no", False),
        ("variable", "on", True),
        ("variable", "no", False),
        ("file", "true", True),
        ("file", "off", False),
    ],
)
def test_where_ha_cluster_may_stand(node: Node, where: str, value: str, asked: bool) -> None:
    """Seen by whether the missing qpid-ha is missed."""
    lines = {"options": "QPIDD_OPTIONS", "variable": "QPID_HA_CLUSTER", "file": "X"}
    if where == "file":
        node.configure(ha_cluster=value)
    node.set(QPID_HA="/nonexistent", **{lines[where]: value})
    assert node.call("qpidd", "status")[0] == (5 if asked else 3)


def test_the_data_directory_may_stand_on_the_command_line(node: Node, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lock").write_text("garbage")
    node.set(QPIDD_OPTIONS=f"--data-dir {tmp_path / 'other'}")
    assert node.call("qpidd", "status")[0] == 1
    node.set(QPID_DATA_DIR=str(tmp_path / "other"))
    assert node.call("qpidd", "status")[0] == 1


# ---- the files


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", BOTH)
def test_syntax(script: str, shell: str) -> None:
    done = subprocess.run([shell, "-n", str(SCRIPTS / script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs("shellcheck")
@pytest.mark.parametrize("script", BOTH)
def test_shellcheck(script: str) -> None:
    command = ["shellcheck", "-s", "sh", str(SCRIPTS / script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("script", BOTH)
def test_lsb_header(script: str) -> None:
    text = (SCRIPTS / script).read_text()
    assert text.startswith("#!/bin/sh\n")
    assert os.access(SCRIPTS / script, os.X_OK)
    header = text.partition("### BEGIN INIT INFO\n")[2].partition("### END INIT INFO\n")[0]
    names = [line[2:].partition(":")[0] for line in header.splitlines() if ":" in line]
    wanted = ["Provides", "Required-Start", "Required-Stop", "Should-Start", "Should-Stop", "Default-Start"]
    assert names == [*wanted, "Default-Stop", "Short-Description", "Description"]
    assert f"# Provides:          {script}\n" in header
    assert "# Default-Start:\n" in header, "the resource manager starts it"


def test_the_programs_of_the_tests_are_there() -> None:
    assert os.access(PROGRAMS / "qpidd", os.X_OK)
    assert os.access(PROGRAMS / "qpid-ha", os.X_OK)


def test_the_shipped_settings_are_ones_that_the_scripts_know() -> None:
    values = assignments(EXAMPLES / "sysconfig-qpidd")
    text = "".join((SCRIPTS / script).read_text() for script in BOTH)
    assert set(values) <= set(re.findall(r"^#   (QPID\w*) ", text, re.MULTILINE))
    assert values["QPID_CONFIG"] in values["QPID_HA_OPTIONS"]
