"""Rows 4 to 8, 24, 25, 28, 29, 32 to 34: clients and configuration when the primary changes, and who may do what."""

import threading

import pika
import pytest

from client_lib import Connection
from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.security.users import hash_password
from tests.acceptance.clients import assert_browse_backup, exists, publish, take, wait_no_queue
from tests.acceptance.cluster import Cluster, Member
from tests.acceptance.load import TROUBLE, PlainPair, assert_nothing_lost, progress
from tests.support.wait import wait_for, wait_logged


def test_04_failover_of_a_reconnecting_client(cluster: Cluster) -> None:
    """A backup refuses a plain client and names the primary, and admits an administrator; a client with the list of
    addresses finds the primary, and goes on after a kill."""
    primary, first, second = cluster.ready()
    with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
        first.connect()
    assert f"the primary is {primary.address}" in repr(caught.value)
    with first.channel(admin=True):
        assert first.status == "ready"
    with Connection(f"{first.address},{second.address},{primary.address}", heartbeat=1).open(10) as connection:
        session = connection.session()
        session.declare_queue("r4", durable=True)
        sender, receiver = session.sender("r4"), session.receiver("r4")
        sender.send("old", timeout=10)
        cluster.fail_over()
        sender.send("new", timeout=20)
        assert {receiver.fetch(10).body, receiver.fetch(10).body} == {b"old", b"new"}
        assert connection.failovers == 1


def wait_connected(connection: Connection, member: Member) -> None:
    wait_for(
        lambda: connection.is_connected and str(connection.address) == member.address, what=f"client at {member.name}"
    )


def test_05_heartbeat_of_clients(cluster: Cluster) -> None:
    """A stopped broker is noticed when a connection to it is used, idle, or just being opened."""
    primary, first, _ = cluster.ready()
    addresses = f"{primary.address},{first.address}"
    idle, using = (Connection(addresses, heartbeat=1, connect_timeout=0.5).open(10) for _ in range(2))
    with idle, using:
        sender = using.session().sender(using.session().declare_queue("r5", durable=True))
        primary.pause()
        with pytest.raises(TROUBLE):
            primary.connect(socket_timeout=0.5, stack_timeout=0.5)
        first.promote()
        with Connection(addresses, connect_timeout=0.5).open(20) as opening:
            sender.send("used", timeout=20)
            for connection in (idle, opening):
                wait_connected(connection, first)
        assert (idle.failovers, using.failovers) == (1, 1)
    with first.channel() as channel:
        assert take(channel, "r5", 1) == ["used"]


def test_05_heartbeat_of_the_broker(cluster: Cluster) -> None:
    """The other way round: a client that promises heartbeats and falls silent loses its connection."""
    primary, *_ = cluster.ready()
    connection = primary.connect(heartbeat=1, client_properties={"connection_name": "silent"})

    def lives() -> bool:
        properties = [session["client_properties"] for session in primary.ask("session.list")]
        return any(found.get("connection_name") == "silent" for found in properties)

    assert lives()
    # No process serves the connection from here on: no heartbeat is sent.
    wait_for(lambda: not lives(), 60, "the end of the silent session")
    with pytest.raises(TROUBLE):
        connection.process_data_events(0)
        connection.channel()


def test_06_failover_of_a_numbered_load(cluster: Cluster) -> None:
    """A numbered sender and receiver on another client library carry on after the primary is killed."""
    cluster.ready()
    pair = PlainPair([member.port for member in cluster.members], "r6", rate=200)
    progress([pair])
    cluster.fail_over()
    progress([pair])
    pair.finish()
    assert_nothing_lost(pair)


def test_07_backup_failover(cluster: Cluster) -> None:
    primary, first, second = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r7")
        publish(channel, "r7", ["a"])
    cluster.fail_over(to=first)
    assert_browse_backup(second, "r7", ["a"])
    with first.channel() as channel:
        publish(channel, "r7", ["b"])
        assert_browse_backup(second, "r7", ["a", "b"])
        assert take(channel, "r7", 1) == ["a"]
        assert_browse_backup(second, "r7", ["b"])


def test_08_empty_backup_failover(make_cluster) -> None:
    """A new primary without any queue becomes active; one alone without any, too."""
    cluster = make_cluster(2).start()
    first, second = cluster.members
    first.kill()
    second.promote()
    second.wait_status("active")
    assert second.queues() == {}


def test_24_broker_info(cluster: Cluster) -> None:
    """Each broker keeps one id, and all know the same ids of all members."""
    cluster.ready()
    queries = [member.ask("ha.query") for member in cluster.members]
    ids = [query["broker_id"] for query in queries]
    assert len(set(ids)) == 3
    assert ids == [member.ask("ha.status")["id"] for member in cluster.members]

    def agreed() -> bool:
        known = [{entry["id"] for entry in member.ask("ha.query")["in_sync"]["members"]} for member in cluster.members]
        return known == [set(ids)] * 3

    wait_for(agreed, what="all brokers know all")
    cluster.bounce()
    assert ids == [member.ask("ha.status")["id"] for member in cluster.members]
    wait_for(agreed, what="all brokers know all after a fail-over")


def test_24_a_fourth_broker(make_cluster) -> None:
    """It is told to the running cluster, joins, and all four know all four; the address list is the same everywhere."""
    cluster = make_cluster(3).start()
    with cluster.channel() as channel:
        channel.queue_declare("r24", durable=True)
        publish(channel, "r24", range(3))
    fourth = cluster.add()
    assert_browse_backup(fourth, "r24", range(3))

    def shown(member: Member) -> tuple[list[str], str]:
        query = member.ask("ha.query")
        return sorted(found["address"] for found in query["in_sync"]["members"]), query["brokers_url"]

    expected = (sorted(member.address for member in cluster.members), cluster.url)
    wait_for(lambda: [shown(member) for member in cluster.members] == [expected] * 4, what="all know all four")
    cluster.fail_over(to=fourth)
    with fourth.channel() as channel:
        assert take(channel, "r24", 3) == ["0", "1", "2"]


def test_25_users(make_cluster, tmp_path) -> None:
    """With a user file: the brokers' own user, and another one that uses the cluster and may not steer it."""
    file = tmp_path / "users.yaml"
    file.write_text("".join(f"{name}: {hash_password(f'{name}-password')}\n" for name in ("ha", "bob")))
    settings = {"user_file": str(file), "ha_username": "ha", "ha_password": "ha-password"}
    cluster = make_cluster(2, **settings).spawn()
    primary, backup = cluster.members
    with pytest.raises(RequestRefused, match=r"'bob' may not call ha\.promote"):
        primary.ask("ha.promote", user="bob")
    primary.ask("ha.promote", user="ha")
    wait_for(lambda: backup.ask("ha.status", user="bob")["state"] == "ready", what="the backup is ready")
    with primary.channel(credentials=pika.PlainCredentials("bob", "bob-password"), confirm=False) as channel:
        channel.exchange_declare("r25", "direct")
        channel.queue_declare("r25")
        channel.queue_bind("r25", "r25", "key")
        channel.tx_select()
        channel.basic_publish("r25", "key", b"transaction")
        channel.tx_commit()
    bodies = [message["body"] for message in backup.ask("queue.peek", user="bob", queue="r25")]
    assert bodies == ["transaction"]
    for method in ("ha.promote", "ha.claim"):
        with pytest.raises(RequestRefused, match=f"'bob' may not call {method}"):
            backup.ask(method, user="bob")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        primary.connect(credentials=pika.PlainCredentials("bob", "wrong"))


def test_28_delete_missing_response(cluster: Cluster) -> None:
    """What only the backup has goes when it joins: deleted while it was stopped, or made under a deposed primary."""
    primary, first, second = cluster.ready()
    with primary.channel() as channel:
        for name in ("r28.kept", "r28.gone"):
            channel.queue_declare(name)
            channel.exchange_declare(name, "fanout")
            publish(channel, name, range(3))
        second.pause()
        channel.queue_delete("r28.gone")
        channel.exchange_delete("r28.gone")
        second.resume()
    cluster.settle()
    assert_browse_backup(second, "r28.kept", range(3))
    wait_no_queue(second, "r28.gone")
    wait_for(lambda: not exists(second, exchange="r28.gone", admin=True), what="no exchange r28.gone")
    primary.pause()
    first.promote()
    with first.channel() as channel:
        channel.queue_delete("r28.kept")
    primary.resume()
    primary.wait_status("ready")
    wait_no_queue(primary, "r28.kept")


def test_29_delete_on_the_promoted_backup(cluster: Cluster) -> None:
    primary, first, second = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r29")
        channel.exchange_declare("r29", "fanout")
        publish(channel, "r29", range(3))
    cluster.fail_over(to=first)
    with first.channel() as channel:
        channel.queue_delete("r29")
        channel.exchange_delete("r29")
    assert not exists(first, queue="r29")
    assert not exists(first, exchange="r29")
    wait_no_queue(second, "r29")
    cluster.fail_over(to=second)
    assert not exists(second, queue="r29")


def test_32_expired(cluster: Cluster) -> None:
    """Messages that live for a millisecond while a backup joins harm no client, and are gone everywhere."""
    primary, first, second = cluster.ready()
    stop = threading.Event()

    def flood() -> None:
        with primary.channel() as channel:
            channel.queue_declare("r32.ttl", arguments={"x-message-ttl": 1})
            channel.queue_declare("r32")
            while not stop.is_set():
                publish(channel, "r32", range(20), expiration="1")
                publish(channel, "r32.ttl", range(20))

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        wait_for(lambda: "r32" in second.queues(), what="the load")
        for member in (first, second):
            cluster.restart(member)
    finally:
        stop.set()
        thread.join(30)
    assert primary.queues()["r32"]["enqueued"] > 0
    for member in cluster.members:
        assert_browse_backup(member, "r32", [])
        assert_browse_backup(member, "r32.ttl", [])
    cluster.settle()


def test_33_missed_recreate(cluster: Cluster) -> None:
    """A queue and an exchange of the old name are others: a backup that missed it throws its own away."""
    primary, _, second = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r33")
        channel.exchange_declare("r33", "fanout")
        channel.queue_bind("r33", "r33")
        publish(channel, "r33", ["old 1", "old 2"])
        second.pause()
        channel.queue_delete("r33")
        channel.exchange_delete("r33")
        channel.queue_declare("r33", durable=True)
        channel.exchange_declare("r33", "direct")
        channel.queue_bind("r33", "r33", "key")
        publish(channel, "r33", ["new"])
        second.resume()
    cluster.settle()
    assert_browse_backup(second, "r33", ["new"])
    assert second.queues()["r33"]["durable"]
    cluster.fail_over(to=second)
    with second.channel() as channel:
        channel.exchange_declare("r33", "direct", passive=True)
        publish(channel, "key", ["routed"], exchange="r33")
        with pytest.raises(pika.exceptions.UnroutableError):
            publish(channel, "other", ["lost"], exchange="r33")
        assert take(channel, "r33", 2) == ["new", "routed"]


def test_34_resource_limit(cluster: Cluster) -> None:
    """Limits of a queue start anew with each queue of that name, on a promoted broker, too."""
    primary, first, _ = cluster.ready()
    arguments = {"x-max-length": 3, "x-overflow": "reject-publish"}

    def cycle(channel) -> None:
        channel.queue_declare("r34", arguments=arguments)
        publish(channel, "r34", range(3))
        with pytest.raises(pika.exceptions.NackError):
            publish(channel, "r34", ["too much"])

    with primary.channel() as channel:
        cycle(channel)
    cluster.fail_over(to=first)
    with first.channel() as channel:
        with pytest.raises(pika.exceptions.NackError):
            publish(channel, "r34", ["too much"])
        for _ in range(5):
            channel.queue_delete("r34")
            cycle(channel)


def test_logins_that_were_verified_are_not_verified_again(make_cluster, tmp_path) -> None:
    """After a fail-over: the old primary has told the backup."""
    file = tmp_path / "users.yaml"
    file.write_text("".join(f"{name}: {hash_password(name)}\n" for name in ("anna", "bob")))
    settings = {"user_file": str(file), "ha_username": "ha", "ha_password": "ha-password", "log_enable": "debug+"}
    cluster = make_cluster(2, **settings).spawn()
    primary, backup = cluster.members
    primary.ask("ha.promote", user="ha")
    wait_for(lambda: backup.ask("ha.status", user="ha")["state"] == "ready", what="the backup is ready")
    with primary.channel(credentials=pika.PlainCredentials("anna", "anna"), confirm=False):
        wait_logged(backup, "learned which passwords are right: of 1 users")
    primary.kill()
    backup.ask("ha.promote", user="ha")
    for name in ("anna", "bob"):
        with backup.channel(credentials=pika.PlainCredentials(name, name), confirm=False):
            pass
    wait_logged(backup, "the password of user 'bob' is verified")
    assert backup.log.count("the password of user 'anna' is verified") == 0
