"""Links without sessions, on loops in threads, and brokers for them; all ended at the end of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from client_lib.connecting.flights import Flights
from client_lib.connecting.transport import thread_loop
from client_lib.link.link import Link, LinkState
from client_lib.message import Message
from client_lib.monitor import ThreadMonitor
from client_lib.options import Options
from client_lib.urls.url import Endpoint, parse_url
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker, Store

QUICK: dict[str, Any] = {
    "reconnect_interval_min": 0.005,
    "reconnect_interval_max": 0.05,
    "heartbeat": 1,
    "connect_timeout": 60.0,
}
"""An attempt that hangs costs a minute: more than any deadline here, so that a loaded machine is not taken for one."""

CALM: dict[str, Any] = {"connect_overlap": 30.0}
"""No place is tried while another one is slow: on a loaded machine, too, they are tried in their order."""


class LinkLab:
    def __init__(self) -> None:
        self.store = Store()
        self.brokers: list[ScriptedBroker] = []
        self.sockets: list[socket.socket] = []
        self.links: list[tuple[Link, threading.Thread]] = []
        self.events: list[dict[str, Any]] = []

    def broker(self, mode: str = "normal") -> ScriptedBroker:
        broker = ScriptedBroker(self.store, f"b{len(self.brokers)}", mode)
        self.brokers.append(broker)
        return broker

    def swallower(self) -> Endpoint:
        """A port whose SYNs are swallowed: the queue of connections that are not accepted is full."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.sockets.append(listener)
        where = listener.getsockname()
        for _ in range(2):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(where)
            self.sockets.append(filler)
        return Endpoint("127.0.0.1", where[1])

    def drain(self, address: Endpoint) -> None:
        """Makes room in that queue."""
        listener = next(s for s in self.sockets if s.getsockname() == (address.host, address.port))
        for _ in range(2):
            listener.accept()[0].close()

    def link(self, *where: ScriptedBroker | Endpoint | str, **options: Any) -> Link:
        """Connecting."""
        addresses = [_address(place) for place in where]
        loop, monitor = thread_loop(), ThreadMonitor()
        on_event: Any = self.events.append
        link = Link(addresses, Options(**{**QUICK, "on_event": on_event, **options}), loop, monitor)
        thread = threading.Thread(target=loop.run, daemon=True)
        self.links.append((link, thread))
        link.start()
        thread.start()
        return link

    def connected(self, *where: ScriptedBroker | Endpoint | str, **options: Any) -> Link:
        link = self.link(*where, **options)
        wait_for(lambda: link.state is LinkState.CONNECTED, 60, lambda: str(self.events))
        return link

    def connected_to(self, first: ScriptedBroker, *where: ScriptedBroker | Endpoint | str) -> Link:
        """Connected to the first place, however slow it is; from then on a place that hangs costs the usual overlap."""
        link = self.connected(first, *where, **CALM)
        planner, policy = link._dialer._planner, Options(**QUICK).retry_policy()
        planner._policy, planner._flights = policy, Flights(policy.connect_overlap)
        return link

    def times(self, kind: str) -> list[float]:
        """Seconds, of `time.monotonic`."""
        return [event["ts_mono"] / 1e6 for event in self.events if event["kind"] == kind]

    def peers(self, kind: str) -> list[str]:
        return [event["peer"] for event in self.events if event["kind"] == kind]

    def results(self) -> list[str]:
        return [event["result"] for event in self.events if event["kind"] == "connect_refused"]

    def close(self) -> None:
        for link, thread in self.links:
            left: list[Message] = []
            link.post(lambda link=link, left=left: link.shut_down(left, 0.2, link._loop.stop))  # type: ignore[misc]
            thread.join(30)
            assert not thread.is_alive(), "the loop did not end"
            link._loop.close()
        for broker in self.brokers:
            broker.kill()
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.close()


def _address(place: ScriptedBroker | Endpoint | str) -> Endpoint:
    if isinstance(place, Endpoint):
        return place
    return parse_url(place if isinstance(place, str) else place.url)


def elapsed(began: float) -> float:
    return time.monotonic() - began


@pytest.fixture
def links() -> Iterator[LinkLab]:
    lab = LinkLab()
    try:
        yield lab
    finally:
        lab.close()
