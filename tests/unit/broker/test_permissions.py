"""What a user may do: permissions, as a client meets them, and as requests change them."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import State
from qpidd_py.broker.methods import HANDLERS
from qpidd_py.broker.settings import Key
from qpidd_py.errors import LinkError
from qpidd_py.management.model import Management
from tests.support.lines import lines_of
from tests.support.memory import publish_octets
from tests.unit.broker.peer import Peer, Replicated

HASH = "scrypt$4$8$1$" + "00" * 16 + "$" + "00" * 64


class Realm:
    """A broker whose logins are checked; `root` is of the user file, `anna` one of the cluster."""

    def __init__(self) -> None:
        self.broker = Replicated()
        self.broker.rights.checked = True
        self.broker.rights.names = lambda: ("root", "guest")
        self.broker.rights.local = ("root", "guest").__contains__
        self.management = Management(self.broker)
        self.ask("user.put", user="anna", hash=HASH)
        self.root = Peer(self.broker, user="root")
        self.root.open_channel()

    def ask(self, method: str, asker: Peer | None = None, **arguments: Any) -> Any:
        replies: list[Any] = []
        connection = asker.connection if asker is not None else None
        for _ in self.management.work(method, arguments, replies.append, connection):
            pass
        self.broker.advance()
        (answer,) = replies
        return answer["result"] if answer["ok"] else answer["error"]

    def allow(self, configure: str = "", write: str = "", read: str = "", user: str = "anna") -> None:
        answer = self.ask("permission.set", user=user, configure=configure, write=write, read=read)
        assert answer == {}, answer

    def peer(self, user: str = "anna") -> Peer:
        peer = Peer(self.broker, user=user)
        peer.open_channel()
        return peer

    def make(self, *methods: Any) -> None:
        for method in methods:
            self.root.send(1, method)
            self.broker.advance()
        self.root.frames()

    def refusal(self, peer: Peer, method: Any) -> str:
        """The text of the channel's end; empty if the method was allowed.  The channel is open again."""
        peer.send(1, method)
        self.broker.advance()
        closes = [frame for frame in peer.frames() if isinstance(frame, Channel.Close)]
        for close in closes:
            peer.send(1, Channel.CloseOk())
            peer.open_channel()
            if close.reply_code == 403:
                return str(close.reply_text)
        return ""


@pytest.fixture
def realm() -> Realm:
    return Realm()


BIND: Any = {"queue": "q", "exchange": "x", "routing_key": "k"}
LINK: Any = {"source": "s", "destination": "d", "routing_key": "k"}
TABLE: list[tuple[Any, dict[str, str]]] = [
    (Queue.Declare(queue="q"), {"configure": "q"}),
    (
        Queue.Declare(queue="q", arguments={"x-dead-letter-exchange": "x"}),
        {"configure": "q", "read": "q", "write": "x"},
    ),
    (Queue.Declare(queue="q", arguments={"alternate-exchange": "x"}), {"configure": "q", "read": "q", "write": "x"}),
    (Queue.Declare(), {"configure": r"amq\.gen-.+"}),
    (Queue.Declare(queue="q", passive=True), {}),
    (Queue.Delete(queue="q"), {"configure": "q"}),
    (Queue.Purge(queue="q"), {"read": "q"}),
    (Queue.Bind(**BIND), {"write": "q", "read": "x"}),
    (Queue.Unbind(**BIND), {"write": "q", "read": "x"}),
    (Exchange.Declare(exchange="e", exchange_type="fanout"), {"configure": "e"}),
    (
        Exchange.Declare(exchange="e", exchange_type="fanout", arguments={"alternate-exchange": "x"}),
        {"configure": "e", "read": "e", "write": "x"},
    ),
    (Exchange.Declare(exchange="x", passive=True), {}),
    (Exchange.Delete(exchange="e"), {"configure": "e"}),
    (Exchange.Bind(**LINK), {"write": "d", "read": "s"}),
    (Exchange.Unbind(**LINK), {"write": "d", "read": "s"}),
    (Basic.Get(queue="q"), {"read": "q"}),
    (Basic.Consume(queue="q"), {"read": "q"}),
    (Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), {}),
    (Basic.Consume(queue="qpid.management", no_ack=True), {}),
    (Basic.Qos(prefetch_count=1), {}),
    (Confirm.Select(), {}),
    (Tx.Select(), {}),
]


@pytest.mark.parametrize(("method", "needed"), TABLE, ids=[f"{method.name}{n}" for n, (method, _) in enumerate(TABLE)])
def test_each_method_needs_what_rabbitmqs_needs(realm: Realm, method: Any, needed: dict[str, str]) -> None:
    """Whether what it names is there or not: a client does not learn that by a refusal."""
    whole = {name: f"^({pattern})$" for name, pattern in needed.items()}
    realm.allow(**whole)
    assert realm.refusal(realm.peer(), method) == ""
    for lacking in needed:
        realm.make(Queue.Delete(queue="q"), Exchange.Delete(exchange="e"))
        realm.allow(**{**whole, lacking: "^other$"})
        assert "access to " in realm.refusal(realm.peer(), method)


def test_every_handled_method_was_looked_at() -> None:
    free = {Channel.Flow, Channel.FlowOk, Basic.Cancel, Basic.CancelOk, Basic.Recover, Basic.RecoverAsync}
    free |= {Tx.Commit, Tx.Rollback}
    assert {type(method) for method, _ in TABLE} | free == set(HANDLERS)


def test_the_text_is_rabbitmqs(realm: Realm) -> None:
    realm.allow()
    text = realm.refusal(realm.peer(), Queue.Declare(queue="q"))
    assert text == "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'anna'"


# ---- publishing


def confirmed(realm: Realm, peer: Peer, key: str = "q", exchange: str = "") -> str:
    peer.publish(b"m", key, exchange)
    realm.broker.advance()
    (answer,) = peer.frames()
    return "ack" if isinstance(answer, Basic.Ack) else str(answer.reply_text)


def test_a_change_counts_from_the_next_publish_on(realm: Realm) -> None:
    """The route of a publish that repeats the last one is kept in the core; the permission is not."""
    realm.make(Queue.Declare(queue="q"), Queue.Declare(queue="other"))
    realm.allow(write=r"^amq\.default$")
    peer = realm.peer()
    peer.call(1, Confirm.Select())
    assert [confirmed(realm, peer) for _ in range(3)] == ["ack"] * 3
    realm.allow(write="^other$")
    assert "access to exchange 'amq.default'" in confirmed(realm, peer)
    assert realm.broker.vhost.queues["q"].core.ready == 3
    realm.allow(write=".*")
    peer.send(1, Channel.CloseOk())
    peer.open_channel()
    peer.call(1, Confirm.Select())
    assert confirmed(realm, peer) == "ack"


def test_a_route_that_another_client_uses_is_no_permission(realm: Realm) -> None:
    realm.make(Queue.Declare(queue="q"))
    realm.root.call(1, Confirm.Select())
    assert confirmed(realm, realm.root) == "ack"
    realm.allow(read=".*")
    peer = realm.peer()
    assert "access to" in confirmed(realm, peer)


def test_a_permission_that_goes_while_a_body_arrives(realm: Realm) -> None:
    realm.make(Queue.Declare(queue="q"))
    realm.allow(write=".*")
    peer = realm.peer()
    octets = publish_octets(b"m" * 100, "q", "", 1)
    peer.feed(octets[:-50])
    realm.allow(write="^other$")
    peer.feed(octets[-50:])
    realm.broker.advance()
    assert isinstance(peer.frames()[-1], Channel.Close)
    assert realm.broker.vhost.queues["q"].core.ready == 0


def test_a_transaction_whose_permission_goes_before_the_commit(realm: Realm) -> None:
    realm.make(Queue.Declare(queue="q"))
    realm.allow(write=".*")
    peer = realm.peer()
    peer.call(1, Tx.Select())
    peer.publish(b"m", "q")
    realm.allow(write="^other$")
    assert "access to" in realm.refusal(peer, Tx.Commit())
    assert realm.broker.vhost.queues["q"].core.ready == 0


def test_routing_keys_of_a_topic_exchange(realm: Realm) -> None:
    realm.make(
        Queue.Declare(queue="q"),
        Exchange.Declare(exchange="t", exchange_type="topic"),
        Exchange.Declare(exchange="d", exchange_type="direct"),
    )
    realm.allow(".*", ".*", ".*")
    peer = realm.peer()
    bind = Queue.Bind(queue="q", exchange="t", routing_key="orders.#")
    assert realm.refusal(peer, bind) == "", "no pattern is set: all keys"
    for exchange in ("t", "d"):
        realm.ask("topic.set", user="anna", exchange=exchange, write=r"^{username}\.", read="^news")
    text = "ACCESS_REFUSED - access to topic 'orders.#' in exchange 't' in vhost '/' refused for user 'anna'"
    assert realm.refusal(peer, bind) == text
    assert realm.refusal(peer, Queue.Bind(queue="q", exchange="t", routing_key="news.#")) == ""
    assert realm.refusal(peer, Queue.Bind(queue="q", exchange="d", routing_key="any")) == "", "no topics there"
    peer.call(1, Confirm.Select())
    assert confirmed(realm, peer, "anna.1", "t") == "ack"
    assert confirmed(realm, peer, "otto.1", "d") == "ack"
    assert "access to topic 'otto.1'" in confirmed(realm, peer, "otto.1", "t")
    peer.send(1, Channel.CloseOk())
    peer.open_channel()
    peer.publish(b"m", "anna.1", "t", headers={"CC": ["otto.1"]})
    assert "access to topic 'otto.1'" in peer.frames()[-1].reply_text, "a copy is no way round"
    peer.send(1, Channel.CloseOk())
    peer.open_channel()
    realm.ask("topic.clear", user="anna", exchange="t")
    assert [each["exchange"] for each in realm.ask("topic.list")] == ["d"]
    assert realm.refusal(peer, bind) == ""


def test_a_shovel_is_no_way_round_patterns_for_topics(realm: Realm) -> None:
    realm.make(*(Exchange.Declare(exchange=name, exchange_type="topic") for name in ("t", "other")))
    realm.allow(".*", ".*", ".*")
    realm.ask("user.put", user="anna", tags=["policymaker"])
    realm.ask("topic.set", user="anna", exchange="t", write="^news", read="^news")
    peer = realm.peer()
    ends = {"src-uri": "amqp://", "dest-uri": "amqp://"}

    def put(**value: str) -> str:
        named = {name.replace("_", "-"): each for name, each in value.items()}
        return str(realm.ask("parameter.set", peer, component="shovel", name="s", value={**ends, **named}))

    for refused in ({"dest_exchange_key": "orders"}, {}):
        assert "write access to topic" in put(src_queue="q", dest_exchange="t", **refused)
    for refused in ({"src_exchange_key": "#"}, {}):
        assert "read access to topic" in put(src_exchange="t", dest_queue="q", **refused)
    assert put(src_queue="q", dest_exchange="t", dest_exchange_key="news") == "{}"
    assert put(src_exchange="t", src_exchange_key="news.#", dest_queue="q") == "{}"
    assert put(src_queue="q", dest_exchange="other") == "{}"


def test_a_shovel_makes_no_queue_that_its_author_may_not_make(realm: Realm) -> None:
    realm.make(Queue.Declare(queue="there"))
    realm.allow("^mine", ".*", ".*")
    realm.ask("user.put", user="anna", tags=["policymaker"])
    peer = realm.peer()

    def put(**value: Any) -> str:
        named = {name.replace("_", "-"): each for name, each in value.items()}
        ends = {"src-uri": "amqp://", "dest-uri": "amqp://h", "dest-queue": "q"}
        return str(realm.ask("parameter.set", peer, component="shovel", name="s", value={**ends, **named}))

    refused = "parameter.set: access to queue '{}' in vhost '/' refused for user 'anna'"
    assert (
        put(src_queue="there")
        == put(src_queue="mine")
        == put(src_queue="mine", src_queue_args={"x-max-length": 1})
        == "{}"
    )
    assert put(src_queue="new") == refused.format("new")
    assert put(src_queue="there", src_queue_args={"x-max-length": 1}) == refused.format("there"), (
        "it may be gone by then"
    )
    assert put(src_exchange="amq.topic", src_exchange_queue="new") == refused.format("new")
    assert put(src_uri="amqp://h", src_queue="new", dest_uri="amqp://", dest_queue="new2") == refused.format("new2")
    realm.allow("^mine", "^amq.default$", "^mine")
    wrong = put(src_queue="mine", src_queue_args={"x-dead-letter-exchange": "secret"})
    assert wrong == "parameter.set: access to exchange 'secret' in vhost '/' refused for user 'anna'"
    assert "5, expected an object" in put(src_queue="mine", src_queue_args=5), "what is no table is refused as such"


def test_a_name_with_signs_of_patterns_is_taken_as_it_is(realm: Realm) -> None:
    realm.make(Exchange.Declare(exchange="t", exchange_type="topic"))
    realm.ask("user.put", user=".*", hash=HASH)
    realm.allow(write=".*", user=".*")
    realm.ask("topic.set", user=".*", exchange="t", write="^{username}$", read="")
    peer = realm.peer(".*")
    peer.call(1, Confirm.Select())
    assert "access to topic" in confirmed(realm, peer, "anything", "t")


# ---- users


def opening(realm: Realm, user: str) -> Any:
    return Peer(realm.broker, opened=False, user=user).handshake()[-1]


def test_who_may_enter(realm: Realm) -> None:
    answer = opening(realm, "anna")
    assert (answer.reply_code, answer.reply_text) == (
        530,
        "NOT_ALLOWED - access to vhost '/' refused for user 'anna'",
    ), "she has no permission"
    assert isinstance(opening(realm, "guest"), Connection.OpenOk), "of the user file, without a permission"
    realm.allow()
    assert isinstance(opening(realm, "anna"), Connection.OpenOk)
    realm.allow(user="guest")
    peer = realm.peer("guest")
    assert "refused for user 'guest'" in realm.refusal(peer, Queue.Declare(queue="q")), "it has one now"
    realm.ask("permission.clear", user="guest")
    assert realm.refusal(peer, Queue.Declare(queue="q")) == ""
    assert isinstance(opening(realm, "nobody"), Connection.Close)


def test_a_name_in_a_certificate_needs_no_entry_and_obeys_one(realm: Realm) -> None:
    rights = realm.broker.rights
    certified, other = rights.access("carl", "/", True), rights.access("carl", "/")
    assert (certified.everything, other.everything, other.enters) == (True, False, False)
    realm.ask("user.put", user="carl")
    assert not certified.enters
    realm.allow("", "", "^q$", user="carl")
    assert certified.may("read", "q") and not certified.may("write", "q")
    realm.ask("user.delete", user="carl")
    assert certified.everything and not other.enters


def test_a_deleted_user_is_closed_and_may_do_nothing_before(realm: Realm) -> None:
    realm.allow(".*", ".*", ".*")
    peer = realm.peer()
    assert realm.ask("user.delete", user="anna") == {}
    close = peer.frames()[-1]
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - user 'anna' is deleted")
    assert not peer.connection.client.access.may("read", "q") and not peer.connection.client.access.tags
    assert realm.ask("permission.list") == [] and realm.ask("user.delete", user="anna").startswith("no user")


def test_an_open_link_ends_when_the_rights_of_its_user_are_limited(realm: Realm) -> None:
    realm.broker.hooks = MagicMock(admit=lambda *_: None, opened=lambda connection: connection.user == "root")
    link, other = Peer(realm.broker, user="root"), Peer(realm.broker, user="guest")
    realm.allow(".*", ".*", ".*", user="guest")
    assert link.connection.state is State.LINK and other.connection.opened
    realm.allow("", "", "^q$", user="root")
    assert link.connection.state is State.FINISHED and other.connection.opened
    assert link.connection.end_reason == "user 'root' has limited rights now, and a link shows all messages"


def test_lists(realm: Realm) -> None:
    realm.allow("^a", "", ".*")
    realm.ask("user.put", user="anna", tags=["monitoring"])
    assert realm.ask("user.list") == [
        {"name": "anna", "tags": ["monitoring"], "password": True, "cluster": True, "limits": {}},
        {"name": "guest", "tags": [], "password": True, "cluster": False, "limits": {}},
        {"name": "root", "tags": [], "password": True, "cluster": False, "limits": {}},
    ]
    assert realm.ask("permission.list") == [
        {"user": "anna", "vhost": "/", "configure": "^a", "write": "", "read": ".*"}
    ]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("user.put", {}, "user is None, wanted a string"),
    ("user.put", {"user": ""}, "has 0 octets"),
    ("user.put", {"user": "u" * 256}, "has 256 octets"),
    ("user.put", {"user": "a\nb"}, "that can be printed"),
    ("user.put", {"user": "\ud800"}, "is no text"),
    ("user.put", {"user": "root", "hash": HASH}, "is one of the user file"),
    ("user.put", {"user": "b", "hash": "secret"}, "the hash is none of qpid-passwd's"),
    ("user.put", {"user": "b", "hash": 5}, "hash is 5, wanted a string"),
    ("user.put", {"user": "b", "tags": "administrator"}, "tags 'administrator', expected some of"),
    ("user.put", {"user": "b", "tags": ["root"]}, "tags ['root'], expected some of"),
    ("user.put", {"user": "b", "tags": [["monitoring"]]}, "expected some of"),
    ("user.put", {"user": "b", "tags": ["monitoring", "monitoring"]}, "expected some of"),
    ("user.delete", {"user": "otto"}, "no user 'otto'"),
    ("user.delete", {"user": "root"}, "no user 'root' of the cluster"),
    ("permission.set", {"user": "otto"}, "no user 'otto'"),
    ("permission.set", {"user": "anna", "vhost": "v"}, "no virtual host 'v'"),
    ("permission.set", {"user": "anna"}, "configure is None, wanted a string"),
    (
        "permission.set",
        {"user": "anna", "configure": "(", "write": "", "read": ""},
        "configure: pattern '(': missing )",
    ),
    ("permission.set", {"user": "anna", "configure": "(?=a)", "write": "", "read": ""}, "invalid perl operator"),
    ("permission.set", {"user": "anna", "configure": "a" * 1025, "write": "", "read": ""}, "1025 characters"),
    ("permission.set", {"user": "anna", "configure": "((a{1,100}){1,100}){1,100}", "write": "", "read": ""}, "pattern"),
    ("topic.set", {"user": "anna", "exchange": "", "write": "", "read": ""}, "exchange '' has 0 octets"),
    ("topic.set", {"user": "anna", "exchange": "t", "write": "[", "read": ""}, "write: pattern '['"),
]


@pytest.mark.parametrize(("method", "arguments", "text"), WRONG)
def test_wrong_requests(realm: Realm, method: str, arguments: dict[str, Any], text: str) -> None:
    before = {
        key: realm.broker.vhost.configuration.settings.get(key) for key in realm.broker.vhost.configuration.settings
    }
    answer = realm.ask(method, **arguments)
    assert isinstance(answer, str) and text in answer
    settings = realm.broker.vhost.configuration.settings
    assert {key: settings.get(key) for key in settings} == before


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "broker.info": ({}, {}, "monitoring"),
    "broker.options": ({}, {}, "administrator"),
    "queue.list": ({}, {}, "monitoring"),
    "queue.page": ({}, {}, "monitoring"),
    "queue.info": ({"queue": "q"}, {}, "monitoring"),
    "queue.totals": ({}, {}, "monitoring"),
    "queue.count": ({}, {}, "monitoring"),
    "queue.census": ({}, {}, "monitoring"),
    "session.list": ({}, {}, "monitoring"),
    "session.page": ({}, {}, "monitoring"),
    "channel.list": ({}, {}, "monitoring"),
    "queue.peek": ({"queue": "q"}, {"read": "q"}, ""),
    "queue.purge": ({"queue": "q"}, {"read": "q"}, ""),
    "queue.move": ({"source": "q", "target": "r"}, {"read": "q", "write": "r"}, ""),
    "queue.delete": ({"queue": "q"}, {"configure": "q"}, ""),
    "user.list": ({}, {}, "administrator"),
    "user.put": ({"user": "b"}, {}, "administrator"),
    "permission.list": ({}, {}, "administrator"),
    "permission.clear": ({"user": "root"}, {}, "administrator"),
    "topic.list": ({}, {}, "administrator"),
}


@pytest.mark.parametrize("method", REQUESTS)
def test_who_may_make_which_request(realm: Realm, method: str) -> None:
    arguments, needed, tag = REQUESTS[method]
    realm.make(Queue.Declare(queue="q"), Queue.Declare(queue="r"))
    realm.allow(**{name: f"^{pattern}$" for name, pattern in needed.items()})
    peer = realm.peer()
    refused = ("refused for user 'anna'", "user 'anna' has no tag", "user 'anna' is no administrator")
    if tag:
        assert any(text in str(realm.ask(method, peer, **arguments)) for text in refused)
        realm.ask("user.put", user="anna", tags=[tag])
    for lacking in needed:
        realm.allow(**{name: f"^{pattern}$" if name != lacking else "" for name, pattern in needed.items()})
        assert any(text in str(realm.ask(method, peer, **arguments)) for text in refused)
        realm.allow(**{name: f"^{pattern}$" for name, pattern in needed.items()})
    answer = realm.ask(method, peer, **arguments)
    assert not any(text in str(answer) for text in refused), answer


def test_who_watches_sees_no_options(realm: Realm) -> None:
    realm.allow()
    realm.ask("user.put", user="anna", tags=["monitoring"])
    assert "user 'anna' has no tag administrator" in str(realm.ask("broker.options", realm.peer()))


def test_a_user_of_the_file_administers_unless_brokers_have_a_user(realm: Realm) -> None:
    assert realm.ask("user.put", realm.root, user="b") == {}
    realm.broker.couriers.add("guest")
    assert "is no administrator" in realm.ask("user.put", realm.root, user="c")
    assert realm.ask("user.put", realm.peer("guest"), user="c") == {}
    realm.allow()
    realm.ask("user.put", user="anna", tags=["administrator"])
    assert realm.ask("user.put", realm.peer(), user="d") == {}


def test_one_setting_too_many(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qpidd_py.management.settings.MOST", 2)
    realm.allow()
    assert realm.ask("user.put", user="b") == "2 settings are there, no more are possible"
    assert realm.ask("user.put", user="anna", tags=["monitoring"]) == {}, "it is there already"
    realm.ask("permission.clear", user="anna")
    assert realm.ask("user.put", user="b") == {}


def test_ten_thousand_users_cost_no_more_each(realm: Realm) -> None:
    """A change, and a login, look at one user."""

    def change(name: str) -> None:
        realm.ask("user.put", user=name, tags=["monitoring"])
        realm.allow("x", user=name)

    few = lines_of(lambda: change("first")), lines_of(lambda: realm.peer("first"))
    for number in range(10_000):
        realm.ask("user.put", user=f"user{number}")
    many = lines_of(lambda: change("last")), lines_of(lambda: realm.peer("last"))
    assert max(many[0] / few[0], many[1] / few[1]) < 1.2


# ---- replication


def test_a_backup_has_the_same_settings_and_changes_none(realm: Realm) -> None:
    realm.allow("^a")
    realm.ask("user.put", user="b", tags=["monitoring"])
    realm.ask("user.delete", user="b")
    backup = realm.broker.backup()
    settings = realm.broker.vhost.configuration.settings
    found = backup.vhost.configuration.settings
    assert {key: found.get(key) for key in found} == {key: settings.get(key) for key in settings}
    assert backup.configurations.snapshot() == realm.broker.configurations.snapshot()
    replies: list[Any] = []
    Management(backup).request("user.put", {"user": "c"}, replies.append)
    what = "users, policies and parameters are replicated and this broker is a backup"
    assert replies == [{"ok": False, "error": what, "code": 320}]


def test_a_backup_that_joins_takes_over_the_settings(realm: Realm) -> None:
    """What it has of its own goes, what is equal stays; its connections hear of it."""
    realm.allow("^a")
    backup = realm.broker.backup()
    realm.ask("user.put", user="b")
    realm.ask("permission.clear", user="anna")
    heard: list[Key] = []
    backup.vhost.configuration.settings.watchers.append(heard.append)
    adopt(backup.configurations, realm.broker.configurations.snapshot())
    assert backup.configurations.snapshot() == realm.broker.configurations.snapshot()
    assert heard == [Key("permission", "/", "anna"), Key("user", "", "b")]


def test_a_backup_refuses_what_no_primary_may_send() -> None:
    backup = Broker()
    for operation in (
        {"op": "setting.put", "kind": "other", "host": "", "name": "n", "value": {}},
        {"op": "setting.put", "kind": "user", "host": "", "name": "n", "value": {"hash": 1, "tags": []}},
        {"op": "setting.put", "kind": "permission", "host": "/", "name": "n", "value": {"configure": ""}},
        {"op": "setting.put", "kind": "topic", "host": "/", "name": "n", "value": {"x": "y"}},
        {"op": "setting.delete", "kind": "user", "name": "n"},
    ):
        with pytest.raises(LinkError):
            backup.configurations.apply(7, encode_table(operation))
    assert len(backup.vhost.configuration.settings) == 0
