"""The tools' part of a broker's configuration: credentials, address, time limit.  Pure except for reading the file.

The environment (`QPID_HA_USERNAME` ...) overrides the file, as it does for the broker.
"""

from collections.abc import Mapping
from typing import NamedTuple

from qpidd_py.cli.client_socket import Trust
from qpidd_py.errors import ConfigError

_TLS = ("require-encryption", "ssl-port", "ssl-ca", "ssl-cert", "ssl-key", "ha-ssl-ca", "ha-ssl-cert", "ha-ssl-key")
LEAST_TIMEOUT = 2.0
"""Seconds.  Link heartbeats may be much shorter than the time a tool needs to start, log in and promote."""

WILDCARDS = frozenset({"", "0.0.0.0", "::", "*", "all"})


class ToolConfig(NamedTuple):
    """Empty or None where the configuration has no value; `timeout` in seconds."""

    user: str = ""
    password: str = ""
    mechanism: str = ""
    host: str = ""
    port: int | None = None
    timeout: float | None = None
    tls: bool = False
    """The broker takes nothing else."""
    tls_port: int | None = None
    trust: Trust = Trust()


def read_tool_config(file: str | None, environment: Mapping[str, str]) -> ToolConfig:
    """Raises `ConfigError` for a file that cannot be read or an invalid value."""
    values: dict[str, str] = {}
    if file:
        from qpidd_py.options import read_file

        values = {name: found[0] for name, found in read_file(file).items()}
    return interpret({**values, **_from_environment(environment)})


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    login = ("ha-username", "ha-password", "ha-password-file", "ha-mechanism")
    wanted = (*login, "port", "interface", "link-heartbeat-interval", *_TLS)
    variables = {name: "QPID_" + name.upper().replace("-", "_") for name in wanted}
    return {name: environment[variable] for name, variable in variables.items() if variable in environment}


def interpret(values: Mapping[str, str]) -> ToolConfig:
    host = values.get("interface", "").split(" ")[0]
    return ToolConfig(
        values.get("ha-username", ""),
        values.get("ha-password", "") or password_in(values.get("ha-password-file", ""), "option ha-password-file"),
        values.get("ha-mechanism", ""),
        "" if host in WILDCARDS else host.strip("[]"),
        _port(values.get("port", "")),
        _timeout(values.get("link-heartbeat-interval", "")),
        values.get("require-encryption", "").lower() in ("yes", "true", "on", "1"),
        _port(values.get("ssl-port", "")),
        _trust(values),
    )


def password_in(file: str, what: str) -> str:
    """The first line; `what` names the option in the ConfigError of a file that cannot be read."""
    if not file:
        return ""
    try:
        with open(file, encoding="utf-8") as lines:
            password = lines.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: cannot read {file}: {error}") from None
    if not password:
        raise ConfigError(f"{what}: {file} is empty, expected a password")
    return password


def _trust(values: Mapping[str, str]) -> Trust:
    """As the broker's own towards the other brokers (`ha/dial.py`)."""
    own = "ha-ssl" if values.get("ha-ssl-cert") else "ssl"
    ca = values.get("ha-ssl-ca") or values.get("ssl-ca", "")
    return Trust(ca, values.get(f"{own}-cert", ""), values.get(f"{own}-key", ""))


def _port(text: str) -> int | None:
    """Port 0 (any free port) is not an address to connect to."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise ConfigError(f"option port: found {text!r}, expected a port number")
    return int(text) or None


def _timeout(text: str) -> float | None:
    if not text:
        return None
    from qpidd_py.option_values import duration

    try:
        return max(duration(text), LEAST_TIMEOUT)
    except ValueError as error:
        raise ConfigError(f"option link-heartbeat-interval: found {text!r}, expected {error}") from None
