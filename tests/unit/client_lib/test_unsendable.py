"""What cannot be sent is refused when it is given to the library; what a broker closes the connection for ends its own
session only.  In all three APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client_lib import MessagingError, SendError
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import STYLES, Open, PikaStyle, opened

LONG = "x" * 256
SURROGATE = "a\ud800"


@pytest.fixture
def lab() -> Iterator[tuple[ScriptedBroker, Open]]:
    with opened() as found:
        yield found


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest, lab: tuple[ScriptedBroker, Open]) -> Any:
    return lab[1](request.param)


BAD: dict[str, Callable[[Any], object]] = {
    "long routing key": lambda style: style.publish(LONG),
    "long exchange": lambda style: style.publish("k", exchange=LONG),
    "long key, few characters": lambda style: style.publish("ä" * 128),
    "surrogate in the routing key": lambda style: style.publish(SURROGATE),
    "surrogate in the exchange": lambda style: style.publish("k", exchange=SURROGATE),
    "routing key that is no text": lambda style: style.publish(7),
    "exchange that is no text": lambda style: style.publish("k", exchange=7),
    "long name of a header": lambda style: style.publish("k", headers={LONG: 1}),
    "surrogate in a header": lambda style: style.publish("k", headers={"a": SURROGATE}),
    "a header that cannot be encoded": lambda style: style.publish("k", headers={"a": object()}),
    "headers above frame_max": lambda style: style.publish("k", headers={"a": "x" * 200_000}),
    "argument of consume": lambda style: style.consume("q", {"a": object()}),
    "surrogate in an argument of consume": lambda style: style.consume("q", {"a": SURROGATE}),
    "arguments of consume above frame_max": lambda style: style.consume("q", {"a": "x" * 200_000}),
    "receiver on a long queue name": lambda style: style.consume("q" * 300),
    "argument of a declaration": lambda style: style.declare("q", {"a": object()}),
    "arguments of a declaration above frame_max": lambda style: style.declare("q", {"a": "x" * 200_000}),
    "long name of a declared queue": lambda style: style.declare("q" * 300),
    "get from a long queue name": lambda style: style.get("q" * 300),
    "get from a surrogate": lambda style: style.get(SURROGATE),
}


@pytest.mark.parametrize("what", BAD)
def test_it_is_refused_at_once_and_nothing_else_notices(what: str, style: Any) -> None:
    with pytest.raises(Exception) as refused:  # pika's encoder raises errors of its own in its API
        BAD[what](style)
    assert not isinstance(refused.value, TimeoutError), refused.value
    style.publish("k", b"same session")
    style.declare("q")
    style.get("q")
    style.consume("q")
    style.publish("k", b"another one", number=1)
    assert style.failovers == 0


@pytest.mark.parametrize("size", [4020, 4047, 4051, 4060, 4065, 4066, 4067, 4068, 4080, 8000])
def test_a_broker_with_small_frames(size: int, style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    """Also when it is sent again, with one more header."""
    broker, connect = lab
    broker.frame_max = 4096
    small = connect(type(style))
    try:
        small.publish("k", headers={"a": "x" * (size - 48)})  # 48 octets of properties besides, or more
    except (ValueError, SendError):  # before, or when its channel is open
        assert size > 4020
    small.publish("k", b"another one")
    assert small.failovers == 0


def test_a_message_that_the_broker_closes_the_connection_for(style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    """Between two sessions, and in a window with messages that the broker takes."""
    broker, connect = lab
    style = connect(type(style), **({"publish_window": 100} if type(style).__name__ == "PikaStyle" else {}))
    broker.close_at = lambda body: (501, "FRAME_ERROR") if body == b"poison" else None
    style.session(0)
    style.session(1)
    broker.confirm = "hold"
    for number in (0, 1):
        for count in range(5):
            style.post("k", f"{number} {count}".encode(), number=number)
    wait_for(lambda: len(broker.store.queues.get("k", ())) == 10)
    broker.confirm = "ack"
    style.post("k", b"poison", number=1)
    with pytest.raises(MessagingError, match="501") as refused:
        style.sync(1)
    error: Any = refused.value if isinstance(refused.value, SendError) else refused.value.__cause__
    assert error.message.body == b"poison"
    style.sync(0)
    if not isinstance(style, PikaStyle):  # whose channel is closed already
        style.close_session(1)  # raises nothing again
    style.publish("k", b"goes on", number=0)
    style.publish("k", b"new session", number=2)
    style.sync(0)
    style.sync(2)
    bodies = {body for _, _, body, _ in broker.store.queues["k"]}
    wanted = {f"{number} {count}".encode() for number in (0, 1) for count in range(5)}
    assert bodies == wanted | {b"goes on", b"new session"}
    assert style.failovers <= 5


def test_a_close_that_no_message_caused_ends_no_session(style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    broker, _ = lab
    for count in range(6):
        refusals = iter([(541, "INTERNAL_ERROR")])
        broker.close_at = lambda body, refusals=refusals: next(refusals, None)  # type: ignore[misc]
        style.publish("k", f"{count}".encode())
    assert style.failovers == 6
