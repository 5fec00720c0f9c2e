"""Nothing of one virtual host reaches another: two of them in one broker behave as in two brokers.

Random histories in both, with the same names everywhere, against a broker for each: what clients are told and what is
in the queues has to be equal.
"""

from __future__ import annotations

from typing import Any

import pika
import pika.exceptions
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic, Channel, Exchange, Queue

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.management.model import Management
from qpidd_py.security.users import hash_password
from tests.support.process import BrokerProcess
from tests.unit.broker.peer import Peer, Replicated

HOSTS = ("x", "y")
QUEUES, EXCHANGES = ("q", "r", "s"), ("e", "f", "amq.topic")
TIME = 60.0


class Room:
    """A broker with some of the virtual hosts, and a client in each."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self.broker = Replicated()
        self.management = Management(self.broker)
        for name in HOSTS:
            self.broker.vhosts.add(name)
        self.broker.advance()
        self.peers = {name: Peer(self.broker, vhost=name) for name in hosts}
        self.told: dict[str, list[str]] = {name: [] for name in hosts}
        for peer in self.peers.values():
            peer.open_channel()

    def do(self, host: str, step: tuple[Any, ...]) -> None:
        peer, (what, *rest) = self.peers[host], step
        if what == "publish":
            exchange, key, headers = rest
            peer.publish(b"%s %d" % (host.encode(), len(self.told[host])), key, exchange, headers=headers)
        elif what == "policy":
            pattern, definition = rest
            answers: list[Any] = []
            arguments = {"name": "p", "vhost": host, "pattern": pattern, "definition": definition}
            for _ in self.management.work("policy.set", arguments, answers.append, None):
                pass
        else:
            peer.send(1, what(*rest[0], **rest[1]))
        self.broker.advance()
        self._read()

    def _read(self) -> None:
        for name, peer in self.peers.items():
            for frame in peer.frames():
                self.told[name].append(_shown(frame))
                if isinstance(frame, Channel.Close):
                    peer.send(1, Channel.CloseOk())
                    peer.open_channel()

    def contents(self, host: str) -> Any:
        vhost = self.broker.vhosts.get(host)
        assert vhost is not None
        found = {
            queue.name: ([each[2:] for each in queue.core.peek(99)], queue.effect.arguments)
            for queue in vhost.queues.values()
        }
        return found, sorted(vhost.exchanges), sorted(str(each.key) for each in vhost.configuration.bindings())


def _shown(frame: Any) -> str:
    return f"{frame.name} {dict(frame)}" if hasattr(frame, "name") and frame.name.count(".") else repr(frame)


def method(kind: Any, **values: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(kind), st.just(()), st.fixed_dictionaries(values))


queue, exchange, key = st.sampled_from(QUEUES), st.sampled_from(EXCHANGES), st.sampled_from(("q", "r", "k.a", "#"))
onward = st.sampled_from((*EXCHANGES, ""))
queue_arguments = st.fixed_dictionaries(
    {},
    optional={
        "x-dead-letter-exchange": onward,
        "x-dead-letter-routing-key": key,
        "alternate-exchange": st.sampled_from(EXCHANGES),
        "x-max-length": st.integers(1, 3),
    },
)
headers = st.fixed_dictionaries(
    {}, optional={"CC": st.lists(key, min_size=1, max_size=2), "BCC": st.lists(key, min_size=1, max_size=2)}
)
steps = st.one_of(
    method(Queue.Declare, queue=queue, arguments=queue_arguments, auto_delete=st.booleans()),
    method(Queue.Delete, queue=queue),
    method(Queue.Purge, queue=queue),
    method(Queue.Bind, queue=queue, exchange=exchange, routing_key=key),
    method(Queue.Unbind, queue=queue, exchange=exchange, routing_key=key),
    method(
        Exchange.Declare,
        exchange=exchange,
        exchange_type=st.sampled_from(("direct", "fanout", "topic")),
        arguments=st.fixed_dictionaries({}, optional={"alternate-exchange": st.sampled_from(EXCHANGES)}),
    ),
    method(Exchange.Delete, exchange=exchange),
    method(Exchange.Bind, destination=exchange, source=exchange, routing_key=key),
    method(Basic.Get, queue=queue, no_ack=st.booleans()),
    method(Basic.Consume, queue=queue, consumer_tag=st.sampled_from("ab"), no_ack=st.booleans()),
    method(Basic.Nack, delivery_tag=st.integers(0, 3), multiple=st.booleans(), requeue=st.booleans()),
    st.tuples(st.just("publish"), onward, key, headers),
    st.tuples(st.just("publish"), onward, key, headers),
    st.tuples(st.just("policy"), st.sampled_from(("", "q")), st.just({"max-length": 2})),
    st.tuples(st.just("policy"), st.just("r"), st.just({"dead-letter-exchange": "e"})),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(HOSTS), steps), max_size=40))
def test_two_in_one_broker_are_as_two_brokers(history: list[tuple[str, Any]]) -> None:
    both, alone = Room(HOSTS), {name: Room((name,)) for name in HOSTS}
    for host, step in history:
        both.do(host, step)
        alone[host].do(host, step)
    for host in HOSTS:
        assert both.told[host] == alone[host].told[host]
        assert both.contents(host) == alone[host].contents(host)
    backup = both.broker.backup()
    assert backup.configurations.snapshot() == both.broker.configurations.snapshot()


def test_a_leak_would_be_found() -> None:
    """If the routes that are kept were of all virtual hosts."""
    for host_numbers in (True, False):
        room = Room(HOSTS)
        if not host_numbers:
            for peer in room.peers.values():
                peer.connection.core.host = 0
        room.do("x", (Queue.Declare, (), {"queue": "q"}))
        for host, key in (("y", "other"), ("x", "q"), ("y", "q")):
            room.do(host, ("publish", "", key, {}))
        assert len(room.contents("x")[0]["q"][0]) == (1 if host_numbers else 2)


# ---- a user of one, and a real broker


@pytest.fixture
def broker(tmp_path: Any) -> Any:
    """`anna` may do everything in `x`, and is in no other; `q` and `e` are in each, with what is secret."""
    users = tmp_path / "users.yaml"
    users.write_text(f"root: {hash_password('root', log2n=4)}\n")
    with BrokerProcess(tmp_path, "--user-file", str(users)) as found:
        for name in HOSTS:
            ask(found, "root", "vhost.add", name=name)
        ask(found, "root", "user.put", user="anna", hash=hash_password("anna", log2n=4), tags=["policymaker"])
        every = {"configure": ".*", "write": ".*", "read": ".*"}
        ask(found, "root", "permission.set", user="anna", vhost="x", **every)
        for name in ("/", *HOSTS):
            channel = connect(found, "root", name).channel()
            channel.queue_declare("q", durable=True)
            channel.queue_bind("q", "amq.fanout")
            channel.basic_publish("", "q", f"of {name}".encode())
        yield found


def connect(broker: BrokerProcess, user: str, vhost: str, **properties: Any) -> pika.BlockingConnection:
    login = pika.PlainCredentials(user, user)
    options: Any = {"client_properties": properties} if properties else {}
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, vhost, login, socket_timeout=TIME, **options)
    )


def ask(broker: BrokerProcess, who: str, method: str, at: str = "/", **arguments: Any) -> Any:
    target = Target("127.0.0.1", broker.port, Login(who, who, ""), vhost=at)
    with ManagementSocket(target, Deadline(TIME)) as door:
        return door.request(method, arguments)


def secrets(broker: BrokerProcess) -> list[list[str]]:
    found = []
    for name in ("/", "y"):
        found.append([each["body"] for each in ask(broker, "root", "queue.peek", queue="q", vhost=name)])
    return found


def test_a_user_of_one_reaches_no_other(broker: BrokerProcess) -> None:
    for vhost in ("/", "y", "z", "", "X", "x/../y"):
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
            connect(broker, "anna", vhost)
        with pytest.raises(pika.exceptions.AMQPConnectionError):  # as a tool, a backup, a follower
            connect(broker, "anna", vhost or "/", **{"qpid.ha-admin": 1})
    for kind in ("qpid.ha-backup", "qpid.ha-replica"):
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connection = connect(broker, "anna", "x", **{kind: {"queue": "q", "id": "i", "epoch": 0}})
            connection.channel().basic_get("q")
            raise pika.exceptions.AMQPConnectionError  # a broker alone takes a backup for a client
    [home] = ask(broker, "anna", "vhost.list", at="")
    assert home["name"] == "x", "a tool that names none is in one that is hers"
    channel = connect(broker, "anna", "x").channel()
    channel.basic_publish("amq.fanout", "", b"mine")
    for headers in ({"CC": ["q"]}, {"BCC": ["/q", "y/q"]}):
        channel.basic_publish("", "nowhere", b"mine", pika.BasicProperties(headers=headers))
    for name in ("y/q", "/q", "//q", "q@y"):
        assert channel.queue_declare(name, arguments={"x-dead-letter-exchange": "amq.fanout"}).method.message_count == 0
    assert secrets(broker) == [["of /"], ["of y"]]


LISTS = ("queue.list", "queue.page", "binding.list")
"""With no virtual host they have what the asker sees."""
REQUESTS = ("queue.peek", "queue.purge", "queue.delete", "queue.info", "queue.list", "queue.page", "binding.list")
ROUTES = ("route.bindings", "route.changes", "route.paths", "queue.bindings")


def test_requests_of_a_user_of_one_reach_no_other(broker: BrokerProcess) -> None:
    for vhost in ("/", "y", None, ["y"], {"y": 1}, 0, "z"):
        for method in REQUESTS:
            if vhost is None and method in LISTS:
                continue
            with pytest.raises(RequestRefused):
                ask(broker, "anna", method, "x", queue="q", vhost=vhost)
        for method in ROUTES:
            with pytest.raises(RequestRefused):
                ask(broker, "anna", method, "x", queue="q", exchange="amq.fanout", vhost=vhost)
        for source, target in (("q", "q"), ("q", "r")):
            with pytest.raises(RequestRefused):
                ask(broker, "anna", "queue.move", "x", source=source, target=target, vhost=vhost)
        policy = {"name": "p", "pattern": "", "definition": {"max-length": 1}}
        for method, arguments in (("policy.set", policy), ("policy.clear", {"name": "p"})):
            with pytest.raises(RequestRefused):
                ask(broker, "anna", method, "x", vhost=vhost, **arguments)
    with pytest.raises(RequestRefused, match="no shovel 's'"):
        ask(broker, "anna", "shovel.restart", "x", name="s")  # of its own virtual host, where none is named
    with pytest.raises(RequestRefused, match="access to vhost '/' refused"):
        ask(broker, "anna", "shovel.restart", "x", name="s", vhost="/")
    for method in ("vhost.add", "vhost.delete", "limit.set", "permission.set"):
        with pytest.raises(RequestRefused):
            ask(broker, "anna", method, "x", name="y", vhost="y", limits={"max-queues": 0}, user="anna")
    assert [each["body"] for each in ask(broker, "anna", "queue.peek", "x", queue="q")] == ["of x"]
    ask(broker, "anna", "queue.bindings", "x", queue="q", exchange="amq.fanout")
    assert secrets(broker) == [["of /"], ["of y"]]


def test_who_is_inside_is_outside_when_it_is_deleted(broker: BrokerProcess) -> None:
    connection = connect(broker, "anna", "x")
    channel = connection.channel()
    channel.basic_consume("q", lambda *_: None)
    ask(broker, "root", "vhost.delete", name="x")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="vhost 'x' is deleted"):
        for _ in range(3):  # the message, and the end
            connection.process_data_events(TIME)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        connect(broker, "anna", "x")
    ask(broker, "root", "vhost.add", name="x")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        connect(broker, "anna", "x")  # its permission has gone with the old one
    assert ask(broker, "root", "queue.list", vhost="x") == []
