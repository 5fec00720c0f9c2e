"""What a reader types: the walk-throughs of our pages run, line after line in one shell, and print what is printed.

A command whose output is shown is repeated until it says that: a page has no place for "wait a moment".
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import needs_openssl
from tests.support.documents import ROOT, Command, blocks, commands
from tests.support.process import HeldPort
from tests.support.wait import wait_for

PATIENCE = 60.0
"""Seconds for one command."""
PORTS = ("5801", "5802", "5803", "5804")
END = "end-of-command"
FOLDERS = ("/tmp/qpidd-tutorial", "/tmp/node", "/tmp/")
"""Where the pages put files; below the folder of the test instead."""


def walk(page: str, *sections: str, language: str = "console") -> list[Command]:
    """The commands of these sections that a reader types as they stand."""
    found = [block for block in blocks(ROOT / page) if block.language == language]
    return [command for block in found if block.section.startswith(sections) for command in commands(block)]


class Reader:
    """A person with a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self._held = {port: HeldPort() for port in PORTS}
        self._ports = {port: str(held.port) for port, held in self._held.items()}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HOME": str(self.home)}
        self._shell = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def mine(self, text: str) -> str:
        """The page's words in our folder and with our ports."""
        text = text.replace("/tmp/", f"{self.folder}/").replace("/etc/qpid/", f"{self.folder}/")
        text = text.replace("/var/backups/", f"{self.folder}/")
        text = re.sub(r"\bnode([1-4]):5672\b", r"127.0.0.1:580\1", text)
        return re.sub(r"\b580[1-4]\b", lambda found: self._ports[found[0]], text)

    def types(self, command: Command) -> None:
        line, wanted = self.mine(command.line), [self.mine(line) for line in command.said]
        if not wanted:
            code, said = self._run(line)
            assert code == 0, f"{line}\n{said}"
            return
        wait_for(lambda: self._run(line) == (0, "\n".join(wanted)), PATIENCE, f"{line} that prints {wanted}", 0.2)

    def _run(self, line: str) -> tuple[int, str]:
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{line}\necho; echo {END} $?\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for said in self._shell.stdout:
            if said.startswith(END):
                return int(said.split()[1]), "\n".join(lines).strip("\n")
            lines.append(said.rstrip("\n"))
        raise AssertionError(f"the shell ended: {line}")

    def leave(self) -> None:
        """Nothing that was started lives on."""
        self._shell.kill()
        self._shell.wait()
        for lock in self.folder.rglob("lock"):
            if (text := lock.read_text().split()) and text[0].isdigit():
                end(int(text[0]), str(self.folder))
        for held in self._held.values():
            held.release()


def end(pid: int, folder: str) -> None:
    """Kills a broker of ours, if it still runs."""
    try:
        if folder in Path(f"/proc/{pid}/cmdline").read_text() + os.readlink(f"/proc/{pid}/cwd"):
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


STEPS = (
    ("docs/how-to/members.md", "Add", 4),
    ("docs/how-to/upgrade.md", "Upgrade", 3),
    ("docs/runbook.md", "Runbook", 3),
    ("docs/how-to/backup-and-restore.md", "Back up", 3),
    ("docs/how-to/switch-over.md", "Planned", 2),
    ("docs/how-to/switch-over.md", "Step down", 1),
)
"""Sections that a cluster of the first page can take one after the other, and their number of commands."""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    try:
        yield found
    finally:
        found.leave()


def test_cluster_of_the_first_page(reader: Reader) -> None:
    lines = walk("README.md", "A cluster in six lines")
    assert len(lines) == 6
    for command in lines:
        reader.types(command)
    status = Command(lines[-1].block, "qpid-ha status -b 127.0.0.1:5801", ["active"])
    reader.types(status)


def test_how_tos_log_in_as_printed(reader: Reader) -> None:
    """On the first page's cluster; `qpidd.conf` has the login of its links."""
    for command in walk("README.md", "A cluster in six lines"):
        reader.types(command)
    for port in ("5802", "5803"):
        reader.types(Command(command.block, f"qpid-ha status -b 127.0.0.1:{port}", ["ready"]))
    (reader.folder / "qpidd.conf").write_text(f"ha-username=ha\nha-password-file={reader.folder}/node-password\n")
    for page, section, lines in STEPS:
        ours = [c for c in walk(page, section, language="sh") if c.line.startswith(("qpid-ha", "export QPID_CONFIG"))]
        assert len(ours) == lines, page
        for command in ours:
            reader.types(command)


def test_tutorial(reader: Reader) -> None:
    lines = walk("docs/tutorial.md", "2.", "3.", "4.", "5.")
    assert len(lines) > 20
    for command in lines:
        reader.types(command)
    assert (reader.folder / "qpidd-tutorial/out/report.html").exists()


@needs_openssl
def test_tls_for_a_cluster(reader: Reader) -> None:
    lines = walk("docs/how-to/tls.md", "A cluster on one machine")
    assert len(lines) == 18
    for command in lines:
        reader.types(command)


def test_commands_of_qpid_config(reader: Reader) -> None:
    block = next(block for block in blocks(ROOT / "README.md") if block.language == "console")
    for line in ("qpidd --port 5801 --data-dir /tmp/alone --log-to-file /tmp/alone.log --daemon",):
        reader.types(Command(block, line, []))
    for command in walk("docs/reference/qpid-config.md", "qpid-config"):
        reader.types(command)


def test_one_machine(reader: Reader) -> None:
    (reader.folder / "config").mkdir()
    text = (ROOT / "config/cluster.yaml").read_text()
    (reader.folder / "config/cluster.yaml").write_text(reader.mine(text))
    lines = walk("docs/how-to/cluster.md", "One machine")
    assert len(lines) == 4
    try:
        for command in lines:
            reader.types(command)
    finally:
        subprocess.run(
            [str(Path(sys.executable).parent / "qpid-cluster"), "down"],
            cwd=reader.folder, check=False, capture_output=True, timeout=60,
        )  # fmt: skip
