"""Rows about clients that come and go: as many as the log can bear, the rest counted."""

from __future__ import annotations

from typing import Any

import pytest

from ha.shell.client_rows import ClientRows, carried, described


class Rows:
    def __init__(self, burst: int = 3, rate: float = 1.0) -> None:
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.clients = ClientRows(lambda kind, **fields: self.written.append((kind, fields)), burst, rate)

    def open(self, number: int, now: float) -> None:
        self.clients.opened(number, {"peer": f"h:{number}"}, {"user": "u"}, now)


def test_a_client_has_a_row_for_coming_and_one_for_going() -> None:
    rows = Rows()
    rows.open(7, 0.0)
    rows.clients.closed(7, "closed by the client")
    rows.clients.tick(1.0)
    assert rows.written == [
        ("client_open", {"peer": "h:7", "attrs": {"user": "u"}}),
        ("client_close", {"peer": "h:7", "reason": "closed by the client"}),
    ]


def test_a_rush_is_counted_and_no_client_has_half_a_life() -> None:
    rows = Rows()
    for number in range(1, 11):
        rows.open(number, 0.0)
        rows.clients.closed(number, "gone")
    rows.clients.tick(0.5)
    kinds = [(kind, fields.get("peer"), fields.get("attrs")) for kind, fields in rows.written]
    assert [(kind, peer) for kind, peer, _ in kinds[:6]] == [
        (kind, f"h:{number}") for number in (1, 2, 3) for kind in ("client_open", "client_close")
    ]
    assert kinds[6:] == [("client_open", None, {"left_out": 7, "left_out_closed": 7})]


def test_counts_are_one_row_a_second() -> None:
    rows = Rows(burst=1, rate=0.0)
    for number in range(150):
        rows.open(number, number / 50)
        rows.clients.tick(number / 50)
    counts = [fields["attrs"]["left_out"] for _, fields in rows.written[1:]]
    rows.clients.count()
    assert len(counts) == 2 and sum(counts) + rows.written[-1][1]["attrs"]["left_out"] == 149


def test_there_is_room_again_later() -> None:
    rows = Rows(burst=2, rate=1.0)
    for now in (0.0, 0.0, 0.0, 0.9, 1.1, 100.0, 100.0, 100.0):
        rows.open(len(rows.written) + 100, now)
    assert len(rows.written) == 5
    rows.clients.count()
    assert rows.written[-1][1]["attrs"] == {"left_out": 3, "left_out_closed": 0}


def test_what_a_client_says_of_itself() -> None:
    said = {"qpid.client_id": "p1", "qpid.conn_id": "p1#3", "product": "x" * 1000}
    fields, attrs = described("10.0.0.9:4711", "guest", said)
    assert fields == {"peer": "10.0.0.9:4711", "client_id": "p1", "conn_id": "p1#3"}
    assert attrs == {"user": "guest", "product": "x" * 200}
    assert described("h:1", "", {"qpid.client_id": 7, "product": None})[0]["client_id"] == ""


@pytest.mark.parametrize("said", [{}, {"qpid.time": "now"}, {"qpid.time": True}, {"qpid.time": 0}, {"qpid.time": -1}])
def test_a_client_that_says_no_time(said: dict[str, Any]) -> None:
    assert carried(said, 5) is None


def test_a_reading_is_carried_forward() -> None:
    assert carried({"qpid.time": 1_000_000}, 250) == 1_000_250
