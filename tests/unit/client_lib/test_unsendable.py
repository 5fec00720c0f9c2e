"""What cannot be sent is refused when it is given to the library; what a broker closes the connection for ends its own
session only.  In all three APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from client_lib import FatalCommand, MessagingError, SendError, Unsendable
from client_lib.content import HEADERS_DEPTH_MAX
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import UNANSWERED, ScriptedBroker
from tests.unit.client_lib.styles import STYLES, Asyncio, Open, PikaStyle, opened

LONG = "x" * 256
SURROGATE = "a\ud800"


@pytest.fixture
def lab() -> Iterator[tuple[ScriptedBroker, Open]]:
    with opened() as found:
        yield found


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest, lab: tuple[ScriptedBroker, Open]) -> Any:
    return lab[1](request.param)


def nested(depth: int = HEADERS_DEPTH_MAX + 1) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _ in range(depth):
        table = {"t": table}
    return table


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
    "headers too deep in each other": lambda style: style.publish("k", headers=nested()),
    "arguments of consume too deep in each other": lambda style: style.consume("q", nested()),
    "arguments of a declaration too deep in each other": lambda style: style.declare("q", nested()),
    "headers without a bottom": lambda style: style.publish("k", headers=nested(2000)),
    "arguments of consume without a bottom": lambda style: style.consume("q", nested(2000)),
    "arguments of a declaration without a bottom": lambda style: style.declare("q", nested(2000)),
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


def of_poison(code: int) -> Callable[[Any], tuple[int, str] | None]:
    """Closes for each method that names the queue `poison`."""
    return lambda method: (code, "POISONED") if getattr(method, "queue", "") == "poison" else None


@pytest.mark.parametrize("code", [501, 541])
@pytest.mark.parametrize("what", ["declare", "get", "consume"])
def test_a_command_that_the_broker_closes_the_connection_for(
    code: int, what: str, style: Any, lab: tuple[ScriptedBroker, Open]
) -> None:
    broker, _ = lab
    style.publish("k", b"before", number=1)
    broker.close_for = of_poison(code)
    with pytest.raises(MessagingError, match=f"{code}.*POISONED") as refused:
        getattr(style, what)("poison")
    if code == 541:  # it may pass, so it is tried again
        error: Any = refused.value if isinstance(refused.value, FatalCommand) else refused.value.__cause__
        assert "poison" in error.command
    style.publish("k", b"another one", number=1)
    style.declare("q", number=2)
    assert style.failovers == (3 if code == 541 else 1)


@pytest.mark.parametrize("code", [503, 541])
def test_commands_of_other_sessions_at_the_same_time_are_done(
    code: int, style: Any, lab: tuple[ScriptedBroker, Open]
) -> None:
    broker, _ = lab
    for number in range(3):
        style.publish("k", number=number)
    waiting: set[str] = set()

    def close(method: Any) -> tuple[int, str] | None:
        """The first connection when all three wait for an answer, then each for the poison."""
        if method.name == "Queue.Declare" and len(waiting) < 3:
            waiting.add(method.queue)
            return (code, "POISONED") if len(waiting) == 3 else UNANSWERED
        return of_poison(code)(method)

    broker.close_for = close
    with ThreadPoolExecutor(2) as threads:
        others = [threads.submit(style.declare, f"q{number}", None, number) for number in (1, 2)]
        with pytest.raises(MessagingError, match=f"{code}.*POISONED"):
            style.declare("poison")
        for other in others:
            other.result(30)
    assert {"q1", "q2"} <= set(broker.store.queues) and "poison" not in broker.store.queues
    style.publish("k", number=1)
    assert style.failovers == (4 if code == 541 else 2)


@pytest.mark.parametrize("code", [501, 541])
def test_what_is_restored_and_the_broker_closes_for(code: int, lab: tuple[ScriptedBroker, Open], style: Any) -> None:
    """The other sessions wait only until it is known whose fault it is."""
    broker, connect = lab
    style = connect(type(style), restore_timeout=0)
    for number in range(3):
        style.declare("poison" if number == 1 else "q", number=number)
    broker.close_for = of_poison(code)
    broker.drop()
    for number in (0, 2):
        style.publish("k", number=number)
    with pytest.raises(MessagingError, match=f"{code}.*POISONED"):
        style.publish("k", number=1)
    assert style.failovers <= 5


def test_an_internal_error_while_restoring_may_pass(lab: tuple[ScriptedBroker, Open], style: Any) -> None:
    """A RabbitMQ that is busy with its own fail-over answers so for a while."""
    broker, _ = lab
    style.declare("poison")
    closes = iter([(541, "INTERNAL_ERROR")] * 5)
    broker.close_for = lambda method: next(closes, None) if method.name == "Queue.Declare" else None
    broker.drop()
    style.publish("k")
    assert style.failovers == 6


def test_a_command_beside_a_transaction_on_trial(lab: tuple[ScriptedBroker, Open]) -> None:
    """All that another session asks for at the same moment is done, too."""
    broker, connect = lab
    style = connect(Asyncio)
    for number in (1, 2):
        style.begin(number)
    refusals = iter([(541, "ONCE")])
    broker.close_at = lambda body: next(refusals, None) if body == b"x" else None
    assert tried(style, 1, b"x") is not None

    async def together() -> None:
        suspect, other = style.inner.sessions
        senders = [session.queue_sender("k") for session in (suspect, other)]
        await senders[1].send(b"y", sync=False)
        while not other._waiting.worker.transaction.published:  # on the wire, and the broker has not answered
            await asyncio.sleep(0)
        await asyncio.gather(other.declare_queue("q"), senders[0].send(b"z", sync=False))
        await asyncio.gather(suspect.commit(20), other.commit(20))

    style.run(together())
    assert {body for _, _, body, _ in broker.store.queues["k"]} == {b"y", b"z"}


def test_a_transaction_that_the_broker_closes_the_connection_for(style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    """The program does it again and again, as it should.  Two other sessions go on, one with transactions."""
    broker, _ = lab
    broker.close_at = lambda body: (541, "POISONED") if body == b"poison" else None
    style.begin(1)
    style.begin(2)
    for _ in range(10):
        error = tried(style, 1, b"a", b"poison", b"b")
        if "POISONED" in str(error):
            break
        style.publish("k", b"another one", number=0)
        done_in_a_transaction(style, 2)
    told: Any = error if isinstance(error, Unsendable) else getattr(error, "__cause__", None)
    assert isinstance(told, Unsendable), error
    assert told.message.body == b"poison"
    assert style.failovers <= 5
    style.publish("k", b"at last", number=0)
    done_in_a_transaction(style, 2)
    bodies = [body for _, _, body, _ in broker.store.queues["k"]]
    assert b"a" not in bodies and bodies[-2:] == [b"at last", b"in a transaction"]


def tried(style: Any, number: int, *bodies: bytes) -> Exception | None:
    """A transaction, rolled back if it fails: what the program sees then, pika's errors too."""
    try:
        for body in bodies:
            style.post("k", body, number=number)
        style.commit(number)
        return None
    except Exception as error:
        failure = error
    try:
        style.roll_back(number)
    except Exception as error:  # the channel is closed
        failure = failure if "POISONED" in str(failure) else error
    return failure


def done_in_a_transaction(style: Any, number: int) -> None:
    """Also if the first one is lost with the connection."""
    assert None in (tried(style, number, b"in a transaction") for _ in range(5))
