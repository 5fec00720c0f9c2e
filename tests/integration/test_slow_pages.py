"""The disk of the page file does not answer: those wait who want something that is there, and nobody else."""

from __future__ import annotations

import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from tests.acceptance.test_disk_faults import SOURCE
from tests.integration.test_paging import PERSISTENT, SIZE, body, channel_of, paged
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

OPTIONS = ("--memory-limit", "64M")
JOURNALS = {"no": (), "yes": ("--journal", "yes", "--journal-segment-size", "1M")}
LIMITED = {"x-max-length": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
HOT = 50
"""Messages that others exchange meanwhile: some segments of the journal, which has to carry what waits."""


class OnPages(BrokerProcess):
    library: Path

    @property
    def fault(self) -> Path:
        return self.directory / "faults" / "hang-read"

    def command(self) -> list[str]:
        self.fault.parent.mkdir(exist_ok=True)
        return ["env", f"LD_PRELOAD={self.library}", f"FAULTS={self.fault.parent}", *super().command()]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("library") / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"], check=True)
    return built


def fill(broker: BrokerProcess, queue: str, number: int, arguments: Any = None) -> None:
    with channel_of(broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        for n in range(number):
            channel.basic_publish("", queue, body(n), PERSISTENT)


def get(broker: BrokerProcess, queue: str) -> Any:
    """A get, and what is sent behind it."""
    with channel_of(broker) as channel:
        found = channel.basic_get(queue, auto_ack=True)[2]
        channel.queue_declare(queue, passive=True)
        return found


def peek(broker: BrokerProcess, queue: str) -> Any:
    with ManagementSocket(Target("127.0.0.1", broker.port), Deadline(60)) as connection:
        return connection.request("queue.peek", {"queue": queue, "limit": 3})


def exchange(broker: BrokerProcess) -> int:
    """What others do, among it a publish that makes a message that is not there a dead letter: how many have come."""
    with channel_of(broker) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", "limited", body(100), PERSISTENT)
        channel.queue_declare("hot", durable=True)
        for n in range(HOT):
            channel.basic_publish("", "hot", body(n), PERSISTENT)
            assert channel.basic_get("hot", auto_ack=True)[2] == body(n)
        return int(channel.queue_declare("letters", passive=True).method.message_count)


@pytest.mark.parametrize("journal", JOURNALS)
def test_only_those_wait_who_want_what_is_there(tmp_path: Path, library: Path, journal: str) -> None:
    OnPages.library = library
    broker = OnPages(tmp_path, *OPTIONS, *JOURNALS[journal])
    with broker, ThreadPoolExecutor() as pool:
        fill(broker, "oldest", 600)
        fill(broker, "letters", 0)
        fill(broker, "limited", 100, LIMITED)
        fill(broker, "cold", 300)
        fill(broker, "youngest", 300)
        wait_for(lambda: paged(broker)["octets"] > 500 * SIZE, what="the others have left memory")
        with channel_of(broker) as channel:  # room: else what others exchange may leave memory, too
            channel.queue_delete("youngest")
        broker.fault.touch()
        try:
            waiting: list[Future[Any]] = [pool.submit(get, broker, "cold"), pool.submit(peek, broker, "cold")]
            wait_for(lambda: paged(broker)["waits"] >= 2, what="both wait")
            assert pool.submit(exchange, broker).result(60) == 0
            assert not any(each.done() for each in waiting)
        finally:
            broker.fault.unlink()
        assert waiting[0].result(60) == body(0) and len(waiting[1].result(60)) == 3
        wait_for(lambda: get(broker, "letters") == body(0), what="the dead letter")
        assert paged(broker)["at_once"] == 0
