"""Celery over a cluster of brokers: the worker and the producers follow the primary by themselves.

The brokers come from the environment: BROKERS=amqp://user:password@node1:5672//,amqp://user:password@node2:5672//,...
docs/from-kombu-celery.md says why each setting is there.
"""

import itertools
import os
import time
from collections.abc import Iterator, Sequence

NODES = os.environ["BROKERS"].split(",")


def each_node_then_a_moment(urls: Sequence[str]) -> Iterator[str]:
    """kombu's fail-over strategy: all nodes in turn without waiting; a moment of rest when all have been asked."""
    for number, url in enumerate(itertools.cycle(urls)):
        if number and number % len(NODES) == 0:
            time.sleep(0.1)
        yield url


# Whenever kombu has been through its list it rests for two seconds, then four, ...: so the list is a long one.
broker_url = NODES * 100
broker_failover_strategy = each_node_then_a_moment
broker_connection_timeout = 1.0
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
broker_heartbeat = 2

# A task counts as sent when the broker has confirmed it; else it is sent again, to the broker that is primary then.
broker_transport_options = {"confirm_publish": True, "read_timeout": 2.0}
task_publish_retry = True
task_publish_retry_policy = {"max_retries": None, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.5}

# A task counts as done when it is done: what a worker had when the connection broke comes again.
task_acks_late = True
task_reject_on_worker_lost = True
worker_cancel_long_running_tasks_on_connection_loss = False
