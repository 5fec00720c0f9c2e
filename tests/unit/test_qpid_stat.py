"""`qpid-stat`: screens, order, rates, errors; against real connections behind a socket."""

import json
import socket
import threading
import time

import pytest
from pamqp import commands

from ha.shell.standalone import Standalone
from qpidd_py.broker.broker import Broker
from qpidd_py.cli import qpid_config, qpid_stat
from qpidd_py.cli.qpid_stat import main
from qpidd_py.cli.stat_views import CONNECTIONS, EXCHANGES, QUEUES, SUBSCRIPTIONS, general, memory
from qpidd_py.management.model import Management
from qpidd_py.security.acl.reader import read_acl
from tests.support.socket_broker import SocketBroker, closed_port
from tests.unit.broker.peer import Peer


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ("QPID_CONFIG", "QPID_PORT", "QPID_INTERFACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(qpid_stat, "RATE_TIME", 0.01)


@pytest.fixture
def server():
    with SocketBroker() as found:
        yield found


@pytest.fixture
def stat(server, capsys):
    def run(*words):
        code = main([*words, "-b", server.address])
        return code, capsys.readouterr().out

    return run


def declared(server, name, *bodies):
    """A peer of the broker that holds two channels; its second one has consumed nothing yet."""
    peer = Peer(server.broker)
    peer.open_channel()
    peer.send(1, commands.Queue.Declare(queue=name))
    for body in bodies:
        peer.publish(body, name)
    return peer


def lines(shown):
    code, text = shown
    assert code == 0, text
    assert max(map(len, text.splitlines())) <= 80
    return [line.split() for line in text.splitlines() if line]


def test_the_broker_itself_comes_without_words(stat):
    text = {line.partition(":")[0]: line.partition(":")[2].strip() for line in stat()[1].splitlines()}
    assert (text["role"], text["queues"], text["connections"], text["publishers"]) == ("stand-alone", "0", "1", "go on")
    assert json.loads(stat("--json")[1])["queues"] == 0


def test_a_broker_with_the_ha_module_outside_of_a_cluster_is_no_primary(stat):
    info = json.loads(stat("--json")[1])
    assert dict(general(info | {"ha": True}))["role"] == "stand-alone"
    assert dict(general(info | {"ha": True, "clustered": True}))["role"] == "primary"


class InCluster(Standalone):
    """Of a member that names these."""

    def __init__(self, *addresses):
        super().__init__("n", "id")
        self._url = ",".join(addresses)

    def request(self, method, arguments, reply, user):
        if method != "ha.query":
            return super().request(method, arguments, reply, user)
        reply({"ok": True, "result": {"brokers_url": self._url}})
        return True

    def admit(self, connection, properties):
        return None

    def opened(self, connection):
        return False

    def connection_closed(self, connection):
        pass


def test_each_broker_of_the_cluster_below_its_address(server, stat):
    declared(server, "here", b"1")
    assert stat("-q", "--show-broker")[1].splitlines()[0] == f"{server.address}:", "it has no cluster"
    gone = f"127.0.0.1:{closed_port()}"
    with SocketBroker() as other:
        declared(other, "there")
        server.broker.hooks = InCluster(server.address, other.address, gone)
        code, text = stat("-q", "--show-broker")
        assert code == 0 and text.splitlines()[-1].startswith("ConnectionRefusedError: ")
        shown = [line.split()[0] for line in text.splitlines() if line.strip()]
        assert [shown.index(f"{each}:") for each in (server.address, other.address, gone)] == [0, 4, 8]
        assert (shown[3], shown[7]) == ("here", "there")
        found = json.loads(stat("-q", "--show-broker", "--json")[1])
        assert [item["name"] for item in found[other.address]] == ["there"] and gone in found
        assert "in/s" in stat("-q", "--rates", "--show-broker")[1]
    server.broker.hooks = InCluster(gone)
    assert stat("--show-broker")[0] == 1, "nobody answers"


def test_members_are_asked_at_the_same_time(server, stat):
    """One that does not answer held up the others for its whole time limit."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
        server.broker.hooks = InCluster(server.address, *addresses)

        def close_both() -> None:
            held = [each.accept()[0] for each in (other, one)]  # the second one first
            for each in held:
                each.close()

        thread = threading.Thread(target=close_both)
        thread.start()
        found = json.loads(stat("--show-broker", "--json", "--timeout", "8")[1])
        thread.join()
    assert found[server.address]["name"] == "fake" and list(found) == [server.address, *addresses]
    assert not any("no answer" in found[each] for each in addresses)


def test_a_wrong_column_is_one_error_and_not_that_of_each_member(server, stat):
    server.broker.hooks = InCluster(server.address, server.address)
    code, text = stat("-q", "-S", "colour", "--show-broker")
    assert code == 1 and text.startswith("Failed: UsageError: argument -S: found 'colour'") and text.count("\n") == 1


def test_alarms_and_blocked_publishers_are_shown(server, stat):
    server.broker.limit("disk", "disk: 3 octets are free")
    text = stat("-g")[1]
    assert "blocked: disk: 3 octets are free" in text and "disk: disk: 3 octets are free" in text


def test_memory(server, stat):
    server.broker.figures["memory"] = lambda: {"resident": 3 << 20, "limit": 1 << 30}
    server.broker.figures["paged"] = lambda: {"octets": 17}
    assert lines(stat("-m")) == [
        ["memory,", "resident:", "3.0", "MiB"],
        ["memory,", "limit:", "1024.0", "MiB"],
        ["page", "file,", "octets:", "17"],
    ]


def test_the_acl_file(server, stat):
    assert lines(stat("--acl")) == [["ACL", "file:", "none"], ["denials:", "0"]]
    rules = read_acl("group g a b\nquota queues 3 a@x\nacl allow guest all\nacl deny all all\n", "/etc/x.acl")
    server.broker.use_acl(rules)
    text = {line.partition(":")[0]: line.partition(":")[2].strip() for line in stat("--acl")[1].splitlines()}
    time.strptime(text.pop("loaded"), "%Y-%m-%d %H:%M:%S")
    assert text == {
        "ACL file": "/etc/x.acl",
        "rules": "2",
        "groups": "1",
        "default": "deny",
        "publishes are judged": "Y",
        "denials": "0",
        "quota queues": "3 for a@x",
    }
    assert json.loads(stat("--acl", "--json")[1])["enforcing"] is True


def test_queues_are_sorted_limited_and_found(server, stat):
    declared(server, "short", b"1")
    declared(server, "long", b"1", b"2", b"3")
    declared(server, "empty")
    head, _, *rows = lines(stat("-q", "-S", "msg", "-L", "2"))
    assert head[0] == "queue" and [(row[0], row[1]) for row in rows] == [("long", "3"), ("short", "1")]
    assert [row[0] for row in lines(stat("-q", "-S", "msg", "-I"))[2:]] == ["empty", "short", "long"]
    assert [row[0] for row in lines(stat("-q", "ort"))[2:]] == ["short"]
    assert [item["name"] for item in json.loads(stat("-q", "--json", "-S", "queue", "-L", "1")[1])] == ["short"]


def test_subscriptions_and_connections(server, stat):
    peer = declared(server, "orders", b"1")
    peer.send(1, commands.Basic.Qos(prefetch_count=7))
    peer.send(1, commands.Basic.Consume(queue="orders", consumer_tag="me"))
    server.broker.engine.end_turn()
    head, _, row = lines(stat("-u"))
    found = dict(zip(head, row, strict=True))
    assert (found["queue"], found["tag"], found["prefetch"], found["unacked"], found["ack"]) == (
        "orders", "me", "7", "1", "Y",
    )  # fmt: skip
    kinds = [row[0] for row in lines(stat("-c", "-S", "no", "-I"))[2:]]
    assert found["conn"] in kinds and len(kinds) == 2


def test_exchanges(stat):
    head, _, *rows = lines(stat("-e", "amq."))
    assert head[:2] == ["exchange", "type"] and ["amq.topic", "topic"] in [row[:2] for row in rows]


def test_rates_are_differences_and_new_objects_have_none():
    before = [{"name": "a", "enqueued": 10, "dequeued": 5}, {"name": "again", "enqueued": 10, "dequeued": 0}]
    flags = dict.fromkeys(("durable", "auto_delete", "exclusive"), False)
    rest = {**flags, "messages": 0, "unacked": 0, "bytes": 0, "consumers": 0}
    after = [
        {"name": "a", "enqueued": 110, "dequeued": 6, **rest},
        {"name": "again", "enqueued": 1, "dequeued": 1, **rest},
        {"name": "new", "enqueued": 1, "dequeued": 1, **rest},
    ]
    rows = QUEUES.rows(after, before, 2.0)
    at = QUEUES.heads(rates=True).index("in/s")
    assert [row[at : at + 2] for row in rows] == [[50.0, 0.5], [None, 0.5], [None, None]]
    shown = [QUEUES.cells(row, rates=True)[at : at + 2] for row in rows]
    assert shown == [["50", "0.5"], ["-", "0.5"], ["-", "-"]]
    assert QUEUES.rows(after, None, 0.0)[0][at : at + 2] == [110, 6]


def test_rates_from_the_command_line(server, stat):
    declared(server, "q", b"1")
    head, _, row = lines(stat("-q", "--rates"))
    assert {"in/s", "out/s"} <= set(head) and row[3:5] == ["0.0", "0.0"]
    assert lines(stat("-c", "--rates"))[0][-5:] == ["B/s", "in", "B/s", "out", "waits"]


def test_watching_goes_on_when_the_broker_does_not_answer(server, capsys, monkeypatch):
    pauses = []

    def refused(*_):
        raise ConnectionRefusedError("nothing listens there")

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            monkeypatch.setattr(qpid_stat, "ManagementSocket", refused)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    declared(server, "q")
    assert main(["-q", "--watch", "5", "-b", server.address]) == 1
    text = capsys.readouterr().out
    assert text.count("queue  ") == 1 and "KeyboardInterrupt" in text
    assert "ConnectionRefusedError: nothing listens there" in text.splitlines()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-q", "-S", "nonsense"], "argument -S: found 'nonsense', wanted one of queue,"),
        (["-q", "-L", "0"], "argument -L: found 0"),
        (["-q", "-I"], "argument -I: needs -S"),
        (["-e", "--rates"], "argument --rates: is for -c and -q"),
        (["-m", "orders"], "SUBSTRING, -S and -L are for tables"),
        (["-g", "-L", "3"], "SUBSTRING, -S and -L are for tables"),
        (["--watch", "1", "--show-broker"], "--watch is for one broker"),
        (["--watch", "0"], "argument --watch: found 0"),
        (["--watch", "nan"], "argument --watch: found nan"),
        (["-q", "-c"], "not allowed with argument"),
        (["-q", "a", "b"], "unrecognized arguments: b"),
    ],
)
def test_what_would_do_nothing_is_refused(stat, words, text):
    code, out = stat(*words)
    assert code == 1 and text in out and out.startswith("Failed: UsageError: ") and out.count("\n") == 1


def test_every_field_of_a_screen_is_in_the_brokers_answer(server):
    """A column that a broker does not send would only fail on a real one."""
    peer = declared(server, "q", b"1")
    peer.send(1, commands.Basic.Consume(queue="q"))
    management = Management(server.broker)
    answers = []
    for view in (CONNECTIONS, EXCHANGES, QUEUES, SUBSCRIPTIONS):
        management.request(view.method, {}, answers.append)
        items = answers[-1]["result"]
        assert items and all(view.cells(row, rates=True) for row in view.rows(items, items, 1.0))
    management.request("broker.info", {}, answers.append)
    info = answers[-1]["result"]
    assert general(info) and memory(info) == []


# ---- closing a connection


def test_a_connection_is_closed_with_the_reason(server, stat, capsys):
    peer = declared(server, "q")
    number = next(str(each.number) for each in server.broker.connections)
    words = ["del", "connection", number, "--reason", "W\xe4rtung", "-b", server.address]
    assert qpid_config.main(words) == 0
    assert f"connection {number} from " in capsys.readouterr().out
    (close,) = [frame for frame in peer.frames() if isinstance(frame, commands.Connection.Close)]
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - W\xe4rtung")
    for word in ("99999", "me"):
        assert qpid_config.main(["del", "connection", word, "-b", server.address]) == 1


@pytest.mark.parametrize(
    ("asker", "arguments", "said"),
    [
        ("guest", {}, None),
        ("ha", {}, None),
        ("anna", {}, "is of another user, 'guest'"),
        ("guest", {"number": True}, "number 'True', wanted that of a connection"),
        ("guest", {"number": "1"}, "number '1', wanted that of a connection"),
        ("guest", {"number": 7}, "no client has connection 7"),
        ("guest", {"reason": 3}, "reason is 3, wanted a string"),
        ("guest", {"reason": "\ud800" * 999}, None),
    ],
)
def test_who_may_close_a_connection(asker, arguments, said):
    broker = Broker()
    broker.couriers.add("ha")
    peer, replies = Peer(broker), []
    arguments = {"number": peer.connection.number, **arguments}
    for _ in Management(broker).work("session.close", arguments, replies.append, Peer(broker, user=asker).connection):
        pass
    (reply,) = replies
    assert reply == {"ok": True, "result": {"closed": "memory"}} if said is None else said in reply["error"]
    closed = [frame.reply_code for frame in peer.frames() if isinstance(frame, commands.Connection.Close)]
    assert closed == ([320] if said is None else [])
