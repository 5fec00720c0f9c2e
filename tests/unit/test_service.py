"""The composition: plug-ins, how a failure ends the process, how a clean stop does."""

import asyncio
import os
import signal
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from qpidd_py.broker.hooks import HaHooks
from qpidd_py.config import GROUPS
from qpidd_py.errors import ConfigError, InvariantError
from qpidd_py.options import Settings, load
from qpidd_py.plugins import PluginHost, Reading, load_plugins
from qpidd_py.service import Service

BROKEN = 70


class Watcher:
    """A plug-in that does what the test says at `start`."""

    name = "watcher"
    option_groups: tuple[type, ...] = ()

    def __init__(self, at_start: Callable[[PluginHost], object]) -> None:
        self.at_start = at_start
        self.calls: list[str] = []
        self.refusal = ""

    def check(self, settings: Settings, data_dir: Path | None) -> list[str]:
        return []

    def links_as(self, settings: Settings) -> str:
        return ""

    def reading(self, host: Reading) -> None:
        self.calls.append("reading")

    def attach(self, host: PluginHost) -> HaHooks | None:
        self.host = host
        self.calls.append("attach")
        return None

    def start(self) -> None:
        self.calls.append("start")
        self.at_start(self.host)

    def may_stop(self) -> str:
        return self.refusal

    def stop(self, reason: str) -> None:
        self.calls.append(f"stop {reason}")


def settings(*arguments: str) -> Settings:
    base = ["--port", "0", "--interface", "127.0.0.1", "--no-data-dir", "yes"]
    return load(GROUPS, [*base, *arguments], {}, "/nonexistent")


def run(plugin: Watcher) -> int:
    service = Service(settings(), [plugin], None, "1", BROKEN)
    return asyncio.run(
        service.run(lambda: plugin.calls.append(f"ready {service.port == plugin.host.addresses[0].port}"))
    )


def once_ready(host: PluginHost, calls: list[str], action: Callable[[], object]) -> None:
    """On a busy machine the ports are opened later than any time that a test could name."""
    if "ready True" in calls:
        action()
    else:
        host.loop.call_later(0.01, once_ready, host, calls, action)


def test_a_plug_in_sees_the_life_of_the_broker() -> None:
    plugin = Watcher(lambda host: once_ready(host, plugin.calls, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert run(plugin) == 0
    assert plugin.calls == ["attach", "start", "ready True", "stop SIGTERM"]


def test_a_plug_in_refuses_the_first_signal_and_not_the_second(caplog: pytest.LogCaptureFixture) -> None:
    def signal_twice(host: PluginHost) -> None:
        def look() -> None:
            if "SIGTERM is refused: too dear; a second signal within 10 s stops the broker" in caplog.messages:
                plugin.calls.append("refused")
                os.kill(os.getpid(), signal.SIGINT)
            else:
                host.loop.call_later(0.01, look)

        def begin() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            look()

        plugin.refusal = "too dear"
        once_ready(host, plugin.calls, begin)

    plugin = Watcher(signal_twice)
    assert run(plugin) == 0
    assert plugin.calls == ["attach", "start", "ready True", "refused", "stop SIGINT"]


def test_a_plug_in_ends_the_broker_with_its_code() -> None:
    plugin = Watcher(lambda host: host.loop.call_later(0.05, host.fail, "no place for us", 3))
    assert run(plugin) == 3
    assert plugin.calls[-1] == "stop no place for us"


def test_a_broken_invariant_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def broken(now: float) -> None:
        raise InvariantError("counters disagree")

    def start(host: PluginHost) -> None:
        monkeypatch.setattr(host.broker.vhost, "tick", broken)

        def note(code: int) -> None:
            """The test's own process must survive: note the code, end the ordinary way."""
            ended.append(code)
            host.fail("stopped by the test", 1)

        monkeypatch.setattr(os, "_exit", note)

    run(Watcher(start))
    assert ended[0] == BROKEN


def test_a_plug_in_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot load the plug-in sick"):
        load_plugins([EntryPoint("sick", "no_such_module:load", "qpidd.plugins")])
