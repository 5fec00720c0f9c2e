"""RabbitMQ, a broker that stands alone, and a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import three_ways
from tests.support.rabbit import rabbit_cluster

PLUGINS = "rabbitmq_consistent_hash_exchange"


@pytest.fixture(scope="package")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """RabbitMQ's is the first."""
    members = three_ways.cluster(tmp_path_factory.mktemp("cluster"))
    try:
        with rabbit_cluster(plugins=PLUGINS) as rabbit, three_ways.alone(tmp_path_factory.mktemp("alone")) as alone:
            yield {"RabbitMQ": rabbit.ports[0], "alone": alone.port, "cluster": members.brokers["a"].port}
    finally:
        members.close()
