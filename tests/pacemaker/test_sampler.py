"""The sampler goes on whatever a broker answers: without it nobody would see a second primary."""

from typing import Any, cast

from qpidd_py.cli.client_socket import ManagementSocket
from tests.pacemaker.cluster import LOGIN
from tests.pacemaker.lab.host import Clients
from tests.pacemaker.sampler import Watcher

ACTIVE = {"status": "active", "epoch": 3, "safe": 7}
READING = {"status": "recovering-journal", "name": "node1", "members": [], "primary": ""}


class Broker:
    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)

    def request(self, method: str) -> dict[str, Any]:
        return self._answers.pop(0)


def test_a_broker_that_reads_its_journal_is_no_sample() -> None:
    watcher = Watcher(Clients("192.0.2.1", 0), LOGIN)
    broker = cast(ManagementSocket, Broker(READING, ACTIVE))
    watcher._ask(broker)
    watcher._ask(broker)
    assert [(sample.state, sample.epoch) for sample in watcher.samples] == [("active", 3)]
