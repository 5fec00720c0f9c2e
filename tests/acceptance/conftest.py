"""Clusters for the acceptance tests.  Each xdist worker keeps one for all tests that need no options of their
own, until it comes to other tests: three idle brokers cost a second of processor time a minute."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.cluster import Cluster, Member


@pytest.fixture(scope="package")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Three brokers, everything replicated, one active and two ready: whatever the test before did to them."""
    shared_cluster.ready()
    yield shared_cluster
    for member in shared_cluster.members:  # shown when the test failed
        print(f"---- {member.name} ----\n{member.log[-4000:]}")


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """`make_cluster(size, **options)`: a cluster that is not started yet, ended after the test."""
    made: list[Cluster] = []

    def make(size: int = 3, **options: str) -> Cluster:
        made.append(Cluster(tmp_path / f"cluster{len(made)}", size, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
        for member in cluster.members:
            print(f"---- {member.name} ----\n{member.log[-4000:]}")


@pytest.fixture
def make_alone(tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """`make_alone(name, *options)`: a broker outside a cluster, not started yet, ended after the test."""
    made: list[Member] = []

    def make(name: str, *options: str) -> Member:
        made.append(Member(tmp_path, *options, name=name))
        return made[-1]

    yield make
    for member in made:
        member.close()
        print(f"---- {member.name} ----\n{member.log[-4000:]}")
