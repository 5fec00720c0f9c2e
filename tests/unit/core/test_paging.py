"""Segments leave memory and come back: which, when, and what is read for what."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import psutil
import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Catchup, Engine, Queue, Route, reading, soon
from qpidd_py.errors import PageError
from tests.support.memory import MemoryClient, deliveries
from tests.support.paged import ALL, MemoryPages

if TYPE_CHECKING:
    from typing_extensions import Buffer

SEGMENT = 8192
BODY = 1000
EACH = 7
"""Messages of `BODY` octets in a segment."""


def test_an_engine_whose_messages_are_paged_goes_when_nobody_has_it() -> None:
    """Its messages hold their segments, which Python's collector does not see, and those their pool."""
    broker = Broker()
    broker.pages.everything()
    assert broker.engine.pool.paged
    gone = weakref.ref(broker.pages)
    del broker
    gc.collect()
    assert gone() is None


class Broker:
    """One queue with `number` messages."""

    def __init__(self, number: int = 70, replicated: bool = True, segment: int = SEGMENT) -> None:
        self.engine = Engine(segment_size=segment)
        self.queue = self.engine.create_queue(1, "a", replicated)
        self.client = MemoryClient(self.engine, a=self.queue)
        self.pages = MemoryPages(self.engine)
        self.published = 0
        self.publish(number)

    def publish(self, number: int, size: int = BODY) -> None:
        for _ in range(number):
            self.client.publish(b"%09d" % self.published + b"x" * (size - 9), "a")
            self.published += 1
            self.engine.end_turn()

    def taken(self) -> list[int]:
        return [int(body[:9]) for _, body, _ in deliveries(self.client.turn())]


def test_the_youngest_leave_first_and_the_open_one_stays() -> None:
    broker = Broker()
    before = broker.engine.pool.allocated
    broker.pages.out(2 * SEGMENT, young=3)
    broker.pages.written()
    pool = broker.engine.pool
    assert pool.allocated == before - 2 * SEGMENT and pool.paged and not pool.leaving
    broker.client.channel.consume(broker.queue, "c", False, 0)
    assert broker.taken() == list(range(4 * EACH)), "what is needed next is there"
    assert broker.pages.arrive()
    assert broker.taken() == list(range(4 * EACH, 70))


def test_nothing_leaves_that_the_log_still_writes_or_a_batch_refers_to() -> None:
    broker = Broker(0)
    batches: list[Batch] = []
    broker.engine.on_batch = batches.append
    broker.publish(3)
    broker.pages.out()
    broker.pages.written()
    assert not broker.engine.pool.paged
    broker.publish(EACH)
    assert not broker.pages.paging.leave(ALL, 0)
    expected = [bytes(batch) for batch in batches]
    del batches[: EACH - 1]
    assert not broker.pages.paging.leave(ALL, 0), "one batch still refers to it"
    assert [bytes(batch) for batch in batches] == expected[EACH - 1 :]
    del batches[:]
    broker.pages.everything()
    assert broker.engine.pool.paged


def test_counts_settlements_and_removals_read_nothing_back() -> None:
    broker = Broker()
    client, queue, pages = broker.client, broker.queue, broker.pages
    client.channel.consume(queue, "c", False, 20)
    assert len(broker.taken()) == 20
    pages.everything()
    client.send(Basic.Nack(3, requeue=True))
    client.send(Basic.Ack(5, multiple=True))
    client.channel.cancel("c")
    broker.engine.end_turn()
    queue.check()
    assert queue.ready + queue.unacked == 66
    broker.engine.demote()
    broker.engine.begin_epoch(1)
    assert queue.ready == 66
    assert broker.engine.purge(queue) == 66 and queue.bytes == 0
    broker.engine.end_turn()
    pages.vacate()
    assert not pages.octets and not broker.engine.pool.paged and not pages.read


def test_a_backup_applies_removals_without_reading() -> None:
    broker = Broker(0)
    backup = Engine(lambda position, payload: None, segment_size=SEGMENT)
    copy, pages = backup.create_queue(1, "a", True), MemoryPages(backup)
    broker.engine.on_batch = lambda batch: backup.apply(bytes(batch))
    broker.publish(70)
    pages.everything()
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.taken()
    broker.client.send(Basic.Ack(69, multiple=True))
    broker.engine.end_turn()
    assert copy.ready == 1 and not pages.read
    assert copy.peek(1)[0][5].startswith(b"%09d" % 69)


def test_a_consumer_waits_for_its_segment_and_finds_the_next_ones_there() -> None:
    broker = Broker()
    asked: list[int] = []
    broker.pages.paging.on_wanted = lambda: asked.append(1)
    broker.pages.paging.ahead = 2
    broker.pages.everything()
    broker.client.channel.consume(broker.queue, "c", False, 0)
    assert not broker.taken() and len(asked) == 3 and not broker.pages.read
    assert broker.pages.arrive(1)
    assert broker.taken() == list(range(EACH)), "in order, as far as they are there"
    assert broker.pages.arrive()
    assert broker.taken() == list(range(EACH, 4 * EACH))
    while broker.pages.arrive():
        broker.taken()
    assert broker.queue.ready == 0 and broker.pages.paging.waits < 5


def test_several_consumers_of_one_segment_share_one_read() -> None:
    broker = Broker(0)
    queues = [broker.engine.create_queue(2 + n, f"q{n}", True) for n in range(3)]
    broker.client.owner.routes[b"all"] = queues
    for _ in range(12):
        broker.client.publish(b"x" * BODY, "all")
    broker.client.turn()
    broker.pages.everything()
    for n, queue in enumerate(queues):
        broker.client.channel.consume(queue, f"c{n}", False, 0)
    broker.client.turn()
    while broker.pages.arrive():
        pass
    assert len(deliveries(broker.client.turn())) == 36 and broker.pages.read == 1


def test_get_is_answered_when_its_message_has_come() -> None:
    broker = Broker()
    broker.pages.everything()
    come: list[None] = []
    assert broker.client.channel.get(broker.queue, False, lambda: come.append(None)) is None
    assert not broker.pages.read and not come
    broker.pages.arrive()
    assert come and broker.client.channel.get(broker.queue, False) is True
    broker.client.turn()
    assert broker.client.channel.get(Engine().create_queue(1, "b", False), False) is False


def test_a_dead_letter_waits_for_its_message_and_letters_keep_their_order() -> None:
    broker = Broker(0)
    other = broker.engine.create_queue(2, "b", True)
    broker.queue.dead_letter = lambda reason, exchange, key, header, body: (Route([other]), exchange, key, header)
    broker.publish(10 * EACH)
    broker.pages.everything()
    broker.queue.max_count = 5 * EACH
    broker.publish(1)
    for _ in range(3):
        broker.engine.end_turn()
    assert not broker.pages.read and other.ready == 0 and broker.queue.ready == 5 * EACH
    turns: list[None] = []
    broker.engine.schedule = lambda: turns.append(None)
    broker.engine.end_turn()
    assert not turns, "no turn looks whether it has come"
    while broker.pages.arrive():
        broker.engine.end_turn()
    assert [int(body[:9]) for body in bodies(other)] == list(range(5 * EACH + 1))
    assert broker.engine.pool.at_once == 0


def test_a_limit_drops_what_its_consumer_waits_for() -> None:
    """A disk that hangs does not make a queue longer than it may be."""
    broker = Broker()
    broker.pages.everything()
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.client.turn()
    broker.queue.max_count = 10
    broker.publish(1)
    assert broker.queue.ready == 10 and broker.engine.pool.at_once == 0
    broker.pages.arrive()
    assert broker.taken() == list(range(61, 71))


@pytest.mark.parametrize("levels", [0, 3])
def test_what_is_read_from_the_side_waits_for_all_of_its_messages(levels: int) -> None:
    broker = Broker(0)
    if levels:
        broker.queue.add_levels(levels)
    for n in range(70):
        broker.client.publish(b"%09d" % n + b"x" * BODY, "a", priority=n // 5 % 3)
        broker.engine.end_turn()
    broker.pages.everything()
    found: list[int] = []
    last, come = 0, [None]
    while len(found) < 70:
        if soon(broker.queue, last, lambda: come.append(None)):
            some = reading.read(broker.queue, last + 1, ALL, 16)
            found += [int(message[6][:9]) for message in some]
            last = some[-1][0]
            broker.pages.everything()
        else:
            come.clear()
            assert broker.pages.arrive() and come
    assert found == list(range(70)) and broker.engine.pool.at_once == 0


def test_what_was_read_back_leaves_again_without_being_written() -> None:
    broker = Broker()
    broker.pages.everything()
    left = broker.pages.left
    assert len(broker.queue.peek(100)) == 70
    assert not broker.engine.pool.paged
    assert not broker.pages.paging.leave(ALL, 99)
    assert broker.engine.pool.paged and broker.pages.left == left
    assert len(broker.queue.peek(100)) == 70


def test_what_was_read_for_a_consumer_stays_longest() -> None:
    broker = Broker()
    broker.pages.everything()
    broker.client.channel.consume(broker.queue, "c", False, 1)
    broker.taken()
    broker.pages.arrive()
    broker.publish(2 * EACH)
    broker.pages.out(SEGMENT)
    broker.pages.written()
    read = broker.pages.read
    assert broker.taken() == [0] and broker.pages.read == read


def test_a_place_is_vacant_when_its_messages_are_gone_and_not_before() -> None:
    broker = Broker()
    broker.pages.everything()
    broker.queue.peek(100)
    assert not broker.pages.paging.vacated()
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.taken()
    broker.client.send(Basic.Ack(EACH - 1, multiple=True))
    broker.engine.end_turn()
    assert not broker.pages.paging.vacated(), "one message is left in it"
    broker.client.send(Basic.Ack(EACH))
    broker.engine.end_turn()
    assert len(broker.pages.paging.vacated()) == 1


def test_messages_may_go_while_their_segment_is_written_or_read() -> None:
    broker = Broker()
    broker.pages.out()
    broker.engine.purge(broker.queue)
    broker.engine.end_turn()
    broker.pages.written()
    broker.pages.vacate()
    pool = broker.engine.pool
    assert not broker.pages.octets and not pool.paged and not pool.leaving
    broker.publish(70)
    broker.pages.everything()
    broker.pages.paging.ahead = 20
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.client.turn()
    broker.pages.begin_reads()
    broker.engine.purge(broker.queue)
    broker.client.turn()
    assert not broker.pages.paging.vacated(), "a thread reads there"
    broker.pages.arrive()
    broker.pages.vacate()
    assert not pool.paged and not broker.pages.octets


def test_what_cannot_be_written_stays() -> None:
    broker = Broker()
    broker.pages.out()
    assert broker.engine.pool.leaving
    broker.pages.refused()
    assert not broker.engine.pool.leaving and not broker.engine.pool.paged
    broker.client.channel.consume(broker.queue, "c", False, 0)
    assert len(broker.taken()) == 70


def flip(pages: MemoryPages) -> None:
    for octets in pages.octets.values():
        octets[-5] ^= 1


def test_other_octets_than_were_written_are_found() -> None:
    broker = Broker()
    broker.pages.everything()
    flip(broker.pages)
    with pytest.raises(PageError, match="other octets"):
        broker.queue.peek(1)
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.client.turn()
    with pytest.raises(PageError, match="other octets"):
        broker.pages.arrive()
    assert broker.queue.ready == 70


def test_an_error_of_the_disk_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(pages: MemoryPages, place: tuple[int, ...], buffer: Buffer) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(MemoryPages, "fill", fill)
    broker = Broker()
    broker.pages.everything()
    with pytest.raises(PageError, match=r"cannot be read: .*Input/output"):
        broker.queue.peek(1)


def test_a_slice_of_the_difference_reads_a_few_segments() -> None:
    """One message of each segment is left: a slice of many octets would read them all."""
    broker = Broker(140)
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.client.turn()
    for tag in range(1, 141):
        if tag % EACH:
            broker.client.send(Basic.Ack(tag))
    broker.client.turn()
    broker.engine.pool.sparse = 1 << 40
    broker.pages.everything()
    cursor, sizes = Catchup(broker.queue, b"", broker.engine.flush()), []
    while (records := cursor.slice(1 << 20)) != b"":
        if records is None:
            assert broker.pages.arrive() and broker.pages.read <= min(4 * (len(sizes) + 1), 19)
        else:
            sizes.append(len(records))
            broker.pages.out()
    assert len(sizes) == 5 and cursor.messages == 20 and broker.engine.pool.at_once == 0


def test_a_large_message_leaves_and_comes_back() -> None:
    broker = Broker(0)
    broker.publish(1, size=10 * SEGMENT)
    broker.publish(1)
    before = broker.engine.pool.allocated
    broker.pages.everything()
    assert broker.engine.pool.allocated <= before - 10 * SEGMENT
    assert [len(message[5]) for message in broker.queue.peek(2)] == [10 * SEGMENT, BODY]


def test_names_of_purged_messages_are_read_back_from_a_few_segments() -> None:
    broker = Broker(0)
    broker.engine.on_removed = lambda: None
    for n in range(40 * EACH):
        broker.client.publish(b"x" * BODY, "a", message_id=f"m:{n}")
        broker.engine.end_turn()
    broker.pages.everything()
    broker.engine.purge(broker.queue)
    ((_, _, _, runs),) = broker.engine.removed()
    named = sum(count for _, _, count, _, _ in runs.named)
    assert broker.pages.read == 16 and 16 <= named / EACH <= 17
    assert runs.unnamed[0] + named == 40 * EACH


def test_the_head_of_a_queue_is_read_when_it_has_expired() -> None:
    broker = Broker(0)
    broker.engine.now = 1000
    for _ in range(3 * EACH):
        broker.client.publish(b"x" * BODY, "a", expiration="500")
    broker.client.turn()
    broker.pages.everything()
    for _ in range(5):
        broker.engine.tick()
        broker.pages.everything()
    assert broker.pages.read == 0
    broker.engine.now = 1501
    while broker.queue.ready:
        broker.engine.tick()
        assert broker.pages.arrive() or not broker.queue.ready
    assert broker.engine.pool.at_once == 0


def test_expired_messages_are_read_back_in_bounded_steps() -> None:
    broker = Broker(0)
    broker.engine.now = 1000
    for _ in range(100 * EACH):
        broker.client.publish(b"x" * BODY, "a", expiration="500")
        broker.engine.end_turn()
    broker.pages.everything()
    broker.engine.now = 1501
    reads = []
    while broker.queue.ready:
        broker.engine.tick()
        broker.pages.arrive()
        reads.append(broker.pages.read)
    assert len(reads) >= 3 and reads[0] <= 40 and broker.engine.pool.at_once == 0


@pytest.mark.parametrize("letters", [False, True])
def test_a_page_that_comes_after_a_demotion_makes_a_backup_decide_nothing(letters: bool) -> None:
    """A message that expires, or a dead letter, waited for it.  A backup removes nothing by itself."""
    broker = Broker(0)
    broker.engine.now = 1000
    if letters:
        dead = broker.engine.create_queue(2, "dead", True)
        broker.queue.dead_letter = lambda reason, exchange, key, header, body: (Route([dead]), exchange, key, header)
    for _ in range(3 * EACH):
        broker.client.publish(b"x" * BODY, "a", expiration="500")
    broker.client.turn()
    broker.pages.everything()
    broker.engine.now = 1501
    broker.engine.tick()
    broker.client.connection.close()
    broker.engine.flush()
    broker.engine.demote()
    batches: list[Batch] = []
    broker.engine.on_batch = batches.append
    before = broker.queue.ready
    while broker.pages.arrive():
        broker.engine.tick()
    assert before and broker.queue.ready == before and not batches


def test_resident_memory_falls() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    broker = Broker(0, segment=2 << 20)
    broker.publish(96, size=1 << 20)
    full = process.memory_info().rss
    assert full - before > 80 << 20
    broker.engine.pool.keep = 0
    for page in broker.pages.paging.leave(ALL, 0):
        page.place = (0,)
        broker.pages.paging.left(page)
    del page
    assert process.memory_info().rss - before < 16 << 20


def bodies(queue: Queue) -> list[bytes]:
    return [message[5] for message in queue.peek(1 << 20)]


@pytest.mark.parametrize("replicated", [True, False])
def test_a_sweep_leaves_alone_what_is_not_in_memory(replicated: bool) -> None:
    broker = Broker(70, replicated)
    broker.pages.everything()
    broker.client.channel.consume(broker.queue, "c", False, 0)
    while broker.pages.arrive() or broker.queue.ready:
        broker.client.turn()
    broker.client.send(Basic.Ack(60, multiple=True))
    broker.client.connection.close()
    broker.engine.end_turn()
    broker.pages.out()
    broker.engine.pool.sparse = 1
    read = broker.pages.read
    for _ in range(5):
        broker.engine.tick()
    assert broker.pages.read == read
    assert [int(body[:9]) for body in bodies(broker.queue)] == list(range(60, 70))


@pytest.mark.parametrize("replicated", [True, False])
def test_a_sweep_of_many_ticks_leaves_alone_what_leaves_meanwhile(replicated: bool) -> None:
    broker = Broker(70, replicated)
    broker.engine.flush()
    broker.client.channel.consume(broker.queue, "c", False, 0)
    broker.client.turn()
    kept = [tag for tag in range(1, 71) if tag % EACH == 0]
    for tag in range(1, 71):
        if tag not in kept:
            broker.client.send(Basic.Ack(tag))
    broker.client.connection.close()
    broker.engine.end_turn()
    broker.pages.out()
    broker.engine.pool.sparse, broker.engine.sweep_most = 1, 8
    broker.engine.tick()
    broker.pages.written()
    for _ in range(20):
        broker.engine.tick()
    assert [int(body[:9]) + 1 for body in bodies(broker.queue)] == kept
