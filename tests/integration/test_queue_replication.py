"""Single queues replicated from broker to broker, outside a cluster and from a cluster, with real processes."""

import contextlib

import pika
import pika.exceptions
import pytest

from ha.qpid_ha import main as cli
from qpidd_py.cli import qpid_config as qpid_config_tool
from qpidd_py.cli.client_socket import BrokerError, RequestRefused
from tests.support.process import BrokerProcess, HeldPort
from tests.support.wait import wait_for, wait_logged


@contextlib.contextmanager
def channel_of(broker):
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=0))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def publish(channel, *bodies, queue="q"):
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body)


def take(channel, count, queue="q"):
    for _ in range(count):
        method, _, _ = channel.basic_get(queue, auto_ack=False)
        channel.basic_ack(method.delivery_tag)


def bodies(broker, queue="q"):
    return [message["body"] for message in broker.request("queue.peek", queue=queue, limit=1000)]


def become_equal(replica, expected, timeout=20):
    wait_for(lambda: bodies(replica) == expected, timeout, lambda: f"{bodies(replica)}\n{replica.log}")


def numbered(first, last):
    return [f"m{number}" for number in range(first, last)]


@pytest.fixture
def stack():
    with contextlib.ExitStack() as found:
        yield found


@pytest.fixture
def alone(tmp_path, stack):
    """Makes brokers outside a cluster."""

    def make(name, *options):
        broker = BrokerProcess(tmp_path, "--link-heartbeat-interval", "0.5", *options, name=name)
        stack.callback(broker.close)
        return broker.start()

    return make


@pytest.fixture
def pair(alone):
    """A source with a queue of ten messages, and a broker with an empty queue of the same name."""
    source, replica = (alone(name, "--ha-queue-replication", "yes") for name in ("source", "replica"))
    with channel_of(source) as channel:
        channel.queue_declare("q")
        publish(channel, *numbered(0, 10))
    with channel_of(replica) as channel:
        channel.queue_declare("q")
    return source, replica


def test_a_queue_follows_that_of_another_broker(pair):
    source, replica = pair
    answer = replica.request("ha.replicate", broker=source.address, queue="q")
    assert answer["state"] in ("copying", "following")
    become_equal(replica, numbered(0, 10))
    with channel_of(source) as channel:
        publish(channel, *numbered(10, 15))
        become_equal(replica, numbered(0, 15))
        take(channel, 7)
        become_equal(replica, numbered(7, 15))
    assert replica.request("ha.replicate")["replicas"] == [
        {"queue": "q", "broker": source.address, "state": "following", "address": source.address, "messages": 8}
    ]
    assert replica.request("ha.replicate", broker=source.address, queue="q")["state"] == "following"


def test_clients_keep_their_hands_off_a_replica_until_it_is_stopped(pair):
    source, replica = pair
    replica.request("ha.replicate", broker=source.address, queue="q")
    become_equal(replica, numbered(0, 10))
    attempts = [
        lambda channel: channel.basic_get("q"),
        lambda channel: channel.basic_consume("q", lambda *_: None),
        lambda channel: channel.queue_purge("q"),
        lambda channel: channel.queue_delete("q"),
        lambda channel: publish(channel, "mine"),
    ]
    for attempt in attempts:
        with channel_of(replica) as channel, pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            attempt(channel)
        assert caught.value.reply_code == 403
        assert f"queue 'q' in vhost '/' is a replica of that of {source.address}" in caught.value.reply_text
    with channel_of(replica) as channel:
        assert channel.queue_declare("q", passive=True).method.message_count == 10
    replica.request("ha.replicate", queue="q", stop=True)
    with channel_of(replica) as channel:
        publish(channel, "mine")
        take(channel, 10)
        assert channel.basic_get("q", auto_ack=True)[2] == b"mine"
    with channel_of(source) as channel:
        assert channel.queue_declare("q", passive=True).method.message_count == 10


def test_the_source_dies_and_comes_back_with_another_queue_of_that_name(pair):
    source, replica = pair
    replica.request("ha.replicate", broker=source.address, queue="q")
    become_equal(replica, numbered(0, 10))
    source.kill()
    wait_for(lambda: replica.request("ha.replicate")["replicas"][0]["state"] == "searching", what="the loss")
    assert bodies(replica) == numbered(0, 10)
    source.start()
    wait_for(lambda: not replica.request("ha.replicate")["replicas"], what="the end: the queue is gone there")
    assert bodies(replica) == numbered(0, 10)
    wait_logged(replica, "has no queue 'q'")


def test_deletion_at_the_source_ends_it_and_keeps_the_copy(pair):
    source, replica = pair
    replica.request("ha.replicate", broker=source.address, queue="q")
    become_equal(replica, numbered(0, 10))
    with channel_of(source) as channel:
        channel.queue_delete("q")
    wait_for(lambda: not replica.request("ha.replicate")["replicas"], what="the end")
    assert bodies(replica) == numbered(0, 10)
    wait_logged(replica, "queue 'q' was deleted")


def test_what_cannot_be_replicated_is_said(pair, alone):
    source, replica = pair
    off = alone("off")
    with channel_of(replica) as channel:
        channel.queue_declare("full")
        publish(channel, "x", queue="full")
        channel.queue_declare("going", auto_delete=True)
        channel.queue_declare("elsewhere")
    for arguments, text in [
        ({"queue": "absent", "broker": source.address}, "no queue 'absent' on replica: declare it"),
        ({"queue": "full", "broker": source.address}, "holds 1 messages"),
        ({"queue": "going", "broker": source.address}, "auto-delete"),
        ({"queue": "q", "broker": "nonsense:"}, "expected a comma separated list"),
        ({"queue": "elsewhere", "broker": source.address}, "source has no queue 'elsewhere'"),
        ({"queue": "q", "stop": True}, "queue 'q' is no replica"),
    ]:
        with pytest.raises(RequestRefused, match=text):
            replica.request("ha.replicate", **arguments)
    with pytest.raises(RequestRefused, match="ha-queue-replication is off here"):
        off.request("ha.replicate", queue="q", broker=source.address)
    waiting = replica.request("ha.replicate", queue="q", broker=off.address)
    assert waiting["state"] == "searching"
    assert "ha-queue-replication is off here" in waiting["error"]
    with pytest.raises(RequestRefused, match=r"is a replica of that of .*; stop that first"):
        replica.request("ha.replicate", queue="q", broker=source.address)
    with channel_of(replica) as channel:
        assert channel.queue_declare("elsewhere", passive=True).method.message_count == 0
        publish(channel, "free again", queue="elsewhere")


def test_qpid_config_makes_a_replica(pair, alone, capsys):
    source, _ = pair
    replica = alone("third", "--ha-queue-replication", "yes")

    def qpid_config(*words):
        code = qpid_config_tool.main([*words, "-b", replica.address])
        return code, capsys.readouterr().out

    assert qpid_config("add", "queue", "q", "--start-replica", source.address) == (0, "")
    become_equal(replica, numbered(0, 10))
    code, text = qpid_config("del", "queue", "q", "--force")
    assert (code, "is a replica of that of" in text) == (1, True)
    assert qpid_config("add", "queue", "absent", "--start-replica", source.address)[0] == 1
    assert "absent" in qpid_config("queues")[1]


def test_a_replica_of_a_clusters_queue_follows_two_fail_overs(tmp_path, stack, alone):
    ports = [HeldPort() for _ in range(3)]
    for held in ports:
        stack.callback(held.release)
    url = ",".join(f"127.0.0.1:{held.port}" for held in ports)
    options = ["--ha-cluster", "yes", "--ha-brokers-url", url, "--ha-replicate", "all"]
    cluster = []
    for number, held in enumerate(ports):
        broker = BrokerProcess(tmp_path, *options, name=f"node{number}", port=held.port)
        stack.callback(broker.close)
        cluster.append(broker.start())

    def promote(broker):
        def promoted():
            with contextlib.suppress(BrokerError):
                broker.request("ha.promote")
                return True
            return False

        wait_for(promoted, 60, lambda: broker.log)

    def ready(broker):
        return broker.request("ha.status")["state"] == "ready"

    promote(cluster[0])
    wait_for(lambda: all(map(ready, cluster[1:])), 60, "two backups")
    replica = alone("replica", "--ha-queue-replication", "yes")
    with channel_of(cluster[0]) as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, *numbered(0, 10))
    with channel_of(replica) as channel:
        channel.queue_declare("q")
    replica.request("ha.replicate", broker=url, queue="q")
    become_equal(replica, numbered(0, 10))
    with pytest.raises(RequestRefused, match="a member of a cluster"):
        cluster[0].request("ha.replicate", broker=replica.address, queue="q")
    cluster[0].kill()
    promote(cluster[1])
    with channel_of(cluster[1]) as channel:
        publish(channel, *numbered(10, 20))
        take(channel, 5)
    become_equal(replica, numbered(5, 20))
    wait_for(lambda: ready(cluster[2]), 60, "the last backup")
    cluster[1].kill()
    promote(cluster[2])
    with channel_of(cluster[2]) as channel:
        publish(channel, *numbered(20, 25))
        take(channel, 5)
    become_equal(replica, numbered(10, 25))


def test_the_command(pair, stack, capsys):
    source, replica = pair

    def qpid_ha(*words):
        code = cli.main(["replicate", *words, "-b", replica.address])
        return code, capsys.readouterr().out

    assert qpid_ha() == (0, "")
    assert qpid_ha(source.address, "q") == (0, "")
    become_equal(replica, numbered(0, 10))
    wait_for(lambda: "following" in qpid_ha()[1], what="the list")
    code, text = qpid_ha()
    assert (code, text.split()[-4:]) == (0, ["q", "following", "10", source.address])
    assert qpid_ha(source.address, "absent")[0] == 1
    assert qpid_ha("--stop", "q") == (0, "")
    assert qpid_ha("--stop", "q") == (1, "RequestRefused: queue 'q' is no replica\n")
    assert qpid_ha("only-one")[0] == qpid_ha("--stop")[0] == 1
    with channel_of(replica) as channel:
        channel.queue_purge("q")
    nobody = HeldPort()
    stack.callback(nobody.release)
    assert qpid_ha(f"127.0.0.1:{nobody.port}", "q")[1].startswith("not connected yet, it goes on trying")
