"""What acceptance tests do to a cluster: publish, take and look with plain pika, and call the tools."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.cluster import TIMEOUT, Member
from tests.support import programs
from tests.support.wait import wait_for

# ---- looking


def assert_browse_backup(member: Member, queue: str, expected: Iterable[object], timeout: float = TIMEOUT) -> None:
    """The queue holds exactly these bodies, in this order, within `timeout` seconds: replication takes its time."""
    wanted = [str(body) for body in expected]
    found: list[str] | str = ""

    def same() -> bool:
        nonlocal found
        try:
            found = member.peek(queue)
        except RequestRefused as error:
            found = str(error)
        return found == wanted

    with contextlib.suppress(AssertionError):
        wait_for(same, timeout)
    assert found == wanted, f"queue {queue} of {member.name}"


def wait_no_queue(member: Member, queue: str, timeout: float = TIMEOUT) -> None:
    wait_for(lambda: queue not in member.queues(), timeout, f"no queue {queue} on {member.name}")


def wait_queue(member: Member, queue: str, timeout: float = TIMEOUT) -> None:
    wait_for(lambda: queue in member.queues(), timeout, f"queue {queue} on {member.name}")


# ---- tools


def tool(module: str, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output of a command-line tool; it never writes to standard error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QPID_")}
    command = [sys.executable, "-m", module, *arguments]
    result = programs.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert result.stderr == ""
    return result.returncode, result.stdout


def qpid_ha(*arguments: str) -> tuple[int, str]:
    return tool("ha.qpid_ha.main", *arguments)


def qpid_config(*arguments: str) -> tuple[int, str]:
    return tool("qpidd_py.cli.qpid_config", *arguments)


# ---- what plain clients do


def publish(
    channel: BlockingChannel, routing_key: str, bodies: Iterable[object], exchange: str = "", **properties: Any
) -> None:
    """Each message confirmed (on a channel in confirm mode) and routed.  A nack or return is an exception of pika."""
    options = pika.BasicProperties(delivery_mode=2, **properties)
    for body in bodies:
        channel.basic_publish(exchange, routing_key, str(body).encode(), options, mandatory=True)


def take(channel: BlockingChannel, queue: str, count: int, ack: bool = True, timeout: float = TIMEOUT) -> list[str]:
    """The next `count` bodies, by basic.get."""
    bodies: list[str] = []

    def one() -> bool:
        method, _, body = channel.basic_get(queue, auto_ack=False)
        if method is not None:
            bodies.append(body.decode())
            if ack:
                channel.basic_ack(method.delivery_tag)
        return len(bodies) == count

    if count:
        wait_for(one, timeout, lambda: f"{count} messages of {queue}, got {bodies}", poll=0.0)
    return bodies


def exists(channel_of: Member, queue: str = "", exchange: str = "", admin: bool = False) -> bool:
    """A passive declaration succeeds."""
    with channel_of.channel(admin=admin, confirm=False) as channel:
        try:
            if queue:
                channel.queue_declare(queue, passive=True)
            else:
                channel.exchange_declare(exchange, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            assert error.reply_code == 404, error
            return False
    return True
