"""What is put aside of the messages that a joining broker gives up: the choice, and the conversation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.header import ContentHeader

from ha.backup.backup import Backup
from ha.backup.joining import JoinStep
from ha.model.difference import Lineage, Origin, lineage_from_json, lineage_to_json
from ha.model.position import make
from ha.model.salvaged import Grade, Header, Record
from ha.model.status import State
from ha.salvage.files import NoSalvage
from ha.salvage.lines import (
    SalvageError,
    decode_header,
    decode_record,
    encode_header,
    encode_record,
    is_end,
    recovered_header,
)
from ha.salvage.selection import Promises, suspects
from qpidd_py.amqp.fields import decode_table
from qpidd_py.errors import LinkError
from tests.support.memory import publish_octets
from tests.support.slow import few
from tests.unit.ha.world import Host, Publisher, World

# ---- the choice: a model in which every broker knows its whole history ---------------------------------------------


@dataclass
class Model:
    """One broker: its log is every id that it has ever had in its present history."""

    id: str
    lineage: Lineage = field(default_factory=dict)
    log: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    whole: bool = True
    """Its log has no holes up to `position`."""
    position: int = 0
    safe: int = 0
    acknowledged: int = 0
    led: set[int] = field(default_factory=set)


class Brokers:
    """Four brokers, and what the steps of a random schedule do to them."""

    def __init__(self) -> None:
        self.brokers = [Model(id) for id in "abcd"]
        self.epoch = 0
        self.confirmed: set[int] = set()
        self.promote(0)
        for number in range(4):
            self.join(number)

    @property
    def primary(self) -> Model:
        return self.brokers[self.leading]

    def promote(self, number: int) -> None:
        self.leading = number
        broker = self.brokers[number]
        self.epoch += 1
        base = broker.position if broker.whole and self.epoch > 1 else 0
        broker.lineage = {**broker.lineage, self.epoch: Origin(broker.id, base)}
        broker.position = make(self.epoch, broker.position & 0xFFFF)
        broker.whole = True
        broker.led.add(self.epoch)
        self.following: set[int] = set()

    def publish(self, receivers: set[int], confirm: bool) -> None:
        """One message, which the primary sends to some that follow it; they answer for it.  The others are lost."""
        primary = self.primary
        id = primary.position = primary.position + 1
        self.following &= receivers
        for broker in [primary, *(self.brokers[n] for n in self.following)]:
            broker.log |= {id}
            broker.held |= {id}
            broker.position = id
            if broker is not primary and broker.whole:
                broker.acknowledged = id
        if confirm:
            primary.safe = primary.position
            self.confirmed |= {id}

    def consume(self, choice: int) -> None:
        held = sorted(self.primary.held)
        if held:
            gone = held[choice % len(held)]
            for broker in [self.primary, *(self.brokers[n] for n in self.following)]:
                broker.held -= {gone}

    def restart(self, number: int) -> None:
        """Its memory is gone."""
        if number != self.leading:
            self.brokers[number] = Model(self.brokers[number].id, whole=False)
            self.following -= {number}

    def join(self, number: int) -> None:
        """It becomes what the primary is."""
        broker, primary = self.brokers[number], self.primary
        if broker is primary:
            return
        broker.lineage, broker.log, broker.held = dict(primary.lineage), primary.log, primary.held
        broker.whole, broker.position = True, primary.position
        broker.acknowledged = primary.position
        self.following |= {number}


def chosen(broker: Model, primary: Model) -> set[int]:
    """What `ha.backup.salvager` puts aside in this model."""
    promises = Promises(frozenset(broker.led), broker.safe, broker.acknowledged)
    found = suspects(broker.lineage, primary.lineage, broker.position >> 48, promises)
    ids = {id for id in broker.held for low, high, _ in found if low <= id <= high}
    return ids - primary.held


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sets(st.integers(0, 3)), st.booleans()),
        st.tuples(st.just("consume"), st.integers(0, 9)),
        st.tuples(st.just("promote"), st.integers(0, 3)),
        st.tuples(st.just("join"), st.integers(0, 3)),
    ),
    max_size=40,
)


def run(brokers: Brokers, steps: list[tuple]) -> None:
    for step, *arguments in steps:
        getattr(brokers, step)(*arguments)


@settings(max_examples=few(400))
@given(STEPS)
def test_after_promotions_of_whole_brokers_exactly_what_was_never_in_the_log_is_put_aside(steps: list[tuple]) -> None:
    brokers = Brokers()
    run(brokers, steps)
    primary = brokers.primary
    for broker in brokers.brokers:
        promised = {id for id in broker.held if id <= max(broker.safe, broker.acknowledged)}
        assert chosen(broker, primary) == {id for id in promised if id not in primary.log}


@settings(max_examples=few(400))
@given(st.lists(st.one_of(STEPS.map(tuple), st.integers(0, 3)), max_size=6))
def test_no_confirmed_message_is_lost_whichever_broker_is_promoted(parts: list[tuple | int]) -> None:
    """With brokers that have lost their memory, too: what is confirmed and lives in a joining broker only is chosen."""
    brokers = Brokers()
    for part in parts:
        brokers.restart(part) if isinstance(part, int) else run(brokers, list(part))
    for broker in brokers.brokers:
        lost = broker.held & brokers.confirmed - brokers.primary.log
        assert lost - brokers.primary.held <= chosen(broker, brokers.primary)


LED = frozenset({1})


def test_a_message_of_its_own_that_was_never_safe_is_not_put_aside() -> None:
    mine, theirs = {1: Origin("a")}, {1: Origin("a"), 2: Origin("b", make(1, 5))}
    assert suspects(mine, theirs, 1, Promises(LED, make(1, 5), 0)) == []
    assert suspects(mine, theirs, 1, Promises(LED, make(1, 7), 0)) == [(make(1, 6), make(1, 7), False)]


def test_after_a_gamble_what_anybody_got_from_others_is_suspect() -> None:
    mine, theirs = {1: Origin("a")}, {2: Origin("b")}
    (suspect,) = suspects(mine, theirs, 1, Promises(frozenset(), 0, 0))
    assert (suspect.low, suspect.high >= make(1, 1 << 40), suspect.foreign) == (make(1, 0), True, True)
    assert suspects(mine, theirs, 1, Promises(LED, 0, 0)) == []


def test_who_was_complete_after_the_gamble_has_nothing_left_to_give() -> None:
    theirs = {1: Origin("a"), 2: Origin("b"), 3: Origin("c", make(2, 9))}
    mine = {1: Origin("a"), 2: Origin("b")}
    assert suspects(mine, theirs, 2, Promises(frozenset(), 0, make(2, 9))) == []
    assert suspects(mine, theirs, 1, Promises(frozenset(), 0, make(2, 9)))[0].low == make(1, 0)


def test_grades() -> None:
    promises = Promises(LED, make(2, 5), make(1, 9))
    ids = make(2, 5), make(2, 6), make(1, 9)
    assert [promises.grade(id) for id in ids] == [Grade.CONFIRMED, Grade.RECEIVED, Grade.CONFIRMED]
    assert Promises(LED, 0, 7).grade(7) is Grade.ACKNOWLEDGED


# ---- lines -----------------------------------------------------------------------------------------------------------

RECORDS = st.builds(
    Record,
    st.text("abc"),
    st.integers(0, 1 << 60),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(Grade),
    st.booleans(),
    st.integers(0, 1 << 62),
    *(st.binary(max_size=60) for _ in range(4)),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    line = encode_record(record)
    assert line.count(b"\n") == 1
    assert decode_record(line) == record
    assert not is_end(line)


def test_a_header_comes_back_as_it_was() -> None:
    header = Header("node1", "abc", "node2", 7, 12)
    assert decode_header(encode_header(header, "2026-11-21T07:00:00Z")) == (header, "2026-11-21T07:00:00Z")


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"salvage":99}', b'{"salvage":1,"time":"t","broker":"a"}'])
def test_what_is_no_header(line: bytes) -> None:
    with pytest.raises(SalvageError):
        decode_header(line)


@given(RECORDS, st.data())
def test_what_is_no_record(record: Record, data: st.DataObject) -> None:
    line = encode_record(record)
    for torn in (line[: data.draw(st.integers(0, len(line) - 3))], b"7\n", b'{"id":"99999999.1"}\n'):
        with pytest.raises(SalvageError):
            decode_record(torn)
    value = json.loads(line)
    del value[data.draw(st.sampled_from(sorted(value)))]
    with pytest.raises(SalvageError):
        decode_record(json.dumps(value).encode())


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"headers": {"k": "v", "n": 1}},
        {"headers": {}, "delivery_mode": 2},
        {"content_type": "text/plain", "content_encoding": "gzip", "headers": {"k": [1]}, "message_id": "m1"},
        {"message_id": "m1", "priority": 3, "correlation_id": "c"},
    ],
)
def test_a_recovered_header_says_where_the_message_was(properties: dict) -> None:
    # method frame, then the header frame: type, channel and length (7 octets), payload, end
    octets = publish_octets(b"body", "q", **properties)
    start = 8 + int.from_bytes(octets[3:7], "big")
    header = octets[start + 7 : start + 7 + int.from_bytes(octets[start + 3 : start + 7], "big")]
    record = Record("id-a", make(3, 9), "q", Grade.CONFIRMED, False, 0, b"x", b"\xff", header, b"body")
    found = ContentHeader()
    found.unmarshal(recovered_header(record, "node1", 1_800_000_000))
    told: Any = found.properties.headers.pop("x-recovered")
    assert (told["id"], told["broker"], told["exchange"]) == ("3.9", "node1", "x")
    expected = {"headers": {}, **properties}
    assert {name: getattr(found.properties, name) for name in expected} == expected
    assert found.body_size == 4
    if not properties:
        table, _ = decode_table(recovered_header(record, "node1", 5), 14)
        assert table["x-recovered"]["time"] == 5


# ---- the conversation ------------------------------------------------------------------------------------------------


def kept(host: Host) -> list[tuple[str, bytes, str]]:
    """(queue, body, grade) of everything that was put aside."""
    return sorted((r.queue, r.body, r.grade.value) for file in host.salvaged for r in file.records)


def overtaken(slice_size: int = 1 << 17) -> World:
    """a has confirmed m0 to m9 alone, while b and c have m0 to m4 only, and then b was promoted."""
    world = World(safety="availability", slice_size=slice_size)
    world.cluster()
    world["a"].configuration.declare("q")
    world["a"].configuration.declare("other")
    client = Publisher(world["a"])
    for number in range(5):
        client.publish("q", b"m%d" % number)
    world.until(lambda: client.confirmed == 5)
    world.cut("a", "b", "c")
    world.until(lambda: len(world["a"].node.local.persisted.in_sync.members) == 1)
    for number in range(5, 10):
        client.publish("q", b"m%d" % number)
    client.publish("other", b"too")
    world.until(lambda: client.confirmed == 11)
    world.pause("a")
    world.heal()
    world.promote("b")
    world.until(lambda: world["c"].state is State.READY)
    return world


def follows(host: Host, step: JoinStep) -> bool:
    return isinstance(host.node.role, Backup) and host.node.role.step is step


def backup(host: Host) -> Backup:
    assert isinstance(host.node.role, Backup)
    return host.node.role


def joined(world: World, name: str = "a", primary: str = "") -> None:
    def done() -> bool:
        if not follows(host, JoinStep.FOLLOWING) or host.state is not State.READY or not host.node.local.whole:
            return False
        return primary in ("", str(backup(host).leader))

    host = world[name]
    world.until(done)


def test_what_an_overtaken_primary_has_confirmed_is_put_aside() -> None:
    world = overtaken()
    world.resume("a")
    joined(world)
    a = world["a"]
    assert kept(a) == [("other", b"too", "confirmed"), *(("q", b"m%d" % n, "confirmed") for n in range(5, 10))]
    assert [file.finished for file in a.salvaged] == [True]
    header = a.salvaged[0].header
    assert (header.broker, header.primary, header.epoch, header.messages) == ("a", "b", 2, 6)
    assert a.contents("q") == world["b"].contents("q") == [b"m%d" % n for n in range(5)]
    (event,) = [fields for kind, fields in a.events if kind == "salvage"]
    assert event["attrs"] == {"count": 6, "octets": event["attrs"]["octets"], "file": "2-a", "confirmed": 6}
    assert any("6 messages that b does not have are put aside" in line for line in world.lines)


def test_what_was_consumed_after_the_fail_over_is_not_put_aside() -> None:
    world = World()
    world.cluster()
    world["a"].configuration.declare("q")
    client = Publisher(world["a"])
    for number in range(10):
        client.publish("q", b"m%d" % number)
    world.until(lambda: client.confirmed == 10)
    world.run(0.1)
    world.pause("a")
    world.promote("b")
    world["b"].engine.purge(world["b"].configuration.queues["q"][0])
    world["b"].engine.end_turn()
    world.resume("a")
    joined(world)
    assert world["a"].contents("q") == []
    assert world["a"].salvaged == []


def test_queues_that_are_gone_at_the_primary_are_searched_too() -> None:
    world = overtaken()
    world["b"].configuration.delete("other")
    world["b"].configuration.delete("q")
    world["b"].engine.end_turn()
    world.resume("a")
    joined(world)
    assert len(kept(world["a"])) == 6


def test_dequeues_that_arrive_live_take_nothing_along() -> None:
    """The primary's dequeues name whole ranges of ids: what only the backup holds lies between them."""
    world = overtaken(slice_size=1024)
    client = Publisher(world["b"])
    for number in range(20, 60):
        client.publish("q", b"m%d" % number * 100)
    world.resume("a")
    world.until(lambda: follows(world["a"], JoinStep.SYNCING))
    world["b"].engine.purge(world["b"].configuration.queues["q"][0])
    world["b"].engine.end_turn()
    joined(world)
    assert len(kept(world["a"])) == 6
    assert world["a"].contents("q") == []


def test_a_full_disk_keeps_the_broker_outside_and_its_messages_in_memory() -> None:
    world = overtaken()
    a = world["a"]
    a.disk_room = 3
    world.resume("a")
    world.until(lambda: any(kind == "salvage" for kind, _ in a.events))
    world.run(10.0)
    assert a.state is not State.READY
    assert len(a.contents("q")) == 10
    assert [fields["result"] for kind, fields in a.events if kind == "salvage"] == ["failed"]
    assert a.node.advice().startswith("it does not join b: what only it may hold cannot be written")
    a.disk_room = None
    joined(world)
    assert [len(file.records) for file in a.salvaged] == [6]
    assert a.node.advice() == ""


def test_without_a_place_for_files_the_loss_is_said() -> None:
    world = overtaken()
    a = world["a"]
    a.salvage = lambda header: NoSalvage()  # type: ignore[method-assign, assignment, return-value]
    world.resume("a")
    joined(world)
    (event,) = [fields for kind, fields in a.events if kind == "salvage"]
    assert (event["result"], event["attrs"]["count"]) == ("lost", 6)
    assert any("error: salvage: 6 messages that b does not have are lost" in line for line in world.lines)


def test_nothing_is_put_aside_twice_when_the_link_is_lost_meanwhile() -> None:
    world = overtaken()
    world.resume("a")
    a = world["a"]
    world.until(lambda: bool(a.salvaged and a.salvaged[0].finished))
    backup(a).pause()
    backup(a).resume()
    joined(world)
    assert len(kept(a)) == 6


def test_what_was_begun_is_taken_back_when_the_link_is_lost() -> None:
    world = overtaken()
    world.resume("a")
    a = world["a"]
    world.until(lambda: bool(a.salvaged))
    assert not a.salvaged[0].finished
    backup(a).pause()
    world.run(0.0001)
    assert a.salvaged == []
    backup(a).resume()
    joined(world)
    assert len(kept(a)) == 6


def test_after_a_total_failure_and_a_gamble_a_backup_gives_what_it_had() -> None:
    """All messages were confirmed; the one that is forced has lost its memory, another still has them."""
    world = World()
    world.cluster()
    world["a"].configuration.declare("q")
    client = Publisher(world["a"])
    for number in range(10):
        client.publish("q", b"m%d" % number)
    world.until(lambda: client.confirmed == 10)
    world.run(0.1)
    world.cut("c", "a", "b")
    world["a"].kill()
    world["b"].kill()
    world["b"].boot()
    world.run(1.0)
    world.promote("b", force=True)
    world.heal()
    joined(world, "c", "b")
    assert kept(world["c"]) == [("q", b"m%d" % n, "acknowledged") for n in range(10)]
    assert world["c"].contents("q") == []


def test_what_the_gambler_holds_after_all_is_not_put_aside() -> None:
    """b was catching up when it was forced: it holds all, and that could not be known."""
    world = World()
    world.cluster()
    world["a"].configuration.declare("q")
    client = Publisher(world["a"])
    for number in range(10):
        client.publish("q", b"m%d" % number)
    world.until(lambda: client.confirmed == 10)
    world.run(0.1)
    world.cut("c", "a", "b")
    world["a"].kill()
    world["b"].node.local.whole = False
    world.promote("b", force=True)
    world.heal()
    joined(world, "c", "b")
    assert world["c"].salvaged == []
    assert len(world["c"].contents("q")) == 10
    assert world["b"].node.local.lineage[2] == Origin("id-b", 0)


def test_a_rival_of_the_same_epoch_keeps_what_it_has_confirmed() -> None:
    """Both have claimed epoch 2: an id of it names two messages, and the primary is not asked."""
    world = World()
    world.cluster()
    world["a"].configuration.declare("q")
    world.run(0.1)
    loser = world["c"].node
    loser.role.stop()
    world.run(0.01)
    world["a"].kill()
    loser.local.lineage[2] = Origin("id-c", loser.role.position)
    loser.local.led.add(2)
    loser.local.engine.begin_epoch(2)
    client = Publisher(world["c"])
    for number in range(5):
        client.publish("q", b"other%d" % number)
    loser.local.engine.advance_safe(loser.local.engine.flush() - 2)
    world.promote("b")
    right = Publisher(world["b"])
    for number in range(5):
        right.publish("q", b"m%d" % number)
    world.run(0.01)
    loser.role = Backup(loser.local, loser.end)
    loser.role.start()
    joined(world, "c", "b")
    assert kept(world["c"]) == [("q", b"other%d" % number, "confirmed") for number in range(3)]
    assert world["c"].contents("q") == world["b"].contents("q") == [b"m%d" % number for number in range(5)]


@pytest.mark.parametrize("lineage", [None, {}, [1], [[1, "a"]], [["1", "a", 0]], [[1, "a", "0"]]])
def test_a_lineage_that_is_none_costs_the_link(lineage: object) -> None:
    with pytest.raises(LinkError):
        lineage_from_json(lineage)
    assert lineage_from_json(lineage_to_json({1: Origin("a", 7)})) == {1: Origin("a", 7)}


def test_an_answer_that_was_not_asked_for_costs_the_link() -> None:
    world = World()
    world.cluster()
    link = backup(world["b"]).link
    assert link is not None
    world["b"].node.link_frame(link, 11, 0, b"\0" * 12)
    assert any("was not requested" in line for line in world.lines)
    joined(world, "b")


def test_a_primary_knows_whom_it_followed() -> None:
    world = World()
    world.cluster()
    position = world["b"].node.role.position
    world["a"].kill()
    world.promote("b")
    assert world["b"].node.local.lineage == {1: Origin("id-a"), 2: Origin("id-b", position)}
