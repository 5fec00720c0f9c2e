"""Address, login and time limit of a tool: from the command line, configuration file and environment."""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import DEFAULT_PORT, TLS_PORT, Target, Trust, shown, split_host_port, uses_tls
from qpidd_py.cli.output import ShowVersion

if TYPE_CHECKING:
    from qpidd_py.cli.tool_config import ToolConfig

DEFAULT_HOST = "127.0.0.1"
DEFAULT_VHOST = "/"

DEFAULT_TIMEOUT = 10.0
"""Seconds, unless the command line or a configuration file sets another limit."""

Options = argparse.Namespace


class UsageError(Exception):
    """The command line is not valid."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def shorter(error: UsageError, verbs: Iterable[str]) -> UsageError:
    """Without the names of all verbs, where one is unknown."""
    from difflib import get_close_matches

    found = re.search(r"argument VERB: invalid choice: (.*?) \(choose from", str(error), re.DOTALL)
    if found is None:
        return error
    close = " or ".join(get_close_matches(found[1].strip("'"), verbs))
    return UsageError(f"no verb {found[1]:.80}; " + (f"is it {close}?" if close else "see --help"))


def parsed(parser: Parser, words: Sequence[str]) -> Options | None:
    """None: the help was asked for, and is shown.  Raises UsageError."""
    if {"-h", "--help"} & set(words):
        print(parser.format_help().rstrip())
        return None
    return parser.parse_intermixed_args(words)


def run_parsed(parser: Parser, words: Sequence[str], run: Callable[[Options, Target, float], int]) -> int:
    """Shows the help, or calls `run` with the time limit in seconds; the exit code.  Raises all errors."""
    options = parsed(parser, words)
    if options is None:
        return 0
    config = config_of(options)
    return run(options, target_of(options, config), timeout_of(options, config))


def add_address_options(add: Callable[..., Any]) -> None:
    """And those of each program.  `add` is `add_argument` of a parser or a group."""
    add("-h", "--help", action="store_true", help="show this help")
    add("--version", action=ShowVersion)
    add("-b", "--broker", metavar="ADDRESS", help="[user[/password]@][ssl:]host[:port] (default: the local broker)")
    add("--timeout", metavar="SECONDS", help=f"limit for the whole command, 0 = none (default {DEFAULT_TIMEOUT:g})")
    add("--config", metavar="FILE", help="take credentials, port, TLS and timeout from this qpidd.conf")


def add_vhost_option(add: Callable[..., Any]) -> None:
    """As `add_address_options`."""
    add("-p", "--vhost", default=DEFAULT_VHOST, metavar="VHOST", help=f"virtual host (default {DEFAULT_VHOST})")


def add_login_options(add: Callable[..., Any]) -> None:
    """As `add_address_options`."""
    add("--password-file", metavar="FILE", help="the password of the user in --broker: first line of this file")
    add("--sasl-mechanism", metavar="NAME", help="PLAIN, AMQPLAIN, EXTERNAL, ANONYMOUS or SCRAM-SHA-256")
    add("--sasl-service-name", metavar="NAME", help="accepted for compatibility, not used")
    add("--ssl", action="store_true", help="use TLS")
    add("--ssl-certificate", metavar="FILE", help="our certificate (PEM); turns TLS on")
    add("--ssl-key", metavar="FILE", help="its private key (PEM), if it is not in the same file")
    add("--ssl-ca", metavar="FILE", help="authorities to trust (PEM; default: those of the system); turns TLS on")


def add_listen_options(add: Callable[..., Any], port: int) -> None:
    """Of a program that serves HTTP; as `add_address_options`."""
    add("--listen", default=f"127.0.0.1:{port}", metavar="HOST:PORT", help=f"serve here (default 127.0.0.1:{port})")
    add("--listen-certificate", metavar="FILE", help="serve TLS with this certificate (PEM)")
    add("--listen-key", metavar="FILE", help="its private key (PEM)")


def listen_address(options: Options) -> tuple[str, int]:
    """Where such a program serves.  Raises UsageError."""
    host, port = split_host_port(options.listen)
    if not host or port is None:
        raise UsageError(f"argument --listen: found {options.listen!r}, wanted HOST:PORT")
    if bool(options.listen_certificate) != bool(options.listen_key):
        raise UsageError("--listen-certificate and --listen-key belong together")
    return host, port


def target_of(options: Options, config: "ToolConfig | None") -> Target:
    """The command line first, then the configuration (file and `QPID_*`), then the defaults."""
    user = password = host = ""
    port: int | None = None
    encrypted = False
    if options.broker:
        credentials, _, address = options.broker.rpartition("@")
        user, _, password = credentials.partition("/")
        host, port = split_host_port(address)
        encrypted = uses_tls(address)
    mechanism = options.sasl_mechanism or ""
    if config is not None:
        if not password and user in ("", config.user):
            user, password = config.user, config.password
        mechanism = mechanism or config.mechanism
        encrypted = encrypted or (config.tls and port is None)
        port = port or (config.tls_port if encrypted else config.port)
        host = host or config.host
    if options.password_file:
        password = _password_of(options, user)
    trust = trust_of(options, config)
    encrypted = encrypted or bool(options.ssl or options.ssl_certificate or options.ssl_ca)
    tls = trust.context() if encrypted else None
    if tls is not None and not options.broker:
        tls.check_hostname = False  # our own broker, whose certificate has the name for others
    login = Login(user or "guest", password if user else "guest", mechanism)
    return Target(host or DEFAULT_HOST, port or (TLS_PORT if tls else DEFAULT_PORT), login, tls, trust)


def _password_of(options: Options, user: str) -> str:
    if not user:
        raise UsageError("argument --password-file: needs a user, as in --broker USER@HOST:PORT")
    if "/" in (options.broker or "").rpartition("@")[0]:
        raise UsageError("argument --password-file: there is a password in --broker")
    from qpidd_py.cli.tool_config import password_in

    return password_in(options.password_file, "argument --password-file")


def timeout_of(options: Options, config: "ToolConfig | None", patience: float = 0.0) -> float:
    """Seconds; `patience` is the minimum of a command, unless the command line sets another limit."""
    if options.timeout is None:
        return max(patience, config.timeout if config is not None and config.timeout else DEFAULT_TIMEOUT)
    try:
        seconds = float(options.timeout)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < 1e9:
        raise UsageError(f"argument --timeout: found {options.timeout!r}, wanted seconds, 0 or more")
    return seconds


def config_of(options: Options) -> "ToolConfig | None":
    """None if there is neither a file nor an environment variable; then nothing is imported for it."""
    installed = "/etc/qpid/qpidd.conf"
    file = options.config or os.environ.get("QPID_CONFIG")
    if not file and not options.broker and os.path.exists(installed):
        file = installed
    if not file and not any(name.startswith("QPID_") for name in os.environ):
        return None
    from qpidd_py.cli.tool_config import read_tool_config

    return read_tool_config(file, os.environ)


def trust_of(options: Options, config: "ToolConfig | None") -> Trust:
    """The command line first, then the broker's own files."""
    if options.ssl_key and not options.ssl_certificate:
        raise UsageError("argument --ssl-key: needs --ssl-certificate")
    trust = config.trust if config is not None else Trust()
    if options.ssl_ca:
        trust = trust._replace(ca=options.ssl_ca)
    if options.ssl_certificate:
        trust = trust._replace(certificate=options.ssl_certificate, key=options.ssl_key or "")
    return trust


def brokers_of(url: Any) -> list[str]:
    """`ha-brokers-url` as text or as a list; each address as `host:port`."""
    parts = url.removeprefix("amqp:").split(",") if isinstance(url, str) else [str(part) for part in url or ()]
    return [_normal(part.strip()) for part in parts if part.strip() and part.strip() != "none"]


def _normal(address: str) -> str:
    host, port = split_host_port(address)
    tls = uses_tls(address)
    return shown(host, port or (TLS_PORT if tls else DEFAULT_PORT), tls)
