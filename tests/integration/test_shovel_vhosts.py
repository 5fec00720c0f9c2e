"""Shovels in virtual hosts, and the tools there: who sets them, where they work, what ends with the virtual host."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.integration.test_shovel import Worker, shovels, up
from tests.integration.test_users import LOGIN, Users
from tests.support import programs
from tests.support.members import TIME
from tests.support.wait import wait_for

SHOP: dict[str, Any] = {"src-uri": "amqp:///shop", "src-queue": "a", "dest-uri": "amqp:///store", "dest-queue": "b"}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[tuple[Users, Worker]]:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(up(tmp_path / "cluster", "a", "--federation-tag", "here"))
        for name in ("shop", "store"):
            cluster.ctl("add_vhost", name)
        yield cluster, stack.enter_context(Worker(cluster.brokers["a"], tmp_path))


def inside(cluster: Users, host: str) -> Any:
    credentials = pika.PlainCredentials("ha", "ha-password")
    port = cluster.brokers["a"].port
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, host, credentials)).channel()


def running(cluster: Users, worker: Worker, *hosts: str) -> None:
    def found() -> bool:
        return sorted(each["vhost"] for each in shovels(cluster) if each["state"] == "running") == sorted(hosts)

    wait_for(found, TIME, lambda: f"{shovels(cluster)} {worker.log}")


def test_one_name_in_three_virtual_hosts(house: tuple[Users, Worker]) -> None:
    cluster, worker = house
    for host in ("/", "shop", "store"):
        value = {**SHOP, "dest-queue": f"from {host}", "dest-add-forward-headers": True}
        cluster.ctl("set_parameter", "-p", host, "shovel", "s", json.dumps({**value, "src-queue": f"of {host}"}))
    running(cluster, worker, "/", "shop", "store")
    source, target = inside(cluster, "shop"), inside(cluster, "store")
    for host in ("/", "shop", "store"):
        source.basic_publish("", f"of {host}", host.encode())
        found: list[Any] = wait_for(partial(got, target, f"from {host}"), TIME, "it comes")
        assert found[1] == host.encode() and found[0].headers["x-shovelled"][0]["shovel-vhost"] == host
    assert cluster.ctl("list_parameters", "-p", "shop").count("\n") == 2
    assert [line.split("\t")[0] for line in cluster.ctl("shovel_status").splitlines()[1:]] == ["/", "shop", "store"]
    cluster.ctl("restart_shovel", "-p", "store", "s")
    cluster.ctl("clear_parameter", "-p", "/", "shovel", "s")
    running(cluster, worker, "shop", "store")
    cluster.ctl("delete_vhost", "store")
    wait_for(lambda: [each["vhost"] for each in shovels(cluster)] == ["shop"], TIME, lambda: str(shovels(cluster)))


def got(channel: Any, queue: str) -> list[Any]:
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    return [] if properties is None else [properties, body]


def test_each_end_needs_the_rights_of_its_virtual_host(house: tuple[Users, Worker]) -> None:
    cluster, _ = house
    cluster.ctl("add_user", "anna", stdin="secret\n")
    cluster.ctl("set_user_tags", "anna", "policymaker")
    cluster.ctl("set_permissions", "anna", ".*", ".*", ".*")
    cluster.ctl("set_permissions", "-p", "shop", "anna", "^a", "^a", "^a")
    words = ("set_parameter", "-p", "shop", "shovel", "s")

    def refused(**keys: str) -> str:
        value = {**SHOP, **{name.replace("_", "-"): each for name, each in keys.items()}}
        return cluster.ctl(*words, json.dumps(value), login="anna/secret", code=1)

    assert "access to vhost 'store' refused for user 'anna'" in refused()
    assert "access to queue 'b' in vhost 'shop' refused" in refused(dest_uri="amqp:///shop")
    assert "read access to src-queue 'b' refused" in refused(src_queue="b", dest_uri="amqp://")
    assert "access to vhost 'store' refused" in refused(src_uri="amqp:///store", dest_uri="amqp:///shop")
    assert "access to vhost 'nowhere' refused" in refused(dest_uri="amqp:///nowhere")
    value = {**SHOP, "dest-uri": "amqp://", "dest-queue": "anywhere"}
    cluster.ctl(*words, json.dumps(value), login="anna/secret")
    assert "no virtual host" in cluster.ctl("set_parameter", "-p", "no", "shovel", "s", json.dumps(value), code=1)
    for wrong, text in (
        ({"dest-uri": "amqp:///no"}, "dest-uri: no virtual host 'no' in this cluster"),
        ({"src-queue": None, "src-exchange": "none"}, "src-exchange: no exchange 'none' in virtual host 'shop'"),
        ({"dest-queue": None, "dest-exchange": "none"}, "dest-exchange: no exchange 'none' in virtual host '/'"),
    ):
        asked = {name: each for name, each in {**value, **wrong}.items() if each is not None}
        assert text in cluster.ctl("set_parameter", "-p", "shop", "shovel", "s", json.dumps(asked), code=1)
    dest = {"src-uri": "amqp://h", "src-exchange": "x", "src-exchange-queue": "q", "dest-uri": "amqp:///shop"}
    follow = {**dest, "dest-exchange": "x", "src-follow-bindings": True}
    cluster.ctl("set_permissions", "-p", "shop", "anna", "^a", "^x", "^a")
    assert "read access to dest-exchange 'x'" in cluster.ctl(*words, json.dumps(follow), login="anna/secret", code=1)


def test_a_dynamic_route_between_two_virtual_hosts_of_one_broker(house: tuple[Users, Worker]) -> None:
    cluster, worker = house
    for host in ("shop", "store"):
        inside(cluster, host).exchange_declare("x", "topic", durable=True)
    target = inside(cluster, "store")
    target.queue_declare("arrived", durable=True)
    target.queue_bind("arrived", "x", "#")
    here = f"{LOGIN}@{cluster.brokers['a'].address}"
    assert tool(cluster, "qpid_route", "-p", "store", "dynamic", "add", here, f"{here}/shop", "x") == ""
    running(cluster, worker, "store")
    assert "would feed itself" in tool(cluster, "qpid_route", "-p", "shop", "dynamic", "add", here, here, "x")
    source = inside(cluster, "shop")
    source.confirm_delivery()

    def sent() -> bool:
        try:
            source.basic_publish("x", "k", b"across", mandatory=True)
        except pika.exceptions.UnroutableError:
            return False
        return True

    wait_for(sent, TIME, lambda: worker.log)
    assert wait_for(partial(got, target, "arrived"), TIME, "it comes")[1] == b"across"
    assert "Operational" in tool(cluster, "qpid_route", "-p", "store", "link", "list")
    assert tool(cluster, "qpid_route", "-p", "store", "flush") == ""
    wait_for(lambda: not shovels(cluster), TIME, lambda: str(shovels(cluster)))


def tool(cluster: Users, name: str, *words: str) -> str:
    command = [sys.executable, "-m", f"qpidd_py.cli.{name}", "-b", f"{LOGIN}@{cluster.brokers['a'].address}", *words]
    return str(programs.run(command, timeout=TIME, capture_output=True, text=True).stdout)


def test_qpid_config_and_qpid_stat_in_a_virtual_host(house: tuple[Users, Worker]) -> None:
    cluster, _ = house
    assert tool(cluster, "qpid_config", "-p", "shop", "add", "queue", "only.here", "--durable") == ""
    assert tool(cluster, "qpid_config", "-p", "shop", "add", "exchange", "topic", "ex.here") == ""
    assert tool(cluster, "qpid_config", "-p", "shop", "bind", "ex.here", "only.here", "key.here") == ""
    for words in (("queues", "-r"), ("exchanges", "-r")):
        assert "key.here" in tool(cluster, "qpid_config", *words, "-p", "shop")
        assert "here" not in tool(cluster, "qpid_config", *words)
    for flag, text in (("-q", "only.here"), ("-e", "ex.here")):
        assert text in tool(cluster, "qpid_stat", flag, "--vhost", "shop")
        assert text not in tool(cluster, "qpid_stat", flag)
    consumer = inside(cluster, "shop")
    consumer.basic_consume("only.here", lambda *_: None)
    assert "only.here" in tool(cluster, "qpid_stat", "-u", "-p", "shop")
    assert "only.here" not in tool(cluster, "qpid_stat", "-u")
    here, all_of_them = (json.loads(tool(cluster, "qpid_stat", "-c", "--json", *p)) for p in (("-p", "shop"), ()))
    assert {each["vhost"] for each in here} == {"shop"} and {each["vhost"] for each in all_of_them} >= {"/", "shop"}
    assert tool(cluster, "qpid_config", "-p", "shop", "unbind", "ex.here", "only.here", "key.here") == ""
    assert tool(cluster, "qpid_config", "-p", "shop", "del", "exchange", "ex.here") == ""
    assert tool(cluster, "qpid_config", "-p", "shop", "del", "queue", "only.here", "--force") == ""
    assert "here" not in tool(cluster, "qpid_config", "-p", "shop", "queues")
    for name, given in (("qpid_config", "queues"), ("qpid_stat", "-q"), ("qpid_config", "add queue q")):
        text = tool(cluster, name, "-p", "nowhere", *given.split())
        assert text.startswith("Failed: ") and "nowhere" in text and text.count("\n") == 1
    assert "is of the whole broker" in tool(cluster, "qpid_stat", "-m", "-p", "shop")
    replica = ("-p", "shop", "add", "queue", "q", "--start-replica", "h")
    assert "is for virtual host /" in tool(cluster, "qpid_config", *replica)
