"""The parameters of the resource, with the broker's configuration file for those that are not given."""

import os

from qpidd_agent.ocf import OCF_ERR_ARGS, OCF_ERR_CONFIGURED, OCF_ERR_INSTALLED, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS = {
    "binary": "/usr/bin/qpidd",
    "config": "/etc/qpid/qpidd.conf",
    "port": "",
    "data_dir": "",
    "user": "qpidd",
    "options": "",
    "heartbeat": "1s",
}
"""Defaults; empty: taken from the configuration file, else from `FALLBACKS`."""

FALLBACKS = {"port": "5672", "ssl-port": "5671", "data-dir": "/var/lib/qpidd"}
YES = ("yes", "true", "on", "1")
WILDCARDS = ("", "0.0.0.0", "::", "*", "all")
UNITS = (("ms", 0.001), ("us", 0.000001), ("sec", 1.0), ("s", 1.0), ("min", 60.0), ("m", 60.0))


def _first_line(path: str) -> str:
    """Of a file; empty if it cannot be read: the broker says why."""
    try:
        with open(path, encoding="utf-8") as lines:
            return lines.readline().rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return ""


class Parameters:
    """Parameters as read, without checks: `stop` must work even if they are wrong."""

    def __init__(self, environment: "Mapping[str, str]") -> None:
        self.given = {name: environment.get(f"OCF_RESKEY_{name}", "") for name in DEFAULTS}
        values = {name: self.given[name] or default for name, default in DEFAULTS.items()}
        self.binary = values["binary"]
        self.config = values["config"]
        self.user = values["user"]
        self.options = values["options"]
        self.heartbeat = values["heartbeat"]
        file = _read(self.config)
        self.tls = _tls(file) if file.get("require-encryption", "").lower() in YES else None
        """Files for TLS, if the broker takes nothing else: authorities, certificate, its key."""
        self.port = values["port"] or file.get("port", "") or FALLBACKS["port"]
        self.door = self.port if self.tls is None else file.get("ssl-port", "") or FALLBACKS["ssl-port"]
        """The port that the agent asks."""
        self.data_dir = values["data_dir"] or file.get("data-dir", "") or FALLBACKS["data-dir"]
        interface = file.get("interface", "")
        self.host = "127.0.0.1" if interface in WILDCARDS else interface.strip("[]")
        user = file.get("ha-username", "")
        password = file.get("ha-password", "") or _first_line(file.get("ha-password-file", ""))
        self.login = (user, password) if user else ("guest", "guest")
        """User and password for the agent's requests to the broker."""
        self._brokers = file.get("ha-brokers-url", "")
        self.mechanism = file.get("ha-mechanism", "").upper() or "PLAIN"

    @property
    def brokers(self) -> str:
        """All members of the cluster.  Raises `Failure` for options that cannot be split."""
        found, given = self._brokers, words(self.options)
        for index, word in enumerate(given):
            name, _, value = word.partition("=")
            if name == "--ha-brokers-url":
                found = value or "".join(given[index + 1 : index + 2])
        return found

    @property
    def lock(self) -> str:
        return os.path.join(self.data_dir, "lock")

    @property
    def silence(self) -> float:
        """Seconds without a beat after which a broker counts as hung."""
        return seconds(self.heartbeat) or seconds(DEFAULTS["heartbeat"])

    @property
    def config_file(self) -> str:
        """The configuration file; empty if there is none and none was given."""
        return self.config if self.given["config"] or os.path.exists(self.config) else ""


def _tls(file: "Mapping[str, str]") -> "tuple[str, str, str]":
    """As the broker's own towards other brokers."""
    own = "ha-ssl" if file.get("ha-ssl-cert") else "ssl"
    return file.get("ha-ssl-ca") or file.get("ssl-ca", ""), file.get(f"{own}-cert", ""), file.get(f"{own}-key", "")


def _read(file: str) -> "dict[str, str]":
    """Parse `name=value` lines; the first value counts.  Faults of the file are left to the broker to report."""
    values: dict[str, str] = {}
    try:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                name, equals, value = line.strip().partition("=")
                if equals and not name.startswith("#"):
                    values.setdefault(name, value)
    except (OSError, UnicodeDecodeError):
        return {}
    return values


def seconds(text: str) -> float:
    """Seconds of a duration with or without unit; 0 if it is not a duration."""
    factor = 1.0
    for unit, value in UNITS:
        if text.endswith(unit):
            text, factor = text[: -len(unit)], value
            break
    try:
        number = float(text) * factor
    except ValueError:
        return 0.0
    return number if 0 < number < 1e6 else 0.0


def check(parameters: Parameters) -> None:
    """Raises `Failure`: code 6 for faults on every node, 5 for what is missing on this one."""
    port = parameters.port
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise Failure(OCF_ERR_CONFIGURED, f"parameter port: found {port!r}, wanted 1 to 65535")
    for name in ("binary", "config", "data_dir"):
        path = getattr(parameters, name)
        if not path.startswith("/"):
            raise Failure(OCF_ERR_CONFIGURED, f"parameter {name}: found {path!r}, wanted an absolute path")
    if not seconds(parameters.heartbeat):
        raise Failure(OCF_ERR_CONFIGURED, f"parameter heartbeat: found {parameters.heartbeat!r}, wanted 1s, 500ms ...")
    words(parameters.options)
    if not (os.path.isfile(parameters.binary) and os.access(parameters.binary, os.X_OK)):
        raise Failure(OCF_ERR_INSTALLED, f"{parameters.binary} is missing, or no program")
    if parameters.given["config"] and not os.path.isfile(parameters.config):
        raise Failure(OCF_ERR_INSTALLED, f"configuration file {parameters.config} is missing")
    account(parameters.user)


def words(options: str) -> "list[str]":
    """Split as a shell does.  Raises `Failure`."""
    if not options.strip():
        return []
    if not set(options) & set("\"'\\"):
        return options.split()
    import shlex

    try:
        return shlex.split(options)
    except ValueError as error:
        raise Failure(OCF_ERR_CONFIGURED, f"parameter options: found {options!r}: {error}") from None


def account(user: str) -> "tuple[int, int, str]":
    """User id, group id, home directory.  Raises `Failure`."""
    import pwd

    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise Failure(OCF_ERR_INSTALLED, f"user {user} does not exist on this node") from None
    return found.pw_uid, found.pw_gid, found.pw_dir


def refused(reason: str) -> Failure:
    """The failure for a refused configuration file or refused options: this node only, others may differ."""
    return Failure(OCF_ERR_ARGS, reason)
