"""Virtual hosts of real brokers: over a fail-over and a restart, with the tools and the HTTP API, put aside, copied."""

from __future__ import annotations

import json
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from qpidd_py.cli.qpidd_journal import main as qpidd_journal
from qpidd_py.store.archive import decode_message
from qpidd_py.store.archive_file import ArchiveFile
from tests.integration.test_http_api import Api, serving
from tests.integration.test_salvage import Pair
from tests.support import programs
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

HOSTS = ("/", "shop", "a/b ü")
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect(broker: BrokerProcess, vhost: str) -> Any:
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, vhost, socket_timeout=TIME)
    channel = pika.BlockingConnection(parameters).channel()
    channel.confirm_delivery()
    return channel


def ctl(broker: BrokerProcess, *words: str, code: int = 0) -> list[str]:
    """The lines that qpidctl prints."""
    command = [sys.executable, "-m", "qpidd_py.cli.qpidctl", "-b", broker.address, "-q", *words]
    done = programs.run(command, capture_output=True, text=True, timeout=TIME)
    assert done.returncode == code, done
    return str(done.stdout).splitlines()


def fill(broker: BrokerProcess) -> None:
    for name in HOSTS:
        channel = connect(broker, name)
        channel.queue_declare("q", durable=True)
        channel.exchange_declare("e", "fanout", durable=True)
        channel.queue_bind("q", "e")
        for number in range(3):
            channel.basic_publish("e", "", f"{name} {number}".encode(), PERSISTENT)
        channel.connection.close()


def drained(broker: BrokerProcess) -> dict[str, list[str]]:
    """What is in the queue `q` of each; it stays."""
    found: dict[str, list[str]] = {}
    for name in HOSTS:
        channel = connect(broker, name)
        count = channel.queue_declare("q", passive=True).method.message_count
        found[name] = [channel.basic_get("q")[2].decode() for _ in range(count)]
        channel.connection.close()
    return found


EXPECTED = {name: [f"{name} {number}" for number in range(3)] for name in HOSTS}


@pytest.mark.parametrize("journal", ["no", "yes"])
def test_over_a_fail_over_and_a_restart_of_all(tmp_path: Path, journal: str) -> None:
    cluster = Members(tmp_path, "--journal", journal)
    try:
        cluster.up()
        for name in HOSTS[1:]:
            ctl(cluster.brokers["a"], "add_vhost", name)
        fill(cluster.brokers["a"])
        cluster.brokers["a"].kill()
        primary = cluster.promote_newest("b", "c")
        cluster.settled(primary)
        assert drained(cluster.brokers[primary]) == EXPECTED
        ctl(cluster.brokers[primary], "delete_vhost", "shop")
        ctl(cluster.brokers[primary], "add_vhost", "shop")
        connect(cluster.brokers[primary], "shop").queue_declare("q", durable=True)
        if journal == "yes":
            for name in "bc":
                cluster.brokers[name].stop() if cluster.brokers[name].running else None
            for name in "abc":
                cluster.brokers[name].start()
            primary = cluster.promote_newest("a", "b", "c")
        else:
            cluster.brokers["a"].start()
        cluster.settled(primary)
        assert drained(cluster.brokers[primary]) == {**EXPECTED, "shop": []}
        assert ctl(cluster.brokers[primary], "list_vhosts") == ["/", "a/b ü", "shop"]
    finally:
        cluster.close()


def test_a_broker_alone_with_a_journal(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, "--journal", "yes", "--journal-segment-size", "1M")
    try:
        broker.start()
        for name in HOSTS[1:]:
            ctl(broker, "add_vhost", name)
        fill(broker)
        ctl(broker, "set_policy", "-p", "shop", "p", "^q", '{"max-length": 3}')
        broker.kill()
        broker.start()
        assert drained(broker) == EXPECTED
        assert ctl(broker, "list_policies", "-p", "shop")[0].startswith("shop\tp\t^q")
        ctl(broker, "delete_vhost", "shop")
        broker.kill()
        broker.start()
        assert ctl(broker, "list_vhosts", "name", "queues", "messages") == ["/\t1\t3", "a/b ü\t1\t3"]
        broker.stop()
        archive = tmp_path / "archive"
        assert qpidd_journal(["export", str(broker.data_dir / "journal"), "--output", str(archive)]) == 0
        found = ArchiveFile(archive)
        messages = [decode_message(value) for value in found.values() if "object" not in value]
        assert found.header.hosts and [each.host for each in messages] == ["/"] * 3 + ["a/b ü"] * 3
    finally:
        broker.close()


def test_a_deletion_goes_on_after_the_primary_has_died(tmp_path: Path) -> None:
    cluster = Members(tmp_path)
    try:
        cluster.up()
        ctl(cluster.brokers["a"], "add_vhost", "shop")
        channel = connect(cluster.brokers["a"], "shop")
        for number in range(300):
            channel.queue_declare(f"q{number}", durable=True)
        command = [sys.executable, "-m", "qpidd_py.cli.qpidctl", "-b", cluster.brokers["a"].address]
        deleting = programs.start([*command, "delete_vhost", "shop"])
        with pytest.raises(pika.exceptions.AMQPError):
            for _ in range(100):
                channel.connection.process_data_events(1)
        cluster.brokers["a"].kill()
        deleting.wait(TIME)
        primary = cluster.promote_newest("b", "c")
        cluster.settled(primary)
        if ctl(cluster.brokers[primary], "list_vhosts") != ["/"]:  # it died before the others knew
            ctl(cluster.brokers[primary], "delete_vhost", "shop")
        wait_for(lambda: cluster.ask(primary, "broker.info")["queues"] == 0, TIME, "no queues are left")
        wait_for(lambda: _added(cluster.brokers[primary], "shop"), TIME, "it can be made again")
        assert ctl(cluster.brokers[primary], "list_queues", "-p", "shop") == []
    finally:
        cluster.close()


def _added(broker: BrokerProcess, name: str) -> bool:
    """The last operations of a deletion come after those of its queues."""
    try:
        ctl(broker, "add_vhost", name)
    except AssertionError:
        return False
    return True


# ---- put aside, copied


def test_what_is_put_aside_comes_back_to_its_virtual_host(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "availability")
    try:
        for broker in pair.brokers:
            broker.start()
        pair.promote("a")
        pair.in_state("a", "active")
        pair.in_state("b", "ready")
        for name in HOSTS[1:]:
            ctl(pair["a"], "add_vhost", name)
        fill(pair["a"])
        pair["b"].pause()
        wait_for(lambda: pair.members("a") == 1, TIME, "a goes on alone")
        for name in HOSTS:
            connect(pair["a"], name).basic_publish("", "q", f"{name} alone".encode(), PERSISTENT)
        pair["a"].pause()
        pair["b"].resume()
        wait_for(lambda: _promoted(pair, "b"), TIME, "b is promoted")
        ctl(pair["b"], "delete_vhost", "a/b ü")
        pair["a"].resume()
        pair.in_state("a", "ready")
        wait_for(lambda: bool(_files(pair)), TIME, "a file")
        (file,) = _files(pair)
        _, text = pair.qpid_ha("a", "show", file)
        assert "shop/q" in text, text
        _, text = pair.qpid_ha("a", "restore", file)
        assert "a/b ü/q: no such virtual host at the primary" in text, text
        found = {
            name: [each["body"] for each in pair.ask("b", "queue.peek", queue="q", vhost=name, limit=99)]
            for name in HOSTS[:2]
        }
        assert found == {name: [*EXPECTED[name], f"{name} alone"] for name in HOSTS[:2]}
    finally:
        for broker in pair.brokers:
            broker.close()


def _promoted(pair: Pair, name: str) -> bool:
    try:
        pair.promote(name, force=True)
    except Exception:  # it is not asked yet, or refuses still
        return False
    return True


def _files(pair: Pair) -> list[str]:
    return [each["file"] for each in pair.ask("a", "ha.salvage", action="list")["files"]]


def test_a_backup_of_a_cluster_is_restored_with_each_of_them(tmp_path: Path) -> None:
    cluster = Members(tmp_path)
    other = Members(tmp_path / "other")
    (tmp_path / "other").mkdir(exist_ok=True)
    try:
        cluster.up()
        for name in HOSTS[1:]:
            ctl(cluster.brokers["a"], "add_vhost", name)
        fill(cluster.brokers["a"])
        archive = str(tmp_path / "all.backup")
        cluster.tool("backup", archive, "--messages")
        other.up()
        other.tool("restore", archive)
        assert drained(other.brokers["a"]) == EXPECTED
    finally:
        cluster.close()
        other.close()


# ---- the HTTP API


def quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def test_the_http_api(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, serving(broker, tmp_path) as port:
        api = Api(port)
        for name in HOSTS[1:]:
            assert api.request("PUT", f"/vhosts/{quoted(name)}")[0] == 201
        assert api.request("PUT", "/vhosts/shop", {"name": "shop"})[0] == 204
        assert api.request("PUT", "/vhosts/shop", {"tracing": True})[0] == 400
        assert [each["name"] for each in api.get("/vhosts")] == ["/", "a/b ü", "shop"]
        assert api.get("/vhosts/shop")["name"] == "shop" and api.request("GET", "/vhosts/none")[0] == 404
        fill(broker)
        assert [(each["vhost"], each["name"]) for each in api.get("/queues")] == [(name, "q") for name in sorted(HOSTS)]
        for name in HOSTS:
            host = quoted(name)
            assert [each["vhost"] for each in api.get(f"/queues/{host}")] == [name]
            assert api.get(f"/queues/{host}/q")["messages"] == 3
            assert {each["vhost"] for each in api.get(f"/bindings/{host}")} == {name}
            assert api.get(f"/exchanges/{host}/e")["vhost"] == name
            body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
            code, messages = api.request("POST", f"/queues/{host}/q/get", body)
            assert code == 200, messages
            (message,) = messages
            assert message["payload"] == f"{name} 0"
            sent = {"routing_key": "q", "payload": "by http", "properties": {}}
            assert api.request("POST", f"/exchanges/{host}/amq.default/publish", sent)[1] == {"routed": True}
            policy = {"pattern": "^q", "definition": {"max-length": 100}, "apply-to": "queues"}
            assert api.request("PUT", f"/policies/{host}/p", policy)[0] == 201
            assert api.request("PUT", f"/vhost-limits/{host}/max-queues", {"value": 7})[0] == 204
        for path in ("/queues/none", "/queues/none/q", "/policies/none", "/exchanges/none", "/bindings/none"):
            assert api.request("GET", path)[0] == 404, path
        assert api.request("PUT", "/queues/none/q", {})[0] == 404
        assert len(api.get("/policies")) == 3 and len(api.get("/policies/shop")) == 1
        definitions = api.get("/definitions")
        assert api.request("DELETE", "/vhosts/shop")[0] == 204 and api.request("DELETE", "/vhosts/shop")[0] == 404
        assert api.request("DELETE", "/vhosts/%2F")[0] == 400
        assert [each["name"] for each in api.get("/vhosts")] == ["/", "a/b ü"]
        assert api.request("POST", "/definitions", definitions)[0] == 204
        again = api.get("/definitions")
        for kind in ("vhosts", "queues", "exchanges", "bindings", "policies", "parameters"):
            key = lambda each: json.dumps(each, sort_keys=True)  # noqa: E731
            assert sorted(again[kind], key=key) == sorted(definitions[kind], key=key), kind
        missing = {"queues": [{"name": "q", "vhost": "none", "durable": True, "auto_delete": False, "arguments": {}}]}
        code, answer = api.request("POST", "/definitions", missing)
        assert code == 400 and "virtual host 'none' is not there" in answer["reason"]


def test_the_http_api_for_a_user_of_one(tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    with BrokerProcess(tmp_path) as broker, serving(broker, tmp_path) as port:
        assert not users.exists()
        ctl(broker, "add_vhost", "shop")
        ctl(broker, "add_user", "anna", "anna")
        ctl(broker, "set_user_tags", "anna", "monitoring")
        ctl(broker, "set_permissions", "-p", "shop", "anna", ".*", ".*", ".*")
        anna = Api(port, "anna", "anna")
        assert anna.request("PUT", "/queues/shop/q", {})[0] == 201
        assert [each["name"] for each in anna.get("/queues/shop")] == ["q"]
        assert anna.request("PUT", "/queues/%2F/q", {})[0] == 401
        assert anna.request("DELETE", "/queues/%2F/q")[0] == 401
        assert anna.request("PUT", "/vhosts/other")[0] == 401
        ctl(broker, "set_user_tags", "anna", "administrator")
        ctl(broker, "set_permissions", "anna", "", "", "")
        assert anna.request("PUT", "/vhosts/other", {"name": "other", "vhost": "/", "tracing": False})[0] == 201
        assert anna.request("PUT", "/queues/other/q", {})[0] == 201  # who makes one may do everything there
        ctl(broker, "set_permissions", "-p", "other", "anna", "", "", "")
        assert anna.request("PUT", "/vhosts/other")[0] == 204
        assert anna.request("PUT", "/queues/other/q2", {})[0] == 401


# ---- the tool


def test_the_words_of_rabbitmqctl(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        ctl(broker, "add_vhost", "shop")
        assert ctl(broker, "add_vhost", "shop", code=1) == [
            "Failed: RequestRefused: virtual host 'shop' exists already"
        ]
        connect(broker, "shop").queue_declare("q")
        assert ctl(broker, "list_queues", "-p", "shop") == ["q\t0"] and ctl(broker, "list_queues") == []
        assert ctl(broker, "list_queues", "-p", "none", code=1) == ["Failed: RequestRefused: no virtual host 'none'"]
        ctl(broker, "purge_queue", "-p", "shop", "q")
        ctl(broker, "delete_queue", "-p", "shop", "q")
        ctl(broker, "set_vhost_limits", "-p", "shop", '{"max-queues": 0}')
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="queue limit in vhost 'shop'"):
            connect(broker, "shop").queue_declare("q")
        ctl(broker, "delete_vhost", "shop")
        assert ctl(broker, "delete_vhost", "shop", code=1) == ["Failed: RequestRefused: no virtual host 'shop'"]
        assert ctl(broker, "list_vhosts") == ["/"]
