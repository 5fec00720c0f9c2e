"""Nothing that was refused or is in doubt vanishes: sync, close and the end of `with` say so.  In all three APIs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client_lib import InDoubt, Rejected, Returned
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import STYLES, Open, PikaStyle, opened

COUNT = 5
SHORT = 1.0
"""Seconds."""


@pytest.fixture
def lab() -> Iterator[tuple[ScriptedBroker, Open]]:
    with opened() as found:
        yield found


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest, lab: tuple[ScriptedBroker, Open]) -> Any:
    return lab[1](request.param, **({"publish_window": 100} if request.param is PikaStyle else {}))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unsettled is not waited for as long as by default."""
    for module in ("client_lib.connection", "client_lib.aio.connection", "client_lib.failover.core"):
        monkeypatch.setattr(f"{module}.CLOSE_TIME", SHORT)
    monkeypatch.setattr("client_lib.failover.connection.CLOSE_TIME", SHORT)
    for method in ("connection.Connection._end", "session.Session.close", "aio.session.Session.close"):
        monkeypatch.setattr(f"client_lib.{method}.__defaults__", (SHORT,))


def refused(style: Any, broker: ScriptedBroker, how: str) -> None:
    """The first message is taken, the others are not."""
    style.post("q", b"taken")
    style.sync()
    broker.confirm = "hold"
    for number in range(COUNT):
        style.post("q", str(number).encode(), mandatory=True)
    wait_for(lambda: len(broker.peers[-1].held) == COUNT)
    broker.refuse_held(how)


ENDS: dict[str, Callable[[Any], object]] = {
    "sync": lambda style: style.sync(),
    "session.close": lambda style: style.close_session(),
    "with": lambda style: style.leave(),
}
HOW: dict[str, Any] = {"nack": Rejected, "return": Returned}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("end", ENDS)
def test_a_refusal_is_raised(end: str, how: str, style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    refused(style, lab[0], how)
    with pytest.raises(HOW[how]) as error:
        ENDS[end](style)
    assert error.value.message.body == b"0"


@pytest.mark.parametrize("how", HOW)
def test_each_refusal_is_raised_once(how: str, style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    refused(style, lab[0], how)
    bodies = []
    for _ in range(COUNT - 1):
        with pytest.raises(HOW[how]) as error:
            style.sync()
        bodies.append(error.value.message.body)
    with pytest.raises(HOW[how]) as error:
        style.close_session()
    assert [*bodies, error.value.message.body] == [str(number).encode() for number in range(COUNT)]
    style.leave()


@pytest.mark.parametrize("how", HOW)
def test_each_refusal_is_logged_once(
    how: str, style: Any, lab: tuple[ScriptedBroker, Open], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "client_lib"):
        refused(style, lab[0], how)
        with pytest.raises(HOW[how]):
            style.leave()
    lines = [record.getMessage() for record in caplog.records if "was not taken: " in record.getMessage()]
    assert len(set(lines)) == len(lines) == COUNT


@pytest.mark.usefixtures("hurried")
def test_the_connection_returns_what_was_refused_and_what_is_in_doubt(
    style: Any, lab: tuple[ScriptedBroker, Open]
) -> None:
    broker, _ = lab
    refused(style, broker, "nack")
    style.post("q", b"doubtful", number=1)
    if isinstance(style, PikaStyle):
        with pytest.raises(Rejected):
            style.close()
        return
    left = style.close(timeout=SHORT)
    assert [message.body for message in left] == [*(str(number).encode() for number in range(COUNT)), b"doubtful"]
    assert style.close() == []


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("end", ["session.close", "with"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_doubt_is_raised(gone: bool, end: str, style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    """`gone`: there is no broker any more."""
    broker, _ = lab
    style.session(0)
    broker.confirm = "hold"
    if gone:
        broker.kill()
    for number in range(COUNT):
        style.post("q", str(number).encode())
    with pytest.raises(InDoubt, match=f"{COUNT} messages in doubt"):
        ENDS[end](style)


@pytest.mark.parametrize("how", HOW)
def test_another_error_on_its_way_is_not_replaced(how: str, style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    refused(style, lab[0], how)
    style.leave(KeyError("the program's"))


def test_a_session_that_the_broker_ended(style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    """Its messages are in doubt, and nobody has asked since."""
    broker, _ = lab
    style.post("q", b"taken")
    style.sync()
    broker.confirm = "hold"
    style.post("q", b"doubtful")
    wait_for(lambda: broker.peers[-1].publishes == 2)
    broker.close_channels(404, "NOT_FOUND")
    with pytest.raises(Exception, match="404"):
        style.leave()
