"""`qpid-ha`: words, exit codes, options; against real connections behind a socket."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ha.model.status import State
from ha.qpid_ha import main as cli
from ha.qpid_ha import parser as cli_parser
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.broker.ports import Refusal
from qpidd_py.cli import target as cli_target
from qpidd_py.cli.client_socket import Deadline, split_host_port
from qpidd_py.cli.tool_config import ToolConfig, interpret, read_tool_config
from qpidd_py.errors import ConfigError
from tests.support.logins import password_check
from tests.support.socket_broker import SocketBroker, closed_port

Reply = Callable[[dict[str, Any]], None]


class FakeHa:
    """A backup or a primary, as `state` says; plain clients are refused."""

    def __init__(self, state: str = "ready", brokers_url: str = "") -> None:
        self.state = state
        self.brokers_url = brokers_url
        self.promoted = 0
        self.refuses = ""
        self.silent = False

    def admit(self, connection: Any, properties: Any) -> Refusal | None:
        return None if properties.get("qpid.ha-admin") == 1 else Refusal(320, "CONNECTION_FORCED - a backup")

    def opened(self, connection: Any) -> bool:
        return False

    def connection_closed(self, connection: Any) -> None:
        pass

    def tick(self, now: float) -> None:
        pass

    def request(self, method: str, arguments: dict[str, Any], reply: Reply, user: str) -> bool:
        if not self.silent:
            reply(self.answer(method))
        return True

    def answer(self, method: str) -> dict[str, Any]:
        if method == "ha.promote":
            self.promoted += 1
            return {"ok": False, "error": self.refuses} if self.refuses else {"ok": True, "result": {"state": "active"}}
        if method == "ha.status":
            return {"ok": True, "result": {"state": self.state, "name": "n"}}
        return {"ok": True, "result": self.query()}

    def query(self) -> dict[str, Any]:
        return {
            "status": self.state,
            "broker_id": "11111111-2222",
            "brokers_url": self.brokers_url,
            "public_url": None,
            "replicate": "all",
            "safety": "manager",
            "epoch": 3,
            "position": (3 << 48) + 70,
            "safe": (3 << 48) + 60,
            "primary": "127.0.0.1:1",
            "in_sync": {"version": 4, "members": [{"id": "aa", "name": "node2"}]},
            "members": [
                {
                    "id": "aa",
                    "name": "node2",
                    "address": "10.0.0.2:5672",
                    "state": "ready",
                    "lag": {"positions": 10, "octets": 4321, "seconds": 0.125},
                },
                {
                    "id": "bb",
                    "name": "a-node-with-a-long-name" * 4,
                    "address": "10.0.0.3:5672",
                    "state": "catchup",
                    "catchup": {"queues": 40, "left": 28, "octets_left": 3 << 20, "rate": 1536, "remaining": 2048.0},
                    "lag": None,
                },
            ],
        }


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("QPID_"):
            monkeypatch.delenv(name)


@pytest.fixture
def hooks() -> FakeHa:
    return FakeHa()


@pytest.fixture
def server(hooks: FakeHa) -> Iterator[SocketBroker]:
    with SocketBroker(hooks) as server:
        yield server


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str]:
        code = cli.main(arguments)
        captured = capsys.readouterr()
        assert captured.err == ""
        return code, captured.out

    return run


class TestCommands:
    def test_ping_is_silent(self, run: Run, server: SocketBroker) -> None:
        assert run("ping", "-b", server.address) == (0, "")

    def test_ping_works_without_ha_and_without_management(self, run: Run) -> None:
        with SocketBroker() as server:
            server.broker.management = None
            assert run("ping", "-b", server.address) == (0, "")

    def test_it_comes_as_administrator(self, run: Run, server: SocketBroker) -> None:
        run("ping", "-b", server.address)
        assert server.seen[-1]["qpid.ha-admin"] == 1

    @pytest.mark.parametrize("state", [state.value for state in State])
    def test_status_is_one_word(self, run: Run, server: SocketBroker, hooks: FakeHa, state: str) -> None:
        hooks.state = state
        assert run("status", "-b", server.address) == (0, f"{state}\n")

    @pytest.mark.parametrize("state", [state.value for state in State])
    @pytest.mark.parametrize(
        ("wanted", "fitting"),
        [
            ("primary", {"recovering", "active"}),
            ("backup", {"joining", "catchup", "ready"}),
            ("ready", {"ready"}),
            ("catch-up", {"catchup"}),
            ("nonsense", set()),
        ],
    )
    def test_expect(
        self, run: Run, server: SocketBroker, hooks: FakeHa, state: str, wanted: str, fitting: set[str]
    ) -> None:
        hooks.state = state
        assert run("status", "--expect", wanted, "-b", server.address) == (0 if state in fitting else 1, "")
        assert run("status", f"--expect={wanted}", "-b", server.address)[0] == (0 if state in fitting else 1)

    @pytest.mark.parametrize("state", [state.value for state in State])
    def test_is_primary(self, run: Run, server: SocketBroker, hooks: FakeHa, state: str) -> None:
        hooks.state = state
        code = 0 if state in ("recovering", "active") else 1
        assert run("status", "--is-primary", "-b", server.address) == (code, "")

    def test_status_of_all_has_a_line_for_the_dead_ones(self, run: Run, server: SocketBroker, hooks: FakeHa) -> None:
        dead = f"127.0.0.1:{closed_port()}"
        with SocketBroker(FakeHa("active")) as other:
            hooks.brokers_url = f"amqp:{server.address},{dead},tcp:{other.address}"
            code, out = run("status", "--all", "-b", server.address)
        assert code == 0
        assert [line.split(None, 1) for line in out.splitlines()] == [
            [server.address, "ready"],
            [dead, "ConnectionRefusedError: Connection refused"],
            [other.address, "active"],
        ]

    def test_status_of_all_fails_when_the_first_is_not_there(self, run: Run) -> None:
        address = f"127.0.0.1:{closed_port()}"
        expected = f"ConnectionRefusedError: {address}: Connection refused\n"
        assert run("status", "--all", "-b", address) == (1, expected)

    def test_status_of_all_without_an_url_tells_of_the_one(self, run: Run, server: SocketBroker) -> None:
        assert run("status", "--all", "-b", server.address) == (0, f"{server.address} ready\n")

    def test_query(self, run: Run, server: SocketBroker, hooks: FakeHa) -> None:
        hooks.brokers_url = "a:1,b:2"
        assert run("query", "-b", server.address) == (
            0,
            "Status:              ready\n"
            "Broker ID:           11111111-2222\n"
            "Brokers URL:         a:1,b:2\n"
            "Public URL:\n"
            "Replicate:           all\n",
        )

    def test_verbose_query_fits_a_terminal(self, run: Run, server: SocketBroker) -> None:
        code, out = run("query", "--verbose", "-b", server.address)
        assert code == 0
        assert "Position:            3.70\nSafe position:       3.60\n" in out
        lines = out.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[-3].split() == ["node2", "10.0.0.2:5672", "ready", "yes", "10", "4.2K", "0.12"]
        assert lines[-2].split()[1:] == ["10.0.0.3:5672", "catchup", "no"]
        assert "~" in lines[-2].split()[0]
        assert lines[-1] == "a-node-with-a-long-name~: 12 of 40 queues, 3.0M left, 1.5K/s, 2048 s to go"

    def test_query_of_all(self, run: Run, server: SocketBroker, hooks: FakeHa) -> None:
        dead = f"127.0.0.1:{closed_port()}"
        hooks.brokers_url = f"{server.address},{dead}"
        code, out = run("query", "--all", "-b", server.address)
        assert code == 0
        first, second = out.rstrip("\n").split("\n\n")
        assert first.startswith(f"Address:             {server.address}\nStatus:              ready\n")
        assert second.startswith(f"Address:             {dead}\nStatus:              ConnectionRefusedError: ")

    def test_promote_needs_the_flag(self, run: Run, server: SocketBroker, hooks: FakeHa) -> None:
        code, out = run("promote", "-b", server.address)
        assert code == 1
        assert "--cluster-manager" in out
        assert out.count("\n") == 1
        assert hooks.promoted == 0
        assert run("promote", "--cluster-manager", "-b", server.address) == (0, "")
        assert hooks.promoted == 1

    def test_a_refused_promotion_tells_why(self, run: Run, server: SocketBroker, hooks: FakeHa) -> None:
        hooks.refuses = "still catching up,\ncannot be promoted"
        expected = "RequestRefused: still catching up, cannot be promoted\n"
        assert run("--cluster-manager", "promote", "-b", server.address) == (1, expected)

    def test_without_ha(self, run: Run) -> None:
        with SocketBroker() as server:
            expected = "RequestRefused: HA module is not loaded on broker at fake\n"
            assert run("status", "-b", server.address) == (1, expected)


class TestJson:
    def test_every_command_has_json(self, run: Run, server: SocketBroker, hooks: FakeHa) -> None:
        def read(*arguments: str) -> Any:
            code, out = run(*arguments, "--json", "-b", server.address)
            assert code == 0
            return json.loads(out)

        assert read("ping") == {"address": server.address, "ok": True}
        assert read("status") == {"address": server.address, "status": "ready", "state": "ready", "name": "n"}
        assert read("query") == {"address": server.address, **hooks.query()}
        assert read("promote", "--cluster-manager")["status"] == "active"
        dead = f"127.0.0.1:{closed_port()}"
        hooks.brokers_url = f"{server.address},{dead}"
        alive, error = read("status", "--all")
        assert (alive["address"], alive["status"]) == (server.address, "ready")
        assert error == {"address": dead, "error": f"ConnectionRefusedError: {dead}: Connection refused"}
        assert len(read("query", "--all")) == 2

    def test_errors_too(self, run: Run) -> None:
        code, out = run("--json", "status", "-b", f"127.0.0.1:{closed_port()}")
        assert code == 1
        assert json.loads(out)["error"].startswith("ConnectionRefusedError: 127.0.0.1:")


class TestErrors:
    """One line `ClassName: text` on standard output, exit code 1."""

    def test_a_silent_broker(self, run: Run, server: SocketBroker, hooks: FakeHa) -> None:
        hooks.silent = True
        expected = f"TimeoutError: {server.address}: no answer within 0.2 s\n"
        assert run("status", "--timeout", "0.2", "-b", server.address) == (1, expected)

    def test_a_listener_that_never_speaks(self, run: Run) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            code, out = run("ping", "--timeout", "0.1", "-b", address)
        assert (code, out) == (1, f"TimeoutError: {address}: no answer within 0.1 s\n")

    @pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\0\1\0\0", b"SSH-2.0-x\r\n"])
    def test_another_protocol(self, run: Run, greeting: bytes) -> None:
        with SocketBroker(greeting=greeting) as server:
            code, out = run("ping", "-b", server.address)
        assert code == 1
        assert out.startswith(f"ProtocolFailure: {server.address}: ")
        assert out.count("\n") == 1

    def test_wrong_password(self, run: Run) -> None:
        with SocketBroker(authenticate=password_check({"me": "secret"})) as server:
            code, out = run("ping", "-b", f"me/wrong@{server.address}")
            assert code == 1
            assert out.startswith(f"AuthenticationFailure: {server.address}: 403 ACCESS_REFUSED")
            assert run("ping", "-b", f"me/secret@{server.address}") == (0, "")
            assert run("ping", "--sasl-mechanism", "AMQPLAIN", "-b", f"me/secret@{server.address}") == (0, "")

    def test_password_in_a_file(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file, empty = tmp_path / "password", tmp_path / "empty"
        file.write_text("secret\nnot this line\n")
        empty.touch()
        with SocketBroker(authenticate=password_check({"me": "secret"})) as server:
            there = ("ping", "-b", f"me@{server.address}")
            assert run(*there, "--password-file", str(file)) == (0, "")
            assert run(*there)[0] == 1
            for wrong, text in ((empty, "is empty"), (tmp_path / "none", "cannot read")):
                code, out = run(*there, "--password-file", str(wrong))
                assert code == 1 and "argument --password-file: " in out and text in out
            monkeypatch.setenv("QPID_HA_USERNAME", "me")
            monkeypatch.setenv("QPID_HA_PASSWORD_FILE", str(file))
            assert run(*there) == (0, ""), "the configuration has the password of that user"
            assert run("ping", "-b", f"you@{server.address}")[0] == 1, "and of no other"

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ((), "no command given"),
            (("stauts",), "unknown command 'stauts'"),
            (("ping", "extra"), "unexpected arguments: extra"),
            (("ping", "--nonsense"), "unexpected arguments: --nonsense"),
            (("ping", "--expect", "ready"), "unexpected arguments: --expect ready"),
            (("status", "--is-primary", "--all"), "not allowed with"),
            (("ping", "-b"), "expected one argument"),
            (("ping", "--timeout", "soon"), "wanted seconds"),
            (("ping", "--timeout", "-1"), "wanted seconds"),
            (("ping", "--timeout", "nan"), "wanted seconds"),
            (("ping", "--ssl-key", "x"), "needs --ssl-certificate"),
            (("ping", "--password-file", "x"), "needs a user"),
            (("ping", "--password-file", "x", "-b", "me/secret@host"), "there is a password in --broker"),
        ],
    )
    def test_usage(self, run: Run, arguments: tuple[str, ...], text: str) -> None:
        code, out = run(*arguments)
        last = out.splitlines()[-1]
        assert code == 1
        assert last.startswith("UsageError: ")
        assert text in last

    @pytest.mark.parametrize("address", ["", "host:", "host:x", "host:0", "host:65536", ":5672", "[::1", "[::1]x"])
    def test_addresses_that_are_none(self, address: str) -> None:
        with pytest.raises(ValueError, match="address"):
            split_host_port(address)


class TestArguments:
    @pytest.mark.parametrize(
        ("words", "command"),
        [
            ("status -b status", "status"),
            ("-b ping --timeout 3 status", "status"),
            ("--cluster-manager promote -b x", "promote"),
            ("--expect ready status", "status"),
            ("--expect=ready status", "status"),
            ("--json query --all", "query"),
            ("-b status", ""),
        ],
    )
    def test_the_command_may_stand_anywhere(self, words: str, command: str) -> None:
        found, rest = cli_parser.find_command(words.split())
        assert found == command
        assert len(rest) == len(words.split()) - bool(command)

    @pytest.mark.parametrize("words", [("help",), ("-h",), ("--help",)])
    def test_help_hides_what_only_managers_may(self, run: Run, words: tuple[str, ...]) -> None:
        code, out = run(*words)
        assert code == 0
        assert "query" in out
        assert "promote" not in out
        assert "promote" in run(*words, "--cluster-manager")[1]

    def test_all_help_fits_a_terminal(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        code, out = run("help-all")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert run("status", "--help")[0] == 0

    @pytest.mark.parametrize(
        ("broker", "host", "port", "user", "password"),
        [
            (None, "127.0.0.1", 5672, "guest", "guest"),
            ("node1", "node1", 5672, "guest", "guest"),
            ("node1:77", "node1", 77, "guest", "guest"),
            ("me/pw@node1", "node1", 5672, "me", "pw"),
            ("me@node1", "node1", 5672, "me", ""),
            ("me/p@ss/word@[::1]:77", "::1", 77, "me", "p@ss/word"),
            ("amqp:tcp:node1:77", "node1", 77, "guest", "guest"),
        ],
    )
    def test_broker_address(self, broker: str | None, host: str, port: int, user: str, password: str) -> None:
        options = cli_parser.command_parser("ping").parse_args(["-b", broker] if broker else [])
        target = cli_target.target_of(options, None)
        assert (target.host, target.port, target.login.user, target.login.password) == (host, port, user, password)

    def test_zero_means_for_ever(self) -> None:
        options = cli_parser.command_parser("ping").parse_args(["--timeout", "0"])
        assert cli_target.timeout_of(options, ToolConfig(timeout=5)) == 0
        assert Deadline(0).remaining() is None


class TestConfiguration:
    CONTENT = (
        "# a node\nport=7777\nha-username=ha\nha-password=p=w\nha-mechanism=PLAIN\nlink-heartbeat-interval=3\n"
        "interface=10.0.0.5\nlog-enable=info+\nlog-enable=debug+:HA\n"
    )

    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        path = tmp_path / "qpidd.conf"
        path.write_text(self.CONTENT)
        return str(path)

    def test_file(self, file: str) -> None:
        assert read_tool_config(file, {}) == ToolConfig("ha", "p=w", "PLAIN", "10.0.0.5", 7777, 3.0)

    def test_environment_overrides_the_file(self, file: str) -> None:
        environment = {"QPID_PORT": "8888", "QPID_HA_USERNAME": "other", "QPID_LINK_HEARTBEAT_INTERVAL": "250ms"}
        assert read_tool_config(file, environment) == ToolConfig("other", "p=w", "PLAIN", "10.0.0.5", 8888, 2.0)

    def test_the_command_line_overrides_both(self, file: str) -> None:
        words = ["-b", "me/pw@node2", "--timeout", "1", "--config", file]
        options = cli_parser.command_parser("ping").parse_args(words)
        config = cli_target.config_of(options)
        target = cli_target.target_of(options, config)
        assert (target.host, target.port, target.login) == ("node2", 7777, Login("me", "pw", "PLAIN"))
        assert cli_target.timeout_of(options, config) == 1

    def test_wildcards_and_port_0_tell_nothing(self) -> None:
        assert interpret({"interface": "0.0.0.0", "port": "0"}) == ToolConfig()
        assert interpret({"interface": "[::1]"}).host == "::1"

    @pytest.mark.parametrize("values", [{"port": "x"}, {"port": "65536"}, {"link-heartbeat-interval": "soon"}])
    def test_values_that_make_no_sense(self, values: dict[str, str]) -> None:
        with pytest.raises(ConfigError):
            interpret(values)

    def test_a_missing_file_is_told(self, run: Run) -> None:
        code, out = run("ping", "--config", "/nonexistent/qpidd.conf")
        assert code == 1
        assert out.startswith("ConfigError: ")

    def test_it_is_used(self, run: Run, tmp_path: Path) -> None:
        with SocketBroker(FakeHa(), authenticate=password_check({"ha": "pw"})) as server:
            path = tmp_path / "qpidd.conf"
            path.write_text(f"port={server.port}\nha-username=ha\nha-password=pw\n")
            assert run("status", "--config", str(path)) == (0, "ready\n")


class TestProcess:
    """What the shell of an administrator or an agent sees."""

    def test_exit_code_and_output(self, server: SocketBroker) -> None:
        command = [sys.executable, "-m", "ha.qpid_ha.main", "status", "-b", server.address]
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "ready\n", "")

    def test_it_loads_little(self, server: SocketBroker) -> None:
        """A resource manager calls it every second: what costs time to import must not come back unnoticed."""
        heavy = ("asyncio", "pamqp", "yaml", "pika", "ssl", "logging", "dataclasses", "subprocess", "threading")
        program = (
            "import sys; from ha.qpid_ha.main import main; code = main(sys.argv[1:]); "
            f"print(code, [name for name in {heavy} if name in sys.modules])"
        )
        command = [sys.executable, "-c", program, "ping", "-b", server.address]
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert result.stdout == "0 []\n", result.stderr

    def test_a_reader_that_has_gone_causes_no_traceback(self, server: SocketBroker) -> None:
        command = f"{sys.executable} -m ha.qpid_ha.main query -b {server.address} | true"
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20, check=False)
        assert result.stderr == ""
