"""Every program of README.md and docs/ that uses client_lib runs as it is printed, against a cluster."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.cluster import Cluster

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:^ {4}.*\n|^\n)+", re.MULTILINE)
NODES = re.compile(r"node([123])(?::\d+)?(?=[\",/])")


def programs() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        blocks = [textwrap.dedent(block) for block in BLOCK.findall(page.read_text())]
        found = [block.strip() + "\n" for block in blocks if re.search(r"^(import|from) ", block, re.MULTILINE)]
        for number, program in enumerate(program for program in found if "client_lib" in program):
            yield f"{page.stem}-{number + 1}", program


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("documented"))
    try:
        found.up()
        yield found
    finally:
        found.down()


def test_there_are_programs() -> None:
    assert {"README-1", "README-2", "README-3", "from-qpid-messaging-1"} <= {name for name, _ in programs()}


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
