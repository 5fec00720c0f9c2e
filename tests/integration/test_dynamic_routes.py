"""Routes that follow bindings, between real clusters: fail-overs on both sides, rings, and what they refuse."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_lib import Connection, Message
from tests.integration.test_shovel import Worker, drained, publish, shovels, url
from tests.integration.test_users import LOGIN, Users, channel
from tests.support import programs
from tests.support.members import TIME
from tests.support.rabbit import rabbit_cluster
from tests.support.wait import wait_for, wait_logged


class Cluster:
    """With a `qpid-shovel` beside each broker."""

    def __init__(self, folder: Path, name: str, names: str, stack: contextlib.ExitStack) -> None:
        folder = folder / name
        folder.mkdir()
        self.members = Users(folder, "--federation-tag", f"tag-{name}", names=names)
        stack.callback(self.members.close)
        self.members.up()
        self.primary = names[0]
        self.workers = {each: stack.enter_context(Worker(broker, folder)) for each, broker in self.brokers.items()}

    @property
    def brokers(self) -> dict[str, Any]:
        return self.members.brokers

    @property
    def address(self) -> str:
        return f"{LOGIN}@{self.brokers[self.primary].address}"

    @property
    def addresses(self) -> str:
        return f"{LOGIN}@{','.join(broker.address for broker in self.brokers.values())}"

    def pull(self, source: Cluster, exchange: str = "amq.topic", verb: str = "add") -> str:
        words = ("dynamic", verb, self.address, source.addresses, exchange)
        return route(*words)

    def channel(self) -> Any:
        return channel(self.brokers[self.primary], "ha", "ha-password")

    def keys(self, exchange: str = "amq.topic") -> list[str]:
        """Of the bindings that routes have made here."""
        bindings = self.members.ask(self.primary, "binding.list")
        found = (each for each in bindings if each["source"] == exchange and "x-qpid.fed.path" in each["arguments"])
        return sorted(f"{each['routing_key']} {each['arguments']['x-qpid.fed.path']}" for each in found)

    def has(self, *keys: str, exchange: str = "amq.topic") -> None:
        def said() -> str:
            logs = "".join(worker.log for worker in self.workers.values())
            return f"{keys}: {self.keys(exchange)} {shovels(self.members, self.primary)} {logs}"

        wait_for(lambda: self.keys(exchange) == sorted(keys), TIME, said)

    def fail_over(self) -> None:
        self.workers[self.primary].kill()
        self.brokers[self.primary].kill()
        self.primary = self.members.promote_newest(*(name for name in self.brokers if name != self.primary))


def route(*words: str) -> str:
    command = [sys.executable, "-m", "qpidd_py.cli.qpid_route", *words]
    return str(programs.run(command, timeout=TIME, capture_output=True, text=True).stdout)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as found:
        yield found


def test_bindings_that_come_and_go(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    here, there = (Cluster(tmp_path, name, "a", stack) for name in ("here", "there"))
    assert here.pull(there) == here.pull(there, "amq.match") == ""
    receiving, sending = here.channel(), there.channel()
    receiving.queue_declare("q", durable=True)
    receiving.queue_bind("q", "amq.topic", "a.#")
    receiving.queue_bind("q", "amq.topic", "b.*", {"qpid.replicate": "none"})
    there.has("a.# tag-here", "b.* tag-here")
    receiving.queue_unbind("q", "amq.topic", "b.*", {"qpid.replicate": "none"})
    there.has("a.# tag-here")
    receiving.queue_declare("other")
    receiving.queue_bind("other", "amq.topic", "a.#")
    receiving.queue_bind("other", "amq.topic", "c")
    receiving.exchange_declare("onward", "fanout")
    receiving.exchange_bind("onward", "amq.topic", "d")
    there.has("a.# tag-here", "c tag-here", "d tag-here")
    receiving.queue_delete("other")
    receiving.exchange_delete("onward")
    there.has("a.# tag-here")
    receiving.queue_bind("q", "amq.match", "", {"x-match": "all-with-x", "x-color": "red", "n": 5})
    there.has(" tag-here", exchange="amq.match")
    sending.basic_publish("amq.topic", "a.b", b"topic")
    sending.basic_publish("amq.topic", "z", b"not wanted")
    red = Message(b"headers", properties={"x-color": "red", "n": 5})
    send(there, red)
    found = drained(here.members, "q", 2)
    assert {each.body for each in found} == {b"topic", b"headers"}
    assert {each.properties["x-qpid.trace"] for each in found} == {"tag-there"}
    assert f"{here.brokers['a'].address}" in route("route", "map", here.address)
    assert here.pull(there, verb="del") == here.pull(there, "amq.match", verb="del") == ""
    wait_for(lambda: not [q for q in there.members.ask("a", "queue.list") if "bridge" in q["name"]], TIME, "gone")
    there.has()


def send(cluster: Cluster, message: Message) -> None:
    with Connection(url(cluster.members)) as connection:
        connection.session().queue_sender("", "amq.match").send(message)


def test_fail_overs_on_both_sides_lose_nothing(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    step = 300
    here, there = (Cluster(tmp_path, name, "abc", stack) for name in ("here", "there"))
    here.pull(there)
    receiving = here.channel()
    receiving.queue_declare("q", durable=True)
    for key in ("a.*", "b", "c"):
        receiving.queue_bind("q", "amq.topic", key)
    there.has("a.* tag-here", "b tag-here", "c tag-here")
    publish(there.members, "amq.topic/a.1", range(step))
    there.fail_over()
    publish(there.members, "amq.topic/b", range(step, 2 * step))
    here.fail_over()
    publish(there.members, "amq.topic/c", range(2 * step, 3 * step))
    found = drained(here.members, "q", 3 * step)
    receiving = here.channel()
    receiving.queue_bind("q", "amq.topic", "d")
    receiving.queue_unbind("q", "amq.topic", "b")
    there.has("a.* tag-here", "c tag-here", "d tag-here")
    publish(there.members, "amq.topic/d", range(3 * step, 4 * step))
    found += drained(here.members, "q", step)
    assert {message.body for message in found} == {b"%d" % number for number in range(4 * step)}
    seen = set()
    for message in found:
        assert message.body not in seen or message.resent or message.redelivered
        seen.add(message.body)


def test_a_ring_of_three(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    """Routes between all in both directions: each message once in each queue, and nothing keeps a binding."""
    ring = [Cluster(tmp_path, name, "a", stack) for name in ("one", "two", "three")]
    for to in ring:
        for source in ring:
            if source is not to:
                assert to.pull(source) == ""
    for cluster in ring:
        found = cluster.channel()
        found.queue_declare("q", durable=True)
        found.queue_bind("q", "amq.topic", "k")
    for cluster in ring:
        own = cluster.members.ask("a", "route.paths", exchange="amq.topic")["tag"]
        one, two = (tag for tag in ("tag-one", "tag-two", "tag-three") if tag != own)
        cluster.has(*(f"k {path}" for path in (one, two, f"{one},{two}", f"{two},{one}")))
    for number, cluster in enumerate(ring):
        publish(cluster.members, "amq.topic/k", range(number * 100, number * 100 + 100))
    for cluster in ring:
        bodies = [message.body for message in drained(cluster.members, "q", 300)]
        assert sorted(bodies, key=int) == [b"%d" % number for number in range(300)]
    text = route("route", "map", ring[0].address)
    assert text.count("<=>") == 3 and "none found" in text
    for cluster in ring:
        cluster.channel().queue_delete("q")
    for cluster in ring:
        cluster.has()


def test_what_cannot_be_is_said(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    here, there = (Cluster(tmp_path, name, "a", stack) for name in ("here", "there"))
    here.channel().exchange_declare("x", "topic", durable=True)
    there.channel().exchange_declare("x", "direct", durable=True)
    here.channel().exchange_declare("y", "topic", durable=True)
    here.channel().exchange_declare("h", "x-consistent-hash", durable=True)
    there.channel().exchange_declare("h", "x-consistent-hash", durable=True)
    here.pull(there, "x")
    here.pull(there, "y")
    here.pull(there, "h")
    assert "exchange 'amq.direct' would feed itself" in here.pull(here, "amq.direct")
    assert "dest-exchange: no exchange 'none' in virtual host '/'" in here.pull(there, "none")
    value = {"src-uri": f"amqp://ha:ha-password@{here.brokers['a'].address}", "src-exchange": "amq.direct"}
    value |= {"dest-uri": "amqp://", "dest-exchange": "amq.direct", "src-exchange-queue": "bridge_queue_x"}
    here.members.ctl("set_parameter", "shovel", "self", json.dumps({**value, "src-follow-bindings": True}))
    reasons = {
        " x": "exchange 'x' is direct there, and topic here",
        " y": "no exchange 'y'",
        " h": "no route follows its bindings",
        "self": "is the one here, too",
    }

    def said() -> bool:
        states = {each["name"]: each["reason"] for each in shovels(here.members)}
        return all(any(n.endswith(name) and text in r for n, r in states.items()) for name, text in reasons.items())

    wait_for(said, TIME, lambda: str(shovels(here.members)))
    assert "no --src-local" in route("-s", "dynamic", "add", "a", "b", "x")


def test_a_binding_that_the_source_refuses_stops_no_other(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    here, there = (Cluster(tmp_path, name, "a", stack) for name in ("here", "there"))
    there.members.ctl("add_user", "bridge", stdin="secret\n")
    there.members.ctl("set_permissions", "bridge", "^bridge_queue_", "^bridge_queue_", "^(bridge_queue_|amq.topic)")
    there.members.ctl("set_topic_permissions", "bridge", "amq.topic", "", "^public")
    source = f"bridge/secret@{there.brokers['a'].address}"
    route("dynamic", "add", here.address, source, "amq.topic")
    found = here.channel()
    found.queue_declare("q", durable=True)
    for key in ("private.1", "public.1", "private.2", "public.2"):
        found.queue_bind("q", "amq.topic", key)
    there.has("public.1 tag-here", "public.2 tag-here")
    publish(there.members, "amq.topic/public.1", range(3))
    assert len(drained(here.members, "q", 3)) == 3
    wait_logged(here.workers["a"], "a binding is left out")


def test_many_bindings_cost_what_changes(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    many = 3000
    here, there = (Cluster(tmp_path, name, "a", stack) for name in ("here", "there"))
    found = here.channel()
    found.queue_declare("q", durable=True)
    for number in range(many):
        found.queue_bind("q", "amq.topic", f"k.{number}")
    here.pull(there)
    wait_for(lambda: len(there.keys()) == many, TIME, lambda: str(len(there.keys())))
    begin = time.monotonic()
    found.queue_delete("q")
    there.has()
    assert time.monotonic() - begin < TIME


def test_rabbitmq_has_none(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    here = Cluster(tmp_path, "here", "a", stack)
    with rabbit_cluster() as rabbit:
        value = {
            "src-uri": f"amqp://guest:guest@127.0.0.1:{rabbit.ports[0]}",
            "src-exchange": "amq.topic",
            "src-exchange-queue": "b",
            "dest-exchange": "amq.topic",
            "dest-uri": "amqp://",
            "src-follow-bindings": True,
        }
        here.members.ctl("set_parameter", "shovel", "s", json.dumps(value))
        text = "only a broker of this kind has routes that follow bindings"
        wait_for(lambda: text in shovels(here.members)[0]["reason"], TIME, lambda: str(shovels(here.members)))
