"""A backup that runs 30 of every 480 ms, with real processes: confirms stop waiting for it, and it comes back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ha.model.environment import Json
from tests.acceptance.cluster import Cluster, Member
from tests.support.wait import wait_for, wait_logged

STILL = 200
"""Messages, one after the other, that are confirmed while the backup stands still."""


@contextmanager
def stuttering(member: Member) -> Iterator[None]:
    """It runs again afterwards."""
    over = threading.Event()

    def stutter() -> None:
        while not over.is_set():
            member.pause()
            over.wait(0.45)
            member.resume()
            over.wait(0.03)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def published(primary: Member) -> Iterator[list[int]]:
    """Somebody publishes message by message; the list has the number of confirmed ones."""
    over, confirmed = threading.Event(), [0]

    def publish() -> None:
        with primary.channel() as channel:
            channel.queue_declare("q")
            while not over.is_set():
                channel.basic_publish("", "q", b"x")
                confirmed[0] += 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield confirmed
    finally:
        over.set()
        thread.join()


def shown(primary: Member, member: Member) -> Json:
    return next((found for found in primary.ask("ha.query")["members"] if found["name"] == member.name), {})


def test_a_backup_that_stutters_delays_confirms_for_a_moment_only(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, link_heartbeat_interval="1", ha_slow_backup_latency="0.1").start() as cluster:
        primary, late = cluster.primary, cluster.backups[0]
        with published(primary) as confirmed:
            with stuttering(late):
                wait_for(lambda: shown(primary, late).get("late"), 60, lambda: primary.log)
                wait_for(lambda: f"{late.name} is no longer in-sync" in primary.log, 60, lambda: primary.log)
            wait_logged(primary, f"backup {late.name} is late: ")
            late.pause()
            before = confirmed[0]
            wait_for(lambda: confirmed[0] > before + STILL, 30, "confirmed without it")
            late.resume()
            wait_for(lambda: f"backup {late.name} is ready" in primary.log.split("is late", 1)[1], 60)
        cluster.settle()
        assert {*cluster.states().values()} == {"active", "ready"}
