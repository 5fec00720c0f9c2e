"""The small parts: states, positions, range sets, membership, protocol, events."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.model import difference, position, protocol
from ha.model.membership import HaState, InSync, Member, Membership
from ha.model.state_file import NAME as STATE_FILE
from ha.model.status import EXPECTATIONS, TRANSITIONS, State, check_transition
from ha.shell.events import EventLog
from ha.shell.identity import load_state, needed_directory, own_address
from qpidd_py.broker.snapshot import decode_snapshot, encode_snapshot
from qpidd_py.errors import ConfigError, InvariantError, LinkError
from qpidd_py.option_values import Address

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)))


def members_of(ranges: difference.Ranges) -> set[int]:
    return {item for low, high in ranges for item in range(low, high + 1)}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(State, State)))
def test_only_listed_transitions_are_legal(old: State, new: State) -> None:
    if (old, new) in TRANSITIONS:
        assert check_transition(old, new)
    else:
        with pytest.raises(InvariantError):
            check_transition(old, new)


def test_expectations() -> None:
    assert EXPECTATIONS["primary"] == {"recovering", "active"}
    assert EXPECTATIONS["backup"] == {"joining", "catchup", "ready"}
    assert EXPECTATIONS["ready"] == {"ready"}
    assert EXPECTATIONS["recovering-journal"] == {"recovering-journal"}


@given(st.integers(0, position.LAST_EPOCH), st.integers(0, position.SEQUENCE_MASK))
def test_positions_compare_as_epoch_then_sequence(epoch: int, sequence: int) -> None:
    made = position.make(epoch, sequence)
    assert (position.epoch_of(made), position.sequence_of(made)) == (epoch, sequence)
    assert 0 <= made < 1 << 64


def test_position_that_does_not_fit() -> None:
    with pytest.raises(InvariantError):
        position.make(1 << 16, 0)


@given(RANGES, RANGES)
def test_range_sets_behave_as_sets(one: difference.Ranges, other: difference.Ranges) -> None:
    a, b = difference.normalise(one), difference.normalise(other)
    assert members_of(a) == members_of(one)
    assert difference.count(a) == len(members_of(a))
    assert members_of(difference.intersect(a, b)) == members_of(a) & members_of(b)
    assert members_of(difference.subtract(a, b)) == members_of(a) - members_of(b)
    assert difference.normalise(difference.subtract(a, b)) == difference.subtract(a, b)


def test_foreign_epochs_are_those_known_to_both_by_another_leader() -> None:
    a, b, c = (difference.Origin(leader) for leader in "abc")
    assert difference.foreign_epochs({1: a, 2: b, 3: b}, {1: a, 2: c}) == {2}
    ids: difference.Ranges = [(position.make(1, 5), position.make(1, 9)), (position.make(2, 10), position.make(2, 12))]
    assert difference.of_epochs(ids, {2}) == ids[1:]


def test_in_sync_set_grows_and_shrinks_with_versions() -> None:
    a, b = Member("a"), Member("b", "bee", "b:1")
    first = InSync().succeed(1, "a", [a])
    second = first.grow(b)
    assert second.key > first.key
    assert second.ids == {"a", "b"}
    assert second.shrink(["a"]).ids == {"b"}
    assert InSync.from_json(json.loads(json.dumps(second.to_json()))) == second
    assert second.member("b") == b
    assert second.succeed(2, "b", [b]).version == 3
    with pytest.raises(InvariantError):
        second.succeed(1, "b", [b])


def test_votes_never_go_back() -> None:
    state = HaState("a", 3, "b", InSync(3, "b", 7))
    assert state.advance(epoch=3, leader="c").ballot == (3, "c")
    for change in ({"epoch": 2}, {"leader": "a"}, {"in_sync": InSync(3, "b", 6)}, {"in_sync": InSync(2, "b", 9)}):
        with pytest.raises(InvariantError):
            state.advance(**change)


def test_membership_operation() -> None:
    operation = Membership(InSync(1, "a", 2, (Member("a", "x", "y:1"),)), "a")
    assert Membership.decode(operation.encode()) == operation
    for wrong in (b"", b"{}", b'{"op":"membership"}', b'{"op":"membership","in_sync":{"epoch":1}}'):
        with pytest.raises(LinkError):
            Membership.decode(wrong)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=20))))
def test_snapshot_survives_the_wire_and_no_cut_is_accepted(records: list[tuple[int, bytes]]) -> None:
    encoded = encode_snapshot(records)
    assert decode_snapshot(encoded) == records
    if encoded:
        with pytest.raises(LinkError):
            decode_snapshot(encoded + b"\0")


def test_small_frames() -> None:
    assert protocol.decode_held(protocol.encode_held(7, 9, b"ids")) == (7, 9, b"ids")
    assert protocol.decode_drop(protocol.encode_drop(7, b"ids")) == (7, b"ids")
    assert protocol.decode_merge(protocol.encode_merge(7)) == 7
    assert protocol.decode_control(protocol.encode_control("hello", x=1)) == ("hello", {"x": 1})
    for call, body in (
        (protocol.decode_held, b"123"),
        (protocol.decode_drop, b"123"),
        (protocol.decode_merge, b"12345"),
        (protocol.decode_control, b"[]"),
        (protocol.decode_control, b"{"),
        (decode_snapshot, b"12345678\xff\xff\xff\xff"),
    ):
        with pytest.raises(LinkError):
            call(body)


def test_needed_fields() -> None:
    assert protocol.need({"a": 1}, "a", int) == 1
    for wrong in ({}, {"a": "1"}, {"a": True}):
        with pytest.raises(LinkError):
            protocol.need(wrong, "a", int)


def test_events_are_numbered_and_segments_closed(tmp_path: Path) -> None:
    old = tmp_path / "events" / "n-12345678-0007.jsonl.open"
    old.parent.mkdir()
    old.write_text("{}\n")
    log = EventLog(tmp_path / "events", "n:1", lambda: 4)
    assert old.with_suffix("").exists()
    log.write("state", old="joining", new="ready", last_pos=0, reason="", attrs={"a": 1})
    assert [path.suffix for path in old.parent.glob("n_1*")] == [".open"]
    log.close()
    (path,) = old.parent.glob("n_1*")
    assert path.name.endswith("-0001.jsonl")
    first, last = map(json.loads, path.read_text().splitlines())
    assert (first["seq"], last["seq"], last["kind"]) == (1, 2, "log_end")
    assert (first["node"], first["term"], first["old"], first["last_pos"]) == ("n:1", 4, "joining", 0)
    assert first["attrs"] == {"a": "1"}
    assert "reason" not in first
    assert first["ts_wall"] > 1 << 50


def test_the_oldest_segments_make_room(tmp_path: Path) -> None:
    for number in range(6):
        path = tmp_path / f"n-{number:04}.jsonl"
        path.write_bytes(b"x" * 1000)
        os.utime(path, (number, number))
    EventLog(tmp_path, "m", lambda: 1).close()
    assert len(list(tmp_path.glob("n-*"))) == 6
    EventLog(tmp_path, "m", lambda: 1, limit=5500).close()
    assert sorted(path.name for path in tmp_path.glob("n-*")) == [f"n-{number:04}.jsonl" for number in range(1, 6)]
    assert len(list(tmp_path.glob("m-*"))) == 2


def test_each_life_of_a_process_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Process ids come again, and numbers begin anew with each life."""
    for _ in range(2):
        EventLog(tmp_path, "n", lambda: 1).close()
    lives = [json.loads(path.read_text())["proc"] for path in tmp_path.glob("*.jsonl")]
    assert len(set(lives)) == 2 and {life.rpartition(":")[0] for life in lives} == {f"qpidd:{os.getpid()}"}


def test_a_member_knows_its_state_again(tmp_path: Path) -> None:
    file, state = load_state(tmp_path)
    assert state.epoch == 0 and load_state(tmp_path)[1] == state
    changed = state.advance(epoch=3, leader="you", in_sync=InSync(2, "you", 5, (Member("me"),)))
    file.store(changed)
    assert load_state(tmp_path)[1] == changed
    (tmp_path / STATE_FILE).write_text("{")
    with pytest.raises(ConfigError, match=r"ha-state\.json cannot be used: not a state"):
        load_state(tmp_path)


def test_a_member_needs_a_data_directory() -> None:
    with pytest.raises(ConfigError, match="option no-data-dir: found yes with ha-cluster, expected a data directory"):
        needed_directory(None)


def test_own_address_is_the_local_one_with_our_port() -> None:
    brokers = ["127.0.0.1:5671", "127.0.0.1:5672", "192.0.2.1:5673"]
    assert own_address(brokers, [Address("0.0.0.0", 5672)]) == "127.0.0.1:5672"
    assert own_address(brokers, [Address("0.0.0.0", 5673)]) == ""
