"""Clusters that several test modules use, and a client's conversation in three ways."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import five_ways, three_ways
from tests.support.five_ways import FIVE_WAYS
from tests.support.members import Members
from tests.support.three_ways import WAYS, Client, Site


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Up: one primary, and backups that are ready."""
    found = Members(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with three_ways.alone(tmp_path_factory.mktemp("alone")) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    members = three_ways.cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield members
    finally:
        members.close()


@pytest.fixture(params=WAYS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    brokers = request.getfixturevalue("alone" if request.param == "alone" else "cluster")
    site = Site(request.param, brokers).begin()
    yield site
    site.end()


@pytest.fixture(scope="module")
def restarting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with five_ways.restarting(tmp_path_factory.mktemp("restarting")) as broker:
        yield broker


@pytest.fixture(params=FIVE_WAYS)
def one_of_five(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A module whose tests go five ways has this as its `site`."""
    fixtures = {"alone": "alone", "restart": "restarting"}
    site = five_ways.site(request.param, request.getfixturevalue(fixtures.get(request.param, "cluster")))
    yield site
    site.end()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test and way."""
    return str(request.node.name).replace("[", ".").replace("]", "")


@pytest.fixture
def client(site: Site) -> Client:
    return site.client()
