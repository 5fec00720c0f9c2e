"""What the tests of pika's methods share."""

import threading
import time

import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
)


def wait_for(condition, connection=None, timeout=60.0):
    """Polls `condition`, serving `connection` meanwhile."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        if connection is not None:
            connection.process_data_events(0.01)
        else:
            threading.Event().wait(0.005)


def closed_with(code):
    """Expects a channel exception with this reply code."""
    return pytest.raises(ChannelClosedByBroker, match=rf"\({code}, ")


def drain(channel, queue, **options):
    """All bodies that are there."""
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)
