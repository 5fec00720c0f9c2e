"""The kinds of queues that users of Apache Qpid's brokers know: stand-alone, in a cluster, over a fail-over, over a
restart with a journal, and on a backup that has joined late and became the primary."""

from functools import partial
from typing import Any

import pytest
from pamqp import commands

from qpidd_py.amqp.codec import encode_method
from tests.interop.raw import method
from tests.support.three_ways import Client, Site, declaration
from tests.support.wait import wait_for

Basic, Connection, Queue = commands.Basic, commands.Connection, commands.Queue
TOLD = {"capabilities": {"connection.blocked": True}}


@pytest.fixture
def site(one_of_five: Site) -> Site:
    return one_of_five


def counts(client: Client, queue: str, messages: int) -> bool:
    return client.count(queue) == messages


def lacks(site: Site, name: str, queue: str) -> bool:
    return queue not in {found["name"] for found in site.ask(name, "queue.list")}


def shown(site: Site, queue: str) -> dict[str, Any]:
    """As management shows it on the primary."""
    return next((found for found in site.ask_primary("queue.list") if found["name"] == queue), {})


# ---------------------------------------------------------------- limits


def test_a_limit_has_two_names(site: Site, client: Client, queue: str) -> None:
    ring = {"qpid.max_count": 5, "qpid.max_size": 100, "qpid.policy_type": "ring"}
    same = {"x-max-length": 5, "x-max-length-bytes": 100, "x-overflow": "drop-head"}
    client.declare(queue, arguments=ring)
    for again in (False, True):
        client = site.middle() if again else client
        for arguments in (ring, same):
            assert isinstance(client.declare(queue, arguments=arguments), Queue.DeclareOk)
        for arguments in ({**ring, "qpid.max_count": 6}, {**ring, "qpid.policy_type": "reject"}, {**ring, **same}):
            assert client.refusal(declaration(queue, arguments=arguments)) == 406


def test_a_ring_keeps_the_newest(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments={"qpid.max_count": 3, "qpid.policy_type": "ring"})
    assert client.confirmed(*(b"%d" % n for n in range(5)), queue=queue) == [True] * 5
    client = site.middle().confirming()
    client.confirmed(b"5", queue=queue)
    assert client.bodies(queue) == [b"3", b"4", b"5"]


def test_a_limit_without_a_policy_refuses(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments={"qpid.max_size": 2})
    assert client.confirmed(b"0", b"1", b"2", queue=queue) == [True, True, False]
    client = site.middle().confirming()
    assert client.confirmed(b"3", queue=queue) == [False]
    assert client.bodies(queue) == [b"0", b"1"]


def test_a_queue_that_destructs_itself(site: Site, client: Client, queue: str) -> None:
    arguments = {"qpid.max_count": 2, "qpid.policy_type": "self-destruct"}
    client.confirming().declare(queue, arguments=arguments)
    assert client.confirmed(b"0", b"1", queue=queue) == [True, True]
    client = site.middle().confirming()
    assert client.count(queue) == 2
    assert client.confirmed(b"2", queue=queue) == [False]
    assert client.refusal(Queue.Declare(queue=queue, passive=True)) == 404
    for name in site.backups if site.way == "cluster" else ():
        wait_for(partial(lacks, site, name, queue))


# ---------------------------------------------------------------- levels

FLOW = {"qpid.flow_stop_count": 10, "qpid.flow_resume_count": 2}


def test_publishers_wait_while_a_queue_is_full(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments=FLOW)
    for again in (False, True):
        client = site.middle() if again else client
        while client.count(queue) < 11:
            client.publish(b"more", queue)
        assert shown(site, queue)["flow_stopped"]
        publisher = site.client(properties=TOLD)
        publisher.publish(b"told", queue)
        assert f"queue '{queue}' has 11 messages" in str(publisher.expect(Connection.Blocked).reason)
        publisher.publish(b"not read", queue)
        taken = [client.get(queue) for _ in range(9)]
        assert None not in taken and client.count(queue) == 3
        client.get(queue)
        publisher.expect(Connection.Unblocked)
        wait_for(partial(counts, client, queue, 3))
        assert not shown(site, queue)["flow_stopped"]
        while client.count(queue) < 11:
            client.publish(b"more", queue)


def test_an_alert_lasts_until_the_queue_is_below_it(site: Site, client: Client, queue: str) -> None:
    client.declare(queue, arguments={"qpid.alert_count": 2, "qpid.alert_repeat_gap": 0})
    client.publish(b"0", queue)
    assert client.count(queue) == 1 and not shown(site, queue)["alert"]
    client.publish(b"1", queue)
    assert client.count(queue) == 2
    client = site.middle()
    assert shown(site, queue)["alert"]
    alarms = site.ask_primary("broker.info")["alarms"]
    assert alarms[f"queue {queue}"] == f"queue '{queue}' has 2 messages of 2 octets (qpid.alert_count, _size)"
    client.get(queue)
    assert not shown(site, queue)["alert"]
    assert f"queue {queue}" not in site.ask_primary("broker.info")["alarms"]


@pytest.mark.parametrize("site", ["alone"], indirect=True)
@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.policy_type": "flow_to_disk"},
        {"qpid.policy_type": "ring_strict"},
        {"qpid.policy_type": 1},
        {"qpid.policy_type": "self-destruct"},
        {"qpid.policy_type": "self-destruct", "qpid.max_count": 0},
        {"qpid.max_count": 5, "x-max-length": 5},
        {"qpid.max_size": 5, "x-max-length-bytes": 6},
        {"qpid.policy_type": "ring", "x-overflow": "drop-head"},
        {"qpid.max_count": "5"},
        {"qpid.max_count": -1},
        {"qpid.max_size": True},
        {"qpid.flow_stop_count": "5"},
        {"qpid.flow_resume_count": 5},
        {"qpid.flow_stop_size": 5, "qpid.flow_resume_size": 6},
        {"qpid.alert_count": -1},
        {"qpid.alert_size": None},
        {"qpid.alert_repeat_gap": []},
        {"qpid.last_value_queue_key": ""},
        {"qpid.last_value_queue_key": "k" * 256},
        {"qpid.last_value_queue_key": 1},
        {"qpid.last_value_queue": "yes"},
        {"qpid.LVQ_key": "key"},
        {"qpid.last_value_queue_no_browse": 1},
        {"qpid.browse-only": 2},
        {"qpid.group_header_key": "group"},
        {"qpid.shared_msg_group": 1},
        {"qpid.group_header_key": "", "qpid.shared_msg_group": 1},
        {"qpid.last_value_queue_key": "key", "qpid.group_header_key": "group", "qpid.shared_msg_group": 1},
        {"qpid.last_value_queue_key": "key", "x-max-priority": 5},
        {"qpid.group_header_key": "group", "qpid.shared_msg_group": 1, "x-single-active-consumer": True},
        {"qpid.group_header_key": "group", "qpid.shared_msg_group": 1, "x-queue-type": "quorum"},
        {"qpid.priorities": 0},
        {"qpid.priorities": 257},
        {"qpid.priorities": 5, "x-max-priority": 4},
        {"qpid.fairshare": 5},
        {"qpid.fairshare-5": 1, "qpid.priorities": 5},
        {"qpid.fairshare-1": "1", "qpid.priorities": 5},
    ],
    ids=str,
)
def test_what_is_refused(site: Site, client: Client, arguments: dict[str, Any]) -> None:
    client.send(declaration("refused", arguments=arguments))
    text = client.expect_channel_close(406, 50, 10)
    assert any(name in text for name in arguments), text
    client.send(encode_method(1, commands.Channel.CloseOk()))


# ---------------------------------------------------------------- last values

LAST = {"qpid.last_value_queue_key": "key"}


def peeked(site: Site, queue: str) -> list[str]:
    """What a browser sees."""
    return [message["body"] for message in site.ask_primary("queue.peek", queue=queue, limit=100)]


def test_the_last_value_of_each_key(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments=LAST)
    for key, body in (("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("b", b"b2"), ("c", b"c1")):
        assert client.confirmed(body, queue=queue, headers={"key": key}) == [True]
    assert peeked(site, queue) == ["a2", "b2", "c1"]
    client = site.middle().confirming()
    assert peeked(site, queue) == ["a2", "b2", "c1"]
    client.confirmed(b"b3", queue=queue, headers={"key": "b"})
    assert isinstance(client.declare(queue, arguments=LAST), Queue.DeclareOk)
    assert client.refusal(declaration(queue)) == 406
    assert client.bodies(queue) == [b"a2", b"c1", b"b3"]


def test_a_value_that_a_client_holds_is_not_replaced_before_it_comes_back(
    site: Site, client: Client, queue: str
) -> None:
    client.confirming().declare(queue, arguments=LAST)
    client.confirmed(b"a1", queue=queue, headers={"key": "a"})
    assert client.get(queue, no_ack=False) is not None
    client.confirmed(b"a2", b"a3", queue=queue, headers={"key": "a"})
    assert peeked(site, queue) == ["a1", "a3"]
    client = site.middle()
    wait_for(lambda: peeked(site, queue) == ["a3"])
    assert client.bodies(queue) == [b"a3"]


def test_a_queue_that_is_only_looked_at(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments={**LAST, "qpid.browse-only": True})
    client.confirmed(b"a1", b"a2", queue=queue, headers={"key": "a"})
    for again in (False, True):
        client = site.middle() if again else client
        assert client.refusal(Basic.Consume(queue=queue)) == 403
        assert client.refusal(Basic.Get(queue=queue)) == 403
        assert peeked(site, queue) == ["a2"]


# ---------------------------------------------------------------- groups

GROUPS = {"qpid.group_header_key": "group", "qpid.shared_msg_group": 1}


def test_groups_are_with_one_client_each(site: Site, client: Client, queue: str) -> None:
    client.confirming().declare(queue, arguments=GROUPS)
    for body in (b"a1", b"a2", b"b1", b"a3"):
        client.confirmed(body, queue=queue, headers={"group": body[:1].decode()})
    for again in (False, True):
        client, other = (site.middle() if again else client), site.client()
        first, second = client.get(queue, no_ack=False), other.get(queue, no_ack=False)
        assert first is not None and second is not None
        assert (first[2], second[2]) == (b"a1", b"b1")
        assert other.get(queue, no_ack=False) is None, "the rest is of a group that is with another client"
        third = client.get(queue, no_ack=False)
        assert third is not None and third[2] == b"a2"
    client.send(method(1, Basic.Ack(2, multiple=True)))
    assert client.count(queue) == 1
    fourth = other.get(queue, no_ack=False)
    assert fourth is not None and fourth[2] == b"a3"


# ---------------------------------------------------------------- priorities


def test_priorities_and_their_shares(site: Site, client: Client, queue: str) -> None:
    shares = {"qpid.priorities": 3, "qpid.fairshare": 1, "qpid.fairshare-2": 2}
    client.confirming().declare(queue, arguments=shares)
    for priority in (0, 0, 1, 1, 2, 2, 2, 9):
        client.confirmed(b"%d" % priority, queue=queue, priority=priority)
    client = site.middle()
    assert isinstance(client.declare(queue, arguments=shares), Queue.DeclareOk)
    same = {"x-max-priority": 2, "qpid.fairshare": 1, "qpid.fairshare-2": 2}
    assert isinstance(client.declare(queue, arguments=same), Queue.DeclareOk)
    for other in ({**shares, "qpid.priorities": 4}, {**shares, "qpid.fairshare-2": 1}, {"qpid.priorities": 3}):
        assert client.refusal(declaration(queue, arguments=other)) == 406
    assert client.bodies(queue) == [b"2", b"2", b"1", b"0", b"2", b"9", b"1", b"0"]


# ---------------------------------------------------------------- exchanges and bindings

EXCLUSIVE: Any = {"qpid.exclusive-binding": True}


def bound(site: Site, key: str) -> list[str]:
    """The queues that a key of amq.direct leads to."""
    found = [each for each in site.ask_primary("binding.list") if each["source"] == "amq.direct"]
    return sorted(each["destination"] for each in found if each["routing_key"] == key)


def test_an_exclusive_binding_replaces_the_others_of_its_key(site: Site, client: Client, queue: str) -> None:
    names = [f"{queue}.{n}" for n in range(3)]
    for name in names:
        client.declare(name)
        client.call(1, Queue.Bind(queue=name, exchange="amq.direct", routing_key=queue), Queue.BindOk)
        client.call(1, Queue.Bind(queue=name, exchange="amq.direct", routing_key=f"{queue}.other"), Queue.BindOk)
    exclusive = Queue.Bind(queue=names[1], exchange="amq.direct", routing_key=queue, arguments=EXCLUSIVE)
    for again in (False, True):
        client = site.middle() if again else client
        client.call(1, exclusive, Queue.BindOk)
        assert bound(site, queue) == [names[1]] and bound(site, f"{queue}.other") == names
        client.publish(b"m", queue, exchange="amq.direct")
    client = site.client()
    assert [client.count(name) for name in names] == [0, 2, 0]
    later = Queue.Bind(queue=names[2], exchange="amq.direct", routing_key=queue, arguments=EXCLUSIVE)
    client.call(1, later, Queue.BindOk)
    assert bound(site, queue) == [names[2]]


@pytest.mark.parametrize("site", ["alone"], indirect=True)
def test_exchanges_and_bindings_that_are_refused(site: Site, client: Client, queue: str) -> None:
    client.declare(queue)
    for value in (2, "1", None):
        declare = commands.Exchange.Declare(exchange="x", exchange_type="direct", arguments={"qpid.ive": value})
        assert client.refusal(declare) == 406
    for exchange, value in (("amq.topic", True), ("amq.fanout", 1), ("amq.direct", "yes"), ("amq.direct", 2)):
        bind = Queue.Bind(queue=queue, exchange=exchange, arguments={"qpid.exclusive-binding": value})
        assert client.refusal(bind) == 406
    client.send(method(1, commands.Exchange.Declare(exchange="x", exchange_type="xml")))
    assert "'xml' is not implemented" in client.expect_close(503, 40, 10)
