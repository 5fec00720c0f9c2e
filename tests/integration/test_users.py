"""Users of the cluster: made with qpidctl, in force on the next primary, and back after a restart of all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pika
import pytest

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.security.users import hash_password
from tests.support import programs
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

LOGIN = "ha/ha-password"


class Users(Members):
    """A cluster with a user of its own, and a user file."""

    def __init__(self, directory: Path, *options: str, **settings: Any) -> None:
        self.file = directory / "users.yaml"
        self.file.write_text(f"bob: {hash_password('bob', log2n=4)}\nha: {hash_password('ha-password', log2n=4)}\n")
        super().__init__(directory, *options, "--user-file", str(self.file), login=LOGIN, **settings)

    def ctl(self, *words: str, name: str = "a", code: int = 0, login: str = LOGIN, stdin: str = "") -> str:
        """What qpidctl prints."""
        url = f"{login}@{self.brokers[name].address}"
        command = [sys.executable, "-m", "qpidd_py.cli.qpidctl", "-b", url, *words]
        done = programs.run(command, capture_output=True, text=True, timeout=TIME, input=stdin)
        assert done.returncode == code, done
        return str(done.stdout)

    def ask(self, name: str, method: str, **arguments: Any) -> Any:
        target = Target("127.0.0.1", self.brokers[name].port, Login("ha", "ha-password", ""))
        with ManagementSocket(target, Deadline(TIME)) as connection:
            return connection.request(method, arguments)


def channel(broker: BrokerProcess, user: str, password: str) -> Any:
    credentials = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials)
    return pika.BlockingConnection(parameters).channel()


def refused(broker: BrokerProcess, user: str, password: str) -> str:
    try:
        connection = channel(broker, user, password).connection
    except pika.exceptions.AMQPConnectionError as error:
        return f"{type(error).__name__}: {error}"
    connection.close()
    return ""


@pytest.mark.parametrize("journal", ["no", "yes"])
def test_a_user_over_a_fail_over_and_a_restart(tmp_path: Path, journal: str) -> None:
    cluster = Users(tmp_path, "--journal", journal)
    try:
        cluster.up()
        a = cluster.brokers["a"]
        cluster.ctl("add_user", "anna", stdin="secret\n")
        assert "530" in refused(a, "anna", "secret"), "no permission yet"
        cluster.ctl("set_permissions", "anna", "^orders", "^(orders|amq.default)", "^orders")
        cluster.ctl("set_user_tags", "anna", "monitoring")
        assert "exists already" in cluster.ctl("add_user", "anna", "other", code=1)
        orders = channel(a, "anna", "secret")
        orders.queue_declare("orders", durable=True)
        a.kill()
        assert cluster.promote_newest("b", "c") in ("b", "c")
        primary = cluster.brokers[next(name for name, state in cluster.states().items() if state != "ready")]
        orders = channel(primary, "anna", "secret")
        orders.confirm_delivery()
        orders.basic_publish("", "orders", b"kept")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="access to queue 'other'"):
            orders.connection.channel().queue_declare("other")
        assert refused(primary, "anna", "wrong") and refused(primary, "nobody", "secret")
        if journal == "yes":
            restarted(cluster)
        name = next(name for name, broker in cluster.brokers.items() if broker.running and accepts(broker))
        assert cluster.ctl("list_users", name=name) == "user\ttags\nanna\t[monitoring]\nbob\t[]\nha\t[]\n"
        heads, row = "user\tconfigure\twrite\tread", "anna\t^orders\t^(orders|amq.default)\t^orders"
        assert cluster.ctl("list_permissions", name=name) == f"{heads}\n{row}\n"
        cluster.ctl("delete_user", "anna", name=name)
        wait_for(lambda: refused(cluster.brokers[name], "anna", "secret"), what="anna is gone")
    finally:
        cluster.close()


def accepts(broker: BrokerProcess) -> bool:
    return not refused(broker, "anna", "secret")


def restarted(cluster: Users) -> None:
    """All end at once and come back."""
    for broker in cluster.brokers.values():
        if broker.running:
            broker.kill()
    for broker in cluster.brokers.values():
        broker.start()
    name = cluster.promote_newest("b", "c", "a")
    wait_for(lambda: cluster.states()[name] == "active", TIME, lambda: str(cluster.states()))


def test_who_may_change_users(tmp_path: Path) -> None:
    cluster = Users(tmp_path, names="ab")
    try:
        cluster.up()
        assert "'bob' is no administrator" in cluster.ctl("add_user", "eve", "x", login="bob/bob", code=1)
        assert "this broker is a backup" in cluster.ctl("add_user", "eve", "x", name="b", code=1)
        assert "no user 'bob' of the cluster" in cluster.ctl("clear_password", "bob", code=1)
        cluster.ctl("add_user", "root", "x")
        cluster.ctl("set_permissions", "root", "", "", "")
        cluster.ctl("set_user_tags", "root", "administrator")
        cluster.ctl("add_user", "eve", "x", login="root/x")
        with pytest.raises(RequestRefused, match="no user 'nobody'"):
            cluster.ask("a", "permission.clear", user="nobody")
        assert "user 'eve' is deleted" in closed_after_delete(cluster)
    finally:
        cluster.close()


def closed_after_delete(cluster: Users) -> str:
    cluster.ctl("set_permissions", "eve", ".*", ".*", ".*")
    connection = channel(cluster.brokers["a"], "eve", "x").connection
    cluster.ctl("delete_user", "eve")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as found:
        connection.process_data_events(TIME)
        connection.process_data_events(TIME)
    return str(found.value)


def test_an_archive_has_the_users(tmp_path: Path) -> None:
    cluster = Users(tmp_path, names="a")
    try:
        cluster.up()
        cluster.ctl("add_user", "anna", "secret")
        cluster.ctl("set_permissions", "anna", ".*", ".*", ".*")
        archive = tmp_path / "archive"
        cluster.tool("backup", str(archive))
        assert "not empty" in cluster.tool("restore", str(archive), code=1), "a user is content, too"
    finally:
        cluster.close()
    (tmp_path / "new").mkdir()
    cluster = Users(tmp_path / "new", names="a")
    try:
        cluster.up()
        cluster.tool("restore", str(archive))
        assert refused(cluster.brokers["a"], "anna", "secret") == ""
    finally:
        cluster.close()
