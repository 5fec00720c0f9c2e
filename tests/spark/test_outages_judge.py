"""How long clients stood still: small histories with answers worked out by hand."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import client_lib.events
from spark_jobs.parse import event_json
from spark_jobs.parse.context import Context
from testkit.library_events import outage as longest_pause
from tests.spark.outages_judge import Outage, Union, Windows, merged, sweep

Row = dict[str, Any]
MS = 1000
S = 1_000_000


def at(moment: int, kind: str, client: str, number: int | None = None, **more: Any) -> Row:
    ids = {} if number is None else {"producer": "x", "pub_first": number, "pub_last": number}
    return {"source": "client", "kind": kind, "client_id": client, "queue": "q", "ts_wall": moment, **ids, **more}


def sends(*times: tuple[int, int | None], client: str = "p") -> list[Row]:
    """Messages 1, 2, ...: (published, confirmed or None)."""
    rows = []
    for number, (sent, confirmed) in enumerate(times, 1):
        rows.append(at(sent, "publish", client, number))
        rows += [] if confirmed is None else [at(confirmed, "confirm", client, number)]
    return rows


def gets(*times: int, client: str = "c") -> list[Row]:
    """Messages 1, 2, ... are delivered."""
    return [at(moment, "deliver", client, number) for number, moment in enumerate(times, 1)]


def outages(rows: list[Row], shortest: int = 100 * MS, end: int | None = None) -> list[tuple[Any, ...]]:
    found = Windows(shortest).add(rows).outages(end)
    return [(o.client_id, o.begin, o.end, o.why, *(["censored"] if o.censored else [])) for o in found]


# ---- producers ------------------------------------------------------------------------------------------------------


def test_from_the_first_unanswered_publish_to_the_next_confirm() -> None:
    rows = sends((0, 1 * MS), (10 * MS, 5 * S), (11 * MS, 5 * S + 1))
    assert outages(rows) == [("p", 10 * MS, 5 * S, "confirm")]


def test_what_was_already_on_its_way_counts_from_the_last_answer() -> None:
    rows = sends((0, 2 * MS), (1 * MS, 3 * S))
    assert outages(rows) == [("p", 2 * MS, 3 * S, "confirm")]


def test_a_producer_that_has_nothing_to_send_is_not_down() -> None:
    assert outages(sends((0, 1 * MS), (60 * S, 60 * S + 1 * MS))) == []


def test_many_at_once_that_are_answered_one_by_one_are_no_outage() -> None:
    assert outages(sends(*[(0, number * 50 * MS) for number in range(1, 100)])) == []


def test_the_first_publish_of_all_may_be_the_one_that_waits() -> None:
    assert outages(sends((7, 2 * S))) == [("p", 7, 2 * S, "confirm")]


@pytest.mark.parametrize("kind", ["nack", "return"])
def test_a_refusal_is_an_answer(kind: str) -> None:
    assert outages([at(0, "publish", "p", 1), at(150 * MS, kind, "p", 1), at(9 * S, "connected", "p")]) == [
        ("p", 0, 150 * MS, "confirm")
    ]


def test_who_never_gets_an_answer_is_down_until_the_end() -> None:
    rows = sends((0, 1 * MS), (10 * MS, None))
    assert outages([*rows, at(4 * S, "connected", "other")]) == [("p", 10 * MS, 4 * S, "confirm", "censored")]
    assert outages(rows, end=9 * S) == [("p", 10 * MS, 9 * S, "confirm", "censored")]


def test_who_ends_in_order_waits_no_longer() -> None:
    rows = [*sends((0, None)), at(2 * S, "log_end", "p")]
    assert outages(rows, end=60 * S) == [("p", 0, 2 * S, "confirm", "censored")]


def test_a_message_that_was_given_up_is_waited_for_until_a_later_one_is_answered() -> None:
    rows = sends((0, None), (1 * S, 1 * S + 500 * MS), (9 * S, 9 * S + 1))
    assert outages(rows) == [("p", 0, 1500 * MS, "confirm")]


def test_a_resend_does_not_begin_the_wait_anew() -> None:
    rows = [*sends((0, 3 * S)), at(2 * S, "resend", "p", 1)]
    assert outages(rows) == [("p", 0, 3 * S, "confirm")]


def test_outages_shorter_than_asked_for_are_left_out() -> None:
    rows = sends((0, 99 * MS), (200 * MS, 300 * MS))
    assert outages(rows) == [("p", 200 * MS, 300 * MS, "confirm")]
    assert outages(rows, shortest=1 * MS) == [("p", 0, 99 * MS, "confirm"), ("p", 200 * MS, 300 * MS, "confirm")]


def test_two_waits_with_next_to_nothing_between_them_are_one_if_no_answer_is_there() -> None:
    """The consumer's own answers are its deliveries; the second message is sent a moment after the first one came."""
    rows = sends((0, 1), (10 * MS, 400 * MS), (450 * MS, 900 * MS))
    rows += [at(5 * MS, "deliver", "c", 1), at(390 * MS, "deliver", "c2", 2), at(905 * MS, "deliver", "c", 3)]
    assert [part for part in outages(rows) if part[0] == "c"] == [("c", 10 * MS, 905 * MS, "deliver")]
    assert [part for part in outages(rows) if part[0] == "p"] == [
        ("p", 10 * MS, 400 * MS, "confirm"), ("p", 450 * MS, 900 * MS, "confirm"),
    ]  # fmt: skip


# ---- consumers ------------------------------------------------------------------------------------------------------


def test_a_consumer_is_down_while_a_message_is_on_its_way() -> None:
    rows = sends((0, 1), (10 * MS, 5 * S)) + gets(2 * MS, 5 * S + 3 * MS)
    assert outages(rows) == [("p", 10 * MS, 5 * S, "confirm"), ("c", 10 * MS, 5 * S + 3 * MS, "deliver")]


def test_a_consumer_of_an_empty_queue_is_not_down() -> None:
    assert outages(sends((0, 1), (60 * S, 60 * S + 1)) + gets(2, 60 * S + 2)) == []


def test_a_consumer_is_down_while_its_producer_is_not_answered() -> None:
    """It got the message, and no client can publish another one."""
    rows = sends((0, 1 * MS), (10 * MS, 4 * S), (4 * S + 5 * MS, 4 * S + 6 * MS))
    rows += gets(2 * MS, 11 * MS, 4 * S + 7 * MS)
    assert ("c", 11 * MS, 4 * S + 7 * MS, "deliver") in outages(rows)


def test_what_others_get_at_once_keeps_no_client_waiting() -> None:
    """A queue of many consumers: each has pauses of its own."""
    rows = sends(*[(number * 10 * MS, number * 10 * MS + 40 * MS) for number in range(100)])
    rows += [at(50 * MS, "deliver", "idle", 1), at(1_045 * MS, "deliver", "idle", 100)]
    rows += [at(number * 10 * MS + 45 * MS, "deliver", "c", number + 1) for number in range(1, 99)]
    assert outages(rows) == []


def test_what_waits_long_keeps_all_waiting_that_get_nothing() -> None:
    rows = sends((0, 1), (10 * MS, 11 * MS), (20 * MS, 21 * MS), (600 * MS, 601 * MS))
    rows += [at(2 * MS, "deliver", "idle", 1), at(12 * MS, "deliver", "busy", 2), at(520 * MS, "deliver", "busy", 3)]
    rows += [at(440 * MS, "deliver", "busy", 2, redelivered=True), at(602 * MS, "deliver", "idle", 4)]
    assert outages(rows) == [("busy", 20 * MS, 440 * MS, "deliver"), ("idle", 20 * MS, 602 * MS, "deliver")]


def test_who_has_left_waits_for_nothing() -> None:
    rows = sends((0, 1), (50 * MS, 51 * MS), (5 * S, 9 * S)) + gets(2 * MS)
    rows += [at(60 * MS, "deliver", "other", 2), at(9 * S + 1, "deliver", "other", 3), at(70 * MS, "log_end", "c")]
    assert [client for client, *_ in outages(rows)] == ["p", "other"]


def test_a_busy_application_is_not_down() -> None:
    rows = sends((0, 1 * MS), (1 * MS, 2 * MS)) + gets(5 * MS, 9 * S + 1 * MS)
    assert outages([*rows, at(9 * S, "ack", "c", 1)]) == []
    assert outages([*rows, at(6 * S, "ack", "c", 1)]) == [("c", 6 * S, 9 * S + 1 * MS, "deliver")]
    assert outages([*rows, at(60 * MS, "ack", "c", 1)]) == [("c", 5 * MS, 9 * S + 1 * MS, "deliver")]


def test_before_its_first_delivery_a_consumer_is_not_judged() -> None:
    assert outages(sends((0, 1)) + gets(20 * S)) == []


def test_a_lost_message_keeps_no_client_waiting_for_ever() -> None:
    rows = sends((0, 1), (10 * MS, 11 * MS), (20 * MS, 21 * MS), (9 * S, 9 * S + 1))
    rows += [at(2 * MS, "deliver", "c", 1), at(22 * MS, "deliver", "c", 3), at(9 * S + 2, "deliver", "c", 4)]
    assert outages(rows) == []


def test_a_lost_message_at_the_end_is_not_waited_for_when_the_queue_was_drained() -> None:
    rows = sends((0, 1), (10 * MS, 11 * MS)) + gets(2 * MS)
    end = [at(3 * S, "log_end", "c")]
    assert outages([*rows, *end]) == [("c", 10 * MS, 3 * S, "deliver", "censored")]
    assert outages([*rows, at(2 * S, "drain_end", "c", result="ok"), *end]) == []
    assert outages([*rows, at(2 * S, "drain_end", "c", result="1 left"), *end]) != []


def test_a_refused_message_is_on_its_way_to_no_client() -> None:
    rows = [*sends((0, 1)), at(5 * MS, "publish", "p", 2), at(6 * MS, "nack", "p", 2), *gets(2)]
    assert outages(rows, end=9 * S) == []


def test_a_message_by_an_exchange_is_known_by_its_id() -> None:
    rows = [{**row, "queue": "exchange"} for row in sends((0, 1), (10 * MS, 2 * S))] + gets(2, 2 * S + 5)
    assert ("c", 10 * MS, 2 * S + 5, "deliver") in outages(rows)


# ---- the connection -------------------------------------------------------------------------------------------------


def test_who_is_not_connected_is_down() -> None:
    rows = [at(0, "connected", "c"), at(1 * S, "disconnected", "c"), at(2 * S, "connect_refused", "c")]
    assert outages([*rows, at(4 * S, "connected", "c")]) == [("c", 1 * S, 4 * S, "connection")]
    assert outages(rows, end=9 * S) == [("c", 1 * S, 9 * S, "connection", "censored")]
    assert outages([*rows, at(3 * S, "log_end", "c")]) == [("c", 1 * S, 3 * S, "connection", "censored")]


def test_who_wanted_to_disconnect_is_not_down() -> None:
    rows = [at(0, "connected", "c"), at(1 * S, "disconnected", "c", planned=True), at(9 * S, "connected", "c")]
    assert outages(rows) == []


def test_who_begins_with_connecting_is_down_from_its_first_attempt() -> None:
    rows = [at(0, "connect", "c"), at(1 * S, "connect_refused", "c"), at(3 * S, "connected", "c")]
    assert outages(rows) == [("c", 0, 3 * S, "connection")]


def test_a_producer_that_is_asked_to_pause_is_down_and_a_consumer_is_not() -> None:
    pause = [at(1 * S, "blocked", "p"), at(2 * S, "unblocked", "p")]
    assert outages([*sends((0, 1)), *pause]) == [("p", 1 * S, 2 * S, "go-ahead")]
    assert outages([{**row, "client_id": "c"} for row in pause]) == []


def test_what_touches_is_one_outage_with_all_its_reasons() -> None:
    rows = [*sends((0, 1), (1 * S, 4 * S)), at(1500 * MS, "disconnected", "p"), at(3 * S, "connected", "p")]
    assert outages(rows) == [("p", 1 * S, 4 * S, "confirm+connection")]


# ---- runs, clocks, order --------------------------------------------------------------------------------------------


def run(kind: str, client: str, first: int, last: int, begin: int, end: int, seq: int) -> Row:
    attrs = {"last": f"x:{last}", "count": str(last - first + 1), "last_ts_mono": str(end)}
    return at(begin, kind, client, first, pub_last=last, ts_mono=begin, attrs=attrs, seq=seq)


def test_runs_are_taken_apart_and_no_interpolated_answer_precedes_its_question() -> None:
    rows = [run("publish", "p", 1, 50, 0, 100 * MS, 1), run("confirm", "p", 1, 50, 1 * MS, 80 * MS, 2)]
    rows += [run("publish", "p", 51, 52, 110 * MS, 111 * MS, 3), run("confirm", "p", 51, 52, 2 * S, 2 * S + 9, 4)]
    assert outages(rows) == [("p", 110 * MS, 2 * S, "confirm")]


def test_corrected_times_are_used_if_there_are_any() -> None:
    rows = [{**row, "ts_est": row["ts_wall"] + 7} for row in sends((0, 1), (10 * MS, 1 * S))]
    assert outages(rows) == [("p", 10 * MS + 7, 1 * S + 7, "confirm")]
    mono = Windows(clock=lambda row: int(row["ts_wall"]) * 2).add(sends((10, 1 * S))).outages()
    assert (mono[0].begin, mono[0].end) == (20, 2 * S)


def test_rows_of_others_and_torn_ones_do_not_matter() -> None:
    rows: list[Row] = [{"source": "broker", "kind": "state", "ts_wall": 99 * S}, {"source": "client", "kind": "torn"}]
    assert outages([*rows, *sends((0, None))]) == []


def test_nothing_gives_nothing() -> None:
    assert outages([]) == [] and Windows().union([]) == Union()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50) | st.none()), max_size=12), st.randoms())
def test_order_does_not_matter_and_the_definition_holds(
    times: list[tuple[int, int | None]], chance: random.Random
) -> None:
    """Against the definition, moment by moment."""
    pairs = [(sent, None if more is None else sent + more) for sent, more in times]
    rows = sends(*pairs)
    chance.shuffle(rows)
    found = [(begin, end) for _, begin, end, *_ in outages(rows, shortest=2)]
    assert found == by_definition(sorted(pairs, key=lambda pair: pair[0]), 2)


def by_definition(pairs: list[tuple[int, int | None]], shortest: int) -> list[tuple[int, int]]:
    moments = [moment for pair in pairs for moment in pair if moment is not None]
    horizon = max(moments, default=0)
    ends = []
    for number, (sent, answer) in enumerate(pairs):  # of two that were sent at once the first one has the lower number
        later = [end for _, end in pairs[number + 1 :] if end is not None]
        ends.append((sent, answer if answer is not None else min([*later, horizon])))
    waiting = [any(sent <= moment < end for sent, end in ends) for moment in range(horizon)]
    answers = {answer for _, answer in pairs if answer is not None}
    parts: list[list[int]] = []
    for moment in (moment for moment, down in enumerate(waiting) if down):
        gap = set(range(parts[-1][1], moment + 1)) if parts else set()
        if parts and len(gap) - 1 < shortest and not answers & gap:
            parts[-1][1] = moment + 1
        else:
            parts.append([moment, moment + 1])
    long = [(begin, end) for begin, end in parts if end - begin >= shortest]
    return merged(long)


# ---- the sweep ------------------------------------------------------------------------------------------------------


def test_any_all_and_client_seconds() -> None:
    lives = [(0, 100), (0, 100), (20, 60)]
    assert sweep([(10, 30), (20, 50), (25, 30)], lives) == Union(
        any_down=40, all_down=5, client_us=55, most=3, clients=3, begin=10, end=50
    )


def test_all_means_those_that_exist() -> None:
    assert sweep([(0, 10)], [(0, 10), (20, 30)]).all_down == 10
    assert sweep([(0, 10)], [(0, 10), (4, 30)]).all_down == 4


def test_outages_that_touch_do_not_overlap() -> None:
    assert sweep([(0, 10), (10, 20)], [(0, 20)] * 2) == Union(20, 0, 20, 1, 2, 0, 20)


def test_the_union_of_real_rows_in_a_part_of_time() -> None:
    rows = sends((0, 1), (1 * S, 3 * S)) + sends((2 * S, 5 * S), client="p2")
    windows = Windows().add(rows)
    found = windows.outages()  # in the first of its two seconds p is the only client there is
    assert windows.union(found) == Union(4 * S, 2 * S, 5 * S, 2, 2, 1 * S, 5 * S)
    assert windows.union(found, 2 * S, 4 * S) == Union(2 * S, 1 * S, 3 * S, 2, 2, 2 * S, 4 * S)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=8))
def test_the_sweep_counts_every_moment(parts: list[tuple[int, int]]) -> None:
    intervals = [(begin, begin + length) for begin, length in parts]
    found = sweep(intervals, [(0, 60)] * len(intervals))
    down = [sum(begin <= moment < end for begin, end in intervals) for moment in range(60)]
    assert (found.any_down, found.client_us) == (sum(map(bool, down)), sum(down))
    assert found.most == max(down) and found.all_down == sum(0 < n == len(intervals) for n in down)


def test_outages_are_in_the_order_of_time() -> None:
    assert sorted([Outage(2, 3, "a", "x"), Outage(1, 9, "b", "x")])[0].client_id == "b"
    assert Outage(2, 5, "a", "x").length == 3


# ---- the real writer ------------------------------------------------------------------------------------------------


def test_what_the_clients_writer_wrote_gives_the_outage_that_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer and a consumer at 1 kHz; the broker is dead for 3 s after 500 ms."""
    now = [0]
    monkeypatch.setattr(time, "time_ns", lambda: 10**18 + now[0] * 1000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 10**12 + now[0] * 1000)
    logs = {name: client_lib.events.EventLog(name, tmp_path / name) for name in ("p", "c")}
    for name in logs:
        (tmp_path / name).mkdir(exist_ok=True)
    script = sorted(busy_seconds(dead=(500 * MS, 3500 * MS)))
    for moment, name, kind, number in script:
        now[0] = moment
        if kind == "tick":
            logs[name].flush_runs()
        else:
            logs[name].message(kind, "q", f"x:{number}", kind == "resend")
    for log in logs.values():
        log.close()
    found = {o.client_id: o for o in Windows().add(read(tmp_path)).outages()}
    assert set(found) == {"p", "c"}
    for name, kind in (("p", "confirm"), ("c", "deliver")):
        times = [moment for moment, _, said, _ in script if said == kind]
        expected = longest_pause(times, 0, 10 * S)
        assert expected is not None and abs(found[name].length / 1000 - expected) <= 5
        assert not found[name].censored


def busy_seconds(dead: tuple[int, int]) -> list[tuple[int, str, str, int]]:
    """(moment, client, kind, number) of messages, one a millisecond; each client's timer ticks every 100 ms."""
    steps = [(moment, name, "tick", 0) for moment in range(0, 5 * S, 100 * MS) for name in ("p", "c")]
    for number in range(1, 5001):
        sent = number * MS
        if not dead[0] <= sent < dead[1]:
            steps += [(sent, "p", "publish", number), (sent + 400, "p", "confirm", number)]
            steps += [(sent + 600, "c", "deliver", number), (sent + 700, "c", "ack", number)]
        elif sent < dead[0] + 50 * MS:  # the window is full then
            again = dead[1] + number
            steps += [(sent, "p", "publish", number), (again, "p", "resend", number)]
            steps += [(again + 2 * MS, "p", "confirm", number), (again + 3 * MS, "c", "deliver", number)]
    return steps


def read(directory: Path) -> list[Row]:
    rows: list[Row] = []
    for path in sorted(directory.rglob("*.jsonl")):
        rows += event_json.parse_file(path.name, path.read_bytes().splitlines(keepends=True), Context(), "client")
    return rows
