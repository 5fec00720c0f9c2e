"""What all tests share."""

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import bounds, guard, parallel, programs
from tests.support.process import BrokerProcess
from tests.support.rabbit import rabbit_cluster
from tests.support.slow import few

# Two cores shared by everything: a slow example is no failure, and one machine's luck is not another's.
EXAMPLES = few(150)
settings.register_profile("default", max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure(config: pytest.Config) -> None:
    """Processes that tests start end with this one, however it ends.  What is imported and collected, a million
    objects, is not looked at by collections of garbage, which would take a sixth of that time."""
    gc.disable()
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        guard.begin()
        bounds.register(config)


def pytest_unconfigure() -> None:
    programs.end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist
        parallel.arrange(items)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> parallel.GroupsOfFiles | None:
    return parallel.GroupsOfFiles(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def rabbit_port() -> Iterator[int]:
    """Of one RabbitMQ, for tests that use queues of their own; their files share a worker (`support/parallel.py`)."""
    with rabbit_cluster() as rabbit:
        yield rabbit.ports[0]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running stand-alone broker."""
    with BrokerProcess(tmp_path) as process:
        yield process


@pytest.fixture
def make_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., BrokerProcess]]:
    """`make_broker(*options, name=...)`: a broker that is not started yet; all are ended after the test."""
    made: list[BrokerProcess] = []

    def make(*options: str, name: str = "broker", port: int = 0) -> BrokerProcess:
        process = BrokerProcess(tmp_path, *options, name=name, port=port)
        made.append(process)
        return process

    yield make
    for process in made:
        process.close()
        print(f"---- log of {process.name} ----\n{process.log}")  # shown when the test failed
