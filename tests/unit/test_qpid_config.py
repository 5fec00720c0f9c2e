"""`qpid-config`: words, options, listings, errors; against real connections behind a socket."""

import json

import pytest

from qpidd_py.broker.ports import Refusal
from qpidd_py.cli import qpid_config
from qpidd_py.cli.config_listing import (
    exchange_bindings,
    overview,
    queue_attributes,
    queue_bindings,
    queue_table,
    with_rates,
)
from qpidd_py.cli.qpid_config import header_arguments, main, parse_argument
from qpidd_py.cli.target import UsageError
from qpidd_py.core import Connection, Route
from qpidd_py.security.acl.reader import read_acl
from tests.support.logins import password_check
from tests.support.socket_broker import SocketBroker


class Backup:
    """Hooks that let only administrators in."""

    def admit(self, connection, properties):
        return None if properties.get("qpid.ha-admin") else Refusal(320, "CONNECTION_FORCED - is a backup")

    def opened(self, connection):
        return False

    def connection_closed(self, connection):
        pass

    def request(self, method, arguments, reply, user):
        return False


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ("QPID_CONFIG", "QPID_PORT", "QPID_INTERFACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with SocketBroker() as found:
        yield found


@pytest.fixture
def config(server, capsys):
    def run(*words):
        code = main([*words, "-b", server.address])
        return code, capsys.readouterr().out

    return run


def queue(server, name):
    return server.broker.vhost.queues[name]


class Owner:
    """Of a connection that only consumes."""

    def consumer_cancelled(self, channel, tag):
        pass

    def output_ready(self):
        pass


# ---- changes


def test_add_queue_with_everything(config, server):
    words = ["--durable", "--replicate", "all", "--max-queue-size", "1000", "--max-queue-count", "5"]
    words += ["--limit-policy", "ring"]
    words += ["--alternate-exchange", "amq.fanout", "--argument", "x-max-priority=3", "--argument", "note=hello=you"]
    assert config("add", "queue", "q", *words) == (0, "")
    found = queue(server, "q")
    assert found.durable
    assert found.arguments == {
        "qpid.replicate": "all",
        "x-max-length-bytes": 1000,
        "x-max-length": 5,
        "x-overflow": "drop-head",
        "alternate-exchange": "amq.fanout",
        "x-max-priority": 3,
        "note": "hello=you",
    }


def test_add_queues_of_other_kinds(config, server):
    flow = ["--flow-stop-count", "9", "--flow-resume-count", "3", "--flow-stop-size", "99", "--flow-resume-size", "0"]
    assert config("add", "queue", "last", "--lvq-key", "key", *flow) == (0, "")
    assert queue(server, "last").arguments == {
        "qpid.replicate": "none",
        "qpid.last_value_queue_key": "key",
        "qpid.flow_stop_count": 9,
        "qpid.flow_resume_count": 3,
        "qpid.flow_stop_size": 99,
        "qpid.flow_resume_size": 0,
    }
    assert config("add", "queue", "groups", "--group-header", "group") == (0, "")
    found = queue(server, "groups").arguments
    assert (found["qpid.group_header_key"], found["qpid.shared_msg_group"]) == ("group", True)


def test_add_an_exchange_that_numbers(config, server):
    assert config("add", "exchange", "topic", "numbered", "--sequence", "--durable") == (0, "")
    assert server.broker.vhost.exchanges["numbered"].numbers.last == 0
    assert config("add", "exchange", "topic", "kept", "--ive") == (0, "")
    assert server.broker.vhost.exchanges["kept"].initial
    for option in ("--sequence", "--ive"):
        code, text = config("add", "queue", "q", option)
        assert code == 1 and "--sequence and --ive are of exchanges" in text
    assert "--argument qpid.msg_sequence=1" in config("exchanges", "numbered")[1]


@pytest.mark.parametrize("clustered", [False, True])
def test_add_queue_of_type_quorum_warns_without_a_cluster(server, capsys, clustered):
    server.broker.vhosts.rules.clustered, server.broker.vhosts.rules.default_replicate = clustered, "all"
    assert main(["add", "queue", "q", "--durable", "--argument", "x-queue-type=quorum", "-b", server.address]) == 0
    said = "Warning: quorum queue 'q': the broker has no cluster, this is the only copy\n"
    assert capsys.readouterr() == ("", "" if clustered else said)


@pytest.mark.parametrize(
    ("words", "overflow"),
    [
        (["--max-queue-count", "5"], "reject-publish"),
        (["--max-queue-size", "5", "--limit-policy", "reject"], "reject-publish"),
        (["--max-queue-size", "5", "--limit-policy", "ring"], "drop-head"),
        (["--max-queue-size", "5", "--limit-policy", "none"], None),
        ([], None),
    ],
)
def test_a_limit_rejects_unless_told_otherwise(config, server, words, overflow):
    assert config("add", "queue", "q", *words) == (0, "")
    assert queue(server, "q").arguments.get("x-overflow") == overflow


def test_exchanges_come_and_go(config, server):
    assert config("add", "exchange", "topic", "news", "--durable", "--alternate-exchange", "amq.direct") == (0, "")
    found = server.broker.vhost.exchanges["news"]
    assert (found.type, found.durable, found.alternate) == ("topic", True, "amq.direct")
    assert config("del", "exchange", "news") == (0, "")
    assert "news" not in server.broker.vhost.exchanges
    assert config("del", "exchange", "news") == (
        1,
        "Failed: RequestRefused: 404 NOT_FOUND - no exchange 'news' in vhost '/'\n",
    )
    assert config("add", "exchange", "xml", "news")[1].startswith("Failed: UsageError: exchange type 'xml', wanted")
    assert config("del", "exchange", "amq.topic")[1].startswith("Failed: RequestRefused: 403 ACCESS_REFUSED")


def fill(server, name, count=1):
    core = queue(server, name).core
    for _ in range(count):
        server.broker.engine.publish(Route([core]), b"", name.encode(), b"\0\x3c\0\0" + bytes(10), b"")


def test_a_queue_with_messages_goes_only_by_force(config, server):
    for force in ("--force", "--force-if-not-empty"):
        config("add", "queue", "q")
        fill(server, "q")
        code, text = config("del", "queue", "q")
        assert code == 1
        assert text == "Failed: RequestRefused: 406 PRECONDITION_FAILED - queue 'q' in vhost '/' not empty\n"
        assert config("del", "queue", "q", "--force-if-used")[0] == 1
        assert config("del", "queue", "q", force) == (0, "")
        assert "q" not in server.broker.vhost.queues


def test_a_queue_with_consumers_goes_only_by_force(config, server):
    for force in ("--force", "--force-if-used"):
        config("add", "queue", "q")
        Connection(server.broker.engine, Owner(), True).open_channel(1).consume(queue(server, "q").core, "tag", True)
        assert "in use" in config("del", "queue", "q")[1]
        assert config("del", "queue", "q", "--force-if-not-empty")[0] == 1
        assert config("del", "queue", "q", force) == (0, "")


def test_what_is_not_there_cannot_be_deleted(config):
    code, text = config("del", "queue", "absent", "--force")
    assert (code, text) == (1, "Failed: RequestRefused: 404 NOT_FOUND - no queue 'absent' in vhost '/'\n")


def test_bindings_come_and_go(config, server):
    config("add", "queue", "q")
    assert config("bind", "amq.topic", "q", "a.*") == (0, "")
    assert config("bind", "amq.fanout", "q") == (0, "")
    assert config("bind", "amq.match", "q", "all", "kind=5", "text='5'") == (0, "")
    bindings = server.broker.vhost.configuration.bindings()
    found = {(item.source.name, item.routing_key): dict(item.arguments) for item in bindings}
    assert found == {
        ("amq.topic", b"a.*"): {},
        ("amq.fanout", b""): {},
        ("amq.match", b""): {"x-match": "all", "kind": 5, "text": "5"},
    }
    assert config("unbind", "amq.topic", "q", "a.*") == (0, "")
    assert config("unbind", "amq.match", "q", "all", "kind=5", "text='5'") == (0, "")
    assert [item.source.name for item in server.broker.vhost.configuration.bindings()] == ["amq.fanout"]
    assert config("bind", "absent", "q", "k")[1] == (
        "Failed: RequestRefused: 404 NOT_FOUND - no exchange 'absent' in vhost '/'\n"
    )


def test_a_replica_needs_the_ha_module(config, server):
    code, text = config("add", "queue", "q", "--start-replica", "elsewhere:1")
    assert (code, text.startswith("Failed: RequestRefused: HA module is not loaded")) == (1, True)


# ---- listings


def test_overview(config, server):
    config("add", "queue", "q", "--durable")
    config("add", "queue", "r")
    lines = config()[1].splitlines()
    assert lines[0] == f"Total Exchanges: {len(server.broker.vhost.exchanges)}"
    assert [line.strip() for line in lines[-3:]] == ["Total Queues: 2", "durable: 1", "non-durable: 1"]
    assert "         fanout: 2" in lines


def test_exchanges(config):
    config("add", "exchange", "topic", "news", "--durable", "--replicate", "configuration")
    code, text = config("exchanges")
    assert code == 0
    lines = text.splitlines()
    assert lines[0].split() == ["Type", "Exchange", "Name", "Attributes"]
    assert any(line.split() == ["direct", "''", "--durable"] for line in lines)
    assert any(line.split() == ["topic", "news", "--durable", "--replicate=configuration"] for line in lines)
    assert config("exchanges", "ews")[1].splitlines()[2:] == [
        "topic  news           --durable --replicate=configuration"
    ]


def test_queues(config):
    config("add", "queue", "orders", "--replicate", "all", "--max-queue-count", "7", "--argument", "x-expires=60000")
    config("add", "queue", "bills")
    lines = config("queues")[1].splitlines()
    assert lines == [
        "Queue Name  Messages  Unacked  MiB  Consumers  Attributes",
        "=============================================================================",
        "bills              0        0  0.0          0",
        "orders             0        0  0.0          0  --replicate=all",
        "                                               --argument x-expires=60000",
        "                                               --max-queue-count=7",
        "                                               --limit-policy=reject",
    ]
    assert config("list", "queue", "ill") == config("queues", "ill")
    assert config("list", "exchange") == config("exchanges")
    assert config("queues", "ill")[1].splitlines()[2:] == ["bills              0        0  0.0          0"]
    assert config("queues", "nothing") == (1, "Failed: RequestRefused: no queue has 'nothing' in its name\n")
    assert config("queues", "--json", "nothing")[0] == 1


def test_bindings(config):
    config("add", "queue", "q")
    config("bind", "amq.topic", "q", "a.*")
    config("bind", "amq.match", "q", "any", "kind=5")
    assert config("queues", "-r")[1].splitlines() == [
        "Queue q",
        "    bind [q] => ''",
        "    bind [] => amq.match kind=5 x-match=any",
        "    bind [a.*] => amq.topic",
    ]
    lines = config("exchanges", "-r", "topic")[1].splitlines()
    assert lines == ["Exchange amq.topic (topic)", "    bind [a.*] => q"]


def test_json(config):
    assert json.loads(config("add", "queue", "q", "--json")[1]) == {}
    assert [item["name"] for item in json.loads(config("queues", "--json")[1])] == ["q"]
    found = json.loads(config("queues", "-r", "--json")[1])
    assert [item["name"] for item in found["queues"]] == ["q"]
    assert json.loads(config("--json")[1])["queues"][0]["name"] == "q"
    code, text = config("del", "queue", "absent", "--json")
    assert (code, json.loads(text)["error"][:15]) == (1, "RequestRefused:")


def test_attributes_as_options():
    item = {
        "name": "q",
        "durable": True,
        "exclusive": True,
        "auto_delete": True,
        "replicate": "all",
        "arguments": {"qpid.replicate": "all", "x-overflow": "reject-publish-dlx", "x-max-length": 3, "k": "v"},
    }
    assert queue_attributes(item) == [
        "--durable",
        "excl",
        "auto-del",
        "--replicate=all",
        "--argument k=v",
        "--max-queue-count=3",
        "--argument x-overflow=reject-publish-dlx",
    ]


FIGURES = {"messages": 1234567, "unacked": 12000, "bytes": 40 << 30, "consumers": 1200, "enqueued": 5, "dequeued": 4}


@pytest.mark.parametrize("rates", [False, True])
def test_lines_fit_the_screen_and_names_are_never_cut(rates):
    item = {"durable": True, "exclusive": False, "auto_delete": False, **FIGURES}
    arguments = {f"argument-number-{number}": number for number in range(9)}
    items = [{**item, "name": name, "arguments": arguments} for name in ("short", "x" * 60)]
    lines = queue_table(with_rates(items, items, 1.0) if rates else items)
    assert all(len(line) <= 80 for line in lines)
    assert any("x" * 60 in line for line in lines)
    assert sum(line.count("--argument") for line in lines) == 18


def test_rates_are_counted_between_two_looks():
    before = [{"name": "a", "enqueued": 100, "dequeued": 90}, {"name": "b", "enqueued": 100, "dequeued": 90}]
    after = [
        {"name": "a", "enqueued": 125, "dequeued": 90},
        {"name": "b", "enqueued": 3, "dequeued": 0},
        {"name": "c", "enqueued": 3, "dequeued": 0},
    ]
    found = with_rates(before, after, 2.0)
    assert [(item["enqueue_rate"], item["dequeue_rate"]) for item in found] == [(12.5, 0.0), (None, None), (None, None)]
    assert with_rates([], [], 0.0) == []


def test_rates_of_queues_only(config, monkeypatch):
    monkeypatch.setattr(qpid_config, "RATE_TIME", 0.01)
    config("add", "queue", "q")
    lines = config("queues", "--rates")[1].splitlines()
    assert lines[0] == "Queue Name  Messages  Unacked  MiB  Consumers  In msg/s  Out msg/s  Attributes"
    assert lines[2].split() == ["q", "0", "0", "0.0", "0", "0.0", "0.0"]
    (found,) = json.loads(config("queues", "--rates", "--json")[1])
    assert (found["enqueue_rate"], found["messages"]) == (0.0, 0)
    assert config("exchanges", "--rates") == (1, "Failed: UsageError: --rates is for queues\n")


def test_names_and_keys_that_are_no_text():
    binding = {
        "source": "amq.direct",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": {"base64": "/w=="},
        "arguments": {},
    }
    other = {**binding, "destination": "amq.fanout", "destination_type": "exchange"}
    assert queue_bindings([{"name": "q"}], [binding, other])[2:] == ["    bind [base64:/w==] => amq.direct"]
    assert exchange_bindings([{"name": "amq.direct", "type": "direct"}], [binding, other])[1:] == [
        "    bind [base64:/w==] => q",
        "    bind [base64:/w==] => exchange amq.fanout",
    ]
    assert overview([], [])[0] == "Total Exchanges: 0"


# ---- words and errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", ("a", 1)),
        ("a=-1", ("a", -1)),
        ("a=true", ("a", True)),
        ("a=false", ("a", False)),
        ("a=x", ("a", "x")),
        ("a='1'", ("a", "1")),
        ('a="true"', ("a", "true")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
        ("a='", ("a", "'")),
        ("a=²", ("a", "²")),
    ],
)
def test_arguments(text, expected):
    assert parse_argument(text) == expected


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_arguments_that_are_none(text):
    with pytest.raises(UsageError, match="wanted NAME=VALUE"):
        parse_argument(text)


def test_headers():
    assert header_arguments([]) == {}
    assert header_arguments(["any", "a=1"]) == {"x-match": "any", "a": 1}
    with pytest.raises(UsageError, match="wanted all or any"):
        header_arguments(["a=1"])


@pytest.mark.parametrize(
    "words",
    [
        ["queue"],
        ["add", "queue"],
        ["add", "exchange", "direct"],
        ["queues", "a", "b"],
        ["bind", "e"],
        ["add", "queue", "q", "--replicate", "some"],
        ["add", "queue", "q", "--max-queue-count", "many"],
        ["--nonsense"],
        ["add", "queue", "q", "--argument", "x"],
    ],
)
def test_a_command_line_that_makes_no_sense(config, server, words):
    code, text = config(*words)
    assert code == 1
    assert text.startswith("Failed: UsageError: ")
    assert text.count("\n") == 1
    assert not server.broker.vhost.queues


def test_options_may_stand_anywhere(config, server):
    assert config("--durable", "add", "--replicate", "none", "queue", "q", "-t", "5") == (0, "")
    assert queue(server, "q").durable


def test_help(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "qpid-config [OPTIONS] add queue NAME" in text
    assert "--start-replica" in text
    assert all(len(line) <= 90 for line in text.splitlines())


def test_a_backup_shows_but_takes_no_changes(capsys):
    with SocketBroker(Backup()) as server:
        assert main(["exchanges", "-b", server.address]) == 0
        assert "amq.topic" in capsys.readouterr().out
        assert main(["add", "queue", "q", "-b", server.address]) == 1
        assert capsys.readouterr().out == (
            f"Failed: ConnectionClosed: {server.address}: 320 CONNECTION_FORCED - is a backup\n"
        )
        assert main(["add", "queue", "q", "--ha-admin", "-b", server.address]) == 0
        assert "q" in server.broker.vhost.queues


def test_errors_of_the_connection(capsys):
    with SocketBroker(authenticate=password_check({"me": "secret"})) as server:
        address = server.address
        assert main(["queues", "-b", f"me/secret@{address}"]) == 0
        assert main(["add", "queue", "q", "-b", f"me/secret@{address}"]) == 0
        for words in (["queues"], ["add", "queue", "q"]):
            capsys.readouterr()
            assert main([*words, "-b", f"me/wrong@{address}"]) == 1
            assert capsys.readouterr().out.startswith(f"Failed: AuthenticationFailure: {address}: ")
    assert main(["queues", "-b", address]) == 1
    assert capsys.readouterr().out.startswith(f"Failed: ConnectionRefusedError: {address}: ")


def test_no_answer_in_time(capsys):
    with SocketBroker(greeting=b"") as server:
        for words in (["queues"], ["add", "queue", "q"]):
            assert main([*words, "--timeout", "0.2", "-b", server.address]) == 1
            assert capsys.readouterr().out == f"Failed: TimeoutError: {server.address}: no answer within 0.2 s\n"


def test_an_interrupt_is_one_line_too(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(qpid_config, "run", interrupted)
    assert main([]) == 1
    assert capsys.readouterr().out == "Failed: KeyboardInterrupt: interrupted\n"


def test_reload_acl(server, config):
    assert config("reload-acl") == (1, "Failed: RequestRefused: acl.reload: there is no acl-file\n")
    server.broker.reload_acl = lambda: iter([server.broker.use_acl(read_acl("acl allow all all", "x.acl"))])
    assert config("reload-acl") == (0, "x.acl is in force, rules: 1\n")
    assert json.loads(config("reload-acl", "--json")[1])["default"] == "allow"
    assert config("reload-acl", "now")[0] == 1
