"""Finds plug-ins by entry point (group `qpidd.plugins`); defines their interface.

The broker never imports a plug-in by name.  An entry point is a function without arguments that returns a `Plugin`:
its option groups are collected before the settings are read; `reading` is called before a journal is read; `attach`
once everything is built and before the first connection is accepted, `start` when the ports are open, `may_stop` when a
signal asks for a clean stop, `stop` during a clean stop.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address
from qpidd_py.options import Settings

if TYPE_CHECKING:  # --help and --check need plug-ins but no broker
    import ssl

    from qpidd_py.broker.broker import Broker
    from qpidd_py.broker.hooks import HaHooks
    from qpidd_py.core import Engine, Reactor
    from qpidd_py.security.users import Users
    from qpidd_py.store.progress import Progress
    from qpidd_py.store.service import Store

Request = Callable[[str, dict[str, Any], Callable[[dict[str, Any]], None], str], bool]
"""As `HaHooks.request`."""
GROUP = "qpidd.plugins"


def _tell_nobody(values: Mapping[str, str]) -> None:
    """The default without a supervisor."""


@dataclass
class PluginHost:
    """The objects that the composition root passes to a plug-in."""

    loop: asyncio.AbstractEventLoop
    engine: "Engine"
    reactor: "Reactor"
    broker: "Broker"
    settings: Settings
    name: str
    """Of this broker; HOST:PORT when none was given."""
    data_dir: Path | None
    """Exists and is locked; None when the broker keeps no files."""
    fail: Callable[[str, int], None]
    """fail(reason, exit_code): log the reason as critical, stop serving and end the process."""
    add_user: Callable[[str, str], None]
    """add_user(name, password): a login for this process, in addition to the users of the user file."""
    addresses: list[Address] = field(default_factory=list)
    """The addresses at which this broker takes connections; filled before `start`."""
    tls: "ssl.SSLContext | None" = None
    """Of the TLS port; None when there is no certificate."""
    users: "Users | None" = None
    """Who may log in by password."""
    store: "Store | None" = None
    """The journal, read; None when there is none."""
    on_reload: list[Callable[[Settings], Callable[[], None]]] = field(default_factory=list)
    """For SIGHUP: checks the new settings and what can be read again (raises ConfigError), and returns what makes it
    valid."""
    tell: Callable[[Mapping[str, str]], None] = _tell_nobody
    """tell({"STATUS": text, "X_QPID_STATE": word, ...}): news for a supervisor (`server/notify.py`).  Unchanged values
    are not sent again.  Cheap, and never raises."""


@dataclass
class Reading:
    """What a plug-in gets while the journal is read (`doorman.py`)."""

    settings: Settings
    name: str
    progress: "Progress"
    add_user: Callable[[str, str], None]
    tls: "ssl.SSLContext | None"
    """As in `PluginHost`."""


class Plugin(Protocol):
    """`attach` may return hooks (`qpidd_py.broker.hooks.HaHooks`) that the broker calls from then on."""

    name: str
    option_groups: tuple[type, ...]

    def check(self, settings: Settings, data_dir: Path | None) -> list[str]:
        """Before anything is touched: returns what is suspicious.  Raises ConfigError for what is refused."""
        ...

    def links_as(self, settings: Settings) -> str:
        """The user as which other brokers log in here; empty: none do."""
        ...

    def reading(self, host: Reading) -> Request | None:
        """A journal is going to be read: returns what answers requests until then, in another thread.  It may know of
        nothing but `host`.  Raises ConfigError."""
        ...

    def attach(self, host: PluginHost) -> "HaHooks | None": ...

    def start(self) -> None: ...

    def may_stop(self) -> str:
        """Called when a signal asks the process to stop: returns empty text, or a reason to refuse.  A second signal
        soon after is not refused."""
        ...

    def stop(self, reason: str) -> None: ...


def linking_users(plugins: Iterable[Plugin], settings: Settings) -> list[str]:
    return list(filter(None, (plugin.links_as(settings) for plugin in plugins)))


def load_plugins(found: Iterable[EntryPoint] | None = None) -> list[Plugin]:
    """Load every plug-in; one that cannot be loaded is a `ConfigError` that names it."""
    return [_load(point) for point in sorted(_points() if found is None else found, key=lambda point: point.name)]


def _points() -> Iterable[EntryPoint]:
    """The same entry point can be listed twice when an editable install and a wheel lie on the path."""
    return {(point.name, point.value): point for point in entry_points(group=GROUP)}.values()


def _load(point: EntryPoint) -> Plugin:
    try:
        plugin: Plugin = point.load()()
    except Exception as error:
        raise ConfigError(f"cannot load the plug-in {point.name} ({point.value}): {error!r}") from error
    return plugin
