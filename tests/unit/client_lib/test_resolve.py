"""What an address makes a client ask, declare, publish to and consume: whole conversations with a made-up broker."""

from collections.abc import Generator
from typing import Any

import pytest

from client_lib import AssertionFailed, InvalidOption, NotFound, ResolutionError, UnauthorizedAccess
from client_lib.addresses.operations import Answer, Operation
from client_lib.addresses.resolve import ReceiverPlan, SenderPlan, resolve_receiver, resolve_sender

PREDECLARED = {"amq.topic": "topic", "amq.fanout": "fanout", "amq.direct": "direct", "amq.match": "headers"}


class FakeBroker:
    """Queues and exchanges as their declarations; answers as RabbitMQ and qpidd-py do."""

    def __init__(self, queues: dict[str, Any] | None = None, exchanges: dict[str, Any] | None = None) -> None:
        self.queues = dict(queues or {})
        self.exchanges = {**dict.fromkeys(PREDECLARED), **(exchanges or {})}
        self.locked: set[str] = set()
        self.bound: list[tuple[str, str, str]] = []
        self.asked: list[str] = []

    def answer(self, operation: Operation) -> Answer:
        arguments = dict(operation.arguments)
        kind = "queue" if "queue" in arguments else "exchange"
        self.asked.append(f"{operation.method} {arguments[kind]}{' passive' if arguments.get('passive') else ''}")
        if operation.method == "queue_bind":
            return self._bind(arguments)
        there = self.queues if kind == "queue" else self.exchanges
        name = arguments[kind]
        if name in self.locked:
            return Answer(405, "RESOURCE_LOCKED")
        if arguments.get("passive"):
            return Answer() if name in there else Answer(404, f"no {kind} {name}")
        if name.startswith("amq.") and name not in there:
            return Answer(403, "ACCESS_REFUSED")
        if there.setdefault(name, arguments) != arguments:
            return Answer(406, f"PRECONDITION_FAILED {name}")
        return Answer()

    def _bind(self, arguments: dict[str, Any]) -> Answer:
        if arguments["queue"] not in self.queues or arguments["exchange"] not in self.exchanges:
            return Answer(404, "no such thing")
        self.bound.append((arguments["exchange"], arguments["routing_key"], arguments["queue"]))
        return Answer()

    def run(self, resolution: Generator[Operation, Answer, Any]) -> Any:
        try:
            operation = next(resolution)
            while True:
                operation = resolution.send(self.answer(operation))
        except StopIteration as stop:
            return stop.value

    def sender(self, text: str) -> SenderPlan:
        plan: SenderPlan = self.run(resolve_sender(text, "unique"))
        return plan

    def receiver(self, text: str) -> ReceiverPlan:
        plan: ReceiverPlan = self.run(resolve_receiver(text, "unique"))
        return plan


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker({"q": None}, {"t": None})


def methods(operations: tuple[Operation, ...]) -> list[str]:
    return [operation.method for operation in operations]


# ---- which node it is


def test_a_queue_is_published_to_through_the_default_exchange(broker: FakeBroker) -> None:
    assert broker.sender("q/red") == SenderPlan("q", "", "q", "red", True)
    assert broker.asked == ["queue_declare q passive"]


def test_a_queue_is_consumed(broker: FakeBroker) -> None:
    assert broker.receiver("q") == ReceiverPlan("q", "q", False, False, False)


def test_an_exchange_is_published_to_with_the_subject(broker: FakeBroker) -> None:
    assert broker.sender("t/red") == SenderPlan("t", "t", None, "red", False)
    assert broker.asked == ["queue_declare t passive", "exchange_declare t passive"]


def test_of_two_of_one_name_the_queue_is_meant_unless_the_address_says_topic() -> None:
    broker = FakeBroker({"x": None}, {"x": None})
    assert broker.sender("x").exchange == ""
    assert broker.sender("x; {node: {type: topic}}").exchange == "x"


@pytest.mark.parametrize("open_", [resolve_sender, resolve_receiver])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("none", "no queue and no exchange 'none'"),
        ("none; {node: {type: queue}}", "no queue 'none'"),
        ("none; {create: never}", "does not say create"),
        ("t; {node: {type: queue}}", "'t' is a topic, not a queue"),
        ("q; {node: {type: topic}}", "'q' is a queue, not a topic"),
    ],
)
def test_a_node_that_is_missing(broker: FakeBroker, open_: Any, text: str, reason: str) -> None:
    with pytest.raises(NotFound, match=reason):
        broker.run(open_(text, "unique"))


def test_a_reply_queue_of_another_connection_can_be_sent_to_but_not_consumed(broker: FakeBroker) -> None:
    broker.locked.add("q")
    assert broker.sender("q").routing_key == "q"
    assert broker.sender("q; {create: always, node: {type: queue}}").restore == ()
    for address in ("q", "q; {create: always, node: {type: queue}}"):
        with pytest.raises(ResolutionError, match="queue q: 405"):
            broker.receiver(address)


def test_access_refused_is_said_so() -> None:
    with pytest.raises(UnauthorizedAccess, match="403"):
        FakeBroker().sender("amq.mine; {create: always}")


# ---- create


@pytest.mark.parametrize(
    ("policy", "sender", "receiver"),
    [("always", True, True), ("sender", True, False), ("receiver", False, True), ("never", False, False)],
)
def test_create_is_for_those_it_names(policy: str, sender: bool, receiver: bool) -> None:
    for open_, creates in ((resolve_sender, sender), (resolve_receiver, receiver)):
        broker = FakeBroker()
        if creates:
            broker.run(open_(f"new; {{create: {policy}}}", "unique"))
        else:
            with pytest.raises(NotFound):
                broker.run(open_(f"new; {{create: {policy}}}", "unique"))
        assert ("new" in broker.queues) is creates


def test_a_created_queue_has_what_the_address_says_and_is_restored() -> None:
    broker = FakeBroker({"qpid.management": None}, {"lost": None})
    plan = broker.sender(
        "new; {create: always, node: {durable: true, x-declare: {auto-delete: true, exclusive: true, "
        "alternate-exchange: lost, arguments: {x-max-length: 5}}, "
        "x-bindings: [{exchange: amq.topic, key: 'a.#', arguments: {b: c}}]}}"
    )
    declared = {
        "queue": "new",
        "durable": True,
        "exclusive": True,
        "auto_delete": True,
        "arguments": {"alternate-exchange": "lost", "x-max-length": 5},
    }
    assert broker.queues["new"] == declared
    assert plan.restore[0] == Operation("queue_declare", declared)
    assert methods(plan.restore) == ["queue_declare", "queue_bind"]
    assert plan.restore[1].arguments["arguments"] == {"b": "c"}
    assert broker.bound == [("amq.topic", "a.#", "new")]


def test_a_created_topic_is_a_topic_exchange_unless_it_says_otherwise() -> None:
    broker = FakeBroker()
    broker.sender("a; {create: always, node: {type: topic}}")
    broker.sender("b; {create: always, node: {type: topic, x-declare: {type: fanout, durable: true}}}")
    assert broker.exchanges["a"]["exchange_type"] == "topic"
    assert (broker.exchanges["b"]["exchange_type"], broker.exchanges["b"]["durable"]) == ("fanout", True)


def test_what_is_there_is_used_as_it_is_and_not_restored(broker: FakeBroker) -> None:
    """Declaring it again with other arguments after a fail-over would close the channel."""
    plan = broker.sender("q; {create: always, node: {durable: true}}")
    assert plan == SenderPlan("q", "", "q", None, True)
    assert broker.queues["q"] is None


def test_who_may_not_declare_may_use_what_is_there() -> None:
    class Guarded(FakeBroker):
        def answer(self, operation: Operation) -> Answer:
            passive = operation.arguments.get("passive")
            return super().answer(operation) if passive else Answer(403, "ACCESS_REFUSED")

    broker = Guarded({"q": None})
    assert broker.sender("q; {create: always}").routing_key == "q"
    for address in ("q; {assert: always, node: {durable: true}}", "new; {create: always}"):
        with pytest.raises(UnauthorizedAccess):
            broker.sender(address)


@pytest.mark.parametrize(
    "address",
    [
        "new; {create: always, node: {x-declare: {alternate-exchange: t}}}",
        "t; {link: {x-declare: {alternate-exchange: t}}}",
    ],
)
def test_an_alternate_exchange_of_a_queue_is_refused_where_it_would_be_ignored(
    broker: FakeBroker, address: str
) -> None:
    with pytest.raises(InvalidOption, match=r"alternate-exchange of the queue .* this broker does not"):
        broker.receiver(address)
    broker.queues["qpid.management"] = None
    broker.receiver(address)


def test_create_finds_an_exchange_of_that_name(broker: FakeBroker) -> None:
    assert broker.sender("amq.topic/a; {create: always}").exchange == "amq.topic"


def test_an_argument_that_the_broker_refuses_is_told() -> None:
    class Strict(FakeBroker):
        def answer(self, operation: Operation) -> Answer:
            passive = operation.arguments.get("passive")
            return super().answer(operation) if passive else Answer(406, "invalid arg 'x-max-length'")

    with pytest.raises(ResolutionError, match="406 invalid arg 'x-max-length'"):
        Strict().sender("new; {create: always, node: {x-declare: {arguments: {x-max-length: some}}}}")


# ---- assert


def test_an_assertion_compares_the_whole_declaration() -> None:
    broker = FakeBroker()
    broker.sender("a; {create: always, node: {durable: true}}")
    assert broker.receiver("a; {assert: receiver, node: {durable: true}}").queue == "a"
    with pytest.raises(AssertionFailed, match="406"):
        broker.receiver("a; {assert: always, node: {durable: false}}")
    with pytest.raises(AssertionFailed):
        broker.receiver("a; {assert: always, node: {durable: true, x-declare: {auto-delete: true}}}")
    assert broker.sender("a; {assert: receiver, node: {durable: false}}").mandatory  # not the sender's affair


def test_what_was_compared_is_not_created_after_a_failover() -> None:
    broker = FakeBroker()
    broker.sender("a; {create: always, node: {durable: true}}")
    assert broker.receiver("a; {assert: always, node: {durable: true}}").restore == ()


def test_an_assertion_about_the_kind(broker: FakeBroker) -> None:
    broker.receiver("q; {assert: always, node: {type: queue}}")
    with pytest.raises(AssertionFailed, match="'t' is a topic, not a queue"):
        broker.receiver("t; {assert: always, node: {type: queue}}")


def test_creating_and_asserting_at_once(broker: FakeBroker) -> None:
    broker.sender("new; {create: always, assert: always, node: {durable: true}}")
    with pytest.raises(AssertionFailed):
        broker.sender("q; {create: always, assert: always, node: {durable: true}}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("t; {assert: always, node: {type: topic, durable: true}}", "say its x-declare: {type: ...}, too"),
        ("q; {assert: always, node: {x-bindings: [{exchange: t}]}}", "cannot ask for bindings"),
    ],
)
def test_assertions_that_cannot_be_made(broker: FakeBroker, text: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        broker.sender(text)


# ---- subscriptions to topics


def test_a_receiver_of_a_topic_has_a_queue_of_its_own_which_it_takes_along(broker: FakeBroker) -> None:
    plan = broker.receiver("amq.topic")
    assert (plan.source, plan.queue) == ("amq.topic", "unique.amq.topic")
    declared = broker.queues[plan.queue]
    assert (declared["exclusive"], declared["auto_delete"], declared["durable"]) == (True, True, False)
    assert methods(plan.restore) == ["queue_declare", "queue_bind"]
    assert plan.undo == (Operation("queue_delete", {"queue": plan.queue}),)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("amq.topic", ["#"]),
        ("amq.topic/a.*", ["a.*"]),
        ("amq.fanout", [""]),
        ("amq.match", [""]),
        ("amq.direct", [""]),
        ("amq.direct/red", ["red"]),
        ("t", ["#", ""]),  # 0-9-1 does not say what type it has
        ("t; {node: {x-declare: {type: direct}}}", [""]),
        ("new; {create: always, node: {type: topic}}", ["#"]),
        ("amq.match; {link: {x-bindings: [{key: k, arguments: {x-match: any, a: 1}}]}}", ["k"]),
        ("amq.topic/s; {link: {x-bindings: [{key: k}]}}", ["s", "k"]),
    ],
)
def test_what_a_subscription_is_bound_with(broker: FakeBroker, text: str, keys: list[str]) -> None:
    plan = broker.receiver(text)
    assert broker.bound == [(plan.source, key, plan.queue) for key in keys]


@pytest.mark.parametrize(
    ("link", "vanishes"),
    [
        ("{}", True),
        ("{x-declare: {arguments: {qpid.auto_delete_timeout: 5}}}", False),
        ("{x-declare: {auto-delete: false}}", False),
    ],
)
def test_what_the_broker_removes_by_itself_need_not_be_undone(broker: FakeBroker, link: str, vanishes: bool) -> None:
    plan = broker.receiver(f"t; {{link: {link}, delete: always}}")
    assert methods(plan.undo) == ["queue_delete", "exchange_delete"]
    assert plan.vanishes == (plan.undo[:1] if vanishes else ())


def test_a_named_durable_subscription_stays(broker: FakeBroker) -> None:
    plan = broker.receiver("amq.topic; {link: {name: mine, durable: true}}")
    declared = broker.queues["mine"]
    assert (declared["exclusive"], declared["auto_delete"], declared["durable"]) == (False, False, True)
    assert plan.undo == ()
    assert "queue_declare" in methods(plan.restore)


def test_the_subscription_queue_is_declared_as_the_link_says(broker: FakeBroker) -> None:
    broker.receiver("t; {link: {name: mine, x-declare: {exclusive: false, arguments: {x-expires: 9}}}}")
    declared = broker.queues["mine"]
    assert (declared["exclusive"], declared["auto_delete"], declared["arguments"]) == (False, True, {"x-expires": 9})


def test_other_exchanges_can_be_bound_too(broker: FakeBroker) -> None:
    broker.receiver("amq.topic; {link: {x-bindings: [{exchange: t, key: a}]}}")
    assert broker.bound == [("t", "a", "unique.amq.topic")]


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("amq.topic; {mode: browse}", InvalidOption, "mode: browse is for queues"),
        ("amq.topic; {link: {durable: true}}", InvalidOption, "without link.name"),
        ("q/red", InvalidOption, "cannot choose by subject"),
        ("q; {link: {x-declare: {exclusive: true}}}", InvalidOption, "subscription to a topic, and q is a queue"),
        ("q; {link: {x-bindings: [{key: k}]}}", InvalidOption, "exchange is missing"),
        ("q; {link: {x-bindings: [{exchange: nowhere}]}}", NotFound, "404"),
        ("x; {create: always, node: {x-declare: {type: fanout}}}", InvalidOption, "say node: {type: topic}"),
        (
            "x; {create: always, node: {type: topic, x-declare: {exclusive: true}}}",
            InvalidOption,
            "cannot be exclusive",
        ),
        ("q; {mode: browse}", InvalidOption, "this broker does not \\(404"),
    ],
)
def test_what_receivers_cannot_have(broker: FakeBroker, text: str, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        broker.receiver(text)


def test_a_sender_to_a_topic_binds_queues_but_not_one_of_its_own(broker: FakeBroker) -> None:
    plan = broker.sender("t; {link: {x-bindings: [{queue: q, key: a}]}}")
    assert broker.bound == [("t", "a", "q")]
    assert methods(plan.undo) == ["queue_unbind"]
    with pytest.raises(InvalidOption, match="queue is missing"):
        broker.sender("t; {link: {x-bindings: [{key: a}]}}")


def test_options_of_the_other_side_do_no_harm(broker: FakeBroker) -> None:
    options = (
        "mode: browse, link: {name: x, durable: true, x-declare: {exclusive: true}, x-subscribe: {exclusive: true}}"
    )
    assert broker.sender(f"q; {{{options}}}").restore == ()


# ---- how it is consumed, temporary nodes, delete


@pytest.mark.parametrize(("word", "no_ack"), [("unreliable", True), ("at-most-once", True), ("at-least-once", False)])
def test_reliability_decides_about_acknowledgements(broker: FakeBroker, word: str, no_ack: bool) -> None:
    assert broker.receiver(f"q; {{link: {{reliability: {word}}}}}").no_ack is no_ack
    assert broker.receiver(f"t; {{link: {{reliability: {word}}}}}").no_ack is no_ack


def test_x_subscribe_goes_to_basic_consume(broker: FakeBroker) -> None:
    plan = broker.receiver("q; {link: {x-subscribe: {exclusive: true, arguments: {x-priority: 3}}}}")
    assert (plan.exclusive, plan.arguments) == (True, {"x-priority": 3})


def test_browsing_asks_whether_the_broker_has_management() -> None:
    broker = FakeBroker({"q": None, "qpid.management": None})
    assert broker.receiver("q; {mode: browse}").browse
    assert broker.asked[-1] == "queue_declare qpid.management passive"


def test_a_temporary_queue_is_made_up_and_goes_with_the_connection() -> None:
    broker = FakeBroker()
    plan = broker.receiver("#reply")
    declared = broker.queues["unique#reply"]
    assert (plan.source, plan.queue) == ("unique#reply", "unique#reply")
    assert (declared["exclusive"], declared["auto_delete"], declared["durable"]) == (True, True, False)
    assert plan.restore == (Operation("queue_declare", declared),)
    assert broker.asked == ["queue_declare unique#reply"]


def test_a_temporary_queue_that_says_durable_stays() -> None:
    broker = FakeBroker()
    broker.sender("#; {node: {durable: true}}")
    declared = broker.queues["unique#"]
    assert (declared["exclusive"], declared["auto_delete"], declared["durable"]) == (False, False, True)


def test_a_temporary_topic_is_an_exchange() -> None:
    broker = FakeBroker()
    broker.sender("#; {node: {type: topic}}")
    assert broker.exchanges["unique#"]["auto_delete"] is True


@pytest.mark.parametrize(
    ("text", "sender", "receiver"),
    [
        ("q; {delete: always}", ["queue_delete"], ["queue_delete"]),
        ("q; {delete: sender}", ["queue_delete"], []),
        ("q; {delete: receiver}", [], ["queue_delete"]),
        ("q", [], []),
        ("t; {delete: always}", ["exchange_delete"], ["queue_delete", "exchange_delete"]),
    ],
)
def test_delete_is_for_those_it_names(broker: FakeBroker, text: str, sender: list[str], receiver: list[str]) -> None:
    assert methods(broker.sender(text).undo) == sender
    assert methods(broker.receiver(text).undo) == receiver
