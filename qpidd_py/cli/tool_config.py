"""The tools' part of a broker's configuration: credentials, address, time limit.  Pure except for reading the file.

The environment (`QPID_HA_USERNAME` ...) overrides the file, as it does for the broker.
"""

from collections.abc import Mapping
from typing import NamedTuple

from qpidd_py.errors import ConfigError

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


def read_tool_config(file: str | None, environment: Mapping[str, str]) -> ToolConfig:
    """Raises `ConfigError` for a file that cannot be read or an invalid value."""
    values: dict[str, str] = {}
    if file:
        from qpidd_py.options import read_file

        values = {name: found[0] for name, found in read_file(file).items()}
    return interpret({**values, **_from_environment(environment)})


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    login = ("ha-username", "ha-password", "ha-password-file", "ha-mechanism")
    wanted = (*login, "port", "interface", "link-heartbeat-interval")
    variables = {name: "QPID_" + name.upper().replace("-", "_") for name in wanted}
    return {name: environment[variable] for name, variable in variables.items() if variable in environment}


def interpret(values: Mapping[str, str]) -> ToolConfig:
    host = values.get("interface", "").split(" ")[0]
    return ToolConfig(
        values.get("ha-username", ""),
        values.get("ha-password", "") or _password(values.get("ha-password-file", "")),
        values.get("ha-mechanism", ""),
        "" if host in WILDCARDS else host.strip("[]"),
        _port(values.get("port", "")),
        _timeout(values.get("link-heartbeat-interval", "")),
    )


def _password(file: str) -> str:
    if not file:
        return ""
    try:
        with open(file, encoding="utf-8") as lines:
            return lines.readline().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"option ha-password-file: cannot read {file}: {error}") from None


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
    from qpidd_py.options import duration

    try:
        return max(duration(text), LEAST_TIMEOUT)
    except ValueError as error:
        raise ConfigError(f"option link-heartbeat-interval: found {text!r}, expected {error}") from None
