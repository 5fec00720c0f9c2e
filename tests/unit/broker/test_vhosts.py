"""Virtual hosts: what is in one is found in no other; they come, go, and are in the log."""

from typing import Any
from unittest.mock import patch

import pytest
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue

from qpidd_py.amqp.codec import decode_properties
from qpidd_py.amqp.fields import decode_operation, encode_table
from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import State
from qpidd_py.broker.endings import DEEP
from qpidd_py.broker.host_settings import DELETED, HOST_KIND, HOSTS_MAX, NAME_MAX
from qpidd_py.broker.settings import Key
from qpidd_py.broker.vhost import VHost
from qpidd_py.errors import LinkError
from qpidd_py.management.model import Management
from tests.unit.broker.peer import Peer, Replicated

SEEN: Any = {"queue": "q", "passive": True}


class House:
    """A primary with the virtual hosts `/`, `x` and `y`."""

    def __init__(self, **settings: Any) -> None:
        self.broker = Replicated(**settings)
        self.management = Management(self.broker)
        for name in "xy":
            assert self.ask("vhost.add", name=name) == {}

    def ask(self, method: str, asker: Peer | None = None, **arguments: Any) -> Any:
        replies: list[Any] = []
        connection = asker.connection if asker is not None else None
        for _ in self.management.work(method, arguments, replies.append, connection):
            pass
        self.broker.advance()
        (answer,) = replies
        return answer["result"] if answer["ok"] else answer["error"]

    def peer(self, vhost: str, **options: Any) -> Peer:
        peer = Peer(self.broker, vhost=vhost, **options)
        peer.open_channel()
        return peer

    def call(self, peer: Peer, *methods: Any) -> Any:
        """The last answer."""
        for method in methods:
            peer.send(1, method)
            self.broker.advance()
        frames = peer.frames()
        return frames[-1] if frames else None

    def contents(self, vhost: str, queue: str = "q") -> list[bytes]:
        found = self.broker.vhosts.get(vhost)
        assert found is not None
        return [message[5] for message in found.queues[queue].core.peek(1 << 20)]


@pytest.fixture
def house() -> House:
    return House()


def text_of(frame: Any) -> str:
    return f"{frame.reply_code} {frame.reply_text}"


# ---- entering


def test_a_virtual_host_that_is_not_there(house: House) -> None:
    peer = Peer(house.broker, opened=False, vhost="z")
    close = peer.handshake()[-1]
    assert text_of(close) == "530 NOT_ALLOWED - vhost z not found"


@pytest.mark.parametrize("vhost", ["", "x ", "X", "/x", "x/", "x\0", "//", "ü" * 90])
def test_names_are_compared_octet_by_octet(house: House, vhost: str) -> None:
    peer = Peer(house.broker, opened=False, vhost=vhost)
    assert peer.handshake()[-1].reply_code == 530


def test_a_user_enters_where_it_has_a_permission(house: House) -> None:
    house.broker.rights.checked = True
    house.broker.rights.local = lambda user: user == "root"
    house.ask("user.put", user="anna", hash="", tags=[])
    house.ask("permission.set", user="anna", vhost="x", configure=".*", write=".*", read=".*")
    assert house.peer("x", user="anna").connection.opened
    for vhost in "/y":
        peer = Peer(house.broker, opened=False, user="anna", vhost=vhost)
        expected = f"530 NOT_ALLOWED - access to vhost '{vhost}' refused for user 'anna'"
        assert text_of(peer.handshake()[-1]) == expected


def test_who_has_a_permission_somewhere_has_no_others(house: House) -> None:
    """A user of the user file may do everything until it has one."""
    house.broker.rights.checked = True
    house.broker.rights.local = lambda user: user == "root"
    assert house.peer("y", user="root").connection.client.everything
    house.ask("permission.set", user="root", vhost="x", configure="", write="", read="")
    peer = Peer(house.broker, opened=False, user="root", vhost="y")
    assert peer.handshake()[-1].reply_code == 530
    house.ask("vhost.delete", name="x")
    peer = Peer(house.broker, opened=False, user="root", vhost="y")
    assert peer.handshake()[-1].reply_code == 530  # its only permission has gone with the virtual host
    assert not house.peer("/", user="root").connection.client.everything


# ---- isolation


def test_the_same_names_are_other_objects(house: House) -> None:
    peers = {vhost: house.peer(vhost) for vhost in "/xy"}
    for vhost, peer in peers.items():
        bind = Queue.Bind(queue="q", exchange="amq.topic", routing_key="k.*")
        house.call(peer, Queue.Declare(queue="q"), bind, Exchange.Declare(exchange="e"))
        for exchange, key in (("", "q"), ("amq.topic", "k.1")):
            peer.publish(vhost.encode(), key, exchange)
        house.broker.advance()
    for vhost in "/xy":
        assert house.contents(vhost) == [vhost.encode()] * 2
    assert len(house.broker.engine.queues) == 3


def test_a_queue_of_another_one_is_not_there(house: House) -> None:
    house.call(house.peer("x"), Queue.Declare(queue="q"), Exchange.Declare(exchange="e"))
    where = "in vhost 'y'"
    methods: list[tuple[Any, str]] = [
        (Queue.Declare(**SEEN), f"404 NOT_FOUND - no queue 'q' {where}"),
        (Exchange.Declare(exchange="e", passive=True), f"404 NOT_FOUND - no exchange 'e' {where}"),
        (Basic.Get(queue="q"), f"404 NOT_FOUND - no queue 'q' {where}"),
        (Basic.Consume(queue="q"), f"404 NOT_FOUND - no queue 'q' {where}"),
        (Queue.Purge(queue="q"), f"404 NOT_FOUND - no queue 'q' {where}"),
        (Queue.Bind(queue="q", exchange="amq.direct"), f"404 NOT_FOUND - no queue 'q' {where}"),
        (Exchange.Bind(destination="amq.direct", source="e"), f"404 NOT_FOUND - no exchange 'e' {where}"),
    ]
    for method, text in methods:
        close = house.call(house.peer("y"), method)
        assert isinstance(close, Channel.Close) and text_of(close) == text
    assert house.call(house.peer("y"), Queue.Delete(queue="q")).message_count == 0
    assert house.contents("x") == []


def test_routes_that_are_kept_are_of_one(house: House) -> None:
    """The same octets of basic.publish, in one turn and another, first here and then there."""
    peers = {vhost: house.peer(vhost) for vhost in "/xy"}
    for vhost in "/x":
        house.call(peers[vhost], Queue.Declare(queue="q"))
    for round in range(3):
        for vhost, peer in peers.items():
            peer.publish(b"%s%d" % (vhost.encode(), round), "q")
            peer.publish(b"other", "nowhere")
    assert house.contents("/") == [b"/0", b"/1", b"/2"]
    assert house.contents("x") == [b"x0", b"x1", b"x2"]
    house.call(peers["y"], Queue.Declare(queue="q"))
    peers["y"].publish(b"y", "q")
    house.call(peers["/"], Queue.Delete(queue="q"))
    peers["/"].publish(b"gone", "q")
    assert house.contents("y") == [b"y"] and house.contents("x") == [b"x0", b"x1", b"x2"]


@pytest.mark.parametrize("kind", ["alternate", "dead"])
def test_what_leaves_a_queue_stays_in_its_virtual_host(house: House, kind: str) -> None:
    x, y = house.peer("x"), house.peer("y")
    for peer in (x, y):
        house.call(peer, Exchange.Declare(exchange="grave", exchange_type="fanout"), Queue.Declare(queue="grave"))
        house.call(peer, Queue.Bind(queue="grave", exchange="grave"))
    name = "alternate-exchange" if kind == "alternate" else "x-dead-letter-exchange"
    house.call(x, Queue.Declare(queue="q", arguments={name: "grave"}))
    x.publish(b"m", "q")
    x.send(1, Basic.Get(queue="q"))
    x.send(1, Basic.Reject(1, requeue=False))
    house.broker.advance()
    assert house.contents("x", "grave") == [b"m"] and house.contents("y", "grave") == []


def test_an_exchange_that_is_in_another_one_gets_no_dead_letter(house: House) -> None:
    x, y = house.peer("x"), house.peer("y")
    house.call(y, Exchange.Declare(exchange="grave", exchange_type="fanout"), Queue.Declare(queue="grave"))
    house.call(y, Queue.Bind(queue="grave", exchange="grave"))
    house.call(x, Exchange.Declare(exchange="e", arguments={"alternate-exchange": "grave"}))
    house.call(x, Queue.Declare(queue="q", arguments={"x-dead-letter-exchange": "grave", "x-max-length": 1}))
    for _ in range(3):
        x.publish(b"m", "q")
        x.publish(b"m", "any", "e")
    house.broker.advance()
    assert house.contents("y", "grave") == [] and house.contents("x") == [b"m"]


def test_copies_and_direct_replies_stay_in_their_virtual_host(house: House) -> None:
    x, y = house.peer("x"), house.peer("y")
    for peer in (x, y):
        house.call(peer, Queue.Declare(queue="q"), Queue.Declare(queue="copy"))
    x.publish(b"m", "q", headers={"CC": ["copy"], "BCC": ["copy", "q"]})
    house.broker.advance()
    assert house.contents("x", "copy") == [b"m"] and house.contents("y", "copy") == []
    house.call(y, Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))
    y.publish(b"ask", "q", reply_to="amq.rabbitmq.reply-to")
    house.broker.advance()
    found = house.broker.vhosts.get("y")
    assert found is not None
    (asked,) = found.queues["q"].core.peek(1)
    address = decode_properties(bytes(asked[4]))["reply_to"]
    x.publish(b"forged", address)
    house.broker.advance()
    assert not any(isinstance(frame, Basic.Deliver) for frame in y.frames())
    house.call(x, Basic.Get(queue=address))
    y.publish(b"answer", address)
    house.broker.advance()
    assert any(isinstance(frame, Basic.Deliver) for frame in y.frames())


def test_policies_and_limits_are_of_one(house: House) -> None:
    house.ask("policy.set", name="p", vhost="x", pattern="", definition={"max-length": 1})
    house.ask("limit.set", vhost="x", limits={"max-queues": 1, "max-connections": 1})
    peers = {vhost: house.peer(vhost) for vhost in "/xy"}
    for peer in peers.values():
        house.call(peer, Queue.Declare(queue="q"))
        for _ in range(3):
            peer.publish(b"m", "q")
    assert [len(house.contents(vhost)) for vhost in "/xy"] == [3, 1, 3]
    answers = {vhost: house.call(peer, Queue.Declare(queue="r")) for vhost, peer in peers.items()}
    assert text_of(answers["x"]) == (
        "406 PRECONDITION_FAILED - cannot declare queue 'r': queue limit in vhost 'x' (1) is reached"
    )
    assert answers["/"].name == answers["y"].name == "Queue.DeclareOk"
    assert house.peer("y").connection.opened
    refused = Peer(house.broker, opened=False, vhost="x").handshake()[-1]
    assert "access to vhost 'x' refused for user 'guest': connection limit (1) is reached" in refused.reply_text


def test_the_failover_exchange_of_each_tells_its_own_queues(house: House) -> None:
    bound: list[Any] = []
    house.broker.vhosts.rules.failover_bound = bound.append
    for vhost in "x/":
        house.call(house.peer(vhost), Queue.Declare(queue="q"), Queue.Bind(queue="q", exchange="amq.failover"))
    assert [queue.host for queue in bound] == ["x", "/"]


def test_an_exclusive_queue_is_free_in_another_one(house: House) -> None:
    house.call(house.peer("x"), Queue.Declare(queue="q", exclusive=True))
    assert house.call(house.peer("y"), Queue.Declare(queue="q", exclusive=True)).name == "Queue.DeclareOk"


def test_requests_are_about_the_virtual_host_of_their_connection(house: House) -> None:
    x, y = house.peer("x"), house.peer("y")
    house.call(x, Queue.Declare(queue="q"))
    x.publish(b"m", "q")
    assert [each["body"] for each in house.ask("queue.peek", x, queue="q")] == ["m"]
    assert house.ask("queue.peek", y, queue="q") == "no queue 'q'"
    assert [each["vhost"] for each in house.ask("queue.list", x)] == ["x"]
    assert house.ask("queue.list", y) == [] and house.ask("queue.info", y, queue="q") == "no queue 'q'"
    assert [each["name"] for each in house.ask("queue.list", y, vhost=None)] == ["q"]
    assert house.ask("queue.page", y)["total"] == 0 and house.ask("queue.page", y, vhost=None)["total"] == 1
    assert house.ask("queue.list", x, vhost="z") == "no virtual host 'z'"
    assert house.ask("queue.purge", y, queue="q", vhost="x") == {"purged": 1}


def test_a_request_about_another_one_takes_the_rights_there(house: House) -> None:
    house.broker.rights.checked = True
    house.ask("user.put", user="anna", hash="", tags=["policymaker"])
    house.ask("permission.set", user="anna", vhost="x", configure=".*", write=".*", read=".*")
    for vhost in "/xy":
        house.ask("permission.set", user="root", vhost=vhost, configure=".*", write=".*", read=".*")
        found = house.broker.vhosts.get(vhost)
        assert found is not None
        found.declare_queue(None, "q", True, False, False, {})
    anna = house.peer("x", user="anna")
    for method in ("queue.peek", "queue.purge", "queue.delete"):
        for vhost in "/y":
            assert "access to queue 'q' refused for user 'anna'" in house.ask(method, anna, queue="q", vhost=vhost)
    assert "refused" in house.ask("queue.move", anna, source="q", target="q", vhost="y")
    good: Any = {"name": "p", "pattern": "", "definition": {"max-length": 1}}
    assert house.ask("policy.set", anna, **good) == {}
    assert house.ask("policy.set", anna, vhost="y", **good) == (
        "policy.set: access to vhost 'y' refused for user 'anna'"
    )
    for method in ("vhost.add", "vhost.delete"):
        assert house.ask(method, anna, name="x") == f"{method}: user 'anna' is no administrator"
    assert {each["vhost"] for each in house.ask("queue.list", anna, vhost=None)} == {"x"}


# ---- coming


@pytest.mark.parametrize("name", ["", "a" * (NAME_MAX + 1), "a\0", "a\n", "\ud800"])
def test_what_is_no_name(house: House, name: str) -> None:
    assert "expected 1 to 128 octets" in house.ask("vhost.add", name=name)


def test_adding_twice_changes_nothing(house: House) -> None:
    before = house.broker.configurations.snapshot()
    assert house.ask("vhost.add", name="x") == house.ask("vhost.add", name="/") == {}
    assert house.broker.configurations.snapshot() == before
    listed = house.ask("vhost.list")
    assert [each["name"] for each in listed] == ["/", "x", "y"]


def test_there_are_not_more_than_so_many() -> None:
    house = House()
    for number in range(HOSTS_MAX - 2):
        assert house.ask("vhost.add", name=f"h{number}") == {}
    assert "no more are possible" in house.ask("vhost.add", name="z")
    house.broker.tick(1.0)


# ---- going


def test_what_is_in_one_goes_with_it(house: House) -> None:
    x, y = house.peer("x"), house.peer("y")
    for peer in (x, y):
        house.call(peer, Queue.Declare(queue="q", durable=True), Exchange.Declare(exchange="e"))
        house.call(peer, Queue.Bind(queue="q", exchange="e"), Exchange.Bind(destination="e", source="amq.topic"))
        peer.publish(b"m", "q")
    for vhost in "xy":
        house.ask("policy.set", name="p", vhost=vhost, pattern="", definition={"max-length": 9})
        house.ask("limit.set", vhost=vhost, limits={"max-queues": 9})
    assert house.ask("vhost.delete", name="x") == {}
    (close,) = [frame for frame in x.frames() if isinstance(frame, Connection.Close)]
    assert text_of(close) == "320 CONNECTION_FORCED - vhost 'x' is deleted"
    assert y.connection.opened and house.contents("y") == [b"m"]
    assert len(house.broker.engine.queues) == 1
    assert {key.host for key in house.broker.settings} == {"y"}
    snapshot = [decode_operation(payload) for _, payload in house.broker.configurations.snapshot()]
    assert {operation.get("vhost") for operation in snapshot if "kind" not in operation} == {None, "y"}
    assert house.ask("vhost.delete", name="x") == "no virtual host 'x'"
    assert house.ask("vhost.delete", name="/") == "virtual host '/' cannot be deleted"


def test_one_that_comes_again_is_empty(house: House) -> None:
    x = house.peer("x")
    house.call(x, Queue.Declare(queue="q"))
    x.publish(b"old", "q")
    house.ask("vhost.delete", name="x")
    house.ask("vhost.add", name="x")
    again = house.peer("x")
    assert house.call(again, Queue.Declare(**SEEN)).reply_code == 404
    again.open_channel(2)
    again.publish(b"new", "q", channel=2)  # no route of the old one is used
    assert len(house.broker.engine.queues) == 0
    x.send(1, Basic.Publish(routing_key="q"))
    assert x.connection.state is State.CLOSING


def test_nothing_is_sent_on(house: House) -> None:
    x = house.peer("x")
    house.call(x, Exchange.Declare(exchange="e", exchange_type="fanout"), Queue.Declare(queue="r"))
    house.call(x, Queue.Bind(queue="r", exchange="e"))
    arguments: Any = {"alternate-exchange": "e", "x-dead-letter-exchange": "e"}
    house.call(x, Queue.Declare(queue="q", arguments=arguments))
    x.publish(b"m", "q")
    published = house.broker.engine.published
    house.ask("vhost.delete", name="x")
    assert house.broker.engine.published == published


def test_a_deep_one_goes_in_slices(house: House) -> None:
    x = house.peer("x")
    house.call(x, Queue.Declare(queue="q"))
    for _ in range(2 * DEEP):
        x.publish(b"", "q")
    house.broker.advance()
    house.broker.vhosts.delete("x")
    house.broker.engine.schedule, house.broker.engine.slice.most = lambda: None, 2  # slices have an end
    steps = 0
    while not house.broker.vhosts.empty("x"):
        steps += 1
        assert house.broker.vhosts.get("x") is None and house.broker.vhosts.is_deleted("x")
        assert Peer(house.broker, opened=False, vhost="x").handshake()[-1].reply_code == 530
        assert house.ask("vhost.add", name="x") == "virtual host 'x' is being deleted: try again"
    assert steps > 3 and not house.broker.vhosts.is_deleted("x")


def test_an_alarm_and_a_policy_of_one_end_with_it(house: House) -> None:
    x, other = house.peer("x"), house.peer("/")
    for peer, name in ((x, "q"), (other, "x/q")):
        house.call(peer, Queue.Declare(queue=name, arguments={"qpid.alert_count": 1}))
        peer.publish(b"m", name)
    house.broker.advance()
    assert list(house.broker.alarms) == ["vhost 'x' queue 'q'", "queue x/q"]
    house.ask("vhost.delete", name="x")
    assert list(house.broker.alarms) == ["queue x/q"]


def test_events_name_a_virtual_host_that_is_not_the_default_one() -> None:
    house = House()
    house.broker.events.begin("h", lambda: 0)
    for vhost in "/x":
        house.call(house.peer(vhost), Queue.Declare(queue="q"), Basic.Consume(queue="q", consumer_tag="t"))
    _, found = house.broker.events.after(0, 99)
    named = {(event, fields.get("vhost")) for _, (_, event, fields) in found}
    kinds = ("clientConnect", "queueDeclare", "subscribe")
    assert named == {(kind, vhost) for kind in kinds for vhost in (None, "x")}


# ---- the log


def filled(house: House) -> None:
    for vhost in "/xy":
        peer = house.peer(vhost)
        numbered = Exchange.Declare(exchange="n", exchange_type="fanout", arguments={"qpid.msg_sequence": 1})
        house.call(peer, Queue.Declare(queue="q", durable=True), Exchange.Declare(exchange="e"), numbered)
        house.call(peer, Queue.Bind(queue="q", exchange="n"), Exchange.Bind(destination="n", source="amq.topic"))
        peer.publish(vhost.encode(), "k", "n")
        house.ask("policy.set", name="p", vhost=vhost, pattern="", definition={"max-length": 9})


def queues_of(broker: Broker) -> dict[tuple[str, str], list[bytes]]:
    queues = [queue for vhost in broker.vhosts for queue in vhost.queues.values()]
    return {(queue.host, queue.name): [each[5] for each in queue.core.peek(99)] for queue in queues}


def test_a_backup_has_each_of_them(house: House) -> None:
    filled(house)
    backup = house.broker.backup()
    assert backup.configurations.snapshot() == house.broker.configurations.snapshot()
    assert queues_of(backup) == {("/", "q"): [b"/"], ("x", "q"): [b"x"], ("y", "q"): [b"y"]}
    assert [vhost.name for vhost in backup.vhosts] == ["/", "x", "y"]
    house.ask("vhost.delete", name="x")
    backup = house.broker.backup()
    assert backup.configurations.snapshot() == house.broker.configurations.snapshot()
    assert set(queues_of(backup)) == {("/", "q"), ("y", "q")} and backup.vhosts.get("x") is None


def test_a_snapshot_makes_and_takes_them(house: House) -> None:
    filled(house)
    snapshot = house.broker.configurations.snapshot()
    fresh = Broker()
    adopt(fresh.configurations, snapshot)
    assert fresh.configurations.snapshot() == snapshot
    assert set(queues_of(fresh)) == set(queues_of(house.broker))
    other = House()
    filled(other)
    other.ask("vhost.delete", name="x")
    other.ask("vhost.add", name="z")
    other.broker.engine.flush()
    adopt(fresh.configurations, other.broker.configurations.snapshot())
    assert fresh.configurations.snapshot() == other.broker.configurations.snapshot()
    assert [vhost.name for vhost in fresh.vhosts] == ["/", "y", "z"]
    adopt(fresh.configurations, Broker().configurations.snapshot())
    assert [vhost.name for vhost in fresh.vhosts] == ["/"] and not fresh.engine.queues


def test_the_log_of_the_default_one_names_none() -> None:
    """Journals and captures of older versions, and brokers of older versions, know no other."""
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    for method in (Queue.Declare(queue="q"), Queue.Bind(queue="q", exchange="amq.topic"), Queue.Delete(queue="q")):
        peer.send(1, method)
        broker.advance()
    assert not any(b"vhost" in batch for batch in broker.batches)


OPERATIONS: list[tuple[dict[str, Any], str]] = [
    ({"op": "queue.delete", "name": "q", "number": 1, "vhost": "z"}, "there is no virtual host 'z'"),
    ({"op": "queue.delete", "name": "q", "number": 1, "vhost": 7}, "expected 1 to 128 octets"),
    ({"op": "queue.delete", "name": "q", "number": 1, "vhost": ""}, "expected 1 to 128 octets"),
    ({"op": "setting.put", "kind": HOST_KIND, "host": "", "name": "", "value": {}}, "expected 1 to 128 octets"),
    ({"op": "setting.put", "kind": HOST_KIND, "host": "/", "name": "", "value": {}}, "virtual host '/'"),
    ({"op": "setting.put", "kind": DELETED, "host": "/", "name": "", "value": {}}, "virtual host '/'"),
    ({"op": "setting.put", "kind": HOST_KIND, "host": "z", "name": "n", "value": {}}, "virtual host 'z' 'n'"),
    ({"op": "setting.put", "kind": HOST_KIND, "host": "z", "name": "", "value": {"a": 1}}, "expected nothing"),
    ({"op": "setting.delete", "kind": HOST_KIND, "host": "/", "name": ""}, "virtual host '/'"),
]


@pytest.mark.parametrize(("operation", "text"), OPERATIONS)
def test_what_no_primary_logs_is_refused(operation: dict[str, Any], text: str) -> None:
    backup = Broker()
    backup.passive = True
    with pytest.raises(LinkError, match=text):
        backup.configurations.apply(1 << 48, encode_table(operation))
    assert [vhost.name for vhost in backup.vhosts] == ["/"]


@pytest.mark.parametrize("cleared", [False, True])
def test_what_bindings_leave_is_in_no_snapshot(house: House, cleared: bool) -> None:
    """They are cleared away later than their virtual host goes."""
    x = house.peer("x")
    house.call(x, Queue.Declare(queue="q"), Exchange.Bind(destination="amq.topic", source="amq.direct"))
    for number in range(50):
        house.call(x, Queue.Bind(queue="q", exchange="amq.direct", routing_key=str(number)))
    before = len(house.broker.configurations.records.encoded(b""))
    house.ask("vhost.delete", name="x")
    if cleared:
        house.broker.tick(1.0)
        assert len(house.broker.configurations.records.encoded(b"")) < before / 10
    house.ask("vhost.add", name="x")
    for other in (house.broker.backup(), Broker()):
        adopt(other.configurations, house.broker.configurations.snapshot())
        assert other.configurations.snapshot() == house.broker.configurations.snapshot()
        assert not list(other.configurations.hosts["x"].bindings())
        assert not other.configurations.clear(1)


# ---- fail-over in the middle


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_a_new_primary_goes_on_with_a_deletion(house: House, steps: int) -> None:
    filled(house)
    x = house.broker.vhosts.get("x")
    assert x is not None
    for number in range(120):
        x.declare_queue(None, f"q{number}", True, False, False, {})
    house.broker.vhosts.delete("x")
    for _ in range(steps):
        house.broker.vhosts.empty("x")
    heir = house.broker.backup()
    assert heir.vhosts.get("x") is None
    heir.engine.begin_epoch(1)
    heir.passive = False
    heir.vhosts.on_promoted()
    for tick in range(20):
        heir.tick(tick / 10)
        heir.engine.end_turn()
    assert [vhost.name for vhost in heir.vhosts] == ["/", "y"] and not heir.vhosts.is_deleted("x")
    assert set(queues_of(heir)) == {("/", "q"), ("y", "q")}


def test_a_deletion_that_fails_is_begun_again(house: House) -> None:
    filled(house)
    x = house.broker.vhosts.get("x")
    assert x is not None
    house.broker.vhosts.delete("x")
    with patch.object(x.endings, "drop_queue", side_effect=MemoryError), pytest.raises(MemoryError):
        house.broker.vhosts.empty("x")
    assert house.broker.vhosts.is_deleted("x") and "q" in x.queues
    house.broker.tick(1.0)
    assert not house.broker.vhosts.is_deleted("x") and len(house.broker.vhosts) == 2


def test_a_deposed_primary_stops_deleting(house: House) -> None:
    filled(house)
    house.broker.vhosts.delete("x")
    house.broker.passive = True
    position = house.broker.engine.position
    assert not house.broker.vhosts.empty("x")
    house.broker.tick(1.0)
    assert house.broker.engine.position == position
    assert house.ask("vhost.add", name="z") == (
        "users, policies and parameters are replicated and this broker is a backup"
    )


def test_the_mark_of_a_deletion_may_be_all_that_is_left(house: House) -> None:
    """The last two operations came in two batches, and the primary died between them."""
    house.broker.settings.put(Key(DELETED, "z", ""), {})
    assert house.ask("vhost.add", name="z") == "virtual host 'z' is being deleted: try again"
    house.broker.tick(1.0)
    assert house.ask("vhost.add", name="z") == {} and house.peer("z").connection.opened


@pytest.mark.parametrize(("others", "at_once"), [(0, 0), (1, 1), (50, 50), (51, 50), (800, 100)])
def test_a_tick_looks_at_some_of_many_virtual_hosts_each_in_its_turn(
    monkeypatch: pytest.MonkeyPatch, others: int, at_once: int
) -> None:
    broker = Broker()
    for number in range(others):
        broker.vhosts.add(f"v{number}")
    ticks: list[str] = []
    monkeypatch.setattr(VHost, "tick", lambda self, now: ticks.append(self.name))
    for tick in range(8):
        broker.vhosts.tick(float(tick))
        assert len(ticks) == (at_once + 1) * (tick + 1)
    assert ticks.count("/") == 8
    assert set(ticks) == {"/", *(f"v{number}" for number in range(others))}
