"""The judge of shovels and routes: a loss, a doubled message without a mark and an overtaken one are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testkit.queues import LANDED, SHIP, SHIPPED, rule_of
from torture.arrivals import Arrivals, Event


def event(client: str, kind: str, id: str = "", **more: Any) -> Event:
    return {"client": client, "kind": kind, "id": id, **more}


def history(
    *came: str, sent: str = "abc", refused: str = "", acked: str | None = None, kind: str = SHIPPED
) -> Iterator[Event]:
    """`came`: ids, with `*` behind what was marked as redelivered and `+` behind what was marked as sent again."""
    yield event("p", "begin", **rule_of(f"torture.{SHIP if kind == SHIPPED else kind}", False))
    yield event("c", "begin", **rule_of(f"torture.{kind}", False))
    for id in sent:
        yield event("p", "invoke", id)
        yield event("p", "nack" if id in refused else "ok", id)
    for text in came:
        yield event("c", "receive", text[0], redelivered="*" in text, resent="+" in text)
        if acked is None or text[0] in acked:
            yield event("c", "ack", text[0])


def broken(*came: str, drained: bool = True, **more: Any) -> list[str]:
    return Arrivals().add(history(*came, **more)).broken(drained)


def test_what_is_promised() -> None:
    assert broken("a", "b", "c") == []
    assert broken("a", "b", "b*", "c", "b+") == [], "marked duplicates"
    assert broken("a", "c", "b*") == [], "what is marked may come later"
    assert broken("b*", "a", "c", "b") == [], "the two came by two ways: it is the first time that counts"
    assert broken("a", "b", drained=False) == [], "it may still come"
    assert Arrivals().add(history("a", "b*", "b", "c")).counts() == {
        "shovel": {"confirmed": 3, "arrived": 3, "marked": 1}
    }


@pytest.mark.parametrize(
    ("came", "text"),
    [
        (("a", "c"), "1 confirmed and not arrived (b)"),
        ((), "3 confirmed and not arrived (a b c)"),
        (("a", "b", "b", "c"), "1 came twice without a mark (b)"),
        (("a", "b", "b*", "b", "c"), "1 came twice without a mark (b)"),
        (("a", "c", "b"), "1 overtaken, without a mark (b)"),
        (("a", "b", "c", "x"), "1 arrived and never published (x)"),
    ],
)
@pytest.mark.parametrize(("kind", "name"), [(SHIPPED, "shovel"), (LANDED, "dynamic route")])
def test_each_promise_that_is_broken(came: tuple[str, ...], text: str, kind: str, name: str) -> None:
    assert broken(*came, kind=kind) == [f"{name}: {text}"]


def test_what_was_received_and_never_acknowledged_has_not_arrived() -> None:
    assert broken("a", "b", "c", acked="ab") == ["shovel: 1 confirmed and not arrived (c)"]


def test_what_the_route_had_no_queue_for() -> None:
    assert broken("a", "b", refused="c", kind=LANDED) == ["dynamic route: 1 had no queue of the route (c)"]


def test_clients_of_other_queues_are_not_judged() -> None:
    others = [event("q", "begin", **rule_of("torture.plain", False)), event("q", "invoke", "z"), event("q", "ok", "z")]
    assert Arrivals().add(others).broken(True) == []


def test_many_are_counted_and_few_are_named() -> None:
    assert broken(sent="abcdefgh") == ["shovel: 8 confirmed and not arrived (a b c d e ...)"]
