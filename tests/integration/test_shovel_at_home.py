"""A run of a shovel stays at the broker beside its worker: another primary has a worker of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_lib import MessagingError
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Target
from qpidd_py.shovel.beside import Broker
from qpidd_py.shovel.run import Run
from tests.integration.test_shovel import depth, publish, up, url
from tests.integration.test_users import Users
from tests.support.members import TIME
from tests.support.wait import stays, wait_for

USER, PASSWORD = "ha", "ha-password"


@contextlib.contextmanager
def running(run: Run) -> Iterator[list[str]]:
    """In a thread; why it has ended."""
    ended: list[str] = []

    def work() -> None:
        try:
            asyncio.run(run.move())
        except MessagingError as error:
            ended.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield ended
    thread.join(TIME)
    assert not thread.is_alive()


@pytest.mark.parametrize("end", ["src-uri", "dest-uri"])
def test_a_run_does_not_follow_to_another_primary(tmp_path: Path, end: str) -> None:
    """Two runs beside two brokers would take messages of one queue, and later ones would be faster."""
    with up(tmp_path / "near", "ab") as near, up(tmp_path / "far", "a") as far:
        source, destination = (near, far) if end == "src-uri" else (far, near)
        value = {
            "src-uri": url(source),
            "src-queue": "q",
            "dest-uri": url(destination),
            "dest-queue": "q",
            end: "amqp://",
        }
        run = Run("s", "/", value, beside(near, "a").address)
        publish(source, "q", [1])
        with running(run) as ended:
            wait_for(lambda: run.moved == 1, TIME, lambda: f"{run.trouble} {ended}")
            near.tool("relocate", "--to", "b")
            wait_for(lambda: near.states()["b"] == "active", TIME)
            publish(source, "q", [2])
            name = "b" if source is near else "a"
            wait_for(lambda: depth(source, name, "q") == (1, 0), TIME, lambda: str(depth(source, name, "q")))
            assert wait_for(lambda: ended, TIME)
            assert stays(lambda: depth(source, name, "q") == (1, 0), 0.5)
        assert run.moved == 1


def beside(cluster: Users, name: str, host: str = "127.0.0.1") -> Broker:
    broker = cluster.brokers[name]
    return Broker(Target(host, broker.port, Login(USER, PASSWORD), None), TIME)


def test_the_broker_may_be_called_by_another_name(tmp_path: Path) -> None:
    """Its cluster knows it by its address."""
    with up(tmp_path / "near", "ab") as near:
        value = {
            "src-uri": "amqp://",
            "src-queue": "q",
            "dest-uri": "amqp://",
            "dest-queue": "r",
            "src-delete-after": 1,
        }
        publish(near, "q", [1])
        run = Run("s", "/", value, beside(near, "a", "localhost").address)
        with running(run) as ended:
            pass
        assert (run.moved, ended) == (1, []) and depth(near, "a", "r") == (1, 0)


def test_a_run_that_begins_at_a_backup_ends(tmp_path: Path) -> None:
    """The backup names the primary."""
    with up(tmp_path / "near", "ab") as near:
        value = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "r"}
        publish(near, "q", [1])
        with running(Run("s", "/", value, beside(near, "b").address)) as ended:
            assert wait_for(lambda: ended, TIME)
        assert depth(near, "a", "q") == (1, 0)
