"""Every program of README.md and docs/ that uses client_lib runs as it is printed, against a cluster."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.cluster import Cluster
from tests.support import documents
from tests.support.documents import ROOT

NODES = re.compile(r"node([123])(?::\d+)?(?=[\",/])")
ONE_AFTER_THE_OTHER = ("from-pika",)
"""Pages whose programs share their names; test_failover_page.py runs them."""


def programs() -> list[tuple[str, str]]:
    found = [(name, program) for name, program in documents.programs() if "client_lib" in program]
    return [(name, program) for name, program in found if not name.startswith(ONE_AFTER_THE_OTHER)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("documented"))
    try:
        found.up()
        yield found
    finally:
        found.down()


def test_there_are_programs() -> None:
    wanted = {"README-1", "clients-1", "clients-2", "clients-3", "from-qpid-messaging-1"}
    assert wanted <= {name for name, _ in programs()}


@pytest.mark.parametrize("program", [pytest.param(program, id=name) for name, program in programs()])
def test_program_runs(cluster, program: str, tmp_path: Path) -> None:
    addresses = cluster.addresses().split(",")
    text = NODES.sub(lambda found: addresses[int(found[1]) - 1], program)
    assert not re.search(r"\bnode[123]\b", text), "an address was not replaced"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::DeprecationWarning"}
    command = [sys.executable, "-c", text]
    how: dict = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, timeout=60, check=False, **how)
    assert done.returncode == 0, done.stderr
    assert done.stdout, "a program shows something"
