"""Limits of users and of the virtual host: in RabbitMQ's words, over a fail-over and a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from qpidd_py.security.users import hash_password
from tests.integration.test_users import Users, channel, refused, restarted
from tests.support.members import TIME
from tests.support.process import BrokerProcess
from tests.support.rabbit import rabbit_cluster
from tests.support.wait import wait_for


@pytest.mark.parametrize("journal", ["no", "yes"])
def test_limits_over_a_fail_over_and_a_restart(tmp_path: Path, journal: str) -> None:
    cluster = Users(tmp_path, "--journal", journal)
    try:
        cluster.up()
        cluster.ctl("add_user", "anna", stdin="secret\n")
        cluster.ctl("set_permissions", "anna", ".*", ".*", ".*")
        cluster.ctl("set_user_limits", "anna", '{"max-connections": 1, "max-channels": 2}')
        cluster.ctl("set_vhost_limits", '{"max-queues": 3}')
        assert "max-nothing" in cluster.ctl("set_user_limits", "anna", '{"max-nothing": 1}', code=1)
        assert "no user" in cluster.ctl("set_user_limits", "nobody", '{"max-channels": 1}', code=1)
        cluster.brokers["a"].kill()
        assert cluster.promote_newest("b", "c") in ("b", "c")
        if journal == "yes":
            restarted(cluster)
        name = next(name for name, state in cluster.states().items() if state in ("active", "recovering"))
        wait_for(lambda: cluster.states()[name] == "active", TIME, lambda: str(cluster.states()))
        rows = cluster.ctl("-q", "list_user_limits", name=name)
        assert rows == 'anna\t{"max-channels": 2, "max-connections": 1}\n'
        assert cluster.ctl("-q", "list_vhost_limits", name=name) == '/\t{"max-queues": 3}\n'
        owner = channel(cluster.brokers[name], "anna", "secret")
        assert "user connection limit (1)" in refused(cluster.brokers[name], "anna", "secret")
        cluster.ctl("clear_user_limits", "anna", "max-connections", name=name)
        assert refused(cluster.brokers[name], "anna", "secret") == ""
        owner.connection.close()
        cluster.ctl("delete_user", "anna", name=name)
        assert cluster.ctl("-q", "list_user_limits", name=name) == ""
    finally:
        cluster.close()


# ---------------------------------------------------------------- RabbitMQ's words


def connect(port: int) -> Any:
    credentials = pika.PlainCredentials("anna", "secret")
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, credentials=credentials, heartbeat=0))


def again(port: int) -> Any:
    """A connection; RabbitMQ counts what has just ended for a moment."""

    def attempt() -> Any:
        try:
            return connect(port)
        except pika.exceptions.AMQPError:
            return None

    return wait_for(attempt, TIME, lambda: said(connect, port))


def said(call: Any, *arguments: Any, **named: Any) -> str:
    """What the broker answers to what is one too many."""
    try:
        call(*arguments, **named)
    except pika.exceptions.AMQPError as error:
        return str(error)
    return ""


def told(port: int) -> list[str]:
    """anna may have 2 channels of one connection, and there may be 1 queue."""
    one = connect(port)
    found = [said(connect, port)]
    one.channel().queue_declare("limited")
    found.append(said(one.channel().queue_declare, "another"))
    one.close()
    two = again(port)
    two.channel().queue_declare("limited")
    found.append(said(two.channel().queue_declare, "", exclusive=True))
    two.close()
    three = again(port)
    three.channel()
    three.channel()
    found.append(said(three.channel))
    return found


def test_the_words_are_rabbitmqs(tmp_path: Path) -> None:
    with rabbit_cluster() as rabbit:
        user, limits = '<<"anna">>', "rabbit_auth_backend_internal"
        rabbit.evaluate(
            f'{limits}:add_user({user}, <<"secret">>, <<"test">>), '
            f'{limits}:set_permissions({user}, <<"/">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>), '
            f'{limits}:set_user_limits({user}, <<"{{\\"max-connections\\":1,\\"max-channels\\":2}}">>, <<"test">>), '
            'rabbit_vhost_limit:parse_set(<<"/">>, <<"{\\"max-queues\\":1}">>, <<"test">>).'
        )
        theirs = told(rabbit.ports[0])
    with BrokerProcess(tmp_path) as broker:
        cluster_user(broker)
        ours = told(broker.port)
    assert all(theirs) and without_names(ours) == without_names(theirs)


def cluster_user(broker: BrokerProcess) -> None:
    with ManagementSocket(Target("127.0.0.1", broker.port, Login("guest", "guest", "")), Deadline(TIME)) as door:
        door.request("user.put", {"user": "anna", "hash": hash_password("secret", log2n=4)})
        door.request("permission.set", {"user": "anna", "configure": ".*", "write": ".*", "read": ".*"})
        door.request("limit.set", {"user": "anna", "limits": {"max-connections": 1, "max-channels": 2}})
        door.request("limit.set", {"vhost": "/", "limits": {"max-queues": 1}})


def without_names(texts: list[str]) -> list[str]:
    """The broker chooses some."""
    return [text.partition("amq.gen-")[0] for text in texts]
