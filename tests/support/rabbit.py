"""A RabbitMQ cluster for tests, where the server is installed."""

import contextlib
from collections.abc import Iterator

import pytest

from benchmarks.processes import BenchmarkError
from benchmarks.rabbitmq import RabbitCluster, find_server
from tests.support.system import package

ATTEMPTS = 3


@contextlib.contextmanager
def rabbit_cluster(nodes: int = 1, plugins: str = "") -> Iterator[RabbitCluster]:
    """Running; stopped whatever happens.  Skips the test where there is no server."""
    if find_server() is None:
        pytest.skip(f"rabbitmq-server is not installed (package {package('rabbitmq-server')})")
    cluster = _started(nodes, plugins)
    try:
        yield cluster
    finally:
        cluster.stop()


def _started(nodes: int, plugins: str) -> RabbitCluster:
    """It takes its ports seconds after they were found free: on a busy machine somebody else may have one by then."""
    for left in reversed(range(ATTEMPTS)):
        cluster = RabbitCluster(nodes, plugins)
        try:
            cluster.start()
            return cluster
        except BaseException as error:
            cluster.stop()
            if not left or not isinstance(error, BenchmarkError):
                raise
    raise AssertionError("unreachable")
