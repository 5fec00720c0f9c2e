"""`qpidctl`: verbs, columns, passwords and errors; against real connections behind a socket."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidd_py.cli.ctl_views import LISTS
from qpidd_py.cli.qpidctl import VERBS, main
from qpidd_py.security.users import password_matches
from tests.support.logins import password_check
from tests.support.socket_broker import SocketBroker, closed_port
from tests.unit.broker.peer import Peer
from tests.unit.test_qpid_stat import InCluster

Ctl = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QPID_CONFIG", "QPID_PORT", "QPID_INTERFACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[SocketBroker]:
    with SocketBroker(authenticate=password_check({"guest": "guest", "anna": "guest"})) as found:
        found.broker.rights.names = lambda: ("guest",)
        found.broker.rights.local = "guest".__eq__
        yield found


@pytest.fixture
def ctl(server: SocketBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    def run(*words: str, stdin: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(["-b", server.address, *words])
        return code, capsys.readouterr().out

    return run


def stored(server: SocketBroker, name: str) -> str:
    value = server.broker.vhost.configuration.settings.get(("user", "", name))
    assert value is not None
    return str(value["hash"])


def test_a_user_from_beginning_to_end(ctl: Ctl, server: SocketBroker) -> None:
    assert ctl("add_user", "anna", stdin="first\n") == (0, "")
    assert password_matches("first", stored(server, "anna"))
    assert ctl("add_user", "anna", "x") == (1, "Failed: RequestRefused: user 'anna' exists already\n")
    assert ctl("change_password", "anna", "second") == (0, "")
    assert password_matches("second", stored(server, "anna")) and stored(server, "anna").startswith("scrypt$")
    assert ctl("change_password", "--scram", "anna", "third") == (0, "")
    assert password_matches("third", stored(server, "anna")) and stored(server, "anna").startswith("scram-sha-256$")
    assert ctl("set_user_tags", "anna", "monitoring", "policymaker") == (0, "")
    assert ctl("list_users") == (0, "user\ttags\nanna\t[monitoring, policymaker]\nguest\t[]\n")
    assert ctl("set_user_tags", "anna") == (0, "")
    assert ctl("clear_password", "anna") == (0, "") and stored(server, "anna") == ""
    assert ctl("delete_user", "anna") == (0, "")
    assert ctl("-q", "list_users") == (0, "guest\t[]\n")


def test_permissions(ctl: Ctl) -> None:
    ctl("add_user", "anna", "x")
    assert ctl("set_permissions", "anna", "^a", "", ".*") == (0, "")
    assert ctl("list_permissions") == (0, "user\tconfigure\twrite\tread\nanna\t^a\t\t.*\n")
    assert ctl("list_user_permissions", "anna") == (0, "vhost\tconfigure\twrite\tread\n/\t^a\t\t.*\n")
    assert ctl("-q", "list_user_permissions", "guest") == (0, "")
    assert ctl("set_topic_permissions", "-p", "/", "anna", "amq.topic", "^w", "^r") == (0, "")
    assert ctl("-q", "list_topic_permissions") == (0, "anna\tamq.topic\t^w\t^r\n")
    assert ctl("clear_topic_permissions", "anna") == (0, "")
    assert ctl("-q", "list_topic_permissions") == (0, "")
    code, text = ctl("--json", "list_permissions")
    assert (code, json.loads(text)) == (0, [{"user": "anna", "configure": "^a", "write": "", "read": ".*"}])
    assert ctl("clear_permissions", "anna") == (0, "")
    assert ctl("-q", "list_permissions") == (0, "")


WRONG = [
    (("change_password", "otto", "x"), "no user 'otto' of the cluster"),
    (("change_password", "guest", "x"), "no user 'guest' of the cluster"),
    (("add_user", "otto", ""), "the password is empty"),
    (("add_user", "otto"), "the password is empty"),
    (("add_user", "", "x"), "has 0 octets"),
    (("set_permissions", "guest", "(", "", ""), "configure: pattern '(': missing )"),
    (("set_permissions", "-p", "v", "guest", "", "", ""), "no virtual host 'v'"),
    (("set_permissions", "guest", "", ""), "the following arguments are required: READ"),
    (("list_queues", "name", "colour"), "column 'colour', wanted some of name messages"),
    (("close_connection", "x"), "connection 'x', wanted a number"),
    (("close_connection", "999"), "no client has connection 999"),
    (("purge_queue", "q"), "no queue 'q'"),
    (("delete_queue", "q"), "no queue 'q'"),
    (("frobnicate",), "no verb 'frobnicate'; see --help"),
    (("export_definition",), "no verb 'export_definition'; is it export_definitions"),
    (("sync_queue", "q"), "a backup gets all that it lacks by itself"),
    (("cancel_sync_queue", "q"), "there is nothing to begin or cancel"),
    (("export_definitions", "/none/f"), "No such file"),
    (("import_definitions", "/none/f"), "No such file"),
    (("join_cluster", "rabbit@node"), "join_cluster: the members are those of ha-brokers-url"),
    (("set_vm_memory_high_watermark", "0.5"), "memory-limit"),
    (("help",), "help: `qpidctl --help`"),
    (("authenticate_user", "-p", "/", "otto", "x"), "AuthenticationFailure: "),
    ((), "no verb; see --help"),
    (("status", "now"), "unrecognized arguments: now"),
]


@pytest.mark.parametrize(("words", "text"), WRONG, ids=[" ".join(words) or "nothing" for words, _ in WRONG])
def test_errors_are_one_line(ctl: Ctl, server: SocketBroker, words: tuple[str, ...], text: str) -> None:
    code, output = ctl(*words)
    assert code == 1 and output.startswith("Failed: ") and text in output and output.count("\n") == 1
    assert len(server.broker.vhost.configuration.settings) == 0


def test_lists_of_what_the_broker_has(ctl: Ctl, server: SocketBroker) -> None:
    vhost = server.broker.vhost
    queue, _ = vhost.declare_queue(None, "a\nb", True, False, False, {"x-max-length": 5})
    vhost.bindings.bind("amq.direct", queue, b"k\xff", {})
    assert ctl("list_queues") == (0, "name\tmessages\na\\nb\t0\n")
    assert ctl("-q", "list_queues", "durable", "arguments") == (0, "true\t[x-max-length=5, qpid.replicate=none]\n")
    assert ctl("-q", "list_bindings", "destination_name", "routing_key") == (0, "a\\nb\tbase64:a/8=\n")
    assert "amq.topic\ttopic\n" in ctl("list_exchanges")[1]
    number, user, *_ = ctl("-q", "list_connections")[1].split("\t")
    assert number.isdecimal() and user == "guest"
    assert "version\t1\n" in ctl("status")[1]


def test_definitions_go_to_a_file_and_come_back(ctl: Ctl, server: SocketBroker, tmp_path: Path) -> None:
    vhost, file = server.broker.vhost, tmp_path / "defs.json"
    queue, _ = vhost.declare_queue(None, "orders", True, False, False, {"x-max-length": 5})
    vhost.bindings.bind("amq.topic", queue, b"a.#", {})
    ctl("add_user", "anna", "x")
    ctl("set_permissions", "anna", ".*", "", "")
    ctl("set_policy", "p", "^o", '{"max-length": 3}')
    assert ctl("export_definitions", str(file)) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600, "it has hashes of passwords"
    kept = json.loads(file.read_text())
    assert json.loads(ctl("export_definitions", "-")[1]) == kept
    with SocketBroker() as other:
        assert main(["-b", other.address, "import_definitions", str(file)]) == 0
        assert main(["-b", other.address, "import_definitions", str(file)]) == 0, "once more changes nothing"
        assert main(["-b", other.address, "export_definitions", str(tmp_path / "again.json")]) == 0
        assert other.broker.vhost.queues["orders"].arguments["x-max-length"] == 5
    assert json.loads((tmp_path / "again.json").read_text()) == kept


def test_an_export_that_fails_leaves_the_older_one(ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "defs.json"
    file.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert ctl("export_definitions", str(file)) == (1, "Failed: OSError: [Errno 28] No space left on device\n")
    assert [each.name for each in tmp_path.iterdir()] == ["defs.json"] and file.read_text() == "old"


def test_a_pipe_is_written_and_stays_one(ctl: Ctl, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert ctl("export_definitions", str(pipe)) == (0, "")
        assert json.loads(os.read(reader, 1 << 16))["users"] == [] and pipe.is_fifo()
    finally:
        os.close(reader)


BAD_FILES = [
    ("{", "is no JSON"),
    ("[" * 100_000, "is no JSON"),
    ("[]", "wanted an object"),
    ('{"queues": [{"name": 5}]}', "name 5, wanted str"),
    ('{"queues": [{"name": "q", "durable": "perhaps"}]}', "durable 'perhaps', wanted bool"),
    ('{"queues": [{"name": "q", "vhost": "v"}]}', "virtual host 'v' is not there"),
    ('{"bindings": [{"source": "amq.topic", "destination": "q"}]}', "destination_type None, wanted str"),
    ('{"users": [{"name": "u", "password_hash": "!"}]}', "password_hash is not base64"),
]


@pytest.mark.parametrize(("text", "reason"), BAD_FILES, ids=[reason for _, reason in BAD_FILES])
def test_a_bad_file_makes_nothing(ctl: Ctl, server: SocketBroker, tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "defs.json"
    file.write_text(text)
    code, output = ctl("import_definitions", str(file))
    assert code == 1 and reason in output and output.count("\n") == 1
    assert not server.broker.vhost.queues and len(server.broker.vhost.configuration.settings) == 0


def test_the_environment_shows_options(ctl: Ctl, server: SocketBroker) -> None:
    server.broker.options = lambda: {"port": "5672", "ha-password": "***"}
    assert ctl("environment") == (0, "port\t5672\nha-password\t***\n")


def test_alarms(ctl: Ctl, server: SocketBroker) -> None:
    assert ctl("alarms") == (0, "")
    server.broker.limit("disk", "disk: 3 octets are free")
    assert ctl("alarms") == (0, "disk\tdisk: 3 octets are free\n")


def test_each_list_is_a_verb_and_shows_each_column(ctl: Ctl) -> None:
    for verb, view in LISTS.items():
        assert set(view.standard) <= set(view.columns)
        if "column*" in VERBS[verb].words:
            assert ctl(verb, *view.columns)[1].splitlines()[0] == "\t".join(view.columns)


def test_help_names_each_verb(ctl: Ctl) -> None:
    code, text = ctl("--help")
    assert code == 0 and all(verb in text for verb in VERBS)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_broker_answers(ctl: Ctl, server: SocketBroker) -> None:
    assert ctl("ping") == (0, f"result\tok\naddress\t{server.address}\n")
    assert json.loads(ctl("--json", "ping")[1])["result"] == "ok"
    assert main(["-b", f"127.0.0.1:{closed_port()}", "ping"]) == 1


def test_a_password_that_fits_and_one_that_does_not(ctl: Ctl, server: SocketBroker) -> None:
    assert ctl("authenticate_user", "anna", "guest")[1].startswith("user\tanna\nresult\tok\n")
    assert ctl("authenticate_user", "anna", stdin="guest\n")[0] == 0
    code, text = ctl("authenticate_user", "anna", "wrong")
    assert code == 1 and text.startswith("Failed: AuthenticationFailure: ") and "wrong" not in text
    ctl("add_user", "anna", "guest")
    server.broker.rights.checked = True
    server.broker.rights.changed()
    found = json.loads(ctl("--json", "authenticate_user", "anna", "guest")[1])
    assert found["result"] == "ok" and "access to vhost '/' refused" in found["but"], "it has no permission"


def test_the_brokers_of_a_cluster(ctl: Ctl, server: SocketBroker) -> None:
    text = ctl("cluster_status")[1]
    assert f"{server.address}\tstandalone\tfake\t1\t{{}}\n" in text, "it has no cluster"
    gone = f"127.0.0.1:{closed_port()}"
    server.broker.limit("disk", "3 octets are free")
    server.broker.hooks = InCluster(server.address, gone)  # type: ignore[assignment]
    here, there = json.loads(ctl("--json", "cluster_status")[1])["brokers"]
    assert here["alarms"] == {"disk": "3 octets are free"} and here["version"] == "1"
    assert there["address"] == gone and there["error"].startswith("ConnectionRefusedError")
    assert gone in ctl("cluster_status")[1]


def test_a_report_is_short_and_has_no_passwords(ctl: Ctl, server: SocketBroker) -> None:
    vhost = server.broker.vhost
    for number in range(300):
        vhost.declare_queue(None, f"queue {number}", True, False, False, {})
    server.broker.options = lambda: {"port": "5672", "ha-password": "hidden"}
    uri, secret = "amqp://me:hush-hush@elsewhere", {"src-protocol": "amqp091", "dest-protocol": "amqp091"}
    value = {**secret, "src-uri": uri, "dest-uri": uri, "src-queue": "a", "dest-queue": "b"}
    assert ctl("set_parameter", "shovel", "s", json.dumps(value)) == (0, "")
    ctl("add_user", "anna", "hush-hush")
    ctl("set_policy", "p", "^a\x1b", '{"max-length": 3}')
    code, text = ctl("report")
    lines = text.splitlines()
    assert code == 0 and 100 < len(lines) < 250 and "\x1b" not in text
    assert "hush-hush" not in text and "scrypt" not in text and stored(server, "anna") not in text
    assert {f"== {name} ==" for name in ("status", "cluster_status", "queues", "policies", "acl")} <= set(lines)
    assert "total\t300" in lines and "port\t5672" in lines and "/\ts\t" in text
    found = json.loads(ctl("--json", "report")[1])
    assert len(found["queues"]["rows"]) == 100 and found["policies"]["rows"][0]["name"] == "p"


def test_a_report_for_who_may_not_see_all_says_so(
    ctl: Ctl, server: SocketBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qpidd_py.management import model
    from qpidd_py.management.request import Forbidden

    def check(asker: object, method: str, arguments: object) -> None:
        if method == "broker.options":
            raise Forbidden("broker.options: user 'guest' is no administrator")

    monkeypatch.setattr(model, "check_request", check)
    text = ctl("report")[1]
    assert "== environment ==\nnot shown\tbroker.options: user 'guest' is no administrator" in text
    assert "== totals ==" in text


def test_all_connections_of_a_user_or_a_virtual_host(ctl: Ctl, server: SocketBroker) -> None:
    one, other = Peer(server.broker), Peer(server.broker, user="anna")
    assert ctl("close_all_user_connections", "anna", "tidy up") == (0, "closed\t1\n")
    assert (one.disconnected, other.frames()[-1].reply_text) == (0, "CONNECTION_FORCED - tidy up")
    assert ctl("-q", "list_user_topic_permissions", "anna") == (0, "")
    assert ctl("close_all_connections")[0] == 0 and one.frames()[-1].reply_code == 320


def test_what_a_policy_does_not_reach_is_said(ctl: Ctl, server: SocketBroker) -> None:
    server.broker.vhost.declare_queue(None, "old", True, False, False, {})
    code, text = ctl("set_policy", "ha", "", '{"ha-mode": "all", "ha-sync-mode": "automatic"}')
    assert code == 0 and text.startswith("not_in_force\tha-mode: declared before, and not replicated: old; to change")
    shown = ctl("-q", "list_queues", "name", "policy", "effective", "not_in_force")[1]
    assert shown.startswith("old\tha\t[]\t[ha-mode=declared with qpid.replicate=none")
    assert ctl("set_policy", "ae", "^amq.d", '{"alternate-exchange": "x"}', "--apply-to", "exchanges") == (0, "")
    assert "amq.direct\tae\t[alternate-exchange=x]\n" in ctl("list_exchanges", "name", "policy", "effective")[1]
