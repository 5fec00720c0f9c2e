"""The shipped Compose files, brought up for real; only the image's tag and the ports of this machine are others."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from qpidd_py.security.users import hash_password
from tests.docker.containers import START_TIME
from tests.support.system import which
from tests.support.wait import wait_for

SHIPPED = Path(__file__).resolve().parents[2] / "config/compose"

pytestmark = pytest.mark.timeout(600)  # the image is built by the first test


def compose_command() -> list[str]:
    """Empty if this machine has none; version 2 is a plug-in of `docker`, Debian 12 has version 1."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if which(words[0]) and subprocess.run([*words, "version"], capture_output=True).returncode == 0:
            return words
    return []


class Project:
    """One Compose file that is up."""

    def __init__(self, directory: Path, name: str) -> None:
        self._command = [*compose_command(), "--project-name", name, "--file", str(directory / "compose.yaml")]

    def call(self, *words: str) -> str:
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, service: str, *words: str) -> tuple[int, str]:
        """Exit code and output of a program in a container."""
        command = [*self._command, "exec", "-T", service, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout.strip()

    def until(self, wanted: object, service: str, *words: str) -> None:
        """Until the program ends well and prints that (None: anything)."""

        def fits() -> bool:
            self._last = self.run(service, *words)
            return self._last[0] == 0 and (wanted is None or self._last[1] == wanted)

        wait_for(fits, START_TIME, lambda: f"{words} on {service}: {self._last}", poll=0.1)


def copied(source: Path, directory: Path, image: str) -> dict[str, Any]:
    """The Compose file and what lies next to it; any free port of this machine instead of its own ones."""
    shutil.copytree(source, directory, dirs_exist_ok=True)
    (directory / "users.yaml").write_text(f"app: {hash_password('secret')}\n")
    content: dict[str, Any] = yaml.safe_load((directory / "compose.yaml").read_text())
    for service in content["services"].values():
        service["image"] = image
        service["ports"] = [port.split(":")[-1] for port in service.get("ports", [])]
    (directory / "compose.yaml").write_text(yaml.safe_dump(content))
    return content


@pytest.fixture
def project(request: pytest.FixtureRequest, image: str, tmp_path: Path) -> Iterator[Project]:
    if not compose_command():
        pytest.skip("neither `docker compose` nor `docker-compose` on this machine (package docker-compose)")
    source: Path = request.param
    directory = tmp_path / "project"
    copied(source, directory, image)
    found = Project(directory, f"qpidd-test-{source.name}")
    try:
        found.call("up", "--detach")
        yield found
    finally:
        print(found.call("logs", "--no-color"))
        found.call("down", "--volumes", "--timeout", "20")


@pytest.mark.parametrize("project", [SHIPPED], indirect=True, ids=["a-container-each"])
def test_promoted_by_hand(project: Project) -> None:
    nodes = ("node1", "node2", "node3")
    for node in nodes:
        project.until("joining", node, "qpid-ha", "status")
    project.until(None, "node1", "qpid-ha", "promote", "--cluster-manager")
    project.until("ready", "node2", "qpid-ha", "status")
    project.until("ready", "node3", "qpid-ha", "status")
    assert project.run("node1", "qpid-config", "add", "queue", "orders", "--durable")[0] == 0

    project.call("kill", "node1")
    project.until(None, "node2", "qpid-ha", "promote", "--cluster-manager")
    project.call("start", "node1")
    project.until("ready", "node1", "qpid-ha", "status")
    code, said = project.run("node2", "qpid-config", "queues")
    assert code == 0
    assert "orders" in said

    project.until(None, "node2", "qpid-ha", "relocate", "--to", "node1:5672")
    assert project.run("node1", "qpid-ha", "status") == (0, "active")


@pytest.mark.parametrize("project", [SHIPPED / "one-container"], indirect=True, ids=["one-container"])
def test_managed_by_qpid_cluster(project: Project) -> None:
    tool = ("qpid-cluster", "--config", "/etc/qpid/cluster.yaml")
    project.until(None, "cluster", *tool, "status")
    assert project.run("cluster", *tool, "kill", "node1")[0] == 0

    def another_one_serves() -> bool:
        code, said = project.run("cluster", *tool, "status")
        return code == 0 and "primary node1" not in said

    wait_for(another_one_serves, START_TIME, poll=0.1)
