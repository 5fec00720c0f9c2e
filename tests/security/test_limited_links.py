"""A user with limited rights is no backup and follows no queue: a replication link shows every message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pika
import pika.exceptions
import pytest

from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from qpidd_py.security.users import hash_password
from tests.support.members import Members
from tests.support.process import BrokerProcess

TIME = 60.0
BACKUP: dict[str, Any] = {"qpid.ha-backup": {"id": "stranger", "epoch": 0}}
FOLLOWER: dict[str, Any] = {"qpid.ha-replica": {"queue": "secret"}}
PASSWORD = "reads"


@pytest.fixture(scope="module", params=["cluster", "alone"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Without a `ha-username`; `reader` may read the queue `public` only."""
    folder = tmp_path_factory.mktemp("limited")
    with ExitStack() as stack:
        if request.param == "cluster":
            members = Members(folder, "--ha-queue-replication", "yes")
            stack.callback(members.close)
            members.up()
            found = members.brokers["a"]
        else:
            found = stack.enter_context(BrokerProcess(folder, "--ha-queue-replication", "yes"))
        with ManagementSocket(Target("127.0.0.1", found.port), Deadline(TIME)) as door:
            door.request("user.put", {"user": "reader", "hash": hash_password(PASSWORD, log2n=4), "tags": []})
            door.request("permission.set", {"user": "reader", "configure": "", "write": "", "read": "^public$"})
        yield found


def enter(broker: BrokerProcess, properties: dict[str, Any]) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        broker.port,
        credentials=pika.PlainCredentials("reader", PASSWORD),
        client_properties=properties,
        socket_timeout=TIME,
    )
    pika.BlockingConnection(parameters).close()


@pytest.mark.parametrize("properties", [BACKUP, FOLLOWER], ids=["backup", "follower"])
def test_a_limited_user_gets_no_link(broker: BrokerProcess, properties: dict[str, Any]) -> None:
    if properties is BACKUP and "--ha-cluster" not in broker.options:
        enter(broker, properties)  # a broker alone has no links to backups: this is a client
        return
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"403.*user .reader. has limited rights"):
        enter(broker, properties)


def test_it_may_enter_as_a_client(broker: BrokerProcess) -> None:
    enter(broker, {})
