"""Confirmed means kept: schedules that once lost confirmed messages or made two primaries, with real processes."""

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator

import pytest

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.clients import publish
from tests.acceptance.cluster import Cluster, Member, wait_started
from tests.support import programs
from tests.support.wait import wait_for, wait_logged

EXIT_TWIN = 3
"""A broker that cannot be part of its cluster (`qpidd_py.__main__`)."""


# ---- two living brokers with one identity -------------------------------------------------------------------------


@contextlib.contextmanager
def copied(cluster: Cluster, original: Member, *options: str) -> Iterator[Member]:
    """A fourth broker, started from a copy of the data directory of a living one."""
    clone = Member(cluster.directory, *original.options, *options, name="clone")
    shutil.copytree(original.data_dir, clone.data_dir, ignore=shutil.ignore_patterns("lock"))
    try:
        yield clone
    finally:
        clone.close()


def set_version(member: Member) -> int:
    return int(member.ask("ha.query")["in_sync"]["version"])


def status_of(member: Member, *words: str) -> str:
    command = [sys.executable, "-m", "ha.qpid_ha.main", "status", "-b", member.address, *words]
    return str(programs.run(command, capture_output=True, text=True, timeout=20, check=True).stdout)


def test_b6_a_clone_of_a_backup_is_refused_and_ends(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(3).start()
    primary, _, original = cluster.members
    with primary.channel() as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", range(5))
        before = set_version(primary)
        with copied(cluster, original) as clone:
            for _ in range(3):
                clone.spawn()
                assert clone.wait() == EXIT_TWIN, clone.log
                wait_logged(clone, "--new-identity", original.address)
            publish(channel, "q", range(5, 10))
            assert set_version(primary) == before
            cluster.settle()
            assert primary.status == "active"
            assert primary.log.count("has the identity") == 1, "one line, not a flood"
            (event,) = primary.events("twin")
            assert event["peer"] == "clone" and original.address in event["reason"]
            shown = status_of(primary, "-v")
            assert "Twin:" in shown and "clone" in shown and "--new-identity" in shown
            (row,) = json.loads(status_of(primary, "--json"))["twins"]
            assert row["name"] == "clone" and row["count"] == 3
            assert primary.ask("ha.query")["twins"]


def test_b6_a_clone_with_a_new_identity_is_let_in_as_a_new_member(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(3).start()
    primary, _, original = cluster.members
    with copied(cluster, original, "--new-identity") as clone:
        clone.start()
        wait_for(lambda: "its address is not known" in clone.log, what="it says why it is refused")
        primary.ask("ha.member", action="add", address=clone.address)
        clone.wait_status("ready")
        first = clone.ask("ha.query")["broker_id"]
        assert first != original.ask("ha.query")["broker_id"]
        clone.stop()
        clone.options = original.options
        clone.start().wait_status("ready")
        assert clone.ask("ha.query")["broker_id"] == first, "it was given once"
        assert "has the identity" not in primary.log
        cluster.settle()


def test_b6_a_clone_of_the_primary_is_refused_and_ends(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(3).start()
    primary = cluster.primary
    before = set_version(primary)
    with copied(cluster, primary) as clone:
        clone.spawn()
        assert clone.wait() == EXIT_TWIN, clone.log
        wait_logged(clone, "--new-identity")
    assert set_version(primary) == before and primary.status == "active"


def test_b6_no_majority_by_the_word_of_a_clone(make_cluster: Callable[..., Cluster]) -> None:
    """Of three brokers the other two are stopped: their copies do not help the primary to confirm, nor each other to
    be promoted."""
    cluster = make_cluster(3, ha_safety="quorum").start()
    primary, second, third = cluster.members
    with copied(cluster, third) as clone:
        second.kill()
        third.kill()
        clone.spawn()
        wait_started(clone)
        wait_for(lambda: primary.ask("ha.status")["stalled"], what="the primary without a majority")
        assert clone.ask("ha.query")["status"] in ("joining", "catchup", "ready")
        assert primary.ask("ha.query")["stalled"], "a broker that is on no list makes no majority"
        primary.kill()
        with pytest.raises(RequestRefused, match="needed"):
            clone.promote_once()


def test_b6_a_broker_that_returns_before_its_loss_was_noticed_is_no_clone(make_cluster: Callable[..., Cluster]) -> None:
    """Stopped, so that its link hangs; its successor waits until the link is known to be dead, and gets in."""
    cluster = make_cluster(3, link_heartbeat_interval="1").start()
    primary, _, old = cluster.members
    with copied(cluster, old) as successor:
        primary.ask("ha.member", action="add", address=successor.address)
        old.pause()
        successor.start()
        successor.wait_status("ready")
        assert "has the identity" not in primary.log
        old.resume()
        wait_for(lambda: "has the identity" in primary.log, what="the primary says so")
        assert successor.status == "ready"
        # It held everything: it keeps that, and waits for an administrator.
        wait_for(lambda: "--new-identity" in old.ask("ha.status")["advice"], what="it says so, too")
        successor.kill()
        wait_for(lambda: not old.ask("ha.status")["advice"], what="it is let in")
        cluster.settle()
