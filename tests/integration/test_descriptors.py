"""Clients take all file descriptors: they are refused, and clients that are there, links and administrators go on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika
import psutil
import pytest

from tests.support.members import Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

LIMIT = 96


class Few(BrokerProcess):
    """With few descriptors (`ulimit -n`)."""

    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={LIMIT}", *super().command()]


def connect(port: int, **properties: object) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters("127.0.0.1", port, client_properties=properties, socket_timeout=30)
    return pika.BlockingConnection(parameters)


@contextmanager
def many(port: int, most: int = 2 * LIMIT) -> Iterator[list[str]]:
    """As many clients as are admitted; what the first one that was refused got."""
    with ExitStack() as stack:
        refusal: list[str] = []
        for _ in range(most):
            try:
                stack.callback(connect(port)._impl._transport.abort)
            except pika.exceptions.AMQPConnectionError as error:
                refusal.append(repr(error))
                break
        yield refusal


def test_without_descriptors_clients_are_refused_and_the_others_go_on(tmp_path: Path) -> None:
    members = Members(tmp_path, names="ab", process=Few)
    try:
        members.up()
        port = members.brokers["a"].port
        with connect(port) as early, many(port) as refusal:
            assert "506" in refusal[0] and "no file descriptors left for clients" in refusal[0]
            channel = early.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", b"1")
            status = members.ask("a", "ha.status")
            assert list(status["alarms"]) == ["descriptors"]
            assert "ulimit -n" in status["alarms"]["descriptors"]
            with strangers(port):
                assert members.ask("a", "ha.status")["state"] == "active", "who shakes no hands gives way"
                members.brokers["b"].stop()
                members.brokers["b"].start()
                members.settled("a")
                channel.basic_publish("", "q", b"2")
                busy = psutil.Process(members.brokers["a"].pid).cpu_percent(0.5)
                assert busy < 50, "it does not spin"
        wait_for(lambda: not members.ask("a", "ha.status")["alarms"])
        connect(port).close()
    finally:
        members.close()


@contextmanager
def strangers(port: int) -> Iterator[None]:
    """Connections that say nothing, more than there are descriptors."""
    with ExitStack() as stack:
        for _ in range(LIMIT):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        yield


@pytest.mark.parametrize("limit", [64, 40])
def test_a_broker_with_hardly_any_descriptors_lives(tmp_path: Path, limit: int) -> None:
    class Fewer(BrokerProcess):
        def command(self) -> list[str]:
            return ["prlimit", f"--nofile={limit}", *super().command()]

    with Fewer(tmp_path) as broker, connect(broker.port) as early, strangers(broker.port):
        channel = early.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"1")
        wait_for(lambda: channel.basic_get("q", auto_ack=True)[2] == b"1")
        assert broker.running
