"""Who reads messages for others and meets one that cannot be read back: `ha.backup`, the replication of a single queue,
a carry of the journal, browsing."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ha.archive.copying import Copying
from ha.backup.salvager import Salvager
from qpidd_py.core import Catchup, Engine, decode_ids
from qpidd_py.errors import AmqpError, LinkError, ReplyCode
from qpidd_py.management.patience import Reading, in_memory
from qpidd_py.management.request import RequestError
from qpidd_py.store.carry import Carry
from tests.support.paged import MemoryPages
from tests.unit.ha.test_archive_round_trip import Site

NUMBER = 30
BODY = b"x" * 400


class RottenSite(Site):
    """The queue `q`, of which the first messages cannot be read back."""

    def __init__(self) -> None:
        engine = Engine(segment_size=4096)
        super().__init__(engine)
        self.pages = MemoryPages(engine)
        self.pages.on_rot = lambda: None
        self.core = self.queue("q")
        for number in range(NUMBER):
            self.publish(self.core, b"%09d" % number + BODY)
        engine.end_turn()
        engine.flush()
        self.pages.everything()
        self.pages.octets[max(self.pages.octets)][-5] ^= 1

    def come(self) -> None:
        while self.pages.arrive():
            pass


@pytest.fixture
def site() -> RottenSite:
    return RottenSite()


def test_a_backup_of_the_content_is_refused_with_the_reason(site: RottenSite) -> None:
    id = site.backup("begin", messages=True)["id"]
    assert site.backup("next", id=id)["messages"] == [], "it is not known yet"
    site.come()
    with pytest.raises(LinkError, match="a message of queue q cannot be read back"):
        site.backup("next", id=id)
    with pytest.raises(LinkError, match="no backup"):
        site.backup("next", id=id)
    assert site.backup("begin", messages=False), "one of the configuration alone is made"


def test_a_browser_is_refused_with_the_reason(site: RottenSite) -> None:
    steps: Iterator[Reading] = in_memory(site.core, 0)
    assert next(steps)
    site.come()
    with pytest.raises(RequestError, match="a message of queue q cannot be read back"):
        next(steps)


def test_a_carry_waits_and_goes_on_when_they_have_left(site: RottenSite) -> None:
    went_on: list[Carry] = []
    engine = site.broker.engine
    carry = Carry(engine, 1, 1, engine.position, went_on.append)
    assert carry.slice() is None
    site.come()
    assert went_on == [carry] and carry.slice() is None and carry.waits
    site.pages.paging.look_again()
    assert len(went_on) == 2 and carry.slice() is None
    engine.purge(site.core)
    engine.end_turn()
    site.pages.paging.look_again()
    assert len(went_on) == 3 and carry.slice() == b""


def test_the_pass_of_a_follower_waits(site: RottenSite) -> None:
    """As `single_queue/source.py` reads a queue: what is in front of the hole has been sent, the rest waits."""
    called: list[None] = []
    work = Catchup(site.core, b"", site.broker.engine.sequence, lambda: called.append(None))
    assert work.slice(1 << 20) is None
    site.come()
    assert called and work.slice(1 << 20) is None and work.rotten and work.messages == 0


def test_what_a_follower_holds_is_not_read(site: RottenSite) -> None:
    Catchup(site.core, b"", site.broker.engine.sequence).slice(1 << 20)
    site.come()
    held = site.core.rotten()
    work = Catchup(site.core, held, site.broker.engine.sequence)
    while (records := work.slice(1 << 20)) != b"":
        if records is None:
            site.come()
    missing = sum(high - low + 1 for low, high in decode_ids(held))
    assert missing and work.messages == NUMBER - missing


def test_a_queue_whose_messages_cannot_be_sent_on_is_not_deleted(site: RottenSite) -> None:
    vhost = site.broker.vhost
    vhost.declare_exchange("else", "fanout", True, False, False, {})
    for name, arguments in (("plain", {}), ("kept", {"alternate-exchange": "else"})):
        core = site.queue(name, **arguments)
        for number in range(NUMBER):
            site.publish(core, b"%09d" % number + BODY)
    site.broker.engine.flush()
    site.pages.everything()
    for octets in site.pages.octets.values():
        octets[-5] ^= 1
    for queue in list(vhost.queues.values()):
        list(zip(range(3), in_memory(queue.core, 0), strict=False))
    site.come()
    with pytest.raises(AmqpError, match="has messages that cannot be read, and have to be sent on") as refused:
        vhost.delete_queue(None, "kept", False, False)
    assert refused.value.reply_code == ReplyCode.RESOURCE_ERROR and "kept" in vhost.queues
    vhost.delete_queue(None, "plain", False, False)
    assert "plain" not in vhost.queues


def test_salvage_does_not_wait_for_what_it_does_not_put_aside(site: RottenSite) -> None:
    """The last message of a range is followed by one that cannot be read.  A segment has 8 messages, the last one 6."""
    (low, high), *_ = decode_ids(site.core.held())
    salvager: Any = Salvager.__new__(Salvager)
    salvager._promises = SimpleNamespace(grade=lambda id: None)
    salvager._waits, salvager._file = False, None
    salvager._local = SimpleNamespace(lineage={0: SimpleNamespace(leader="a")})
    site.pages.paging.ahead = 0
    site.pages.octets[max(site.pages.octets)][-5] ^= 1
    site.pages.octets[min(site.pages.octets)][-5] ^= 1
    records, asked = salvager._messages(site.core, low, high - 6 - 8), list[int]()
    while (record := next(records, "end")) != "end":
        if record is None:
            asked.append(site.pages.read)
            site.come()
    assert asked and not site.broker.engine.pool.rotten, "the last page is not asked for"


@pytest.mark.parametrize("seed", [88, 119, 257, *range(10)])
def test_a_copy_has_every_message_once(seed: int) -> None:
    """Messages come, leave memory and are read back at any moment.  (Those of the first three seeds came while the last
    slice waited, and were copied with it and with the next pass.)"""
    rng, site = Random(seed), RottenSite()
    site.pages.octets[max(site.pages.octets)][-5] ^= 1
    copy = Copying(site.broker, True, 0.0)
    found, position, left = list[int](), 0, 2000
    while not copy.ended and left:
        left -= 1
        if left > 1600 and rng.random() < 0.3:
            for _ in range(rng.choice((1, 1, 9, 20))):
                site.publish(site.core, b"%09d" % left + BODY)
                site.broker.engine.end_turn()
            site.broker.engine.flush()
        if rng.random() < 0.5:
            answer = copy.next()
            position = answer.get("position", position)
            found += [message[1] for message in answer.get("messages", ())]
        if rng.random() < 0.7:
            site.pages.everything()
        if rng.random() < 0.5:
            site.pages.arrive(1)
    held = [id for low, high in decode_ids(site.core.held()) for id in range(low, high + 1) if id <= position]
    assert copy.ended and sorted(found) == held
    assert site.broker.engine.pool.at_once == 0, "the loop does not wait for a disk"
