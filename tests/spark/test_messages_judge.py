"""The judge over messages: Jepsen's vectors, what real logs add to them, and that order and form do not matter."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

import testkit.judge
from spark_jobs.report.sums import COUNTED
from spark_jobs.schema import EXPLAINED_BY
from spark_jobs.solve.runs import expand
from testkit.library_events import LibraryHistory
from tests.spark.messages_judge import KNOWN, Judge, Summary, as_dict, expanded, judge

Row = dict[str, Any]


def row(kind: str, client: str, producer: str | None = None, number: int = 0, **more: Any) -> Row:
    ids = {} if producer is None else {"producer": producer, "pub_first": number, "pub_last": number}
    return {
        "source": "client",
        "kind": kind,
        "client_id": client,
        "proc": client,
        "queue": "q",
        "ts_wall": 0,
        **ids,
        **more,
    }


def client(name: str, *rows: tuple[Any, ...], end: str = "log_end drain_end") -> list[Row]:
    """The log of a client: (kind, producer, number[, columns]) each, numbered, with an end in order."""
    log = [row(kind, name, *rest[:2], **(rest[2] if len(rest) > 2 else {})) for kind, *rest in rows]
    log += [row("drain_end", name, result="ok", ts_wall=99)] if "drain_end" in end else []
    log += [row("log_end", name)] if "log_end" in end else []
    return [{**entry, "seq": number} for number, entry in enumerate(log, 1)]


def producer(name: str, *rows: tuple[Any, ...]) -> list[Row]:
    return client(name, *rows, end="log_end")


def sums(summary: Summary) -> dict[str, Any]:
    """Only what is not zero."""
    return {name: value for name, value in as_dict(summary).items() if value or name == "valid"}


# ---- Jepsen's own vectors (jepsen/test/jepsen/checker_test.clj, total-queue) ---------------------------------------


def test_jepsen_empty() -> None:
    assert sums(judge([])) == {"valid": True}


def test_jepsen_sane() -> None:
    rows = producer("p", ("publish", "x", 1), ("publish", "x", 2), ("confirm", "x", 2))
    rows += client("c", ("deliver", "x", 1), ("ack", "x", 1), ("deliver", "x", 2), ("ack", "x", 2))
    assert sums(judge(rows)) == {"valid": True, "attempts": 2, "confirmed": 1, "ok": 2, "recovered": 1}
    verdicts = {verdict.number: verdict.verdict for verdict in Judge(brokers=KNOWN).add(rows).verdicts()}
    assert verdicts == {1: "recovered", 2: "ok"}


def test_jepsen_pathological() -> None:
    sent = [("publish", "hung", 0), ("publish", "enqueued", 0), ("confirm", "enqueued", 0)]
    sent += [("publish", "dup", 0), ("confirm", "dup", 0)]
    seen = [(kind, id, 0) for id in ("wtf", "dup", "dup") for kind in ("deliver", "ack")]
    rows = producer("p", *sent) + client("c", *seen)
    expected = {"attempts": 3, "confirmed": 2, "ok": 1, "lost": 1, "unexpected": 1, "duplicated": 1}
    assert sums(judge(rows)) == {"valid": False, **expected, "unmarked": 1, "unknown": 1}
    verdicts = {verdict.msg_id: verdict.verdict for verdict in Judge(brokers=KNOWN).add(rows).verdicts()}
    assert verdicts == {"dup": "duplicated", "enqueued": "lost", "hung": "unknown", "wtf": "unexpected"}


# ---- what a fail-over client adds -----------------------------------------------------------------------------------


def ok(*extra: tuple[Any, ...], seen: int = 1) -> list[Row]:
    """Message x:1: published, confirmed, `extra` by its producer; delivered and acknowledged so many times."""
    rows = producer("p", ("publish", "x", 1), *extra, ("confirm", "x", 1))
    return rows + client("c", *[("deliver", "x", 1), ("ack", "x", 1)] * seen)


def test_a_resend_is_no_attempt_and_cannot_hide_a_duplicate() -> None:
    summary = judge(ok(("resend", "x", 1), ("confirm", "x", 1), seen=2))
    assert sums(summary) == {
        "valid": True, "attempts": 1, "confirmed": 1, "ok": 1, "resends": 1, "duplicated": 1, "resend": 1,
    }  # fmt: skip


def test_a_publish_that_is_marked_as_resent_is_no_attempt() -> None:
    assert judge(ok(("publish", "x", 1, {"resend": True}))).attempts == 1


def test_how_a_duplicate_is_marked() -> None:
    unmarked = judge(ok(seen=3))
    assert (unmarked.duplicated, unmarked.unmarked) == (2, 2)
    marked = ok(seen=2)
    next(entry for entry in marked if entry["kind"] == "deliver")["redelivered"] = True
    assert (judge(marked).redelivered, judge(marked).unmarked) == (1, 0)
    both = judge([*marked, row("resend", "p", "x", 1)])
    assert (both.redelivered, both.resend) == (1, 0)


def test_delivered_not_acknowledged_and_delivered_again_is_one_dequeue() -> None:
    rows = ok(seen=1) + producer("c2", ("deliver", "x", 1, {"queue": "other"}))
    assert (judge(rows).ok, judge(rows).duplicated) == (1, 0)


def test_an_application_that_uses_an_id_twice_has_two_attempts() -> None:
    rows = producer("p", *[("publish", "x", 1), ("confirm", "x", 1)] * 2)
    assert sums(judge(rows + client("c", ("deliver", "x", 1), ("ack", "x", 1)))) == {
        "valid": False, "attempts": 2, "confirmed": 2, "ok": 1, "lost": 1,
    }  # fmt: skip


def test_refused_and_never_answered_messages_need_not_be_seen() -> None:
    rows = producer(
        "p", ("publish", "x", 1), ("nack", "x", 1), ("publish", "x", 2), ("publish", "x", 3), ("return", "x", 3)
    )
    assert sums(judge(rows + client("c"))) == {"valid": True, "attempts": 3, "refused": 2, "unknown": 1}


def test_rows_without_an_id_are_counted_and_judge_nothing() -> None:
    assert sums(judge([row("deliver", "c"), row("ack", "c"), row("connected", "c")])) == {"valid": True, "anonymous": 2}


# ---- lost, unaccounted, explained -----------------------------------------------------------------------------------

LOST = producer("p", ("publish", "x", 1), ("confirm", "x", 1))


def missing(*others: list[Row], drained: bool | None = None) -> tuple[str, str]:
    """The verdict over x:1, which is confirmed and not dequeued, and its cause."""
    (verdict,) = Judge(drained, brokers=KNOWN).add([*LOST, *(entry for log in others for entry in log)]).verdicts()
    assert verdict.missing == 1
    return verdict.verdict, verdict.cause


TOOK = ("deliver", None, 0)


def test_lost_when_all_logs_are_whole_and_the_queue_was_drained() -> None:
    assert missing(client("c", TOOK)) == ("lost", "")
    assert missing(client("c", TOOK), client("c2", TOOK)) == ("lost", "")


def test_lost_after_a_delivery_that_was_never_acknowledged_says_so() -> None:
    assert missing(client("c", ("deliver", "x", 1))) == ("lost", "delivered, never acknowledged")


def test_unaccounted_when_it_is_unknown() -> None:
    assert missing() == ("unaccounted", "there is no log of a consumer")
    assert missing(client("c", TOOK, end="log_end")) == ("unaccounted", "c has not drained its queue")
    assert missing(client("c", TOOK, end="drain_end")) == ("unaccounted", "the log of c is incomplete")
    assert missing(client("c", TOOK, TOOK)[1:]) == ("unaccounted", "the log of c is incomplete")
    assert missing([e for e in client("c", TOOK, TOOK, TOOK) if e["seq"] != 2])[0] == "unaccounted"


def test_one_consumer_that_did_not_end_in_order_is_enough() -> None:
    assert missing(client("c", TOOK), client("c2", TOOK, end=""))[0] == "unaccounted"


def test_a_drain_that_left_something_is_none() -> None:
    log = [{**entry, "result": "3 left"} if entry["kind"] == "drain_end" else entry for entry in client("c", TOOK)]
    assert missing(log) == ("unaccounted", "c has not drained its queue")


def test_confirmed_after_the_drain_is_not_lost() -> None:
    late = [{**entry, "ts_wall": 100} if entry["kind"] == "confirm" else entry for entry in LOST]
    (verdict,) = Judge(brokers=KNOWN).add([*late, *client("c", TOOK)]).verdicts()
    assert (verdict.verdict, verdict.cause) == ("unaccounted", "confirmed after its queue was drained")


def test_a_run_is_confirmed_when_its_last_message_is() -> None:
    attrs = {"last": "x:2", "count": "2", "last_ts_mono": "150"}
    run = row("confirm", "p", "x", 1, pub_last=2, ts_wall=0, ts_mono=50, attrs=attrs)
    verdicts = Judge(brokers=KNOWN).add([run, *client("c", TOOK)]).verdicts()
    assert [verdict.verdict for verdict in verdicts] == ["unaccounted", "unaccounted"]


def test_another_queues_consumer_does_not_matter() -> None:
    other = [{**entry, "queue": "other"} for entry in client("c2", TOOK, end="")]
    assert missing(client("c", TOOK), other) == ("lost", "")
    assert missing(other)[0] == "unaccounted"


def test_a_queue_that_is_not_named_needs_all_consumers() -> None:
    """The message went to an exchange."""
    named = [{**entry, "queue": "exchange"} for entry in LOST]
    whole, cut = client("c", TOOK), [{**entry, "queue": "q2"} for entry in client("c2", TOOK, end="log_end")]
    for rows, said in (([*named, *whole], "lost"), ([*named, *whole, *cut], "unaccounted")):
        assert [verdict.verdict for verdict in Judge(brokers=KNOWN).add(rows).verdicts()] == [said]


def test_a_client_of_which_nothing_is_left_but_its_connection_may_have_taken_it() -> None:
    stranger = [row("connected", "c9", seq=1)]
    assert missing(client("c", TOOK), stranger) == ("unaccounted", "the log of c9 is incomplete")
    assert missing(client("c", TOOK), [*stranger, row("log_end", "c9", seq=2)]) == ("lost", "")


def test_the_caller_may_know_better() -> None:
    assert missing(drained=True) == ("lost", "")
    assert missing(client("c", TOOK), drained=False) == ("unaccounted", "its queue was not drained")


@pytest.mark.parametrize("kind", EXPLAINED_BY[2:])
def test_a_brokers_row_explains(kind: str) -> None:
    said = {"source": "broker", "kind": kind, "producer": "x", "pub_first": 1, "pub_last": 4, "queue": "q"}
    said["ts_wall"] = 100  # after the queue was drained
    assert missing(client("c", TOOK), [said]) == ("explained", kind)
    summary = judge([*LOST, *client("c", TOOK), said])
    assert (summary.explained, summary.lost, summary.causes, summary.valid) == (1, 0, {kind: 1}, True)


@pytest.mark.parametrize("kind", ["return", "reject"])
def test_a_clients_row_explains(kind: str) -> None:
    assert missing(client("c", (kind, "x", 1))) == ("explained", kind)


def test_released_is_not_rejected() -> None:
    assert missing(client("c", ("release", "x", 1))) == ("lost", "")


def test_a_refusal_before_a_confirm_explains_nothing() -> None:
    assert missing(client("c", TOOK), [row("nack", "p", "x", 1)])[0] == "lost"


def test_a_purge_that_names_no_message_leaves_doubt_about_its_queue() -> None:
    purge = {"source": "broker", "kind": "purge", "queue": "q", "attrs": {"count": "9"}}
    assert missing(client("c", TOOK), [purge]) == ("unaccounted", "purge in its queue")
    assert missing(client("c", TOOK), [{**purge, "queue": "other"}]) == ("lost", "")


def test_an_explained_message_that_came_nevertheless_is_ok() -> None:
    rows = [*ok(), {"source": "broker", "kind": "expire", "producer": "x", "pub_first": 1, "pub_last": 1}]
    assert sums(judge(rows)) == {"valid": True, "attempts": 1, "confirmed": 1, "ok": 1}


# ---- unexpected -----------------------------------------------------------------------------------------------------


def test_a_delivery_that_was_not_attempted_is_a_finding() -> None:
    rows = ok() + client("c2", ("deliver", "x", 2))
    assert (judge(rows).unexpected, judge(rows).unlogged, judge(rows).valid) == (1, 0, False)


def test_the_end_of_a_killed_producers_log_is_no_finding() -> None:
    rows = [entry for entry in ok() if (entry["kind"], entry["client_id"]) != ("log_end", "p")]
    summary = judge(rows + client("c2", ("deliver", "x", 2)))
    assert (summary.unexpected, summary.unlogged, summary.valid) == (1, 1, True)


# ---- the other judges of this project -------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """What two producers and two consumers wrote: any counts, also impossible ones, but no id used twice."""
    sent: dict[str, list[tuple[Any, ...]]] = {"p1": [], "p2": []}
    taken: dict[str, list[tuple[Any, ...]]] = {"c1": [], "c2": []}
    for name in sent:
        for number in range(1, draw(st.integers(0, 6)) + 1):
            attempted = draw(st.booleans()) or draw(st.booleans())
            sent[name] += [("publish", name, number)] * attempted
            sent[name] += [("resend", name, number)] * (attempted and draw(st.integers(0, 2)))
            sent[name] += [("confirm", name, number)] * (attempted and draw(st.integers(0, 2)))
            for _ in range(draw(st.integers(0, 2))):
                log = taken[draw(st.sampled_from(["c1", "c2"]))]
                log.append(("deliver", name, number, {"redelivered": draw(st.booleans())}))
                log += [("ack", name, number)] * (draw(st.booleans()) or not attempted)
    rows = [entry for name, log in sent.items() for entry in producer(name, *log)]
    end = draw(st.sampled_from(["drain_end log_end", "log_end"]))
    return rows + [entry for name, log in taken.items() for entry in client(name, *log, end=end)]


def parts(summary: Summary, *names: str) -> tuple[int, ...]:
    return tuple(getattr(summary, name) for name in names)


SAME = ("attempts", "confirmed", "ok", "lost", "unaccounted", "unexpected", "duplicated", "unmarked", "recovered")


NAMES = {"attempts": "attempted", "ok": "received"}


@given(histories())
def test_the_demos_judge_says_the_same(rows: list[Row]) -> None:
    events = [{**entry, "msg_id": f"{entry.get('producer')}:{entry.get('pub_first')}", "ts_mono": 0} for entry in rows]
    theirs = LibraryHistory().add(events).verdict()
    known = {entry["client_id"] for entry in rows if entry["kind"] == "deliver"}
    if known != {"c1", "c2"}:  # whom it does not know it does not ask
        return
    expected = tuple(getattr(theirs, NAMES.get(name, name)) for name in SAME)
    assert parts(judge(rows), *SAME) == expected


@given(histories(), st.booleans())
def test_the_torture_judge_says_the_same(rows: list[Row], drained: bool) -> None:
    kinds = {"publish": "invoke", "resend": "invoke", "confirm": "ok", "deliver": "receive", "ack": "ack"}
    events = [
        {
            "kind": kinds[entry["kind"]], "id": f"{entry['producer']}:{entry['pub_first']}", "t": 0,
            "client": entry["client_id"], "again": entry["kind"] == "resend", "redelivered": entry.get("redelivered"),
        }
        for entry in rows if entry["kind"] in kinds
    ]  # fmt: skip
    theirs = testkit.judge.History().add(events).verdict(drained)
    expected = tuple(getattr(theirs, NAMES.get(name, name)) for name in SAME)
    assert parts(judge(rows, drained), *SAME) == expected


# ---- order and form do not matter -----------------------------------------------------------------------------------


@given(histories(), st.randoms(use_true_random=False))
def test_any_permutation_gives_the_same(rows: list[Row], chance: random.Random) -> None:
    mixed = list(rows)
    chance.shuffle(mixed)
    assert judge(mixed) == judge(rows)
    assert list(Judge(brokers=KNOWN).add(mixed).verdicts()) == [
        *sorted(Judge(brokers=KNOWN).add(rows).verdicts(), key=lambda verdict: (verdict.producer, verdict.number))
    ]


def joined(rows: list[Row]) -> list[Row]:
    """Neighbours that follow on as runs, as the client writes them; numbered anew."""
    found: list[Row] = []
    for entry in rows:
        before = found[-1] if found else {}
        same = all(before.get(name) == entry.get(name) for name in ("kind", "client_id", "producer", "redelivered"))
        if same and "producer" in entry and entry["pub_first"] == before["pub_last"] + 1:
            found[-1] = {**before, "pub_last": entry["pub_last"]}
        else:
            found.append(entry)
    numbers: dict[str, int] = defaultdict(int)
    for index, entry in enumerate(found):
        numbers[entry["proc"]] += 1
        found[index] = {**entry, "seq": numbers[entry["proc"]]}
    return found


@given(histories())
def test_runs_and_single_rows_give_the_same(rows: list[Row]) -> None:
    by_kind = sorted(rows, key=lambda entry: (entry["client_id"], entry["kind"], entry["seq"]))
    runs = joined(by_kind)
    assert judge(runs) == judge(rows)
    apart = [entry for run in runs for entry in expand({**run, "seq": None})]
    assert [(entry["kind"], entry.get("pub_first")) for entry in apart] == [
        (entry["kind"], entry.get("pub_first")) for entry in by_kind
    ]
    assert judge(apart) == judge([{**entry, "seq": None} for entry in rows])


@given(histories(), st.data())
def test_rows_that_are_missing_turn_nothing_into_lost(rows: list[Row], data: st.DataObject) -> None:
    kept = [entry for entry in rows if data.draw(st.booleans(), "kept")]
    whole = {entry["proc"] for entry in rows}
    if {entry["proc"] for entry in kept} != whole:  # a log of which nothing is left is another story
        return
    before, after = lost(rows), lost(kept)
    assert after <= before


def lost(rows: list[Row]) -> set[str]:
    return {verdict.msg_id for verdict in Judge(brokers=KNOWN).add(rows).verdicts() if verdict.verdict == "lost"}


@given(histories(), st.integers(0, 200))
def test_a_log_that_was_cut_off_turns_nothing_into_lost(rows: list[Row], cut: int) -> None:
    """The commonest loss: the end."""
    names = sorted({entry["proc"] for entry in rows})
    name = names[cut % len(names)]
    log = [entry for entry in rows if entry["proc"] == name]
    kept = [entry for entry in rows if entry["proc"] != name] + log[: max(1, cut % (len(log) + 1))]
    assert lost(kept) <= lost(rows)


def test_the_properties_see_lost_messages_at_all() -> None:
    """They would be worth nothing if no history had one."""
    assert find(histories(), lambda rows: len(lost(rows)) == 2)


def test_expanding_spreads_the_times_evenly() -> None:
    attrs = {"last": "x:4", "count": "4", "last_ts_mono": "90", "note": "n"}
    run = row("publish", "p", "x", 1, pub_last=4, ts_wall=1000, ts_mono=0, attrs=attrs)
    rows = list(expanded([run]))
    assert [(entry["msg_id"], entry["ts_wall"], entry["ts_mono"]) for entry in rows] == [
        ("x:1", 1000, 0), ("x:2", 1030, 30), ("x:3", 1060, 60), ("x:4", 1090, 90),
    ]  # fmt: skip
    assert rows[0]["attrs"] == {"note": "n"} and run["attrs"] == attrs
    assert list(expand(row("connected", "p"))) == [row("connected", "p")]


def test_the_report_counts_what_the_judge_counts() -> None:
    assert {"messages", *(field.name for field in fields(Summary))} == {*COUNTED, "causes"}
