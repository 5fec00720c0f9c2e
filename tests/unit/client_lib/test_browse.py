"""Browsing: what is asked next, and what becomes of the answers."""

import base64
import json
from typing import Any

import pytest

from client_lib import InvalidOption, Message, NotFound, ReceiverError
from client_lib.addresses.browse import PAUSE_MAX, PAUSE_MIN, Browser


def shown(position: int, content: Any = b"", **names: Any) -> dict[str, Any]:
    """A message as `queue.peek` shows it."""
    message = Message(content)
    header = b"\0" * 12 + message.encode(f"id {position}")
    found = {"position": position, "redelivered": False, "exchange": "", "routing_key": "q"}
    return (
        found | names | {"header": base64.b64encode(header).decode(), "body": base64.b64encode(message.body).decode()}
    )


def answer(*result: Any) -> bytes:
    return json.dumps({"ok": True, "result": list(result)}).encode()


def test_it_goes_on_behind_the_last_message_it_saw() -> None:
    browser = Browser("q")
    assert json.loads(browser.request(7)) == {"queue": "q", "after": 0, "limit": 7}
    messages = browser.answered(answer(shown(5, b"\xff"), shown(9, {"a": 1.5}, redelivered=True, exchange="x")))
    assert [(message.content, message.id) for message in messages] == [(b"\xff", "id 5"), ({"a": 1.5}, "id 9")]
    assert [(message.redelivered, message.exchange, message.subject) for message in messages] == [
        (False, "", None),
        (True, "x", "q"),
    ]
    assert json.loads(browser.request(1))["after"] == 9
    assert browser.answered(answer()) == []
    assert browser.position == 9


def test_pauses_grow_while_there_is_nothing_and_begin_again() -> None:
    browser = Browser("q")
    pauses = []
    for _ in range(12):
        browser.answered(answer())
        pauses.append(browser.pause)
    assert pauses[:3] == [2 * PAUSE_MIN, 4 * PAUSE_MIN, 8 * PAUSE_MIN]
    assert pauses[-2:] == [PAUSE_MAX, PAUSE_MAX]
    browser.answered(answer(shown(1)))
    assert browser.pause == PAUSE_MIN


def test_a_key_that_is_no_text_is_shown_escaped() -> None:
    (message,) = Browser("q").answered(answer(shown(1, routing_key={"base64": base64.b64encode(b"a\xff").decode()})))
    assert message.routing_key == "a\\xff"


@pytest.mark.parametrize(
    ("error", "code", "kind"), [("no queue 'q'", 404, NotFound), ("unknown method 'queue.peek'", 406, ReceiverError)]
)
def test_a_refusal_ends_it(error: str, code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"browsing q: {error}"):
        Browser("q").answered(json.dumps({"ok": False, "error": error, "code": code}).encode())


def test_a_broker_whose_peek_is_older_is_told() -> None:
    with pytest.raises(InvalidOption, match="knows no position"):
        Browser("q").answered(answer({"position": 1, "body": "x"}))
    assert Browser("q").answered(answer()) == []
