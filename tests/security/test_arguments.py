"""Arguments that an application relies on and that this broker does not honour are refused by name, on the channel."""

from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.broker.arguments import LONGEST, delivery_limit
from qpidd_py.broker.broker import Broker
from tests.unit.broker.peer import Peer

Queue = commands.Queue
REFUSED: dict[str, Any] = {
    "x-queue-type": "stream",
    "x-delivery-limit": 3,  # of a queue that is not of type quorum
    "x-dead-letter-strategy": "at-least-once",  # of a queue that is not of type quorum
    "x-quorum-initial-group-size": 3,  # the same
    "x-max-age": "1D",  # of a stream
    "x-queue-version": 3,
    "x-message-ttl": 1 << 62,
    "qpid.policy_type": "flow_to_disk",
    "qpid.LVQ_key": "key",
    "qpid.group_header_key": "group",  # without `qpid.shared_msg_group`
    "qpid.fairshare": 10,  # without `qpid.priorities`
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_is_named_in_a_channel_error(name: str) -> None:
    peer = Peer(Broker())
    peer.open_channel(1)
    peer.open_channel(2)
    close = peer.call(1, Queue.Declare(queue="q", arguments={name: REFUSED[name]}))
    assert isinstance(close, commands.Channel.Close) and close.reply_code == 406 and f"'{name}'" in close.reply_text
    assert "q" not in peer.broker.vhost.queues
    assert isinstance(peer.call(2, Queue.Declare(queue="q")), Queue.DeclareOk), "the connection lives"


def test_a_quorum_queue_is_one_that_is_replicated() -> None:
    peer = Peer(Broker())
    peer.broker.vhosts.rules.clustered = True
    peer.open_channel()
    quorum: dict[str, Any] = {"x-queue-type": "quorum", "qpid.replicate": "all"}
    assert isinstance(peer.call(1, Queue.Declare(queue="safe", durable=True, arguments=quorum)), Queue.DeclareOk)
    close = peer.call(1, Queue.Declare(queue="q", durable=True, arguments={"x-queue-type": "quorum"}))
    assert close.reply_code == 406 and "'quorum' needs 'qpid.replicate' all, found none" in close.reply_text


def test_without_a_cluster_a_quorum_queue_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A program of RabbitMQ's runs on a developer's machine."""
    peer = Peer(Broker())
    peer.open_channel()
    quorum: Any = {"x-queue-type": "quorum"}
    for number in range(100):
        answer = peer.call(1, Queue.Declare(queue=f"q{number}", durable=True, arguments=quorum))
        assert isinstance(answer, Queue.DeclareOk)
    assert isinstance(peer.call(1, Queue.Declare(queue="q0", durable=True, arguments=quorum)), Queue.DeclareOk)
    said = [record.getMessage() for record in caplog.records if "quorum" in record.getMessage()]
    assert said[0] == "quorum queue without a cluster, the only copy: 'q0'" and len(said) == 20
    close = peer.call(1, Queue.Declare(queue="q", durable=False, arguments=quorum))
    assert close.reply_code == 406 and "'transient'" in close.reply_text


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-single-active-consumer": False},
        {"x-queue-type": "classic", "x-queue-mode": "lazy"},
        {"x-dead-letter-strategy": "at-most-once"},
        {"x-queue-leader-locator": "balanced", "x-of-another-product": 1},
        {"x-queue-leader-locator": "least-leaders", "x-queue-master-locator": "min-masters"},
    ],
)
def test_what_asks_for_nothing_is_taken(arguments: dict) -> None:
    peer = Peer(Broker())
    peer.open_channel()
    assert isinstance(peer.call(1, Queue.Declare(queue="q", arguments=arguments)), Queue.DeclareOk)


@pytest.mark.parametrize("name", ["x-queue-leader-locator", "x-queue-master-locator"])
@pytest.mark.parametrize("value", ["somewhere", "", "Balanced", "min-leaders", 3, True, None, [1]])
def test_where_a_leader_is_to_be_is_a_word_of_rabbitmq(name: str, value: Any) -> None:
    peer = Peer(Broker())
    peer.open_channel()
    declare: Any = Queue.Declare(queue="q", arguments={name: value})
    close = peer.call(1, declare)
    assert isinstance(close, commands.Channel.Close) and close.reply_code == 406
    theirs = f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': "
    found = "invalid_queue_locator_arg, " if isinstance(value, str) else ""
    assert close.reply_text.startswith(f"{theirs}{found}{value!r} is not "), close.reply_text


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_leader_locator_is_compared(kind: str) -> None:
    peer = Peer(Broker())
    peer.open_channel()

    def declare(**arguments: Any) -> Any:
        return peer.call(1, Queue.Declare(queue="q", durable=True, arguments={"x-queue-type": kind, **arguments}))

    assert isinstance(declare(**{"x-queue-leader-locator": "random"}), Queue.DeclareOk)
    assert isinstance(declare(**{"x-queue-leader-locator": "random"}), Queue.DeclareOk)
    assert "received 'balanced' but current is 'random'" in declare(**{"x-queue-leader-locator": "balanced"}).reply_text


@pytest.mark.parametrize(
    "value", ["3", "", None, True, -2, -(1 << 63), float("nan"), float("inf"), [1], {"a": 1}, b"3"]
)
def test_a_delivery_limit_that_is_no_number_is_none_and_told(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Broker())
    peer.open_channel()
    arguments: Any = {"x-queue-type": "quorum", "x-delivery-limit": value}
    assert isinstance(peer.call(1, Queue.Declare(queue="q", durable=True, arguments=arguments)), Queue.DeclareOk)
    assert "no delivery limit, since 'x-delivery-limit' is no number: 'q'" in caplog.messages
    assert delivery_limit(arguments) == -1


@pytest.mark.parametrize(("value", "limit"), [(0, 0), (1.5, 1), (-1, -1), (1e300, LONGEST), ((1 << 63) - 1, LONGEST)])
def test_a_delivery_limit_that_is_a_number(value: Any, limit: int, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(Broker())
    peer.open_channel()
    arguments: Any = {"x-queue-type": "quorum", "x-delivery-limit": value}
    assert isinstance(peer.call(1, Queue.Declare(queue="q", durable=True, arguments=arguments)), Queue.DeclareOk)
    assert delivery_limit(arguments) == limit and "no number" not in caplog.text


@pytest.mark.parametrize(
    "arguments", [{"x-cancel-on-ha-failover": 1}, {"x-stream-offset": "first"}, {"x-priority": "1"}]
)
def test_of_consumers(arguments: dict[str, Any]) -> None:
    peer = Peer(Broker())
    peer.open_channel()
    peer.call(1, Queue.Declare(queue="q"))
    close = peer.call(1, commands.Basic.Consume(queue="q", arguments=arguments))
    assert close.reply_code == 406 and f"'{next(iter(arguments))}'" in close.reply_text
