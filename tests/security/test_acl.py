"""A cluster with an ACL file: refusals, the log, reloads by signal and by request, the user of brokers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from qpidd_py.security.users import hash_password
from tests.support import programs
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for, wait_logged

USERS = ("ha", "bob", "kim")
RULES = """\
group staff bob@QPID kim@QPID
quota queues 2 staff
quota queues 100 all
acl allow ha@QPID all all
acl allow staff create queue name=${user}-*
acl allow staff publish exchange name=amq.default routingkey=bob-in
acl allow bob consume queue name=bob-*
acl allow staff access query
acl allow-log bob purge queue name=bob-*
acl deny-log bob create connection host=192.0.2.0,192.0.2.255
"""
REFUSED = "refused: 'kim' from 127.0.0.1:"


class Cluster(Members):
    """`a` and `b`, each with an ACL file of its own."""

    def __init__(self, directory: Path) -> None:
        self.users = directory / "users.yaml"
        self.users.write_text("".join(f"{user}: {hash_password(user, log2n=4)}\n" for user in USERS))
        self.files = {name: directory / f"{name}.acl" for name in "ab"}
        super().__init__(directory, "--user-file", str(self.users), names="ab", login="ha/ha")

    def configure(self, broker: BrokerProcess) -> None:
        super().configure(broker)
        self.files[broker.name].write_text(RULES)
        broker.options = [*broker.options, "--acl-file", str(self.files[broker.name])]

    def ask(self, name: str, method: str, user: str = "ha", **arguments: Any) -> Any:
        with ManagementSocket(Target("127.0.0.1", self.brokers[name].port, Login(user, user)), Deadline(TIME)) as door:
            return door.request(method, arguments)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("acl"))
    try:
        found.up()
        yield found
    finally:
        found.close()


@pytest.fixture
def primary(cluster: Cluster) -> Iterator[BrokerProcess]:
    """With the rules of the beginning, and no queue."""
    yield cluster.brokers["a"]
    cluster.files["a"].write_text(RULES)
    cluster.ask("a", "acl.reload")
    for queue in cluster.ask("a", "queue.list"):
        cluster.ask("a", "queue.delete", queue=queue["name"])


def opened(broker: BrokerProcess, user: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, user)
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials, socket_timeout=TIME)
    return pika.BlockingConnection(parameters)


def refused(channel: Any, work: Any) -> str:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        work(channel)
    assert caught.value.reply_code == 403
    return str(caught.value.reply_text)


def tool(program: str, broker: BrokerProcess, *words: str, user: str = "ha", code: int = 0) -> str:
    command = [sys.executable, "-m", f"qpidd_py.cli.{program}", *words, "-b", f"{user}/{user}@{broker.address}"]
    done = programs.run(command, capture_output=True, text=True, timeout=TIME)
    assert done.returncode == code, done
    return str(done.stdout)


def test_what_is_refused_and_logged(cluster: Cluster, primary: BrokerProcess) -> None:
    with opened(primary, "bob") as bob, opened(primary, "kim") as kim:
        bob.channel().queue_declare("bob-in")
        text = refused(kim.channel(), lambda channel: channel.queue_declare("bob-in"))
        assert text == "ACCESS_REFUSED - access to queue 'bob-in' in vhost '/' refused for user 'kim'"
        line = next(line for line in primary.log.splitlines() if REFUSED in line)
        assert "warning: " in line and line.endswith(
            f" may not create queue 'bob-in' ({cluster.files['a']} no rule allows it): 403"
        )
        sending = kim.channel()
        sending.confirm_delivery()
        sending.basic_publish("", "bob-in", b"m")
        for key, headers in (("kim-in", None), ("bob-in", {"BCC": ["kim-in"]})):
            sending = kim.channel()
            sending.confirm_delivery()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"access to exchange 'amq\.default'"):
                sending.basic_publish("", key, b"m", pika.BasicProperties(headers=headers))
        assert refused(kim.channel(), lambda channel: channel.basic_get("bob-in"))
        reading = bob.channel()
        assert reading.basic_get("bob-in", auto_ack=True)[2] == b"m"
        bob.channel().queue_purge("bob-in")
        wait_logged(primary, "allowed: 'bob' from 127.0.0.1:", "may purge queue 'bob-in'")
        bob.channel().queue_declare("bob-2")
        assert "quota queues (2) is reached" in refused(bob.channel(), lambda channel: channel.queue_declare("bob-3"))
        assert primary.log.count(REFUSED) == 4, "one line for each"


def test_reload_by_request_is_for_administrators(cluster: Cluster, primary: BrokerProcess) -> None:
    """And the one that is there keeps its old rules if the file is wrong."""
    file = cluster.files["a"]
    with opened(primary, "kim") as kim:
        assert refused(kim.channel(), lambda channel: channel.exchange_declare("news"))
        file.write_text(
            "acl allow kim create exchange name=news\n" + RULES.replace("group", "#group").replace("staff", "kim")
        )
        assert refused(kim.channel(), lambda channel: channel.exchange_declare("news"))
        for user in ("kim", "bob"):
            answer = tool("qpid_config", primary, "reload-acl", user=user, code=1)
            assert f"acl.reload: user '{user}' is no administrator" in answer
        answer = tool("qpid_config", primary, "reload-acl")
        assert answer == f"{file} is in force, rules: 8\n"
        channel = kim.channel()
        channel.exchange_declare("news")
        shown = json.loads(tool("qpid_stat", primary, "--acl", "--json"))
        assert (shown["file"], shown["rules"], shown["quotas"]["queues"]) == (str(file), 8, {"kim@QPID": 2, "all": 100})
        assert "denials:" in tool("qpid_stat", primary, "--acl", user="kim")

        file.write_text(f"{RULES}acl allow kim paint queue\n")
        wrong = f"option acl-file: {file} line 11: found 'paint', expected one of access"
        assert wrong in tool("qpid_config", primary, "reload-acl", code=1)
        wait_logged(primary, f"error: acl.reload: nothing is changed: {wrong}")
        kim.channel().exchange_declare("news")


def test_reload_by_signal(cluster: Cluster, primary: BrokerProcess) -> None:
    file = cluster.files["a"]

    def hang_up(said: str) -> None:
        before = primary.log.count(said)
        primary.signal(signal.SIGHUP)
        wait_for(lambda: primary.log.count(said) > before, TIME, lambda: primary.log)

    read, kept = "SIGHUP: log rules, user file and certificates are read", "SIGHUP: nothing is changed"
    with opened(primary, "kim") as kim:
        for wrong in ("acl allow kim all\n", f"{RULES}acl\n", "acl deny all create connection host=all\n" + RULES):
            file.write_text(wrong)  # the user of brokers would be limited; a line is wrong; it could not connect
            hang_up(kept)
        file.unlink()
        hang_up(kept)
        wait_logged(primary, "expected `acl allow ha all all` before it", "that ha may connect from nowhere")
        wait_logged(primary, f"cannot read {file}: No such file")
        assert refused(kim.channel(), lambda channel: channel.queue_declare("any"))
        file.write_text(f"acl allow kim create queue name=any\n{RULES}")
        hang_up(read)
        kim.channel().queue_declare("any")
    cluster.settled("a")


def test_only_who_may_do_everything_gets_a_link(cluster: Cluster, primary: BrokerProcess) -> None:
    credentials = pika.PlainCredentials("kim", "kim")
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        primary.port,
        credentials=credentials,
        client_properties={"qpid.ha-backup": {"id": "x", "epoch": 0}},
    )
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"user .kim. has limited rights"):
        pika.BlockingConnection(parameters)


def test_rules_hold_on_the_next_primary(cluster: Cluster, primary: BrokerProcess) -> None:
    """A client is judged by the file there; queues count for who has declared them, wherever that was."""
    with opened(primary, "kim") as kim:
        for name in ("kim-1", "kim-2"):
            kim.channel().queue_declare(name)
    other = cluster.brokers["b"]
    cluster.ask("a", "ha.relocate", to=other.address)
    cluster.settled("b")
    with opened(other, "kim") as kim:
        assert "access to queue" in refused(kim.channel(), lambda channel: channel.queue_declare("other"))
        assert "quota queues (2)" in refused(kim.channel(), lambda channel: channel.queue_declare("kim-3"))
    cluster.ask("b", "ha.relocate", to=primary.address)
    cluster.settled("a")


WRONG = {
    "acl allow bob all\nacl permit": "{} line 2: found 'acl permit', expected acl PERMISSION USER ACTION",
    "acl allow bob all\n": "found in {} that no rule allows it, expected `acl allow ha all all`",
    "acl deny all access method\nacl allow ha all\n": "found in {} line 1, 'acl deny all access method', expected",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_start_with_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    """And `--check-config` says it."""
    file = tmp_path / "x.acl"
    file.write_text(text)
    options = ("--ha-cluster", "yes", "--ha-brokers-url", "127.0.0.1:1", "--ha-username", "ha", "--ha-password", "ha")
    broker = BrokerProcess(tmp_path, *options, "--ha-address", "127.0.0.1:1", "--acl-file", str(file))
    try:
        assert broker.spawn().wait() == 1
        wait_logged(broker, f"cannot start: option acl-file: {WRONG[text].format(file)}")
    finally:
        broker.close()
    checked = programs.run([*broker.command(), "--check-config"], stderr=subprocess.PIPE, text=True, timeout=TIME)
    assert checked.returncode == 1 and WRONG[text].format(file) in checked.stderr


def test_names_that_are_not_checked_have_no_rules(tmp_path: Path) -> None:
    file = tmp_path / "x.acl"
    file.write_text("acl allow all all\n")
    broker = BrokerProcess(tmp_path, "--auth", "no", "--acl-file", str(file))
    try:
        assert broker.spawn().wait() == 1
        wait_logged(broker, f"option acl-file: found {file} with auth=no, expected auth=yes")
    finally:
        broker.close()
