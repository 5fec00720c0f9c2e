"""close() while nothing comes back: it returns in time, and says exactly what is in doubt."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_lib import Connection, Message
from tests.support.fault_proxy import Entrance, FaultProxy
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

TIMEOUT = 0.5
ALLOWED = 20.0
"""Two polite seconds for the connection, and one for a busy machine."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("close")
    with BrokerProcess(directory) as found:
        yield found


def shut(entrance: Entrance) -> Callable[[FaultProxy], None]:
    def change(proxy: FaultProxy) -> None:
        proxy.hold()
        proxy.let(entrance)

    return change


def drop_all(proxy: FaultProxy) -> None:
    proxy.let(Entrance.DROP)
    proxy.vanish()


FAULTS: dict[str, tuple[Callable[[FaultProxy], None], bool]] = {
    "held": (FaultProxy.hold, False),
    "vanished": (FaultProxy.vanish, False),
    "refused": (shut(Entrance.REFUSE), True),
    "hung": (shut(Entrance.HANG), True),
    "reset": (shut(Entrance.RESET), True),
    "dropped": (drop_all, True),
}
"""What happens to the line, and whether the connection is cut as well, so that close() comes while it connects."""


@pytest.mark.parametrize("name", FAULTS)
def test_close_in_time(broker: BrokerProcess, name: str) -> None:
    fault, cut = FAULTS[name]
    with FaultProxy(broker.port) as proxy:
        connection = Connection(proxy.address, heartbeat=60, connect_timeout=60.0).open(30)
        session = connection.session()
        sender = session.queue_sender(session.declare_queue(exclusive=True), capacity=50)
        sender.send("arrives", timeout=10)
        fault(proxy)
        messages = [Message(str(number)) for number in range(20)]
        for message in messages:
            sender.send(message, sync=False)
        if cut:
            proxy.cut()
            wait_for(lambda: not connection.is_connected)
        assert sender.unsettled() == len(messages)
        began = time.monotonic()
        assert connection.close(TIMEOUT) == messages
        assert time.monotonic() - began < ALLOWED
