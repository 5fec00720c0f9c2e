"""The rules of an ACL file as a client meets them, beside permissions."""

from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx

from qpidd_py.broker.limits import Limits
from qpidd_py.broker.methods import HANDLERS
from qpidd_py.logrules import NOTICE
from qpidd_py.management.model import Management
from qpidd_py.security.acl.reader import read_acl
from tests.support.lines import lines_of
from tests.support.memory import publish_octets
from tests.unit.broker.peer import Peer, Replicated

REFUSED = "ACCESS_REFUSED - access to "


class Realm:
    """A broker with these rules; `root` made what is there before they were in force."""

    def __init__(self) -> None:
        self.broker = Replicated()
        self.broker.rights.checked = True
        self.broker.rights.names = lambda: ("root", "anna", "kim")
        self.broker.rights.local = ("root", "anna", "kim").__contains__
        self.management = Management(self.broker)
        self.root = Peer(self.broker, user="root")
        self.root.open_channel()

    def rules(self, *lines: str) -> None:
        self.broker.use_acl(read_acl("\n".join(lines), "x.acl"))

    def make(self, *methods: Any) -> None:
        for method in methods:
            self.root.send(1, method)
            self.broker.advance()
            assert not any(isinstance(frame, Channel.Close) for frame in self.root.frames())

    def peer(self, user: str = "anna", **properties: Any) -> Peer:
        peer = Peer(self.broker, user=user, **properties)
        peer.open_channel()
        return peer

    def refusal(self, peer: Peer, method: Any) -> str:
        """Of a method; the channel is open again."""
        peer.send(1, method)
        return self.closing(peer)

    def closing(self, peer: Peer) -> str:
        self.broker.advance()
        closes = [frame for frame in peer.frames() if isinstance(frame, Channel.Close)]
        for close in closes:
            peer.send(1, Channel.CloseOk())
            peer.open_channel()
            if close.reply_code == 403:
                return str(close.reply_text)
        return ""

    def published(self, peer: Peer, key: str, exchange: str = "", **properties: Any) -> bool:
        peer.publish(b"m", key, exchange, **properties)
        return not self.closing(peer)

    def ask(self, peer: Peer, method: str, **arguments: Any) -> Any:
        replies: list[Any] = []
        for _ in self.management.work(method, arguments, replies.append, peer.connection):
            pass
        self.broker.advance()
        return replies[-1]["result"] if replies[-1]["ok"] else replies[-1]["error"]


@pytest.fixture
def realm() -> Realm:
    found = Realm()
    found.make(
        Queue.Declare(queue="q", durable=True, arguments={"x-max-length": 10}),
        Exchange.Declare(exchange="x", exchange_type="direct"),
        Exchange.Declare(exchange="t", exchange_type="topic", durable=True),
        Queue.Bind(queue="q", exchange="x", routing_key="k"),
    )
    return found


LETTERS: dict[str, Any] = {"x-dead-letter-exchange": "x", "alternate-exchange": "t"}
TABLE: list[tuple[Any, tuple[str, ...]]] = [
    (Queue.Declare(queue="n", durable=True), ("create queue name=n durable=true exclusive=false autodelete=false",)),
    (Queue.Declare(), ("create queue name=amq.gen-*",)),
    (
        Queue.Declare(queue="n", arguments=LETTERS),
        ("create queue name=n alternate=x", "create queue name=n alternate=t"),
    ),
    (
        Queue.Declare(queue="n", arguments={"x-max-length": 5, "x-max-length-bytes": 6}),
        ("create queue policytype=ring queuemaxcountupperlimit=5 queuemaxsizeupperlimit=6",),
    ),
    (
        Queue.Declare(queue="n", arguments={"qpid.max_count": 5, "qpid.policy_type": "reject"}),
        ("create queue policytype=reject queuemaxcountupperlimit=5",),
    ),
    (Queue.Declare(queue="q", passive=True), ("access queue name=q durable=true queuemaxcountlowerlimit=10",)),
    (Queue.Delete(queue="q"), ("delete queue name=q durable=true policytype=ring",)),
    (Queue.Purge(queue="q"), ("purge queue name=q",)),
    (Queue.Bind(queue="q", exchange="x", routing_key="k"), ("bind exchange name=x queuename=q routingkey=k",)),
    (Queue.Unbind(queue="q", exchange="x", routing_key="k"), ("unbind exchange name=x queuename=q routingkey=k",)),
    (
        Exchange.Declare(exchange="n", exchange_type="fanout", arguments={"alternate-exchange": "x"}),
        ("create exchange name=n type=fanout durable=false alternate=x",),
    ),
    (
        Exchange.Declare(exchange="t", passive=True),
        ("access exchange name=t type=topic durable=true autodelete=false",),
    ),
    (Exchange.Delete(exchange="t"), ("delete exchange name=t type=topic durable=true",)),
    (
        Exchange.Bind(source="x", destination="t", routing_key="k"),
        ("bind exchange name=x routingkey=k", "publish exchange name=t routingkey=#"),
    ),
    (Exchange.Unbind(source="x", destination="t", routing_key="k"), ("unbind exchange name=x routingkey=k",)),
    (Basic.Get(queue="q"), ("consume queue name=q durable=true",)),
    (Basic.Consume(queue="q"), ("consume queue name=q",)),
    (Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), ()),
    (Basic.Consume(queue="qpid.management", no_ack=True), ()),
    (Basic.Qos(prefetch_count=1), ()),
    (Confirm.Select(), ()),
    (Tx.Select(), ()),
]


@pytest.mark.parametrize(("method", "needed"), TABLE, ids=[f"{method.name}{n}" for n, (method, _) in enumerate(TABLE)])
def test_what_each_method_looks_up(realm: Realm, method: Any, needed: tuple[str, ...]) -> None:
    realm.rules(*(f"acl allow anna {rule}" for rule in needed))
    assert realm.refusal(realm.peer(), method) == ""
    realm.rules()
    assert bool(realm.refusal(realm.peer(), method)) == bool(needed)
    for lacking in needed:
        realm.rules(f"acl deny anna {lacking.replace(' queuemaxcountlowerlimit=10', '')}".partition(" queuemax")[0])
        assert REFUSED in realm.refusal(realm.peer(), method)


def test_every_handled_method_was_looked_at() -> None:
    free = {Channel.Flow, Channel.FlowOk, Basic.Cancel, Basic.CancelOk, Basic.Recover, Basic.RecoverAsync}
    assert {type(method) for method, _ in TABLE} | free | {Tx.Commit, Tx.Rollback} == set(HANDLERS)


def test_a_queue_without_a_limit_is_beyond_each(realm: Realm) -> None:
    realm.rules("acl allow anna create queue queuemaxcountupperlimit=100", "acl allow all all")
    peer = realm.peer()
    assert "access to queue 'n'" in realm.refusal(peer, Queue.Declare(queue="n"))
    wrong: Any
    for wrong in ({"x-max-length": "5"}, {"qpid.policy_type": ["ring"]}, {"x-max-length": 101}, {"qpid.max_count": 0}):
        assert REFUSED in realm.refusal(peer, Queue.Declare(queue="n", arguments=wrong))
    assert realm.refusal(peer, Queue.Declare(queue="n", arguments={"qpid.max_count": 100})) == ""


# ---- publishing


def test_a_publish_is_judged_by_exchange_and_key(realm: Realm) -> None:
    realm.rules(
        "acl allow anna publish exchange name=t routingkey=a.#", "acl allow anna publish exchange name=amq.default"
    )
    peer = realm.peer()
    for key, exchange, allowed in (("a.1", "t", True), ("b.1", "t", False), ("q", "", True), ("a.1", "x", False)) * 2:
        assert realm.published(peer, key, exchange) is allowed, (key, exchange)
    assert realm.broker.vhost.queues["q"].core.ready == 2


def test_copies_are_publishes_too(realm: Realm) -> None:
    realm.rules("acl allow anna publish exchange name=x routingkey=open", "acl deny all all")
    peer = realm.peer()
    for header in ("CC", "BCC"):
        assert realm.published(peer, "open", "x", headers={header: ["open"]})
        assert not realm.published(peer, "open", "x", headers={header: ["open", "k"]})
    peer.call(1, Tx.Select())
    peer.publish(b"m", "open", "x", headers={"CC": ["k"]})
    assert realm.closing(peer).startswith(REFUSED)
    assert realm.broker.vhost.queues["q"].core.ready == 0


def test_an_exchange_that_leads_on_is_no_way_round(realm: Realm) -> None:
    realm.rules("acl deny anna publish exchange name=t routingkey=secret.#", "acl allow all all")
    peer = realm.peer()
    assert REFUSED in realm.refusal(peer, Exchange.Bind(source="x", destination="t", routing_key="k"))
    assert realm.refusal(peer, Exchange.Bind(source="t", destination="x", routing_key="k")) == ""


def test_a_binding_that_takes_more_than_it_is_allowed(realm: Realm) -> None:
    """Only of a topic exchange: elsewhere `#` is a key as any other."""
    realm.make(
        Exchange.Declare(exchange="later", exchange_type="x-delayed-message", arguments={"x-delayed-type": "topic"})
    )
    realm.rules("acl deny anna bind exchange routingkey=secret.#", "acl allow all all")
    peer = realm.peer()
    for exchange, key, allowed in (
        *(("t", "#", False), ("t", "*.x", False), ("t", "news.#", True), ("later", "#", False)),
        *(("x", "#", True), ("x", "secret.x", False)),
    ):
        refusal = realm.refusal(peer, Queue.Bind(queue="q", exchange=exchange, routing_key=key))
        assert (refusal == "") is allowed, (exchange, key)


def test_who_may_publish_everything_is_not_asked(realm: Realm) -> None:
    peer = realm.peer()
    for rules, asked in (
        (["acl allow all all"], False),
        (["acl deny kim all", "acl allow all all"], False),
        (["acl allow-log all all"], True),
        (["acl allow all publish exchange"], False),
        (["acl allow all publish exchange name=*"], True),
        (["acl deny all create queue", "acl allow all all"], False),
        (
            ["group g anna", "acl allow g publish all", "acl deny all publish exchange name=t", "acl allow all all"],
            False,
        ),
        (
            ["group g anna", "acl deny all publish exchange name=t", "acl allow g publish all", "acl allow all all"],
            True,
        ),
        ([], True),
    ):
        realm.rules(*rules)
        assert peer.connection.core.guarded is asked, rules
    realm.broker.use_acl(None)
    assert not peer.connection.core.guarded


def test_rules_that_change_count_from_the_next_publish_on(realm: Realm) -> None:
    peer = realm.peer()
    for _ in range(3):
        assert realm.published(peer, "q")
    octets = publish_octets(b"m" * 100, "q", "", 1)
    peer.feed(octets[:-50])
    realm.rules("acl deny anna publish exchange", "acl allow all all")
    peer.feed(octets[-50:])
    assert realm.closing(peer).startswith(REFUSED)
    assert not realm.published(peer, "q")
    realm.rules("acl allow anna publish exchange routingkey=q")
    assert realm.published(peer, "q") and not realm.published(peer, "r")
    realm.rules("acl allow anna publish exchange routingkey=r")
    assert realm.published(peer, "r") and not realm.published(peer, "q")
    assert realm.broker.vhost.queues["q"].core.ready == 4


# ---- connections and quotas


def opening(realm: Realm, user: str, peer: str = "192.0.2.1:5") -> Any:
    found = Peer(realm.broker, opened=False, user=user)
    found.connection.peer = peer
    return found.handshake()[-1]


def test_where_a_client_may_connect_from(realm: Realm) -> None:
    realm.rules(
        "acl allow anna create connection host=192.0.2.1",
        "acl deny all create connection host=all",
        "acl allow all all",
    )
    assert isinstance(opening(realm, "anna"), Connection.OpenOk)
    for user, peer in (("anna", "192.0.2.2:5"), ("kim", "192.0.2.1:5")):
        answer = opening(realm, user, peer)
        text = f"NOT_ALLOWED - access to vhost '/' refused for user '{user}'"
        assert (answer.reply_code, answer.reply_text) == (530, text)
    assert realm.broker.acl.denials == 2


def test_quotas_of_connections(realm: Realm) -> None:
    realm.broker.retune(Limits(connections_per_user=1), 0)
    realm.rules("quota connections 2 anna", "quota connections 0 kim", "acl allow all all")
    admin: Any = {"qpid.ha-admin": 1}
    peers = [realm.peer(), realm.peer(**admin)]
    answer = opening(realm, "anna")
    assert answer.reply_text == "NOT_ALLOWED - connection refused for user 'anna': quota connections (2) is reached"
    assert "quota connections (0)" in opening(realm, "kim").reply_text
    assert "quota connections (1)" in opening(realm, "root").reply_text, "the option, for those without one"
    peers[0].connection.closed("")
    assert isinstance(opening(realm, "anna"), Connection.OpenOk)
    realm.broker.couriers.add("kim")
    assert isinstance(opening(realm, "kim"), Connection.OpenOk), "brokers have none"
    realm.broker.use_acl(None)
    assert "max-connections-per-user (1)" in opening(realm, "anna").reply_text, "the option is back"


def test_quotas_of_queues(realm: Realm) -> None:
    realm.broker.retune(Limits(queues_per_user=1), 0)
    realm.rules("quota queues 2 anna", "acl allow all all")
    peer = realm.peer()
    for name in ("a", "b", "a"):
        assert realm.refusal(peer, Queue.Declare(queue=name)) == ""
    text = "ACCESS_REFUSED - cannot declare queue 'c' of user 'anna': quota queues (2) is reached"
    assert realm.refusal(peer, Queue.Declare(queue="c")) == text
    assert "quota queues (2)" in realm.refusal(peer, Queue.Declare())
    assert realm.refusal(peer, Queue.Declare(queue="a", passive=True)) == ""
    assert realm.refusal(peer, Queue.Delete(queue="a")) == "" == realm.refusal(peer, Queue.Declare(queue="c"))
    realm.rules("quota queues 2 kim", "acl allow all all")
    assert "quota queues (1)" in realm.refusal(peer, Queue.Declare(queue="d")), "the option, for those without one"


# ---- both systems, the log, requests


def test_both_systems_have_to_allow(realm: Realm) -> None:
    peer = realm.peer()
    for rules, pattern, allowed in (
        ("acl allow anna create queue name=n", "^n$", True),
        ("acl deny anna create queue name=n", "^n$", False),
        ("acl allow anna create queue name=n", "^other$", False),
    ):
        realm.rules(rules)
        realm.broker.use_acl(realm.broker.acl.rules)
        realm.management.request(
            "permission.set", {"user": "anna", "configure": pattern, "write": "", "read": ""}, lambda _: None
        )
        realm.broker.advance()
        assert (realm.refusal(peer, Queue.Declare(queue="n")) == "") is allowed


def named(queue: str) -> Queue.Purge:
    """pamqp refuses such names."""
    method = Queue.Purge()
    method.queue = queue
    return method


def test_a_refusal_is_one_line_with_user_peer_object_and_rule(realm: Realm, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(NOTICE)
    realm.rules("acl deny-log anna create queue name=n", "acl allow-log all delete queue", "acl allow all all")
    peer = realm.peer()
    text = "ACCESS_REFUSED - access to queue 'n' in vhost '/' refused for user 'anna'"
    assert realm.refusal(peer, Queue.Declare(queue="n")) == text
    assert realm.refusal(peer, Queue.Delete(queue="q")) == ""
    lines = [record.getMessage() for record in caplog.records if "anna" in record.getMessage()]
    assert lines[-2:] == [
        "refused: 'anna' from memory may not create queue 'n' "
        "(x.acl line 1: acl deny-log anna create queue name=n): 403",
        "allowed: 'anna' from memory may delete queue 'q' durable=true policytype='ring' "
        "(x.acl line 2: acl allow-log all delete queue)",
    ]
    realm.rules("acl allow kim all")
    assert realm.refusal(peer, named("\r\nforged: 'x'"))
    last = caplog.records[-1].getMessage()
    assert "may not create queue '\\r\\nforged: \\'x\\'' " in last or "queue \"\\r\\nforged: 'x'\"" in last
    assert last.endswith("(x.acl no rule allows it): 403")
    assert realm.broker.acl.denials == 2


REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    ("queue.list", {}, "access query schemaclass=queue"),
    ("queue.info", {"queue": "q"}, "access query schemaclass=queue name=q"),
    ("broker.info", {}, "access query schemaclass=broker"),
    ("user.list", {}, "access query schemaclass=user"),
    ("acl.show", {}, "access query schemaclass=acl"),
    ("queue.peek", {"queue": "q"}, "consume queue name=q"),
    ("queue.purge", {"queue": "q"}, "purge queue name=q"),
    ("queue.delete", {"queue": "q"}, "delete queue name=q durable=true"),
    ("queue.move", {"source": "q", "target": "r"}, "move queue name=q queuename=r"),
    ("queue.move", {"source": "q", "exchange": "x"}, "reroute queue name=q exchangename=x"),
    ("user.put", {"user": "b"}, "access method schemaclass=user name=put"),
    ("session.close", {"number": 99}, "access method schemaclass=session name=close"),
    ("policy.clear", {"name": "p"}, "access method schemaclass=policy"),
    ("ha.promote", {}, "access method name=promote"),
    ("broker.options", {}, "access method schemaclass=broker name=options"),
    ("acl.reload", {}, "access method schemaclass=acl name=reload"),
    ("event.list", {}, "access query schemaclass=event"),
    ("shovel.list", {}, "access query schemaclass=shovel"),
    ("parameter.list", {}, "access query schemaclass=parameter"),
    ("parameter.clear", {"component": "shovel", "name": "s"}, "access method schemaclass=parameter"),
    ("unknown", {}, "access method name=*"),
]


@pytest.mark.parametrize(("method", "arguments", "needed"), REQUESTS, ids=[f"{one[0]} {one[2]}" for one in REQUESTS])
def test_requests_are_judged(realm: Realm, method: str, arguments: dict[str, Any], needed: str) -> None:
    """`root` is of brokers: it may do everything else."""
    realm.broker.couriers.add("root")
    realm.make(Queue.Declare(queue="r"))
    realm.rules(f"acl deny root {needed}", "acl allow all all")
    assert "refused for user 'root'" in str(realm.ask(realm.root, method, **arguments))
    realm.rules(f"acl allow root {needed}", "acl deny root all", "acl allow all all")
    assert "refused for user 'root'" not in str(realm.ask(realm.root, method, **arguments))


SHOVEL = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "dest-exchange": "x"}
SHOVELS: list[tuple[dict[str, Any], str]] = [
    ({}, "consume queue name=q"),
    ({"src-queue": None, "src-exchange": "t", "src-exchange-key": "k"}, "bind exchange name=t routingkey=k"),
    ({"src-queue": None, "src-exchange": "t", "src-exchange-queue": "q"}, "consume queue name=q"),
    ({"dest-exchange-key": "k"}, "publish exchange name=x routingkey=k"),
    ({"dest-uri": ["amqp://"], "dest-exchange-key": "k"}, "publish exchange name=x"),
    ({"src-uri": ["amqp://"]}, "consume queue name=q"),
    ({"src-queue": "new"}, "create queue name=new"),
    ({"dest-exchange": None, "dest-queue": "new"}, "create queue name=new"),
    ({"dest-exchange": None, "dest-queue": "r"}, "publish exchange name=amq.default routingkey=r"),
    ({"dest-exchange": None, "src-uri": "amqp://elsewhere"}, "publish exchange name=x"),
]


@pytest.mark.parametrize(("keys", "denied"), SHOVELS, ids=[each[1] for each in SHOVELS])
def test_a_shovel_is_no_way_round(realm: Realm, keys: dict[str, Any], denied: str) -> None:
    value = {name: each for name, each in {**SHOVEL, **keys}.items() if each is not None}

    def put() -> str:
        return str(realm.ask(realm.peer(), "parameter.set", component="shovel", name="s", value=value))

    realm.rules(f"acl deny anna {denied}", "acl allow all all")
    assert "refused for user 'anna'" in put() or "may not write all exchanges" in put()
    realm.rules("acl deny anna publish exchange name=other", "acl deny anna consume queue name=o", "acl allow all all")
    assert put() == "{}" if keys.get("src-uri") != "amqp://elsewhere" else "may not write all exchanges" in put()
    value.update({"src-uri": "amqp://elsewhere", "dest-uri": "amqp://elsewhere"})
    realm.rules(f"acl deny anna {denied}", "acl allow all all")
    assert put() == "{}"


def test_who_is_limited_administers_nothing(realm: Realm) -> None:
    realm.rules("acl deny anna create link", "acl allow all all")
    assert "is no administrator" in realm.ask(realm.peer(), "user.put", user="b")
    assert realm.ask(realm.root, "user.put", user="b") == {}


# ---- cost


def test_a_thousand_rules_cost_as_one(realm: Realm) -> None:
    """Of a lookup only those rules are looked at whose name, action and object fit, and whose audience the user is."""

    def cost(number: int) -> tuple[int, int]:
        lines = [f"acl allow user{n} publish exchange name=x{n}" for n in range(number)]
        lines += [f"acl allow all create queue name=q{n}" for n in range(number)]
        realm.rules(
            *lines, f"group all-of-them {' '.join(f'u{n}@x' for n in range(number))}", "acl allow anna publish all"
        )
        peer = realm.peer()
        declares = lines_of(lambda: realm.refusal(peer, Queue.Declare(queue="q0")))
        return declares, lines_of(lambda: realm.peer("kim"))

    few, many = cost(1), cost(1000)
    assert max(many[0] / few[0], many[1] / few[1]) < 1.2
