"""One queue that follows another: copies, dequeues, lost links, fail-over, other histories, the end of it."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from ha.dial import Dial
from ha.model.environment import Answer, Outcome
from ha.model.protocol import REPLICA, Kind, encode_control, encode_held, encode_merge
from ha.single_queue.follower import FollowStep, Replica, Source, renumbered
from ha.single_queue.source import ReplicaSource, Standing
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.core import Connection, Engine, Route
from qpidd_py.errors import LinkError
from tests.support.paged import MemoryPages

HEARTBEAT = 0.5


class Clock:
    """Time, and what happens in it."""

    def __init__(self):
        self.time = 0.0
        self.numbers = itertools.count()
        self.calls = []

    def after(self, delay, call):
        heapq.heappush(self.calls, (self.time + delay, next(self.numbers), call))

    def run(self, seconds):
        end = self.time + seconds
        while self.calls and self.calls[0][0] <= end:
            self.time, _, call = heapq.heappop(self.calls)
            call()
        self.time = end

    def until(self, condition, seconds=10.0):
        end = self.time + seconds
        while not condition():
            assert self.calls and self.time < end, "did not happen"
            self.time, _, call = heapq.heappop(self.calls)
            call()


class Link:
    """One end, over a real connection of the core."""

    def __init__(self, owner, broker, clock):
        self.owner, self.broker, self.clock = owner, broker, clock
        self.other = None
        self.open = True
        self.kinds = []
        self.connection = Connection(broker.engine, self, True)
        self.connection.switch_to_link(False)

    received = property(lambda self: self.connection.received)
    sent = property(lambda self: self.connection.sent)
    backlog = property(lambda self: self.connection.backlog)

    def send_frame(self, kind, position, body):
        self.kinds.append(kind)
        self.connection.send_frame(kind, position, body)

    def close(self):
        self.open = False
        self.connection.close()
        self.clock.after(0.001, self.other.lost)

    def lost(self):
        if self.open:
            self.open = False
            self.connection.close()
            self.owner.link_closed(self, "closed by the peer")

    def output_ready(self):
        data = self.connection.take_output()
        self.clock.after(0.001, lambda: self.other.feed(data))

    def feed(self, data):
        if self.open and not self.broker.paused:
            self.connection.feed(data)
            self.broker.engine.end_turn()

    def link_frame(self, kind, position, body):
        self.owner.link_frame(self, kind, position, body)

    def failed(self, channel, code, text, class_id, method_id):
        raise AssertionError(text)


class Broker:
    """A queue "q" and its follower."""

    def __init__(self, clock, net, address, id="one", slice_size=500, priorities=0):
        self.clock, self.net, self.address = clock, net, address
        self.engine = Engine(None, 1 << 16)
        self.engine.schedule = lambda: clock.after(0.0, self.engine.end_turn)
        self.queue = self.engine.create_queue(7, "q", False)
        if priorities:
            self.queue.add_levels(priorities)
        self.other = self.engine.create_queue(8, "other", False)
        self.standing = Standing(address, {0: id})
        self.alive, self.paused = True, False
        self.links = []
        self.lines = []
        self.attempts = []
        self.source = ReplicaSource(self, self.engine, self.find, lambda: self.standing, HEARTBEAT, slice_size)
        net[address] = self

    def find(self, name):
        return self.queue if name == "q" and not self.queue.deleted else None

    def publish(self, *bodies, queue=None, priority=None):
        for body in bodies:
            flags = b"\x00\x00" if priority is None else b"\x08\x00" + bytes([priority])
            header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + flags
            self.engine.publish(Route([queue or self.queue]), b"", b"q", header, body)
        self.engine.end_turn()

    def take(self, count):
        """Consume and acknowledge so many."""
        connection = Connection(self.engine, Sink(), True)
        channel = connection.open_channel(1)
        for _ in range(count):
            assert channel.get(self.queue, True)
        self.engine.end_turn()
        connection.take_output()
        self.engine.end_turn()

    def contents(self):
        self.queue.check()
        return [(item[0], item[5]) for item in self.queue.peek(1 << 20)]

    def bodies(self):
        return [body for _, body in self.contents()]

    def die(self):
        self.alive = False
        for link in self.links:
            link.open = False
            self.clock.after(0.001, link.other.lost)

    # ---- Port
    def now(self):
        return self.clock.time

    def after(self, delay, call):
        self.clock.after(delay, call)

    def log(self, level, text):
        self.lines.append(text)

    def connect(self, owner, address, dial, properties, timeout, done):
        assert properties[REPLICA]["queue"] == "q"
        self.attempts.append(self.clock.time)
        peer = self.net[address]

        def arrive():
            if not peer.alive:
                done(Answer(Outcome.REFUSED, error=f"{address}: refused"))
            elif peer.standing.refusal:
                done(Answer(Outcome.ANSWERED, error=peer.standing.refusal))
            else:
                mine, theirs = Link(owner, self, self.clock), Link(peer.source, peer, self.clock)
                mine.other, theirs.other = theirs, mine
                self.links.append(mine)
                peer.links.append(theirs)
                peer.source.accepted(theirs)
                done(mine)

        self.clock.after(0.001, arrive)


class Sink:
    def output_ready(self):
        pass


class Pair:
    """A source and a follower."""

    def __init__(self, urls="a:1", **how):
        self.clock, self.net = Clock(), {}
        self.source = Broker(self.clock, self.net, "a:1", **how)
        self.follower = Broker(self.clock, self.net, "f:1", "follower", **how)
        self.ended = []
        self.replica = self.begin(urls)

    def begin(self, urls):
        source = Source.parse(urls, Dial(Login()))
        port = self.follower
        return Replica(port, port.engine, port.queue, source, "f", HEARTBEAT, 2.0, self.ended.append)

    def follow(self):
        self.replica.start()
        self.clock.until(lambda: self.replica.step is FollowStep.FOLLOWING)

    def equal(self, source=None):
        source = source or self.source
        limit = self.clock.time + 10.0
        while self.follower.contents() != source.contents():
            assert self.clock.time < limit, "did not become equal"
            self.clock.run(0.01)
        self.clock.run(0.2)
        assert self.follower.contents() == source.contents()


@pytest.fixture
def pair():
    return Pair()


def numbered(first, last):
    return [b"m%d" % number for number in range(first, last)]


def test_what_was_there_before_what_comes_later_and_what_goes(pair):
    pair.source.publish(*numbered(0, 100))
    pair.follow()
    pair.equal()
    assert pair.follower.bodies() == numbered(0, 100)
    pair.source.publish(*numbered(100, 150))
    pair.equal()
    pair.source.take(30)
    pair.equal()
    assert pair.follower.bodies() == numbered(30, 150)
    pair.source.take(120)
    pair.equal()
    assert pair.follower.queue.ready == 0


def test_an_empty_queue_is_followed_too(pair):
    pair.follow()
    assert pair.replica.shown()["state"] == "following"
    pair.source.publish(b"x")
    pair.equal()


def test_the_first_answer_comes_when_the_source_has_let_us_in(pair):
    told = []
    pair.replica.first = lambda: told.append(pair.replica.step)
    pair.follow()
    assert told == [FollowStep.COPYING]


def test_what_the_source_cannot_read_waits(pair):
    source = pair.source
    source.publish(*[b"%04d" % number + b"x" * 8000 for number in range(30)])
    pages = MemoryPages(source.engine)
    pages.on_rot = lambda: None
    pages.paging.on_wanted = lambda: source.after(0.001, pages._all_at_once)
    pages.everything()
    pages.octets[max(pages.octets)][-5] ^= 1
    pair.replica.start()
    pair.clock.run(5.0)
    assert source.engine.pool.rotten and pair.follower.queue.ready == 0 and source.queue.ready == 30
    source.engine.purge(source.queue)
    source.publish(b"new")
    pages.paging.look_again()
    pair.equal()
    assert pair.follower.bodies() == [b"new"]


def test_messages_handed_out_and_not_acknowledged_are_copied(pair):
    pair.source.publish(*numbered(0, 5))
    connection = Connection(pair.source.engine, Sink(), True)
    channel = connection.open_channel(1)
    channel.get(pair.source.queue, False)
    assert pair.source.queue.unacked == 1
    pair.follow()
    pair.equal()
    assert pair.follower.bodies() == numbered(0, 5)


def test_priorities():
    pair = Pair(priorities=3)
    for priority in (0, 3, 1, 2, 3, 0):
        pair.source.publish(b"p%d" % priority, priority=priority)
    pair.follow()
    pair.equal()
    pair.source.publish(b"urgent", priority=3)
    pair.equal()
    assert pair.follower.bodies() == [b"p3", b"p3", b"urgent", b"p2", b"p1", b"p0", b"p0"]
    pair.source.take(3)
    pair.equal()


def test_a_lost_link_costs_the_difference_only(pair):
    pair.source.publish(*numbered(0, 200))
    pair.follow()
    pair.equal()
    link = pair.source.links[-1]
    slices = link.kinds.count(Kind.SLICE)
    assert slices > 10
    link.close()
    pair.source.publish(*numbered(200, 203))
    pair.source.take(10)
    pair.clock.until(lambda: pair.replica.step is not FollowStep.FOLLOWING)
    pair.equal()
    again = pair.source.links[-1]
    assert again is not link
    assert again.kinds.count(Kind.SLICE) == 1
    assert pair.follower.bodies() == numbered(10, 203)


def test_it_follows_through_two_fail_overs():
    """Ids of the same history: the survivor has the same messages, later ones are of a higher epoch."""
    pair = Pair("a:1,b:1,c:1")
    others = [Broker(pair.clock, pair.net, address) for address in ("b:1", "c:1")]
    cluster = [pair.source, *others]
    for broker in cluster:
        broker.standing = Standing(broker.address, {1: "a"}, "" if broker is pair.source else "is a backup")
        broker.engine.begin_epoch(1)
        broker.publish(*numbered(0, 50))
    pair.follow()
    pair.equal()
    for epoch, (old, new) in enumerate(itertools.pairwise(cluster), 2):
        old.publish(b"never safe")
        pair.clock.run(0.1)
        old.die()
        new.engine.begin_epoch(epoch)
        new.standing = Standing(new.address, {**old.standing.lineage, epoch: new.address})
        new.publish(b"epoch %d" % epoch)
        new.take(5)
        pair.equal(new)
        assert b"never safe" not in pair.follower.bodies()
        for broker in cluster[epoch:]:
            broker.publish(b"epoch %d" % epoch)
            broker.take(5)
    assert pair.replica.shown()["address"] == "c:1"


def test_a_deposed_source_sends_its_followers_away():
    pair = Pair("a:1,b:1")
    other = Broker(pair.clock, pair.net, "b:1")
    other.standing = Standing("b:1", {0: "one"}, "is a backup")
    pair.source.publish(b"x")
    pair.follow()
    pair.equal()
    other.publish(b"x", b"y")
    other.standing = Standing("b:1", {0: "one"})
    pair.source.standing = Standing("a:1", {0: "one"}, "is a backup now")
    pair.equal(other)
    assert pair.replica.shown()["address"] == "b:1"


def test_a_backup_names_the_primary():
    """The URL has one member only, and that is a backup now."""
    pair = Pair("a:1")
    other = Broker(pair.clock, pair.net, "b:1")
    other.publish(b"x", b"y")
    pair.source.standing = Standing("a:1", {0: "one"}, "a is a backup (ready); the primary is b:1")
    pair.follow()
    pair.equal(other)
    assert pair.replica.shown()["address"] == "b:1"


def test_two_that_name_each_other_are_not_asked_without_end():
    pair = Pair("a:1")
    other = Broker(pair.clock, pair.net, "b:1")
    pair.source.standing = Standing("a:1", {0: "one"}, "a is a backup; the primary is b:1")
    other.standing = Standing("b:1", {0: "one"}, "b is a backup; the primary is a:1")
    pair.replica.start()
    pair.clock.run(60.0)
    assert 40 < len(pair.follower.attempts) < 100
    assert pair.replica.step is FollowStep.SEARCHING


def test_ids_of_another_history_are_dropped_before_they_are_compared(pair):
    """The source was started anew: it gives the same ids to other messages."""
    pair.source.publish(*numbered(0, 20))
    pair.follow()
    pair.equal()
    pair.source.die()
    fresh = Broker(pair.clock, pair.net, "a:1", "another")
    fresh.publish(*(b"new%d" % number for number in range(10)))
    assert {id for id, _ in fresh.contents()} & {id for id, _ in pair.follower.contents()}
    pair.equal(fresh)


def test_a_source_that_hangs_is_given_up(pair):
    pair.source.publish(b"x")
    pair.follow()
    pair.source.paused = True
    pair.source.die()
    pair.clock.until(lambda: pair.replica.step is FollowStep.SEARCHING, 3.0)
    assert pair.replica.shown()["error"]
    fresh = Broker(pair.clock, pair.net, "a:1")
    fresh.publish(b"x")
    pair.equal(fresh)
    assert "error" not in pair.replica.shown()


def test_a_follower_that_hangs_is_given_up(pair):
    pair.source.publish(b"x")
    pair.follow()
    pair.follower.paused = True
    pair.clock.calls = [item for item in pair.clock.calls if item[2].__qualname__ != "Replica._tick"]
    pair.clock.until(lambda: not len(pair.source.source), 3.0)
    assert any("silent" in line for line in pair.source.lines)


def test_the_end_by_deletion_at_the_source(pair):
    pair.source.publish(*numbered(0, 10))
    pair.follow()
    pair.equal()
    pair.source.engine.delete_queue(pair.source.queue)
    pair.clock.until(lambda: bool(pair.ended))
    assert pair.replica.step is FollowStep.ENDED
    assert "was deleted" in pair.replica.reason
    assert pair.follower.bodies() == numbered(0, 10)


def test_a_source_without_the_queue_ends_it_at_once(pair):
    pair.source.engine.delete_queue(pair.source.queue)
    told = []
    pair.replica.first = lambda: told.append(pair.replica.reason)
    pair.replica.start()
    pair.clock.until(lambda: bool(pair.ended))
    assert told == ["a:1 has no queue 'q'"]


def test_the_end_by_deletion_of_the_replica(pair):
    pair.follow()
    pair.follower.engine.delete_queue(pair.follower.queue)
    pair.source.publish(b"x")
    pair.clock.until(lambda: bool(pair.ended))
    assert pair.replica.reason == "the queue was deleted here"
    pair.clock.until(lambda: not len(pair.source.source))


def test_after_a_stop_the_queue_is_an_ordinary_one(pair):
    pair.follower.publish(*numbered(0, 3), queue=pair.follower.other)
    pair.source.publish(*numbered(0, 50))
    pair.follow()
    pair.equal()
    pair.replica.stop()
    assert pair.ended == [pair.replica]
    pair.follower.publish(b"local")
    pair.follower.take(10)
    assert pair.follower.bodies() == [*numbered(10, 50), b"local"]
    pair.source.publish(b"not for us")
    pair.clock.run(3.0)
    assert pair.follower.bodies() == [*numbered(10, 50), b"local"]
    assert not len(pair.source.source)


def test_the_local_log_never_goes_back(pair):
    pair.follower.publish(*numbered(0, 500), queue=pair.follower.other)
    pair.source.publish(*numbered(0, 5))
    pair.follow()
    pair.replica.stop()
    assert pair.follower.engine.sequence == 500


def test_unreachable_brokers_are_tried_ever_more_rarely():
    pair = Pair("a:1,b:1")
    other = Broker(pair.clock, pair.net, "b:1")
    pair.source.alive = other.alive = False
    told = []
    pair.replica.first = lambda: told.append(pair.clock.time)
    attempts = pair.follower.attempts
    pair.replica.start()
    pair.clock.run(60.0)
    assert told
    assert told[0] < 0.1
    assert 40 < len(attempts) < 90
    assert attempts[-1] - attempts[-3] == pytest.approx(2.0, abs=0.1)
    other.alive = True
    other.publish(b"x")
    pair.equal(other)


@pytest.mark.parametrize("seed", range(30))
def test_random_histories_end_equal(seed):
    rng = random.Random(seed)
    pair = Pair(priorities=rng.choice([0, 0, 2]))
    pair.follow()
    for _ in range(60):
        what = rng.random()
        if what < 0.5:
            priority = rng.choice([None, 0, 1, 2])
            pair.source.publish(*(bytes(rng.randrange(300)) for _ in range(rng.randrange(10))), priority=priority)
            pair.source.publish(b"elsewhere", queue=pair.source.other)
        elif what < 0.85:
            pair.source.take(min(pair.source.queue.ready, rng.randrange(12)))
        elif what < 0.9:
            pair.source.links[-1].close()
        elif what < 0.95:
            pair.source.engine.purge(pair.source.queue)
            pair.source.engine.end_turn()
        pair.clock.run(rng.choice([0.0, 0.001, 0.003, 0.03, 0.3]))
    pair.equal()


def test_a_busy_queue_is_not_walked_over_all_the_time(pair, monkeypatch):
    """A pass that takes long is followed by a rest."""
    pair.source.publish(*numbered(0, 200))
    pair.follow()
    passes = []
    begin = ReplicaSource._begin

    def counted(source, feed):
        passes.append(feed)
        begin(source, feed)

    monkeypatch.setattr(ReplicaSource, "_begin", counted)
    for _ in range(200):
        pair.source.publish(*(bytes(100) for _ in range(3)))
        pair.clock.run(0.005)
    assert len(passes) < 55
    pair.equal()


# ---- the protocol


def test_a_source_as_text():
    assert Source.parse("h:1,i", Dial(Login("u", "p"))) == Source(("h:1", "i:5672"), Dial(Login("u", "p")))
    assert Source.parse("amqp://me/secret@h:1,[::1]:2", Dial(Login())) == Source(
        ("h:1", "[::1]:2"), Dial(Login("me", "secret"))
    )
    assert str(Source.parse("me/secret@h:1", Dial(Login()))) == "h:1"
    for wrong in ("", "none", "me@", "h:x"):
        with pytest.raises(ValueError, match="list"):
            Source.parse(wrong, Dial(Login()))


def test_slices_are_checked():
    pair = Pair()
    pair.source.publish(b"one", b"two")
    pair.follow()
    with pytest.raises(LinkError):
        renumbered(b"\0" * 10, 1)
    with pytest.raises(LinkError):
        renumbered(b"\x18\0\0\0\x02\0\x01\0" + bytes(16), 1)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.SLICE, b"rubbish"),
        (Kind.DROP, b"\0\0\0\0\xff"),
        (Kind.CONTROL, b"rubbish"),
        (Kind.CONTROL, encode_control("welcome")),
        (Kind.HELD, encode_held(0, 0, b"")),
    ],
)
def test_a_source_that_breaks_the_protocol_costs_the_link_only(pair, kind, body):
    pair.source.publish(*numbered(0, 5))
    pair.follow()
    link = pair.source.links[-1]
    link.send_frame(kind, 0, body)
    pair.source.engine.end_turn()
    pair.clock.until(lambda: not link.open)
    pair.source.publish(b"m5")
    pair.equal()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.MERGE, encode_merge(0)),
        (Kind.CREDIT, b""),
        (Kind.CONTROL, encode_control("follow", version=1, queue="q")),
        (Kind.HELD, encode_held(0, 0, b"")),
    ],
)
def test_a_follower_that_breaks_the_protocol_costs_the_link_only(pair, kind, body):
    pair.source.publish(*numbered(0, 5))
    pair.follow()
    pair.clock.run(0.1)
    link = pair.follower.links[-1]
    link.send_frame(kind, 0, body)
    pair.follower.engine.end_turn()
    pair.clock.until(lambda: not link.open)
    pair.source.publish(b"m5")
    pair.equal()
