"""A RabbitMQ cluster for tests, where the server is installed."""

import contextlib
from collections.abc import Iterator

import pytest

from benchmarks.rabbitmq import RabbitCluster, find_server
from tests.support.system import package


@contextlib.contextmanager
def rabbit_cluster(nodes: int = 1) -> Iterator[RabbitCluster]:
    """Running; stopped whatever happens.  Skips the test where there is no server."""
    if find_server() is None:
        pytest.skip(f"rabbitmq-server is not installed (package {package('rabbitmq-server')})")
    cluster = RabbitCluster(nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
