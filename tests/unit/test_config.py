"""Settings: sources, values, refusals."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from ha.model.settings import HaSettings
from ha.shell.from_options import node_settings
from qpidd_py.config import (
    GROUPS,
    BrokerSettings,
    DataSettings,
    LinkSettings,
    LogSettings,
    NetworkSettings,
    data_directory,
)
from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address, address, addresses, boolean, duration, milliseconds, port_number, size
from qpidd_py.options import Settings, option, read_file
from qpidd_py.options import load as load_settings


def load(*arguments: str, environment: dict[str, str] | None = None, file: Path | None = None) -> Settings:
    default = str(file) if file else "/nonexistent/qpidd.conf"
    return load_settings(GROUPS, arguments, environment or {}, default)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2", 2.0), ("0.5", 0.5), (".5", 0.5), ("250ms", 0.25), ("10us", 1e-5), ("1500 ns", 1.5e-6), ("3s", 3.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


def test_a_plain_number_of_milliseconds() -> None:
    assert milliseconds("1500") == 1.5
    assert milliseconds("2s") == 2.0


@pytest.mark.parametrize("text", ["", "x", "-1", "1e3", "1 m", "1.2.3", "inf"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="a number"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "octets"), [("0", 0), ("4096", 4096), ("64k", 65536), ("64KiB", 65536), ("1MB", 1 << 20), ("2G", 2 << 30)]
)
def test_sizes(text: str, octets: int) -> None:
    assert size(text) == octets


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5M", "1T"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="octets"):
        size(text)


def test_booleans() -> None:
    assert [boolean(word) for word in ("yes", "True", "on", "1", "no", "false", "OFF", "0")] == [True] * 4 + [False] * 4
    with pytest.raises(ValueError, match="yes or no"):
        boolean("maybe")


def test_ports() -> None:
    assert port_number("65535") == 65535
    for text in ("65536", "-1", "x", ""):
        with pytest.raises(ValueError, match="0 to 65535"):
            port_number(text)


def test_addresses() -> None:
    assert address("node1") == Address("node1", 5672)
    assert address("[::1]:5673") == Address("::1", 5673)
    assert str(Address("::1", 5673)) == "[::1]:5673"
    assert addresses("amqp:tcp:a:1,tcp:b") == (Address("a", 1), Address("b", 5672))
    assert addresses("none") == addresses("") == ()


@pytest.mark.parametrize("text", ["a:99999", "a,,b", "a b", ":5672", "a:x", "::1:5672"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        addresses(text)


def test_defaults() -> None:
    settings = load()
    assert settings[NetworkSettings].port == 5672
    assert settings[LogSettings].log_enable == ("notice+",)
    assert settings.warnings == []


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"
    file.write_text("# comment\n\nport=1\nheartbeat=2\nbroker-name=from the file = yes\n")
    settings = load("--port", "3", environment={"QPID_PORT": "4", "QPID_HEARTBEAT": "5"}, file=file)
    assert settings[NetworkSettings].port == 3
    assert settings[BrokerSettings].heartbeat == 5
    assert settings[BrokerSettings].broker_name == "from the file = yes"


def test_booleans_on_the_command_line() -> None:
    for arguments in (["--no-data-dir"], ["--no-data-dir", "yes"], ["--no-data-dir=yes"]):
        assert load(*arguments)[DataSettings].no_data_dir is True
    assert load("--no-data-dir", "no", "--port", "1")[DataSettings].no_data_dir is False


def test_repeated_options(tmp_path: Path) -> None:
    assert load("--interface", "a", "--interface", "b")[NetworkSettings].interface == ("a", "b")
    assert load(environment={"QPID_INTERFACE": "a b"})[NetworkSettings].interface == ("a", "b")
    file = tmp_path / "c"
    file.write_text("log-enable=info+\nlog-enable=debug+:HA\n")
    assert load(file=file)[LogSettings].log_enable == ("info+", "debug+:HA")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prot", "1"], "--prot"),
        (["stray"], "stray"),
        (["--port"], "expected"),
        (["--port", "1", "--port", "2"], "port is given 2 times"),
        (["--port", "x"], r"option port: found 'x' \(command line\), expected a port number"),
        (["--frame-max", "100"], "expected 4096 or more"),
        (["--heartbeat", "70000"], "expected 0 to 65535"),
        (["--heartbeat", "0.5"], "whole number"),
        (["--require-encryption"], "ssl-cert"),
        (["--link-heartbeat-interval", "1ms"], "10ms or more"),
    ],
)
def test_wrong_command_lines(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(*arguments)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prot=1\n", "unknown option 'prot'"),
        ("port = 1\n", "line 1.*without blanks"),
        ("\nport\n", "line 2"),
        ("port= 1\n", "without blanks"),
        ("config=x\n", "unknown option 'config'"),
        ("port=1\nport=2\n", "given 2 times"),
    ],
)
def test_wrong_files(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "qpidd.conf"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load("--config", str(file))


def test_an_explicit_file_must_be_there_and_say_something(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load("--config", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="cannot read"):
        load(environment={"QPID_CONFIG": str(tmp_path / "missing")})
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(ConfigError, match="is empty"):
        load("--config", str(empty))
    assert load(file=tmp_path / "missing")[NetworkSettings].port == 5672


def test_unknown_environment_variables_are_reported() -> None:
    settings = load(environment={"QPID_PROT": "1", "HOME": "/"})
    assert settings.warnings == ["environment variable QPID_PROT names no option and is ignored"]


def test_a_secret_on_the_command_line_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"
    file.write_text("ha-password=secret\nha-username=ha\n")
    words = ("--ha-username", "ha", "--ha-password", "secret")
    [warning] = load_settings([HaSettings], words, {}, "/none").warnings
    assert warning.startswith("option ha-password is on the command line") and "secret" not in warning
    assert not load_settings([HaSettings], [], {"QPID_HA_USERNAME": "ha", "QPID_HA_PASSWORD": "x"}, "/none").warnings
    assert not load_settings([HaSettings], ["--config", str(file)], {}, "/none").warnings


def test_what_is_in_force_is_shown_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o600)
    for words in (("--ha-password", "secret"), ("--ha-password-file", str(file))):
        shown = load_settings([HaSettings], ["--ha-username", "ha", *words], {}, "/none").shown()
        assert (shown["ha-username"], shown["ha-password"]) == ("ha", "***")
        assert "secret" not in str(shown)
    assert (
        load("--port", "7", "--auth", "no").shown().items() >= {"port": "7", "auth": "no", "user-file": "none"}.items()
    )
    assert load_settings([HaSettings], [], {}, "/none").shown()["ha-password"] == "none"


def test_a_plug_in_brings_options() -> None:
    @dataclass(frozen=True)
    class Extra:
        """Extra."""

        extra_wait: float = option(duration, 1.0, "how long")

    settings = load_settings([*GROUPS, Extra], ["--extra-wait", "20ms"], {}, "/nonexistent")
    assert settings[Extra].extra_wait == pytest.approx(0.02)
    assert Extra in settings
    with pytest.raises(ConfigError, match="declared twice"):
        load_settings([Extra, Extra], [], {}, "/nonexistent")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("--help")
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("--port", "--link-heartbeat-interval", "--log-enable", "Data directory"))


def test_data_directory() -> None:
    assert data_directory(DataSettings(no_data_dir=True)) is None
    assert data_directory(DataSettings(data_dir=Path("/x"))) == Path("/x")
    assert data_directory(DataSettings(), {"HOME": "/home/a"}) == Path("/home/a/.qpidd")
    assert data_directory(DataSettings(), {}) == Path("/tmp/.qpidd")


def test_read_file_for_the_tools(tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"
    file.write_text("ha-username=u\nanything=1\n")
    assert read_file(file) == {"ha-username": ["u"], "anything": ["1"]}


def test_the_example_file_is_right_also_where_it_is_commented_out(tmp_path: Path) -> None:
    example = (Path(__file__).parents[2] / "config" / "qpidd.conf").read_text()
    options = re.sub(r"^#(?=[a-z-]+=)", "", example, flags=re.MULTILINE)
    assert options != example
    file = tmp_path / "qpidd.conf"
    file.write_text(options)
    settings = load_settings([*GROUPS, HaSettings], ["--config", str(file)], {})
    assert settings[HaSettings].ha_cluster


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--journal", "yes", "--no-data-dir", "yes"), "journal: found yes with no-data-dir, expected a data"),
        (("--journal", "maybe"), "journal: found 'maybe' (command line), expected yes or no"),
        (("--journal-segment-size", "1000"), "journal-segment-size: found 1000, expected 1048576 or more"),
        (("--journal-segment-size", "2M"), "journal-segment-size: found 2097152 without journal, expected journal=yes"),
        (("--journal-sync", "os"), "journal-sync: found os without journal, expected journal=yes"),
        (("--journal-sync", "never"), "journal-sync: found 'never' (command line), expected batch, os, or interval:"),
        (
            ("--disk-free-limit", "10%", "--page-folder", "no"),
            "disk-free-limit: found 10% without journal and page file, expected journal=yes or a page-folder",
        ),
        (("--disk-free-limit", "0", "--page-folder", "no"), "disk-free-limit: found 0 without journal and page file"),
    ],
)
def test_a_journal_that_cannot_be_is_refused(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        load(*arguments)


def test_every_live_option_of_ha_is_read_after_a_reload():
    """They reach the core as `NodeSettings`; the plug-in keeps the rule for a stop."""
    options, links = HaSettings(ha_safety="manager"), LinkSettings()
    before = node_settings("a", options, links)
    live = [item.name for item in fields(HaSettings) if item.metadata["qpidd.option"].live]
    assert len(live) > 5
    for name in live:
        if name != "ha_promote_on_shutdown":
            changed = replace(options, **{name: getattr(options, name) * 2 + 1})
            assert node_settings("a", changed, links) != before, name


def test_a_reload_takes_live_options_and_names_the_others():
    old, fresh = load("--heartbeat", "5"), load("--heartbeat", "7", "--port", "1", "--max-queues", "3")
    assert old.changed(fresh) == (["max-queues", "heartbeat"], ["port"])
    renewed = old.renewed(fresh)
    assert (renewed[BrokerSettings].heartbeat, renewed[BrokerSettings].max_queues) == (7, 3)
    assert renewed[NetworkSettings].port == old[NetworkSettings].port
    assert old[BrokerSettings].heartbeat == 5
