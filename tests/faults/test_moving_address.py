"""One address, or one name, for the whole cluster: it goes where the primary is.

The clients know nothing else; what a backup says about the primary's own address is translated to the common one, as if
`ha-public-url` named it.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from client_lib.connecting import lookup
from tests.faults.load import Group, Load
from tests.faults.scene import QpiddScene, addresses
from tests.support.fault_proxy import Entrance, FaultProxy

GROUPS = (Group("single", drop_duplicates=True), Group("crowd", senders=2, receivers=2))
NAME = "broker.example"


def port_of(scene: QpiddScene, node: str) -> int:
    return int(scene.cluster.node(node)["address"].rpartition(":")[2])


@contextmanager
def common(scene: QpiddScene, at: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[FaultProxy]:
    """An address before the primary of now."""
    with FaultProxy(port_of(scene, scene.active()), at=at) as proxy:
        proxy.translate({node["address"]: f"127.0.0.1:{proxy.port}" for node in scene.cluster.status()["nodes"]})
        yield proxy


@pytest.mark.parametrize("farewell", ["reset", "silence"])
def test_an_address_that_moves(qpidd: QpiddScene, farewell: str) -> None:
    """With `silence` the host that had the address is gone: no host resets, SYNs are lost until it is there again."""
    qpidd.whole()
    with (
        common(qpidd) as proxy,
        Load(proxy.address, f"moving.{farewell}", GROUPS, audit=lambda: addresses(qpidd)) as load,
    ):
        for _ in range(2):
            load.run_on(50)
            old = qpidd.active()
            if farewell == "silence":
                proxy.let(Entrance.DROP)
                proxy.vanish()
            qpidd.kill(old)
            qpidd.relocated(old)
            proxy.move(port_of(qpidd, qpidd.active()))
            if farewell == "reset":
                proxy.cut()
            proxy.let(Entrance.OPEN)
            load.run_on(50)
            qpidd.whole()
        load.verdict()


def test_a_name_that_changes(qpidd: QpiddScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has one address, then another one, then both, of which the first is dead."""
    qpidd.whole()
    answers = ["127.0.0.1"]

    def answer(host: str, *_: object) -> list[tuple[object, ...]]:
        assert host == NAME
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in answers]

    monkeypatch.setattr(lookup, "getaddrinfo", answer)
    with (
        common(qpidd) as one,
        common(qpidd, ("127.0.0.2", one.port)) as other,
        Load(f"{NAME}:{one.port}", "name", GROUPS, audit=lambda: addresses(qpidd)) as load,
    ):
        load.run_on(50)
        answers[:] = ["127.0.0.2"]
        one.let(Entrance.DROP)
        one.vanish()
        load.run_on(50)
        old = qpidd.active()
        qpidd.kill(old)
        qpidd.relocated(old)
        for proxy in (one, other):
            proxy.move(port_of(qpidd, qpidd.active()))
        one.let(Entrance.OPEN)
        answers[:] = ["127.0.0.1"]
        load.run_on(50)
        answers[:] = ["127.0.0.2", "127.0.0.1"]
        other.let(Entrance.DROP)
        one.cut()
        load.run_on(50)
        load.verdict()
