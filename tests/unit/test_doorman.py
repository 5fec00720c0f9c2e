"""The doorman leaves: nobody is kept, and who comes then waits for the broker."""

import gc
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from qpidd_py import doorman
from qpidd_py.broker.broker import Broker
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.config import GROUPS, BrokerSettings, NetworkSettings
from qpidd_py.core import Engine
from qpidd_py.doorman import Doorman, Ports
from qpidd_py.options import load
from qpidd_py.server.listener import listening_sockets
from qpidd_py.store.progress import Progress
from tests.support.wait import wait_for

HEADER = b"AMQP\x00\x00\x09\x01"


def ended(client: socket.socket) -> bool:
    """It reads to the end."""
    client.settimeout(10)
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.fixture
def uncollected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No garbage is collected, as while a broker reads."""
    with monkeypatch.context() as patched:
        patched.setattr(gc, "collect", lambda: 0)
        gc.disable()
        yield
        gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_it_leaves_nobody_behind_and_the_ports_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorman, "GRACE", 0.0)
    settings = load(GROUPS, ["--no-data-dir", "yes"], {}, "/none")
    (listening,) = listening_sockets(("127.0.0.1",), 0, 10)
    place = listening.getsockname()
    ports = Ports([listening], [], None, settings[NetworkSettings], settings[BrokerSettings], None, {})
    begun: list[str] = []

    def refuse(*request: Any) -> bool:
        return False

    found = Doorman(
        lambda: Broker("here", engine=Engine()), ports, Progress(), refuse, lambda work: work(), begun.append
    )
    found.start()
    wait_for(lambda: begun, 30, "it answers")
    with listening, socket.create_connection(place) as silent, socket.create_connection(place) as slow:
        slow.sendall(HEADER)
        assert slow.recv(65536), "the server's greeting"
        admin = ManagementSocket(Target("127.0.0.1", place[1]), Deadline(30))
        with pytest.raises(
            RequestRefused, match=r"queue\.list: here is reading its journal: open the journal"
        ) as refusal:
            admin.request("queue.list")
        assert refusal.value.code == 320, "it is worth asking again: qpid-http says 503"
        began = time.monotonic()
        found.stop()
        assert time.monotonic() - began < 10
        assert ended(silent)
        assert ended(slow)
        assert ended(admin._socket), "it has not answered our close"
        with socket.create_connection(place) as late:
            late.sendall(HEADER)
            assert select.select([late], [], [], 0.2)[0] == [], "it waits"
            assert listening.accept()[0].recv(65536) == HEADER
