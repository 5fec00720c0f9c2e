"""Policies in a cluster: set with qpidctl, in force on the next primary, and back after a restart of all."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.integration.test_users import Users, channel, restarted
from tests.support.members import TIME
from tests.support.wait import wait_for


def bodies(source: Any, queue: str) -> list[bytes]:
    """All that is ready, which is gone then."""
    found = []
    while (got := source.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


@pytest.mark.parametrize("journal", ["no", "yes"])
def test_a_policy_over_a_fail_over_and_a_restart(tmp_path: Path, journal: str) -> None:
    cluster = Users(tmp_path, "--journal", journal)
    try:
        cluster.up()
        source = channel(cluster.brokers["a"], "ha", "ha-password")
        source.confirm_delivery()
        source.queue_declare("q", durable=True)
        for number in range(5):
            source.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        cluster.ctl("set_policy", "p", "^q", '{"max-length": 3, "dead-letter-exchange": "amq.fanout"}')
        cluster.ctl("set_operator_policy", "o", "", '{"max-length": 2}')
        assert "no JSON" in cluster.ctl("set_policy", "p", "^q", "{", code=1)
        assert "ha-mode" in cluster.ctl("set_policy", "p", "^q", '{"ha-mode": "nodes"}', code=1)
        cluster.brokers["a"].kill()
        assert cluster.promote_newest("b", "c") in ("b", "c")
        if journal == "yes":
            restarted(cluster)
        name = next(name for name, state in cluster.states().items() if state in ("active", "recovering"))
        wait_for(lambda: cluster.states()[name] == "active", TIME, lambda: str(cluster.states()))
        columns = ("name", "policy", "operator_policy", "effective")
        effect = "[x-dead-letter-exchange=amq.fanout, x-max-length=2]"
        heads, row = "\t".join(columns), f"q\tp\to\t{effect}"
        assert cluster.ctl("list_queues", *columns, name=name) == f"{heads}\n{row}\n"
        source = channel(cluster.brokers[name], "ha", "ha-password")
        source.confirm_delivery()
        source.basic_publish("", "q", b"5")
        assert bodies(source, "q") == [b"4", b"5"]
        cluster.ctl("clear_policy", "p", name=name)
        cluster.ctl("clear_operator_policy", "o", name=name)
        assert cluster.ctl("list_policies", "-p", "/", name=name).count("\n") == 1
        for number in range(4):
            source.basic_publish("", "q", b"%d" % number)
        assert len(bodies(source, "q")) == 4
    finally:
        cluster.close()


def test_a_time_to_live_by_a_policy(tmp_path: Path) -> None:
    cluster = Users(tmp_path, names="a")
    try:
        cluster.up()
        source = channel(cluster.brokers["a"], "ha", "ha-password")
        source.queue_declare("q", durable=True, arguments={"x-message-ttl": 600_000})
        source.confirm_delivery()
        source.basic_publish("", "q", b"old")
        cluster.ctl("set_policy", "p", "^q", '{"message-ttl": 100}')
        source.basic_publish("", "q", b"new")
        wait_for(lambda: not source.queue_declare("q", passive=True).method.message_count, TIME, "both have expired")
    finally:
        cluster.close()


RABBITS: dict[str, Any] = {
    "policies": [
        {
            "vhost": "/",
            "name": "ha",
            "pattern": "^ha",
            "apply-to": "all",
            "priority": 0,
            "definition": {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-promote-on-failure": "when-synced"},
        },
        {
            "vhost": "/",
            "name": "left",
            "pattern": "^amq",
            "apply-to": "exchanges",
            "priority": 1,
            "definition": {"alternate-exchange": "ha-rest"},
        },
    ],
    "queues": [{"name": "ha-q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}],
    "exchanges": [{"name": "ha-rest", "vhost": "/", "type": "fanout", "durable": True, "arguments": {}}],
    "bindings": [
        {"source": "ha-rest", "vhost": "/", "destination": "ha-q", "destination_type": "queue", "routing_key": ""}
    ],
}
"""Of a cluster of RabbitMQ 3.10."""


def test_definitions_with_mirrored_queues_survive_the_primary(tmp_path: Path) -> None:
    """`ha-replicate` is none: nothing but the policy has them replicated."""
    cluster = Users(tmp_path, "--ha-replicate", "none")
    file = tmp_path / "rabbit.json"
    file.write_text(json.dumps(RABBITS))
    try:
        cluster.up()
        source = channel(cluster.brokers["a"], "ha", "ha-password")
        source.queue_declare("ha-old", durable=True)
        cluster.ctl("import_definitions", str(file))
        told = cluster.ctl("set_policy", "--apply-to", "queues", "ha", "^ha", '{"ha-mode": "all"}')
        assert told.startswith("not_in_force\tha-mode: declared before, and not replicated: ha-old;")
        source.confirm_delivery()
        for number in range(20):
            source.basic_publish("amq.direct", "nowhere", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        cluster.brokers["a"].kill()
        name = cluster.promote_newest("b", "c")
        wait_for(partial(is_active, cluster, name), TIME, lambda: str(cluster.states()))
        shown = cluster.ctl("-q", "list_queues", "name", "policy", "messages", name=name)
        assert shown == "ha-q\tha\t20\n", "without ha-old"
        source = channel(cluster.brokers[name], "ha", "ha-password")
        source.confirm_delivery()
        source.basic_publish("amq.topic", "nowhere", b"20")
        assert bodies(source, "ha-q") == [b"%d" % number for number in range(21)]
    finally:
        cluster.close()


def test_a_policy_that_was_answered_outlives_a_primary_that_is_killed_at_once(tmp_path: Path) -> None:
    cluster = Users(tmp_path)
    try:
        cluster.up()
        primary, left = "a", ["b", "c"]
        for policy in ("p0", "p1"):
            cluster.ctl("set_policy", policy, "^q", '{"max-length": 1}', name=primary)
            cluster.brokers[primary].kill()
            primary = cluster.promote_newest(*left)
            left.remove(primary)
            assert policy in [each["name"] for each in cluster.ask(primary, "policy.list")]
            wait_for(partial(is_active, cluster, primary), TIME, lambda: str(cluster.states()))
    finally:
        cluster.close()


def is_paged(cluster: Users, name: str, octets: float) -> bool:
    return bool(cluster.ask(name, "broker.info")["paged"]["octets"] > octets)


def is_active(cluster: Users, name: str) -> bool:
    return cluster.states()[name] == "active"


def test_a_lazy_queue_leaves_memory_on_all_brokers_and_comes_back(tmp_path: Path) -> None:
    cluster = Users(tmp_path)
    size, number = 100_000, 300
    try:
        cluster.up()
        source = channel(cluster.brokers["a"], "ha", "ha-password")
        source.queue_declare("q", durable=True)
        source.confirm_delivery()
        for each in range(number):
            source.basic_publish("", "q", b"%05d" % each + b"x" * size)
        assert not cluster.ask("a", "broker.info")["paged"]["octets"]
        cluster.ctl("set_policy", "lazy", "^q", '{"queue-mode": "lazy"}')
        for name in "abc":
            wait_for(partial(is_paged, cluster, name, 0.8 * size * number), TIME)
        cluster.brokers["a"].kill()
        name = cluster.promote_newest("b", "c")
        wait_for(partial(is_active, cluster, name), TIME, lambda: str(cluster.states()))
        found = bodies(channel(cluster.brokers[name], "ha", "ha-password"), "q")
        assert [int(body[:5]) for body in found] == list(range(number)) and {len(body) for body in found} == {size + 5}
        wait_for(lambda: not cluster.ask(name, "broker.info")["paged"]["octets"], TIME)
    finally:
        cluster.close()
