"""Celery with the configuration of docs/celery, worker and producer as processes, over a cluster that fails over."""

import collections
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pika
import pytest

from demo.cluster import Cluster
from ha.qpid_cluster.main import settled
from tests.support.wait import wait_for

DOCUMENTED = Path(__file__).parents[2] / "docs" / "celery"
TASKS = 600
QUIET = ["--without-mingle", "--without-gossip"]
PRODUCER = """
import sys, time
from tasks import note
for number in range(int(sys.argv[1])):
    note.delay(number)
    print(number, flush=True)
    time.sleep(0.005)
"""


class Application:
    """A worker and a producer; what ran is in the file of results, what was sent in the producer's output."""

    def __init__(self, directory: Path, addresses: str) -> None:
        self.results = directory / "results"
        self.results.touch()
        self.sent = directory / "sent"
        brokers = ",".join(f"amqp://guest:guest@{address}//" for address in addresses.split(","))
        self._directory = directory
        ours = {"BROKERS": brokers, "RESULTS": str(self.results), "PYTHONPATH": str(DOCUMENTED)}
        self._environment = {**os.environ, **ours}
        self.worker = self._start("worker", ["-m", "celery", "-A", "tasks", "worker", "-c", "1", "-l", "INFO", *QUIET])
        self.producer = self._start("sent", ["-c", PRODUCER, str(TASKS)])

    def _start(self, name: str, words: list[str]) -> "subprocess.Popen[bytes]":
        with (self._directory / name).open("wb") as output, (self._directory / f"{name}.err").open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, *words], cwd=self._directory, env=self._environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            )  # fmt: skip

    def ran(self) -> list[int]:
        return [int(line) for line in self.results.read_text().split("\n")[:-1]]

    def close(self) -> None:
        for process in (self.producer, self.worker):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.down()


@pytest.fixture
def application(cluster, tmp_path):
    found = Application(tmp_path, cluster.addresses())
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_worker_and_producer_follow_the_primary(cluster, application, fault) -> None:
    wait_for(lambda: len(application.ran()) > 50, 60, "tasks that ran")
    old = cluster.primary
    cluster.command(fault, old)
    wait_for(lambda: cluster.primary not in ("", old), 60, "another primary")
    before = len(application.ran())
    wait_for(lambda: len(application.ran()) > before + 50, 60, "tasks that ran after the fail-over")
    if fault == "pause":
        cluster.command("start", old)
    wait_for(lambda: application.producer.poll() is not None, 60, "the producer at its end")
    assert application.producer.returncode == 0, (application.sent.parent / "sent.err").read_text()
    sent = [int(line) for line in application.sent.read_text().split()]
    assert sent == list(range(TASKS))
    wait_for(lambda: set(application.ran()) >= set(sent), 60, "every task that was sent")
    often = collections.Counter(collections.Counter(application.ran()).values())
    assert sum(count for times, count in often.items() if times > 1) <= 50, "more than what was in flight ran twice"
    wait_for(lambda: settled(cluster.status()), 60, "one active, the others ready")


def test_kombu_alone(broker) -> None:
    page = (DOCUMENTED.parent / "from-kombu-celery.md").read_text()
    program = textwrap.dedent(page.partition("## kombu alone\n")[2].partition("\nFor consumers")[0])
    program = program.replace("user:password@node1:5672", f"guest:guest@{broker.address}")
    exec(compile(program, "from-kombu-celery.md", "exec"), {})
    host, port = broker.address.split(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        _method, properties, body = connection.channel().basic_get("orders", auto_ack=True)
    assert (properties.content_type, body) == ("application/json", b'{"order": 1}')
