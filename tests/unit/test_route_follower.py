"""A route that follows bindings, before it begins: sources that cannot have one, and one that can."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_lib import InvalidOption
from qpidd_py.shovel.follower import Follower
from qpidd_py.shovel.here import Here, NotOurs, Place, place_of

VALUE = {
    "src-uri": "amqp://far",
    "src-exchange": "x",
    "src-exchange-queue": "b",
    "dest-uri": "amqp:///v",
    "dest-exchange": "x",
    "src-follow-bindings": True,
}


class Beside:
    """The broker beside us, with one exchange."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, []

    def ask(self, method: str, arguments: dict[str, Any]) -> Any:
        self.asked.append((method, arguments["vhost"], arguments["exchange"]))
        if self.error is not None:
            raise self.error
        if method == "route.bindings":
            return []
        return {
            "history": "h",
            "last": 0,
            "tag": "here",
            "type": "topic",
            "changes": [] if arguments["after"] else None,
        }

    def close(self) -> None:
        pass


class Source:
    """A connection to the source, and its session."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self._answer = answer

    async def session(self) -> Source:
        return self

    async def manage(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert (method, arguments) == ("route.paths", {"exchange": "x"})
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def begun(answer: dict[str, Any] | Exception, beside: Beside) -> Follower:
    async def begin() -> Follower:
        here = Here(beside, place_of(VALUE))  # type: ignore[arg-type]
        here.routes.add("r")
        try:
            follower = Follower(here, "r", VALUE)
            await follower.begin(Source(answer))  # type: ignore[arg-type]
            return follower
        finally:
            await here.end()

    return asyncio.run(begin())


def said(**result: Any) -> dict[str, Any]:
    return {"ok": True, "result": {"tag": "far", "type": "topic", "paths": None, **result}}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (InvalidOption("404"), "only a broker of this kind has routes that follow bindings; add a route for each key"),
        ({"ok": False, "error": "unknown method 'route.paths'"}, "the source: unknown method"),
        (said(tag="here"), "federation tag 'here' of the source is the one here, too"),
        (said(type="direct"), "exchange 'x' is direct there, and topic here"),
    ],
)
def test_a_source_that_cannot_have_one(answer: dict[str, Any] | Exception, text: str) -> None:
    with pytest.raises(NotOurs) as found:
        begun(answer, Beside())
    assert text in str(found.value)


def test_it_knows_its_source_and_asks_for_its_virtual_host() -> None:
    beside = Beside()
    assert begun(said(paths=["farther"]), beside).source == "far"
    assert place_of(VALUE) == Place("v", "x") and set(beside.asked) == {
        ("route.changes", "v", "x"),
        ("route.bindings", "v", "x"),
    }


def test_what_is_wrong_here_is_said() -> None:
    with pytest.raises(NotOurs, match=r"the bindings here: .*no exchange"):
        begun(said(), Beside(OSError("no exchange 'x'")))
