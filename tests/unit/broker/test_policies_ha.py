"""Policies of mirrored queues: what says what holds here is accepted and done, the rest is refused with the reason."""

from typing import Any

import pytest
from pamqp.commands import Exchange, Queue

from qpidd_py.broker.policies import check_policy
from qpidd_py.broker.policy_keys import POLICY
from qpidd_py.http import views
from qpidd_py.management.model import Management
from tests.unit.broker.peer import Peer
from tests.unit.broker.test_policies import GOOD, House

RABBITS = {
    "ha-mode": "all",
    "ha-sync-mode": "automatic",
    "ha-promote-on-shutdown": "when-synced",
    "ha-promote-on-failure": "when-synced",
}
NONE = {"qpid.replicate": "none"}


@pytest.fixture(params=["none", "configuration", "all"])
def house(request: pytest.FixtureRequest) -> House:
    """Of each `ha-replicate`."""
    return House(request.param)


def ha(house: House, name: str = "ha", pattern: str = "", **fields: Any) -> Any:
    fields = {"definition": RABBITS, "apply-to": "all", **fields}
    return house.ask("policy.set", name=name, pattern=pattern, **fields)


def exchange(house: House, name: str, arguments: Any = None) -> None:
    house.peer.send(1, Exchange.Declare(exchange=name, exchange_type="fanout", arguments=arguments))
    house.broker.advance()
    house.peer.frames()


def test_what_is_declared_later_is_replicated_whatever_ha_replicate_says(house: House) -> None:
    assert ha(house) == {}
    house.declare("q")
    exchange(house, "e")
    house.peer.send(1, Queue.Bind(queue="q", exchange="e"))
    house.publish(b"1", to="q")
    house.peer.frames()
    backup = house.broker.backup()
    assert backup.vhost.queues["q"].core.ready == 1 and "e" in backup.vhost.exchanges
    assert house.shown("q") == {"policy": "ha", "operator_policy": "", "effective": RABBITS}
    assert house.shown("e", "exchange")["effective"] == RABBITS
    house.ask("policy.clear", name="ha")
    house.declare("q")
    assert house.broker.vhost.queues["q"].level == "all", "a queue stays as it was declared"


def test_an_explicit_argument_wins_and_is_shown_as_not_in_force(house: House) -> None:
    ha(house)
    house.declare("q")
    house.broker.vhost.declare_queue(None, "mine", True, False, False, NONE)
    exchange(house, "e", NONE)
    assert set(house.broker.backup().vhost.queues) == {"q"}
    for name, kind in (("mine", "queue"), ("e", "exchange")):
        found = house.shown(name, kind)
        assert found["effective"] == {} and found["policy"] == "ha"
        assert found["not_in_force"] == dict.fromkeys(
            RABBITS, "declared with qpid.replicate=none, or before the policy"
        )


def test_the_http_api_shows_it_as_rabbitmq_does_and_what_is_not_in_force(house: House) -> None:
    ha(house, definition={**RABBITS, "queue-mode": "lazy", "alternate-exchange": "x"})
    house.declare("q")
    exchange(house, "e", NONE)
    queue = views.queue(house.ask("queue.list")[0], "node")
    assert (queue["policy"], queue["operator_policy"], queue["effective_policy_definition"]) == ("ha", None, RABBITS)
    assert queue["policy_not_in_force"] == {"queue-mode": "this broker has no page file: see page-folder"}
    (found,) = (views.exchange(each) for each in house.ask("exchange.list") if each["name"] == "e")
    assert found["effective_policy_definition"] == {"alternate-exchange": "x"}
    assert set(found["policy_not_in_force"]) == set(RABBITS)


def test_exclusive_queues_are_not_replicated_and_say_so(house: House) -> None:
    ha(house)
    house.peer.send(1, Queue.Declare(queue="mine", exclusive=True))
    house.broker.advance()
    reasons = set(house.shown("mine")["not_in_force"].values())
    assert reasons == {"a queue that ends with its connection is not replicated"}
    assert "mine" not in house.broker.backup().vhost.queues


@pytest.mark.parametrize("house", ["none", "configuration"], indirect=True)
def test_who_sets_it_hears_of_what_it_does_not_reach(house: House) -> None:
    for number in range(7):
        house.declare(f"q{number}")
    house.declare("other")
    exchange(house, "qe")
    told = ha(house, pattern="^q")["not_in_force"]
    names = "q0, q1, q2, q3, q4 and 3 more"
    assert (
        told == f"ha-mode: declared before, and not replicated: {names}; to change that, delete and declare them again"
    )
    assert "ha-mode" in house.shown("q3")["not_in_force"] and house.shown("other")["policy"] == ""
    assert ha(house, pattern="^qe", **{"apply-to": "exchanges"})["not_in_force"].count("qe") == 1
    assert ha(house, pattern="^qe", **{"apply-to": "queues"}) == {}
    ha(house, pattern="^q")
    house.broker.vhost.delete_queue(None, "q3", False, False)
    house.declare("q3")
    assert house.broker.vhost.queues["q3"].level == "all"


def test_the_answer_never_comes_before_it_is_safe(house: House) -> None:
    for number in range(2500):
        house.broker.vhost.declare_queue(None, f"q{number}", True, False, False, NONE)
    replies: list[Any] = []
    fields = {"name": "ha", "pattern": "", "definition": RABBITS}
    steps = house.management.work("policy.set", fields, replies.append, None)
    assert sum(1 for _ in steps) == 3 and not replies, "some at a time"
    house.broker.advance()
    (answer,) = replies
    assert answer["ok"] and "and 2495 more" in answer["result"]["not_in_force"]


def test_a_primary_that_is_deposed_between_two_slices_sets_nothing(house: House) -> None:
    house.declare("q")
    replies: list[Any] = []
    fields = {"name": "ha", "pattern": "", "definition": RABBITS}
    steps = house.management.work("policy.set", fields, replies.append, None)
    next(steps)
    house.broker.engine.demote()
    house.broker.passive = True
    assert list(steps) == []
    assert replies[0]["code"] == 320 and house.ask("policy.list") == []


def test_one_for_queues_leaves_exchanges_and_the_first_one_counts() -> None:
    house = House("none")
    ha(house, **{"apply-to": "queues"})
    exchange(house, "e")
    assert house.broker.vhost.exchanges["e"].level == "none"
    ha(house, "first", "^plain", priority=1, definition={"max-length": 7})
    house.declare("plain")
    assert house.broker.vhost.queues["plain"].level == "none", "definitions are not mixed"
    house.declare("q", max_length=5)
    assert house.broker.vhost.queues["q"].level == "all"


def test_a_quorum_queue_needs_nothing_else() -> None:
    """It needs level all, which `ha-replicate=none` does not give."""
    house = House("none")
    house.broker.vhosts.rules.clustered = True
    ha(house)
    house.declare("q", queue_type="quorum")
    assert "q" in house.broker.backup().vhost.queues


def test_a_backup_promoted_goes_on_with_it() -> None:
    house = House("none")
    ha(house)
    backup = house.broker.backup()
    client = Peer(backup)
    client.open_channel()
    client.send(1, Queue.Declare(queue="q"))
    assert "broker is a backup" in client.frames()[0].reply_text
    backup.passive = False
    client = Peer(backup)
    client.open_channel()
    client.send(1, Queue.Declare(queue="q"))
    client.frames()
    assert backup.vhost.queues["q"].level == "all"
    assert Management(backup).broker.vhost.queues["q"].position


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"ha-mode": "exactly", "ha-params": 2}, "key 'ha-mode' of the definition: 'exactly' is refused: every member"),
        ({"ha-mode": "nodes"}, "ha-brokers-url and ha-safety"),
        ({"ha-mode": "all", "ha-params": 2}, "key 'ha-params' of the definition: every member in sync"),
        ({"ha-mode": "all", "ha-sync-mode": "manual"}, "a backup gets what it lacks by itself"),
        ({"ha-mode": "all", "ha-sync-batch-size": 5}, "see ha-slice-size"),
        ({"ha-mode": "all", "ha-promote-on-shutdown": "always"}, "a broker that lacks what was confirmed is not"),
        ({"ha-mode": "all", "ha-promote-on-failure": "always"}, "see ha-safety"),
        ({"ha-mode": True}, "True is refused"),
        ({"ha-mode": ["all"]}, "is refused"),
        ({"ha-sync-mode": "automatic"}, "key 'ha-sync-mode' of the definition: there is no 'ha-mode'"),
    ],
)
@pytest.mark.parametrize("to", ["all", "queues", "exchanges"])
def test_what_means_something_else_here_is_refused(definition: Any, text: str, to: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as refused:
        check_policy(POLICY, {**GOOD, "definition": definition, "apply-to": to})
    assert text in str(refused.value)
