"""Restoring an archive: who can close a cluster for its clients."""

from __future__ import annotations

import pytest

from ha.archive.restoring import MARKER, RestoreDoor, Restoring
from qpidd_py.broker.broker import Broker
from qpidd_py.errors import ChannelException
from qpidd_py.store.archive import DECLARE_QUEUE, ArchiveError


def door(broker: Broker) -> RestoreDoor:
    return RestoreDoor(broker, lambda: "", lambda *line: None)


def test_a_client_cannot_close_the_cluster_by_a_name() -> None:
    """It could: while a queue of that name is there, no client is admitted."""
    broker = Broker("b")
    with pytest.raises(ChannelException, match="reserved prefix"):
        broker.vhost.declare_queue(object(), MARKER, True, False, False, {})
    assert door(broker).closed == ""


def test_an_archive_cannot_either() -> None:
    restoring = Restoring(Broker("b"))
    queue = {"op": DECLARE_QUEUE, "name": MARKER, "durable": True, "auto_delete": False, "arguments": {}}
    with pytest.raises(ArchiveError, match="was being restored"):
        restoring._object(queue)


def test_an_object_that_lacks_a_field_is_refused_in_words() -> None:
    with pytest.raises(ArchiveError, match=r"an object of the archive \(queue.declare\) lacks 'durable'"):
        Restoring(Broker("b"))._restore({"op": DECLARE_QUEUE, "name": "q", "arguments": {}})
