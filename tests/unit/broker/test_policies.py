"""Policies: which one counts, what it changes on queues that are there, and how backups follow."""

from typing import Any

import pytest
from pamqp.commands import Basic, Exchange, Queue

from qpidd_py.broker import effects
from qpidd_py.broker.policies import POLICIES_MAX, check_policy
from qpidd_py.broker.policy_keys import KINDS, OPERATOR, POLICY
from qpidd_py.broker.settings import Key
from qpidd_py.core.queue import NO_LIMIT
from qpidd_py.management.model import Management
from tests.unit.broker.peer import Peer, Replicated


class House:
    """A primary with a client, and its requests."""

    def __init__(self, level: str = "all") -> None:
        self.broker = Replicated(level)
        self.management = Management(self.broker)
        self.peer = Peer(self.broker)
        self.peer.open_channel()

    def ask(self, method: str, **arguments: Any) -> Any:
        replies: list[Any] = []
        self.management.request(method, arguments, replies.append)
        self.broker.advance()
        (answer,) = replies
        return answer["result"] if answer["ok"] else answer["error"]

    def policy(
        self,
        name: str = "p",
        pattern: str = "^q",
        operator: bool = False,
        priority: int = 0,
        to: str = "all",
        **keys: Any,
    ) -> Any:
        definition = {key.replace("_", "-"): value for key, value in keys.items()}
        fields: dict[str, Any] = {"pattern": pattern, "priority": priority, "definition": definition, "apply-to": to}
        return self.ask("policy.set", name=name, operator=operator, **fields)

    def declare(self, name: str = "q", **arguments: Any) -> None:
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.peer.send(1, Queue.Declare(queue=name, arguments=table, durable=True))
        self.broker.advance()
        (answer,) = self.peer.frames()
        assert isinstance(answer, Queue.DeclareOk), answer

    def publish(self, *bodies: bytes, to: str = "q", **properties: Any) -> None:
        for body in bodies:
            self.peer.publish(body, to, **properties)
        self.broker.advance()

    def bodies(self, queue: str = "q") -> list[bytes]:
        found = self.ask("queue.peek", queue=queue, limit=100)
        return [each["body"].encode() for each in found]

    def shown(self, name: str = "q", kind: str = "queue") -> dict[str, Any]:
        (found,) = (each for each in self.ask(f"{kind}.list") if each["name"] == name)
        outside = {"not_in_force": found["not_in_force"]} if found["not_in_force"] else {}
        return {key: found[key] for key in ("policy", "operator_policy", "effective")} | outside


@pytest.fixture
def house() -> House:
    return House()


def test_a_limit_counts_at_once_for_what_is_there_and_for_what_comes(house: House) -> None:
    house.declare("q")
    house.declare("other")
    house.publish(b"1", b"2", b"3", b"4")
    house.publish(b"1", b"2", b"3", to="other")
    assert house.policy(max_length=2) == {}
    assert house.bodies() == [b"3", b"4"] and len(house.bodies("other")) == 3
    house.publish(b"5")
    assert house.bodies() == [b"4", b"5"]
    house.declare("q2")
    house.publish(b"1", b"2", b"3", to="q2")
    assert house.bodies("q2") == [b"2", b"3"]
    assert house.ask("policy.clear", name="p") == {}
    house.publish(b"6", b"7")
    assert house.bodies() == [b"4", b"5", b"6", b"7"]


def test_what_is_much_too_large_becomes_smaller_over_some_turns(house: House) -> None:
    house.declare("q")
    house.publish(*[b"x"] * 5000)
    replies: list[Any] = []
    fields = {"name": "p", "pattern": "q", "definition": {"max-length": 10}}
    house.management.request("policy.set", fields, replies.append)
    core = house.broker.vhost.queues["q"].core
    house.broker.engine.end_turn()
    assert 10 < core.ready < 5000
    for _ in range(3):
        house.broker.engine.end_turn()
    assert core.ready == 10


def test_the_highest_priority_counts_then_the_first_name(house: House) -> None:
    house.declare("q")
    house.policy("b", max_length=2)
    house.policy("a", max_length=3)
    assert house.shown() == {"policy": "a", "operator_policy": "", "effective": {"x-max-length": 3}}
    house.policy("b", max_length=2, priority=1)
    assert house.shown()["policy"] == "b"
    house.policy("c", pattern="^x", max_length=1, priority=9)
    assert house.shown()["policy"] == "b", "it does not match"
    house.policy("e", pattern="", max_length=7, priority=5)
    assert house.shown()["effective"] == {"x-max-length": 7}, "an empty pattern fits all"


def test_a_number_is_the_lowest_and_anything_else_the_arguments(house: House) -> None:
    house.declare("q", max_length=5, overflow="reject-publish", message_ttl=1000)
    house.policy(max_length=8, overflow="drop-head", message_ttl=500, dead_letter_exchange="amq.fanout")
    effect = house.broker.vhost.queues["q"].effect.arguments
    assert (effect["x-max-length"], effect["x-overflow"], effect["x-message-ttl"]) == (5, "reject-publish", 500)
    assert house.broker.vhost.queues["q"].dead_letter_exchange == "amq.fanout"
    assert house.shown()["effective"] == {"x-message-ttl": 500, "x-dead-letter-exchange": "amq.fanout"}
    house.policy("cap", operator=True, max_length=3)
    assert house.shown()["operator_policy"] == "cap" and house.broker.vhost.queues["q"].core.max_count == 3
    house.ask("policy.clear", name="cap", operator=True)
    house.ask("policy.clear", name="p")
    core = house.broker.vhost.queues["q"].core
    assert (core.max_count, core.ttl, core.dead_letter, core.rejects) == (5, 1000, None, True)


def test_dead_letters_go_where_the_policy_says(house: House) -> None:
    house.declare("q")
    house.declare("dead")
    house.policy(dead_letter_exchange="", dead_letter_routing_key="dead")
    house.publish(b"1")
    house.peer.send(1, Basic.Get(queue="q"))
    house.peer.frames()
    house.peer.send(1, Basic.Reject(1, requeue=False))
    house.broker.advance()
    assert house.bodies("dead") == [b"1"] and house.bodies() == []
    house.ask("policy.clear", name="p")
    house.publish(b"2")
    house.peer.send(1, Basic.Get(queue="q"))
    house.peer.frames()
    house.peer.send(1, Basic.Reject(2, requeue=False))
    house.broker.advance()
    assert house.bodies("dead") == [b"1"]


def test_a_full_queue_refuses_by_a_policy(house: House) -> None:
    house.declare("q")
    house.policy(max_length=1, overflow="reject-publish")
    house.publish(b"1", b"2")
    assert house.bodies() == [b"1"]


def test_an_idle_queue_goes_by_a_policy(house: House) -> None:
    house.declare("q")
    house.broker.vhost.tick(0.0)
    house.policy(expires=1000)
    house.broker.vhost.tick(1.0)
    house.broker.vhost.tick(1.9)
    assert "q" in house.broker.vhost.queues
    house.broker.vhost.tick(2.1)
    assert "q" not in house.broker.vhost.queues


def test_a_limit_of_deliveries_is_for_queues_that_count_them(house: House) -> None:
    house.declare("q", queue_type="quorum")
    house.declare("q2")
    house.policy(delivery_limit=3)
    assert house.broker.vhost.queues["q"].core.most_returns == 3
    assert (
        house.broker.vhost.queues["q2"].core.most_returns == NO_LIMIT
        and not house.broker.vhost.queues["q2"].core.counts
    )
    house.ask("policy.clear", name="p")
    assert house.broker.vhost.queues["q"].core.most_returns == 20


def test_a_backup_follows_and_decides_nothing(house: House) -> None:
    house.declare("q")
    house.publish(b"1", b"2", b"3")
    house.policy(max_length=2, expires=60000)
    backup = house.broker.backup()
    queue = backup.vhost.queues["q"]
    assert queue.effect == house.broker.vhost.queues["q"].effect and queue.core.max_count == 2
    assert queue.core.ready == 2, "by the log"
    assert backup.configurations.snapshot() == house.broker.configurations.snapshot()
    house.ask("policy.clear", name="p")
    assert house.broker.backup().vhost.queues["q"].core.max_count == NO_LIMIT
    replies: list[Any] = []
    Management(backup).request("policy.set", {"name": "p"}, replies.append)
    assert replies[0]["code"] == 320


def test_a_primary_that_is_deposed_before_it_is_safe_is_in_doubt(house: House) -> None:
    replies: list[Any] = []
    house.management.request("policy.set", {"name": "p", "pattern": "q", "definition": {"expires": 1}}, replies.append)
    assert replies == []
    house.broker.engine.demote()
    (answer,) = replies
    assert answer["code"] == 320 and "the change may be lost" in answer["error"]


def test_a_backup_drops_nothing_by_itself(house: House) -> None:
    house.declare("q")
    house.publish(b"1", b"2", b"3")
    backup = house.broker.backup()
    value = {"pattern": "q", "apply-to": "all", "priority": 0, "definition": {"max-length": 1}}
    core = backup.vhost.queues["q"].core
    backup.vhost.configuration.settings._put(Key(POLICY, "/", "p"), value, 99, b"")
    backup.engine.end_turn()
    assert core.max_count == 1 and core.ready == 3


def test_many_queues_are_looked_at_over_some_ticks(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qpidd_py.broker.effects.WORK", 3 * (3 + effects.APPLIED))
    for number in range(8):
        house.declare(f"q{number}")
    house.policy(max_length=1)
    limited = lambda: sum(queue.core.max_count == 1 for queue in house.broker.vhost.queues.values())  # noqa: E731
    assert limited() == 3
    house.peer.send(1, Queue.Delete(queue="q5"))
    house.broker.advance()
    for expected in (6, 7, 7):
        house.broker.vhost.tick(0.0)
        assert limited() == expected


def test_a_change_that_comes_again_and_again_leaves_nothing_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each began with the first queue: the last ones were never looked at."""
    monkeypatch.setattr("qpidd_py.broker.effects.WORK", 200)
    for number in range(200):
        house.declare(f"q{number}")
    for number in range(40):
        house.policy(max_length=number + 1)
        house.broker.vhost.tick(0.0)
    assert all(queue.core.max_count <= 40 for queue in house.broker.vhost.queues.values())


def test_dead_letters_stay_by_a_policy_of_quorum_queues_only(house: House) -> None:
    house.declare("q", queue_type="quorum")
    house.declare("q2")
    keys: dict[str, Any] = {"dead_letter_exchange": "amq.fanout", "overflow": "reject-publish"}
    house.policy(dead_letter_strategy="at-least-once", **keys)
    assert [house.broker.vhost.queues[name].core.keeps for name in ("q", "q2")] == [True, False]
    house.policy(**keys)
    assert not house.broker.vhost.queues["q"].core.keeps


def test_a_lazy_queue_by_policy_and_by_argument(house: House) -> None:
    lazy = house.broker.configurations.common.lazy
    for name, arguments in {"q": {}, "q2": {"queue_mode": "default"}, "q3": {"queue_type": "quorum"}}.items():
        house.declare(name, **arguments)
    house.declare("own", queue_mode="lazy", max_priority=2)
    vhost = house.broker.vhost
    levels = vhost.queues["own"].core.levels
    assert levels and list(lazy) == levels
    house.policy(queue_mode="lazy")
    assert list(lazy) == [*levels, vhost.queues["q"].core], "the argument default wins, and quorum queues have no mode"
    assert house.shown("q")["not_in_force"] == {"x-queue-mode": "this broker has no page file: see page-folder"}
    house.broker.configurations.common.paged = True
    assert house.shown("q") == {"policy": "p", "operator_policy": "", "effective": {"x-queue-mode": "lazy"}}
    backup = house.broker.backup()
    assert backup.vhost.queues["q"].core in backup.configurations.common.lazy
    house.policy("p2", queue_mode="default", priority=1)
    assert list(lazy) == levels
    house.ask("policy.clear", name="p2")
    for name in ("q", "own"):
        vhost.delete_queue(None, name, False, False)
    assert not lazy


def test_a_step_changes_few_queues(house: House) -> None:
    """50,000 queues in two steps took 0.4 s each."""
    for number in range(250):
        house.broker.vhost.declare_queue(None, f"q{number}", True, False, False, {})
    house.policy(max_length=1)
    assert sum(queue.core.max_count == 1 for queue in house.broker.vhost.queues.values()) < 200
    house.broker.vhost.tick(0.0)
    assert all(queue.core.max_count == 1 for queue in house.broker.vhost.queues.values())


def test_what_waits_for_a_delayed_exchange_and_direct_replies_have_no_policy(house: House) -> None:
    house.policy(pattern="", max_length=1, expires=1)
    arguments: Any = {"x-delayed-type": "direct"}
    house.peer.send(1, Exchange.Declare(exchange="d", exchange_type="x-delayed-message", arguments=arguments))
    house.broker.advance()
    house.peer.frames()
    waiting = house.broker.vhost.exchanges["d"].waiting
    assert waiting is not None and waiting.core.max_count == NO_LIMIT
    house.peer.send(1, Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))
    house.broker.advance()
    (reply,) = (queue for name, queue in house.broker.vhost.queues.items() if name.startswith("amq.rabbitmq"))
    assert reply.core.max_count == NO_LIMIT and reply.expires is None


GOOD: dict[str, Any] = {"pattern": "q", "apply-to": "all", "priority": 0, "definition": {"max-length": 1}}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pattern": "("}, "pattern '('"),
        ({"pattern": None}, "pattern is None, expected text"),
        ({"pattern": "x" * 1025}, "at most 1024"),
        ({"apply-to": "streams"}, "apply-to 'streams', expected one of queues, exchanges, all"),
        ({"apply-to": "exchanges"}, "key 'max-length' of the definition: it is for queues, and apply-to is exchanges"),
        ({"apply-to": "exchanges", "definition": {"x": 1}}, "key 'x' of the definition: expected one of "),
        ({"priority": True}, "priority True, expected a whole number of 32 bits"),
        ({"priority": 1 << 31}, "expected a whole number of 32 bits"),
        ({"definition": {}}, "at least one key"),
        ({"definition": []}, "at least one key"),
        ({"definition": {"max-length": "7"}}, "key 'max-length' of the definition: '7' "),
        ({"definition": {"max-length": -1}}, "key 'max-length' of the definition: -1 "),
        ({"definition": {"delivery-limit": 1.5}}, "1.5 is not a whole number"),
        ({"definition": {"overflow": "x"}}, "is not one of drop-head"),
        ({"definition": {"message-deduplication": True}}, "it begins with the queue or exchange"),
        ({"definition": {"queue-master-locator": "min-masters"}}, "the primary is the leader of all queues"),
        ({"definition": {"federation-upstream-set": "all"}}, "see `qpid-route`"),
        ({"definition": {"queue-mode": "fast"}}, "'fast' is not one of default, lazy"),
        ({"definition": {"nonsense": 1}}, "key 'nonsense' of the definition: expected one of expires"),
    ],
)
def test_what_is_no_policy_is_refused(house: House, change: dict[str, Any], text: str) -> None:
    for kind in KINDS:
        if kind == POLICY or not {"overflow", "queue-mode"} & set(change.get("definition", {})):
            with pytest.raises(ValueError, match=r"^[^\n]*$") as refused:
                check_policy(kind, {**GOOD, **change})
            assert text in str(refused.value)
    assert text in house.ask("policy.set", name="p", **{**GOOD, **change})
    assert house.ask("policy.list") == []


def test_an_operators_policy_has_numbers_only(house: House) -> None:
    for key, value in {"overflow": "drop-head", "alternate-exchange": "x", "nonsense": 1}.items():
        with pytest.raises(ValueError, match=f"key '{key}' of the definition: expected one of expires"):
            check_policy(OPERATOR, {**GOOD, "definition": {key: value}})
    with pytest.raises(ValueError, match="every member in sync"):
        check_policy(OPERATOR, {**GOOD, "definition": {"ha-mode": "all"}})
    with pytest.raises(ValueError, match="it is for queues"):
        check_policy(OPERATOR, {**GOOD, "apply-to": "exchanges"})
    check_policy(OPERATOR, GOOD)


def test_a_number_that_no_log_can_carry_is_refused(house: House) -> None:
    """It went through as an exception of the broker."""
    assert "no field can carry the number 1180591620717411303424" in house.policy(max_length=1 << 70)
    assert "1180591620717411303424" in house.ask("limit.set", vhost="/", limits={"max-queues": 1 << 70})
    uri = "amqp://"
    shovel = {"src-uri": uri, "dest-uri": uri, "src-queue": "a", "dest-queue": "b", "src-prefetch-count": 1 << 70}
    answer = house.ask("parameter.set", vhost="/", component="shovel", name="s", value=shovel)
    assert isinstance(answer, str)
    assert house.ask("policy.list") == house.ask("limit.list") == []


def test_there_are_not_too_many(house: House) -> None:
    for number in range(POLICIES_MAX):
        assert house.policy(f"p{number}", max_length=number + 1) == {}
    assert house.policy("more", max_length=1) == "100 of this kind are there, no more are possible"
    assert house.policy("p5", max_length=2) == {} and house.policy("o", operator=True, max_length=2) == {}


def test_requests_name_what_is_not_there(house: House) -> None:
    assert house.ask("policy.clear", name="p") == "no policy 'p'"
    assert house.ask("policy.clear", name="p", operator=True) == "no operator-policy 'p'"
    assert house.ask("policy.set", name="p", vhost="x", **GOOD) == "no virtual host 'x'"
    assert house.ask("policy.set", name="", **GOOD).startswith("name '' has 0 octets")
    house.policy(max_length=1)
    house.policy("o", operator=True, max_length=2)
    (mine, operators) = house.ask("policy.list")
    assert mine == {"name": "p", "vhost": "/", "operator": False, **GOOD, "pattern": "^q"}
    assert operators["operator"] and operators["name"] == "o"
