"""ANONYMOUS is offered when there is a user for it, and gives no more rights than that user's permission."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from client_lib import Connection, ConnectionError, ServerError
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.security.users import hash_password
from tests.support import programs
from tests.support.process import BrokerProcess

TIME = 60.0
MakeBroker = Callable[..., BrokerProcess]


@contextmanager
def door(broker: BrokerProcess, **login: str) -> Iterator[Any]:
    with ManagementSocket(Target("127.0.0.1", broker.port, Login(**login)), Deadline(TIME)) as found:
        yield found.request


def mechanisms(broker: BrokerProcess) -> list[str]:
    with pytest.raises(BrokerError) as caught, door(broker, mechanism="EXTERNAL"):
        pass
    return str(caught.value).partition("offered ")[2].split()


def entered(broker: BrokerProcess) -> Connection:
    return Connection(broker.address, sasl_mechanisms="ANONYMOUS", reconnect=False).open(TIME)


def test_it_is_off_by_default(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    assert "ANONYMOUS" not in mechanisms(broker)
    with pytest.raises(ConnectionError, match="ANONYMOUS"):
        entered(broker)


def test_without_logins_it_is_one_way_to_enter(make_broker: MakeBroker) -> None:
    broker = make_broker("--auth", "no").start()
    with entered(broker) as connection:
        connection.session().declare_queue("q", timeout=TIME)
    with door(broker, mechanism="ANONYMOUS") as ask:
        assert ask("user.self", {})["name"] == "anonymous"


def test_it_has_the_rights_of_its_user(make_broker: MakeBroker) -> None:
    broker = make_broker("--anonymous-user", "visitor").start()
    assert "ANONYMOUS" in mechanisms(broker)
    with pytest.raises(ConnectionError, match="530"):
        entered(broker)
    with door(broker) as ask:
        ask("user.put", {"user": "visitor", "hash": "", "tags": []})
        ask("permission.set", {"user": "visitor", "configure": "", "write": "", "read": "^news$"})
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        for name in ("news", "secret"):
            connection.channel().queue_declare(name)
            connection.channel().basic_publish("", name, b"m")
    with entered(broker) as connection:
        assert connection.session().queue_receiver("news", timeout=TIME).fetch(TIME).body == b"m"
        with pytest.raises(ServerError, match="access to queue 'secret'"):
            connection.session().queue_receiver("secret", timeout=TIME)
        with pytest.raises(ServerError, match="access to queue 'mine'"):
            connection.session().declare_queue("mine", timeout=TIME)
    with door(broker, mechanism="ANONYMOUS") as ask, pytest.raises(RequestRefused, match="has no tag"):
        ask("queue.list", {})


def test_a_secret_is_not_asked_for(make_broker: MakeBroker) -> None:
    """connection.update-secret is answered, as for a certificate."""
    broker = make_broker("--auth", "no").start()

    class Nobody(pika.PlainCredentials):  # type: ignore[misc]
        TYPE = "ANONYMOUS"

        def response_for(self, _start: Any) -> tuple[str, bytes]:
            return "ANONYMOUS", b"trace"

    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, credentials=Nobody("", ""))
    with pika.BlockingConnection(parameters) as connection:
        connection.update_secret("anything", "because")
        connection.channel().queue_declare("q")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--anonymous-user", "guest"], "found guest, who is in the user file or guest"),
        (["--user-file", "users.yaml", "--anonymous-user", "bob"], "found bob, who is in the user file"),
        (
            ["--user-file", "users.yaml", "--anonymous-user", "ha", "--ha-username", "ha", "--ha-password", "x"],
            "found ha, as ha-username",
        ),
    ],
    ids=["guest", "user-file", "ha-username"],
)
def test_users_with_more_rights_are_refused(tmp_path: Path, options: list[str], text: str) -> None:
    (tmp_path / "users.yaml").write_text(f"bob: {hash_password('bob', log2n=4)}\n")
    command = [sys.executable, "-m", "qpidd_py", "--port", "0", "--interface", "127.0.0.1", *options]
    done = programs.run(command, capture_output=True, text=True, timeout=TIME, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode != 0 and text in done.stderr, done
