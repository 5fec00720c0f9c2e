"""How long a client stood still, by hand; and a report that says otherwise is noticed."""

from torture.second_judge import outages_differ
from torture.waiting import stood_still

SECOND = 1_000_000


def history(*events):
    """(second, kind, id) of one client."""
    begin = {"kind": "begin", "client": "p", "t": 0, "wall": 5 * SECOND}
    return [begin, *({"kind": kind, "client": "p", "id": id, "t": int(at * SECOND)} for at, kind, id in events)]


def stills(*events):
    return [(begin / SECOND, end / SECOND) for begin, end in stood_still(history(*events), SECOND // 10)]


def test_who_has_nothing_to_send_is_not_down():
    assert stills((0, "invoke", "1"), (0.05, "ok", "1"), (9, "invoke", "2"), (9.05, "nack", "2")) == []


def test_the_first_unanswered_message_begins_it_and_the_next_answer_ends_it():
    events = (1, "invoke", "1"), (1.5, "invoke", "2"), (3, "ok", "2"), (3.01, "ok", "1")
    assert stills(*events) == [(1, 3)]


def test_answers_cut_it_and_what_touches_is_one():
    three = [(1, "invoke", "1"), (1, "invoke", "2"), (1, "invoke", "3")]
    assert stills(*three, (2, "ok", "1"), (2.001, "ok", "2"), (4, "ok", "3")) == [(1, 2), (2.001, 4)]
    assert stills(*three[:2], (2, "ok", "1"), (4, "ok", "2")) == [(1, 4)]


def test_what_is_never_answered_waits_for_what_was_sent_later():
    assert stills((1, "invoke", "1"), (1.2, "unknown", "1"), (5, "invoke", "2"), (6, "ok", "2")) == [(1, 6)]
    assert stills((1, "invoke", "1"), (1.2, "unknown", "1")) == []


def test_a_resend_is_the_same_message():
    assert stills((1, "invoke", "1"), (2, "unknown", "1"), (3, "invoke", "1"), (4, "ok", "1")) == [(1, 4)]


def test_a_standstill_that_is_not_reported_is_a_contradiction():
    events = history((1, "invoke", "1"), (3, "ok", "1"))
    row = {"client_id": "p", "ts_begin": 6 * SECOND, "ts_end": 8 * SECOND}
    assert list(outages_differ(events, [row])) == []
    said = ["p stood still for 2.000 s at 1.000, not reported"]
    wrong = [[], [{**row, "client_id": "c"}], [{**row, "ts_begin": 6 * SECOND - 2000}]]
    assert all(list(outages_differ(events, rows)) == said for rows in wrong)
