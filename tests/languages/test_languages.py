"""Programs with other libraries than ours, most in other languages: the settings of docs/clients.md keep them going
through kill -9 and SIGSTOP of the primary; what was confirmed arrives.

Each program publishes one message at a time and consumes them; it prints `confirmed N` and, when all have arrived,
`received COUNT`.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.faults.scene import QpiddScene, qpidd_scene
from tests.support.documents import ROOT, blocks
from tests.support.system import skip_without
from tests.support.wait import wait_for

PROGRAMS = Path(__file__).parent / "programs"
FETCHED = ROOT / "build" / "languages"
COUNT = 900
JARS = ("com.rabbitmq:amqp-client:5.37.1", "org.slf4j:slf4j-api:2.0.20")
MODULES = ("amqplib@2.3.1", "amqp-connection-manager@5.0.0")
DISTRIBUTIONS = ("aio-pika==10.2.1", "aiormq==7.2.4")
GO = "github.com/rabbitmq/amqp091-go@v1.10.0"
TRIES = 2
FETCH_TIME = 120


def fetch(*commands: list[str], folder: Path) -> None:
    """By the language's own client, once.  Where it cannot be fetched the test is skipped, and says why."""
    done = folder / "done"
    if done.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        why = "not tried"
        for _ in range(TRIES):
            if not (why := failure(command, folder)):
                break
        if why:
            pytest.skip(f"{' '.join(command)}: {why}")
    done.touch()


def failure(command: list[str], folder: Path) -> str:
    """Empty if the command has done its work."""
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIME)
    except subprocess.TimeoutExpired:
        return f"no end within {FETCH_TIME} s"
    return "" if result.returncode == 0 else (result.stdout + result.stderr)[-500:]


def java() -> list[str]:
    folder = FETCHED / "java"
    said = ["mvn", "-q", "-B", "dependency:copy", "-DoutputDirectory=."]
    fetch(*([*said, f"-Dartifact={jar}"] for jar in JARS), folder=folder)
    return ["java", "-cp", f"{folder}/*", str(PROGRAMS / "Failover.java")]


def node(name: str) -> list[str]:
    folder = FETCHED / "node"
    fetch(["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", *MODULES], folder=folder)
    shutil.copy(PROGRAMS / f"{name}.js", folder)  # modules are looked for beside it
    return ["node", str(folder / f"{name}.js")]


def go() -> list[str]:
    folder = FETCHED / "go"
    folder.mkdir(parents=True, exist_ok=True)
    source = PROGRAMS / "failover.go"
    if (folder / "done").exists() and (folder / "failover.go").read_text() != source.read_text():
        (folder / "done").unlink()
    shutil.copy(source, folder)
    (folder / "go.mod").unlink(missing_ok=True)
    fetch(["go", "mod", "init", "failover"], ["go", "get", GO], ["go", "build", "-o", "failover", "."], folder=folder)
    return [str(folder / "failover")]


def python(name: str) -> list[str]:
    folder = FETCHED / "python"
    fetch([sys.executable, "-m", "pip", "install", "--quiet", "--target", ".", *DISTRIBUTIONS], folder=folder)
    return ["env", f"PYTHONPATH={folder}", sys.executable, str(PROGRAMS / f"{name}.py")]


CLIENTS = {
    "java": java,
    "amqplib": lambda: node("amqplib"),
    "manager": lambda: node("manager"),
    "go": go,
    "php": lambda: ["php", str(PROGRAMS / "amqplib.php")],
    "aio-pika": lambda: python("aio_pika_client"),
    "aiormq": lambda: python("aiormq_client"),
}
TOOLS = {
    "java": ("java", "mvn"),
    **dict.fromkeys(("amqplib", "manager"), ("node", "npm")),
    "go": ("go",),
    "php": ("php", "/usr/share/php/PhpAmqpLib/autoload.php"),
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QpiddScene]:
    with qpidd_scene(tmp_path_factory.mktemp("languages")) as scene:
        yield scene


class Program:
    """A client in another language, and when its messages were confirmed."""

    def __init__(self, command: list[str], scene: QpiddScene, queue: str) -> None:
        addresses = ",".join(node["address"] for node in scene.cluster.status()["nodes"])
        self.process = subprocess.Popen(
            [*command, addresses, queue, str(COUNT)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.confirms: dict[int, float] = {}
        self.received = 0
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            what, _, number = line.strip().partition(" ")
            if what == "confirmed":
                self.confirms[int(number)] = time.monotonic()
            elif what == "received":
                self.received = int(number)

    def confirmed(self, number: int) -> None:
        """Waits for the confirm of this message."""
        wait_for(lambda: number in self.confirms, what=lambda: "".join(self.said[-20:]))

    def ended(self) -> None:
        wait_for(lambda: self.process.poll() is not None, what=lambda: "".join(self.said[-20:]))
        self._reader.join(30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(30)

    def longest(self, since: int) -> float:
        """Seconds between two confirms."""
        times = list(self.confirms.values())[since - 1 :]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


def declare(scene: QpiddScene, queue: str) -> None:
    port = next(
        int(n["address"].rpartition(":")[2]) for n in scene.cluster.status()["nodes"] if n["name"] == scene.active()
    )
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        connection.channel().queue_declare(queue, durable=True)


@pytest.mark.parametrize("name", CLIENTS)
def test_through_kill_and_stop(name: str, scene: QpiddScene) -> None:
    skip_without(*TOOLS.get(name, ()))
    command = CLIENTS[name]()
    scene.whole()
    declare(scene, name)
    program = Program(command, scene, name)
    try:
        for step, disturb in enumerate((scene.kill, scene.pause), 1):
            program.confirmed(250 * step)
            before = len(program.confirms)
            disturb(scene.active())
            program.confirmed(before + 100)
            print(f"{name}, {disturb.__name__}: {program.longest(before):.2f} s without a confirm")
            scene.whole()
        program.ended()
        assert (program.process.returncode, program.received) == (0, COUNT), "".join(program.said[-20:])
    finally:
        program.close()


def test_the_page_shows_what_was_tested() -> None:
    """Each line of the page's programs is one of those above."""
    known = {line.strip() for path in PROGRAMS.iterdir() for line in path.read_text().splitlines()}
    shown = [block for block in blocks(ROOT / "docs/clients.md") if block.language in ("java", "javascript", "go")]
    assert len(shown) >= 4
    for block in shown:
        strange = [line for line in block.text.splitlines() if line.strip() and line.strip() not in known]
        assert not strange, f"docs/clients.md, {block.section}: {strange}"
