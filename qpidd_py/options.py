"""Typed settings from the command line, the environment and a configuration file.

Options are fields of small frozen dataclasses, one dataclass per group; a plug-in brings groups of its own:

    @dataclass(frozen=True)
    class HaSettings:
        '''High availability.'''                      # first line: title in --help
        ha_cluster: bool = option(boolean, False, "be a member of an active-passive cluster")

The field `ha_cluster` is `--ha-cluster` on the command line, `QPID_HA_CLUSTER` in the environment and `ha-cluster` in
the file.  The first of these that names an option wins; `Settings[HaSettings]` is the finished, typed group.
Values are text until the parser of the option (`option_values`) turns them into what the field says.  Unknown names on
the command line or in the file are refused.
"""

import argparse
import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address, OneOf, boolean

T = TypeVar("T")

DEFAULT_CONFIG_FILE = "/etc/qpid/qpidd.conf"
ENVIRONMENT_PREFIX = "QPID_"
_SPEC = "qpidd.option"


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


HIDDEN: Final = "***"


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

    def shown(self) -> dict[str, str]:
        """All options that are in force, by name; secrets are hidden."""
        found = {}
        for name, item in _collect(self._groups).items():
            value = getattr(self[item.group], item.field)
            found[name] = HIDDEN if item.spec.secret and value else _show(value)
        return found

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
    if isinstance(spec.parse, OneOf):
        return "|".join(spec.parse.words)
    return getattr(spec.parse, "__name__", "value").upper()


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(map(_show, value)) or "none"
    return "none" if value in (None, "") else str(value)
