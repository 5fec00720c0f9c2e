"""Policies for exchanges: what no binding takes goes to the alternate exchange of the policy, on all brokers."""

from typing import Any

import pytest
from pamqp.commands import Exchange, Queue

from tests.unit.broker.test_policies import House


class Site(House):
    """With a queue that is bound to `rest`."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange("rest", "fanout")
        self.declare("left")
        self.bind("left", "rest")

    def exchange(self, name: str, kind: str = "direct", **arguments: Any) -> None:
        table = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.call(Exchange.Declare(exchange=name, exchange_type=kind, arguments=table))

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Any = None) -> None:
        self.call(Queue.Bind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {}))

    def call(self, method: Any) -> Any:
        self.peer.send(1, method)
        self.broker.advance()
        return self.peer.frames()[0]

    def left(self, exchange: str, key: str = "nowhere") -> int:
        """How many messages a publish to this exchange brings to `left`."""
        core = self.broker.vhost.queues["left"].core
        before = core.enqueued
        self.peer.publish(b"x", key, exchange)
        self.broker.advance()
        self.peer.frames()
        return core.enqueued - before


@pytest.fixture
def site() -> Site:
    return Site()


def alternate(site: Site, name: str = "p", pattern: str = "^e", **fields: Any) -> Any:
    return site.policy(name, pattern, to="exchanges", alternate_exchange="rest", **fields)


def test_it_holds_at_once_and_until_it_is_cleared(site: Site) -> None:
    site.exchange("e")
    assert site.left("e") == 0
    assert alternate(site) == {}
    assert site.left("e") == 1 and site.left("amq.direct") == 0
    site.exchange("e2")
    assert site.left("e2") == 1
    site.declare("q")
    site.bind("q", "e", "key")
    assert site.left("e", "key") == 0
    site.ask("policy.clear", name="p")
    assert site.left("e") == 0


def test_exchanges_that_were_always_there_have_it_except_the_brokers_own(site: Site) -> None:
    alternate(site, pattern="")
    assert [site.left(name) for name in ("amq.direct", "amq.topic", "amq.fanout", "amq.match")] == [1] * 4
    assert site.left("") == 0
    nothing: Any = {"policy": "", "operator_policy": "", "effective": {}}
    assert site.shown("", "exchange") == site.shown("amq.failover", "exchange") == nothing
    counts = {"policy": "p", "operator_policy": "", "effective": {"alternate-exchange": "rest"}}
    assert site.shown("amq.direct", "exchange") == counts


def test_the_argument_wins(site: Site) -> None:
    site.exchange("e", alternate_exchange="amq.fanout")
    alternate(site)
    assert site.left("e") == 0
    assert site.shown("e", "exchange") == {"policy": "p", "operator_policy": "", "effective": {}}
    equal = Exchange.Declare(exchange="e", exchange_type="direct", arguments={"alternate-exchange": "amq.fanout"})
    assert isinstance(site.call(equal), Exchange.DeclareOk)


def test_a_redeclaration_does_not_repeat_what_a_policy_says(site: Site) -> None:
    alternate(site)
    site.exchange("e")
    assert isinstance(site.call(Exchange.Declare(exchange="e", exchange_type="direct")), Exchange.DeclareOk)


def test_with_all_each_takes_what_is_for_it(site: Site) -> None:
    site.exchange("qe")
    site.declare("q")
    site.policy(max_length=3, alternate_exchange="rest", to="all")
    assert site.shown("q")["effective"] == {"x-max-length": 3}
    assert site.shown("qe", "exchange")["effective"] == {"alternate-exchange": "rest"}


def test_one_that_counts_for_both_hides_the_others_from_both(site: Site) -> None:
    """As in RabbitMQ: definitions are not mixed, also where the first one says nothing."""
    site.exchange("e")
    alternate(site, priority=1)
    site.policy("q", "^e", to="queues", priority=9, max_length=1)
    assert site.left("e") == 1
    site.policy("a", "^e", to="all", priority=9, max_length=1)
    assert site.left("e") == 0
    assert site.shown("e", "exchange") == {"policy": "a", "operator_policy": "", "effective": {}}


def test_one_that_goes_and_comes_back(site: Site) -> None:
    site.exchange("e")
    alternate(site)
    for _ in range(2):
        assert site.left("e") == 1
        site.call(Exchange.Delete(exchange="rest"))
        assert site.left("e") == 0
        site.exchange("rest", "fanout")
        assert site.left("e") == 0
        site.bind("left", "rest")


def test_it_counts_for_if_unused(site: Site) -> None:
    site.exchange("other")
    site.exchange("e")
    site.policy(pattern="^e", to="exchanges", alternate_exchange="other")
    refused = site.call(Exchange.Delete(exchange="other", if_unused=True))
    assert "in use" in refused.reply_text
    site.peer.send(1, *())
    site.peer.frames()
    site.policy(pattern="^e", to="exchanges", alternate_exchange="rest")
    assert not site.broker.vhost.configuration.is_alternate("other")
    site.ask("policy.clear", name="p")
    assert not site.broker.vhost.configuration.is_alternate("rest")


def test_nothing_is_counted_any_more_when_all_is_gone(site: Site) -> None:
    alternate(site, pattern="")
    site.exchange("e")
    site.broker.vhost.delete_exchange("e", False)
    alternate(site, pattern="", priority=3)
    site.ask("policy.clear", name="p")
    assert not site.broker.vhost.configuration._alternates


def test_circles_are_harmless(site: Site) -> None:
    for name in ("e1", "e2", "e3"):
        site.exchange(name)
    for name, to in (("e1", "e2"), ("e2", "e3"), ("e3", "e1"), ("rest", "rest")):
        site.policy(name, f"^{name}$", to="exchanges", alternate_exchange=to)
    assert site.left("e1") == 0
    site.bind("left", "e3", "key")
    assert site.left("e1", "key") == 1 and site.left("e2", "key") == 1
    assert site.left("rest") == 1


def test_headers_matter_from_then_on_and_no_longer(site: Site) -> None:
    """Whether a message may meet an exchange that looks at headers is remembered, too."""
    site.exchange("e")
    site.exchange("front", "fanout")
    site.call(Exchange.Bind(destination="e", source="front"))
    site.declare("q")
    site.bind("q", "amq.headers", arguments={"x-match": "all", "a": 1})
    core = site.broker.vhost.queues["q"].core

    def taken(exchange: str) -> int:
        before = core.enqueued
        for value in (1, 2):
            site.peer.publish(b"x", "k", exchange, headers={"a": value})
        site.broker.advance()
        return core.enqueued - before

    assert taken("front") == taken("e") == 0
    site.policy(pattern="^e$", to="exchanges", alternate_exchange="amq.headers")
    assert taken("front") == taken("e") == 1
    site.ask("policy.clear", name="p")
    assert taken("front") == taken("e") == 0


def test_a_backup_computes_the_same_also_one_that_comes_late(site: Site) -> None:
    site.exchange("e")
    alternate(site, pattern="")
    site.exchange("e2")
    backup = site.broker.backup()
    for name, exchange in site.broker.vhost.exchanges.items():
        assert backup.vhost.exchanges[name].effect == exchange.effect, name
    assert backup.vhost.exchanges["e"].alternate == "rest"
    assert backup.vhost.configuration._alternates == site.broker.vhost.configuration._alternates
    backup.passive = False
    found = backup.vhost.routing.destinations(backup.vhost.exchanges["e2"], b"", {})
    assert [core.name for core in found] == ["left"]


def test_a_new_virtual_host_has_policies_that_came_before(site: Site) -> None:
    site.ask("vhost.add", name="h")
    site.ask("policy.set", name="p", vhost="h", pattern="", definition={"alternate-exchange": "amq.fanout"})
    backup = site.broker.backup()
    hosts = (site.broker.vhosts.get("h"), backup.vhosts.get("h"))
    assert [host and host.exchanges["amq.direct"].alternate for host in hosts] == ["amq.fanout"] * 2
    assert site.broker.vhost.exchanges["amq.direct"].alternate is None
    site.ask("vhost.delete", name="h")


def test_an_exchange_is_shown_with_what_counts(site: Site) -> None:
    alternate(site)
    site.policy("o", "", operator=True, max_length=5)
    site.exchange("e")
    assert site.shown("e", "exchange") == {
        "policy": "p",
        "operator_policy": "o",
        "effective": {"alternate-exchange": "rest"},
    }
