"""Typed settings from the command line, the environment and a configuration file.

Options are fields of small frozen dataclasses, one dataclass per group; a plug-in brings groups of its own:

    @dataclass(frozen=True)
    class HaSettings:
        '''High availability.'''                      # first line: title in --help
        ha_cluster: bool = option(boolean, False, "be a member of an active-passive cluster")

The field `ha_cluster` is `--ha-cluster` on the command line, `QPID_HA_CLUSTER` in the environment and `ha-cluster` in
the file.  The first of these that names an option wins; `Settings[HaSettings]` is the finished, typed group.
Values are text until the parser of the option turns them into what the field says; a parser raises `ValueError`
with what it expected.  Unknown names on the command line or in the file are refused.
"""

import argparse
import copy
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from qpidd_py.errors import ConfigError

T = TypeVar("T")

DEFAULT_CONFIG_FILE = "/etc/qpid/qpidd.conf"
ENVIRONMENT_PREFIX = "QPID_"
_SPEC = "qpidd.option"


class Address(NamedTuple):
    """Where a broker listens; `str()` gives HOST:PORT, with brackets around an IPv6 host, and `ssl:` before it if that
    port speaks TLS."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"ssl:{place}" if self.tls else place


# ---- parsers of values: text in, value out, ValueError(what was expected) -------------------------------------------


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    word = value.strip().lower()
    if word in ("yes", "true", "on", "1"):
        return True
    if word in ("no", "false", "off", "0"):
        return False
    raise ValueError("yes or no")


def integer(value: str) -> int:
    if not re.fullmatch(r"[0-9]+", value):
        raise ValueError("a whole number, 0 or more")
    return int(value)


def port_number(value: str) -> int:
    if not re.fullmatch(r"[0-9]+", value) or int(value) > 65535:
        raise ValueError("a port number, 0 to 65535")
    return int(value)


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(s|ms|us|ns|)")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def duration(value: str, unit: str = "s") -> float:
    """Seconds; a plain number counts in `unit`."""
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("a number with s, ms, us or ns, such as 2, 0.5 or 250ms")
    return float(match[1]) * _SECONDS[match[2] or unit]


def milliseconds(value: str) -> float:
    """Seconds; a plain number counts milliseconds, as the original has it for a few options."""
    return duration(value, "ms")


_SIZE = re.compile(r"([0-9]+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_OCTETS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def size(value: str) -> int:
    """Octets."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a number of octets, or with k, M or G, such as 65536 or 64k")
    return int(match[1]) * _OCTETS[match[2].lower()]


@dataclass(frozen=True)
class Amount:
    """So many octets, or a share of a whole that is not known yet; `str()` gives it as an administrator writes it."""

    octets: int = 0
    percent: int = 0

    def of(self, whole: int) -> int:
        """Octets."""
        return whole * self.percent // 100 if self.percent else self.octets

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent else str(self.octets)


def amount(value: str) -> Amount:
    match = re.fullmatch(r"([0-9]+)\s*%", value.strip())
    if match is not None and 1 <= int(match[1]) <= 100:
        return Amount(percent=int(match[1]))
    try:
        return Amount(octets=size(value))
    except ValueError:
        raise ValueError("a number of octets, or with k, M, G or %, such as 600M or 40%") from None


@dataclass(frozen=True)
class SyncEvery:
    """How long what was written may wait for the disk, in seconds: 0 is before it counts, infinity is for ever."""

    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.seconds:
            return "batch"
        return "os" if math.isinf(self.seconds) else f"interval:{self.seconds * 1000:g}"


def sync_every(value: str) -> SyncEvery:
    if value in ("batch", "os"):
        return SyncEvery(0.0 if value == "batch" else math.inf)
    match = re.fullmatch(r"interval:([1-9][0-9]{0,5})", value)
    if match is None:
        raise ValueError("batch, os, or interval: and milliseconds, such as interval:100")
    return SyncEvery(int(match[1]) / 1000)


class _OneOf:
    """A parser with a list of words, for help and shell completion."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def __call__(self, value: str) -> str:
        if value not in self.words:
            raise ValueError("one of " + ", ".join(self.words))
        return value


def one_of(*words: str) -> Callable[[str], str]:
    return _OneOf(words)


def path(value: str) -> Path:
    if not value:
        raise ValueError("a path")
    return Path(value).expanduser()


_HOST_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:,\s]+))(?::(?P<port>[0-9]+))?")


def address(value: str, default_port: int = 5672) -> Address:
    """One `host[:port]`; `amqp:`, `tcp:` and `ssl:` before it are allowed as in the original's URLs."""
    plain = re.sub(r"^(amqp:(//)?)?(tcp:)?", "", value.strip())
    tls = plain.startswith("ssl:")
    match = _HOST_PORT.fullmatch(plain.removeprefix("ssl:"))
    port = int((match and match["port"]) or (5671 if tls else default_port))
    if match is None or port > 65535:
        raise ValueError("an address HOST or HOST:PORT, ssl: before it for TLS")
    return Address(match["six"] or match["host"], port, tls)


def addresses(value: str) -> tuple[Address, ...]:
    """A comma separated list of addresses; empty text (or `none`) is an empty list."""
    if value.strip() in ("", "none"):
        return ()
    rest = re.sub(r"^amqp:(//)?", "", value.strip())
    try:
        return tuple(address(part) for part in rest.split(","))
    except ValueError:
        raise ValueError("a comma separated list HOST:PORT,HOST:PORT, ssl: before an address for TLS") from None


def known_hosts(value: str) -> str:
    """A list of addresses that fits a short string; empty text (or `none`) is none."""
    if not addresses(value):
        return ""
    if len(value.encode()) > 255:
        raise ValueError("at most 255 octets")
    return value.strip()


# ---- declaring options -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OptionSpec:
    """The data of an option in addition to its name and default."""

    parse: Callable[[str], Any]
    help: str
    short: str = ""
    repeatable: bool = False
    secret: bool = False
    live: bool = False


def option(
    parse: Callable[[str], T], default: T, help: str, short: str = "", secret: bool = False, live: bool = False
) -> T:
    """Declare a field that is an option; `short` is one letter for the command line.  A `secret` one is warned of
    there, since every user of the machine can read command lines.  A `live` one changes in a running broker."""
    return field(default=default, metadata={_SPEC: OptionSpec(parse, help, short, secret=secret, live=live)})


def repeatable(parse: Callable[[str], T], default: tuple[T, ...], help: str, live: bool = False) -> tuple[T, ...]:
    """Declare an option that may be given several times; in the environment blanks separate the values."""
    return field(default=default, metadata={_SPEC: OptionSpec(parse, help, "", True, live=live)})


# ---- loading ---------------------------------------------------------------------------------------------------------


class _Option(NamedTuple):
    group: type
    field: str
    default: Any
    spec: OptionSpec


class Settings:
    """All groups, each as its finished dataclass; `warnings` are to log once logging is set up."""

    def __init__(self, groups: Mapping[type, object], warnings: Sequence[str] = ()) -> None:
        self._groups = dict(groups)
        self.warnings = list(warnings)

    def __getitem__(self, group: type[T]) -> T:
        return cast(T, self._groups[group])

    def __contains__(self, group: type) -> bool:
        return group in self._groups

    def changed(self, fresh: "Settings") -> tuple[list[str], list[str]]:
        """Names of the options that differ in `fresh`: the live ones, and those that wait for a restart."""
        found: tuple[list[str], list[str]] = [], []
        for name, item in _collect(self._groups).items():
            if getattr(self[item.group], item.field) != getattr(fresh[item.group], item.field):
                found[not item.spec.live].append(name)
        return found

    def renewed(self, fresh: "Settings") -> "Settings":
        """The live options of `fresh`, and the others as they are."""
        groups = {group: copy.copy(value) for group, value in self._groups.items()}
        for item in _collect(groups).values():
            if item.spec.live:  # no dataclasses.replace: a group may have completed itself, and would refuse that
                object.__setattr__(groups[item.group], item.field, getattr(fresh[item.group], item.field))
        return Settings(groups, self.warnings)


def load(
    groups: Iterable[type],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    default_file: str = DEFAULT_CONFIG_FILE,
    version: str = "",
) -> Settings:
    """Gather the settings of all `groups`; raises `ConfigError`, or `SystemExit(0)` after --help and --version."""
    options = _collect(groups)
    given = _parse_arguments(options, arguments, version)
    environ, warnings = _parse_environment(options, environment)
    explicit = given.pop("config", None) or environ.pop("config", None)
    file = read_file(explicit[-1]) if explicit else _read_default_file(default_file)
    _refuse_unknown(options, file, explicit[-1] if explicit else default_file)
    warnings += [_readable(name) for name in given if options[name].spec.secret]
    sources = [("command line", given), ("environment", environ), ("configuration file", file)]
    return Settings(_build(options, sources), warnings)


def _readable(name: str) -> str:
    return f"option {name} is on the command line, which every user of this machine can read: use {name}-file"


def read_file(name: str | Path) -> dict[str, list[str]]:
    """Read a `name=value` file; raises `ConfigError` when it is missing, empty or malformed."""
    try:
        content = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {name}: {error}") from None
    if not content.strip():
        raise ConfigError(f"the configuration file {name} is empty")
    return parse_file(content, str(name))


def parse_file(content: str, name: str) -> dict[str, list[str]]:
    """Split `name=value` lines; `#` starts a comment line, blanks around `=` are not allowed."""
    values: dict[str, list[str]] = {}
    for number, line in enumerate(content.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z][A-Za-z0-9.-]*)=(?!\s)(.*)", line)
        if match is None:
            raise ConfigError(f"{name} line {number}: found {line!r}, expected name=value without blanks around '='")
        values.setdefault(match[1], []).append(match[2])
    return values


def option_name(field_name: str) -> str:
    return field_name.replace("_", "-")


def _read_default_file(name: str) -> dict[str, list[str]]:
    try:
        content = Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {name}: {error}") from None
    return parse_file(content, name)


def _collect(groups: Iterable[type]) -> dict[str, _Option]:
    options: dict[str, _Option] = {}
    for group in groups:
        for item in dataclasses.fields(group):
            spec = item.metadata.get(_SPEC)
            if spec is None:
                continue
            name = option_name(item.name)
            if name in options or name in ("config", "help", "version"):
                raise ConfigError(f"option {name} is declared twice")
            options[name] = _Option(group, item.name, item.default, spec)
    return options


def _parse_environment(
    options: Mapping[str, _Option], environment: Mapping[str, str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Unknown names are only reported: init scripts have other variables with this prefix."""
    known = {ENVIRONMENT_PREFIX + re.sub("[-.]", "_", name).upper(): name for name in (*options, "config")}
    values: dict[str, list[str]] = {}
    warnings = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = known.get(variable)
        if name is None:
            warnings.append(f"environment variable {variable} names no option and is ignored")
            continue
        several = name in options and options[name].spec.repeatable
        values[name] = environment[variable].split() if several else [environment[variable]]
    return values, warnings


def _refuse_unknown(options: Mapping[str, _Option], file: Mapping[str, list[str]], name: str) -> None:
    for key in file:
        if key not in options:
            raise ConfigError(f"unknown option {key!r} in {name}")


def _build(
    options: Mapping[str, _Option], sources: Sequence[tuple[str, Mapping[str, list[str]]]]
) -> dict[type, object]:
    values: dict[type, dict[str, Any]] = {}
    for name, item in options.items():
        fields = values.setdefault(item.group, {})
        for where, source in sources:
            if name in source:
                fields[item.field] = _parse_values(name, item.spec, source[name], where)
                break
    return {group: group(**fields) for group, fields in values.items()}


def _parse_values(name: str, spec: OptionSpec, values: Sequence[str], where: str) -> Any:
    if spec.repeatable:
        return tuple(_parse_value(name, spec, value, where) for value in values)
    if len(values) > 1:
        raise ConfigError(f"option {name} is given {len(values)} times ({where}), expected once")
    return _parse_value(name, spec, values[0], where)


def _parse_value(name: str, spec: OptionSpec, value: str, where: str) -> Any:
    try:
        return spec.parse(value)
    except ValueError as error:
        raise ConfigError(f"option {name}: found {value!r} ({where}), expected {error}") from None


def live_options(groups: Iterable[type]) -> list[str]:
    """Names of those that change in a running broker."""
    return [name for name, item in _collect(groups).items() if item.spec.live]


# ---- the command line ------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _parse_arguments(options: Mapping[str, _Option], arguments: Sequence[str], version: str) -> dict[str, list[str]]:
    found = vars(_command_line(options, version).parse_args(list(arguments)))
    return {option_name(key): value for key, value in found.items() if value is not None}


def command_line(groups: Iterable[type]) -> argparse.ArgumentParser:
    """The command-line parser of these groups, for shell completion."""
    return _command_line(_collect(groups), "")


def _command_line(options: Mapping[str, _Option], version: str) -> argparse.ArgumentParser:
    parser = _Parser(prog="qpidd", description="AMQP 0-9-1 message broker", allow_abbrev=False)
    parser.add_argument("--version", "-v", action="version", version=f"qpidd-py {version}")
    parser.add_argument("--config", metavar="FILE", action="append", help=f"configuration file ({DEFAULT_CONFIG_FILE})")
    sections: dict[type, Any] = {}
    for name, item in options.items():
        if item.group not in sections:
            sections[item.group] = parser.add_argument_group(_title(item.group))
        _add_argument(sections[item.group], name, item)
    return parser


def _title(group: type) -> str:
    return (group.__doc__ or group.__name__).strip().splitlines()[0].rstrip(".")


def _add_argument(section: Any, name: str, item: _Option) -> None:
    names = [f"--{name}"] + ([f"-{item.spec.short}"] if item.spec.short else [])
    extra: dict[str, Any] = {}
    if item.spec.parse is boolean:
        extra = {"nargs": "?", "const": "yes"}
    text = f"{item.spec.help} ({_show(item.default)})".replace("%", "%%")
    section.add_argument(*names, action="append", dest=item.field, metavar=_metavar(item.spec), help=text, **extra)


def _metavar(spec: OptionSpec) -> str:
    if spec.parse is boolean:
        return "yes|no"
    if isinstance(spec.parse, _OneOf):
        return "|".join(spec.parse.words)
    return getattr(spec.parse, "__name__", "value").upper()


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(map(_show, value)) or "none"
    return "none" if value in (None, "") else str(value)
