"""The client of the handshake: how its input is cut does not matter, and garbage costs the connection only."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header
from pamqp.body import ContentBody

from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import ClientHandshake, ClientState
from qpidd_py.amqp.management_client import Answer, ManagementClient
from qpidd_py.errors import ConnectionException

HANDSHAKE = b"".join(
    frame.marshal(command, 0)
    for command in (
        commands.Connection.Start(0, 9, {"product": "x"}, "PLAIN"),
        commands.Connection.Tune(2047, 131072, 60),
        commands.Connection.OpenOk(),
    )
)
CHANNEL = frame.marshal(commands.Channel.OpenOk(), 1) + frame.marshal(commands.Basic.ConsumeOk("t"), 1)


def delivery(number: int, answer: Any, pieces: int) -> bytes:
    body = json.dumps(answer).encode()
    step = max(1, -(-len(body) // pieces))
    properties = commands.Basic.Properties(correlation_id=str(number))
    frames: list[Any] = [
        commands.Basic.Deliver("t", 1, False, "", "qpid.management"),
        header.ContentHeader(body_size=len(body), properties=properties),
        *(ContentBody(body[start : start + step]) for start in range(0, len(body), step)),
    ]
    return b"".join(frame.marshal(part, 1) for part in frames)


def feed_in_pieces(connection: Any, data: bytes, cuts: list[int]) -> list[Any]:
    events = []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        events += connection.feed(data[start:end])
    return events


cuts = st.lists(st.integers(0, 10_000), max_size=20)


@given(st.dictionaries(st.integers(1, 5), st.integers() | st.text(), min_size=1), st.integers(1, 4), cuts)
def test_answers_do_not_depend_on_how_octets_arrive(answers: dict[int, Any], pieces: int, cuts: list[int]) -> None:
    client = ManagementClient()
    for _ in range(5):
        client.request("x")
    data = HANDSHAKE + CHANNEL + b"".join(delivery(n, {"ok": True, "result": r}, pieces) for n, r in answers.items())
    events = feed_in_pieces(client, data, cuts)
    assert events[1:] == [Answer(number, True, result, "") for number, result in answers.items()]
    assert client.outstanding == {1, 2, 3, 4, 5} - set(answers)


@given(st.binary(max_size=100), cuts)
def test_what_follows_the_handshake_is_handed_out_whole(rest: bytes, cuts: list[int]) -> None:
    connection = AmqpClient(ClientHandshake(), stop_when_open=True)
    feed_in_pieces(connection, HANDSHAKE + rest, cuts)
    assert connection.left_over() == rest


@given(st.integers(0, len(HANDSHAKE + CHANNEL)), st.binary(min_size=1, max_size=60))
def test_garbage_at_any_place_costs_the_connection_only(place: int, garbage: bytes) -> None:
    data = HANDSHAKE + CHANNEL
    client = ManagementClient()
    client.request("x")
    try:
        client.feed(data[:place] + garbage + data[place:])
    except ConnectionException:
        assert client.connection.state is ClientState.CLOSED


@given(st.integers(0, len(HANDSHAKE + CHANNEL) - 1), st.integers(0, 255))
def test_one_wrong_octet_costs_the_connection_only(place: int, octet: int) -> None:
    data = bytearray(HANDSHAKE + CHANNEL + delivery(1, {"ok": True}, 2))
    data[place] = octet
    client = ManagementClient()
    client.request("x")
    try:
        client.feed(bytes(data))
    except ConnectionException:
        assert client.connection.state is ClientState.CLOSED
