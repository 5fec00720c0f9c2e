"""Exchanges that keep their last message (`qpid.ive`) or the keys of their messages (`x-message-deduplication`): alone,
in a cluster, over a fail-over, over a restart with a journal, and on a backup that has joined late."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.support.three_ways import Client, Site

Exchange, Queue = commands.Exchange, commands.Queue
IVE = {"qpid.ive": 1}
ONCE = {"x-message-deduplication": True}


@pytest.fixture
def site(one_of_five: Site) -> Site:
    return one_of_five


def declare(client: Client, name: str, kind: str, arguments: dict[str, Any]) -> None:
    declaration = Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments=arguments)
    client.call(1, declaration, Exchange.DeclareOk)


def bind(client: Client, queue: str, exchange: str, key: str = "#") -> None:
    client.declare(queue)
    client.call(1, Queue.Bind(queue=queue, exchange=exchange, routing_key=key), Queue.BindOk)


def bodies(client: Client, queue: str) -> list[bytes]:
    found = []
    while (message := client.get(queue)) is not None:
        found.append(message[2])
    return found


def shown(site: Site, name: str) -> dict[str, Any]:
    return next(row for row in site.ask_primary("exchange.list") if row["name"] == name)


def test_the_last_message(site: Site, queue: str) -> None:
    client = site.client().confirming()
    declare(client, queue, "topic", IVE)
    client.confirmed(b"1", b"2", queue="mine", exchange=queue)
    bind(client, f"{queue}.early", queue, "mine")
    client = site.middle().confirming()
    assert shown(site, queue)["kept"] == 1
    bind(client, f"{queue}.late", queue, "mine")
    bind(client, f"{queue}.other", queue, "other")
    bind(client, f"{queue}.early", queue, "mine")
    client.confirmed(b"3", queue="mine", exchange=queue)
    bind(client, f"{queue}.last", queue, "mine")
    found = {name: bodies(client, f"{queue}.{name}") for name in ("early", "late", "other", "last")}
    assert found == {"early": [b"2", b"3"], "late": [b"2", b"3"], "other": [], "last": [b"3"]}


def test_keys(site: Site, queue: str) -> None:
    client = site.client().confirming()
    declare(client, queue, "fanout", ONCE)
    for name in ("a", "b"):
        bind(client, f"{queue}.{name}", queue)
    for n in (1, 2, 1):
        client.confirmed(b"%d" % n, queue="", exchange=queue, message_id=str(n))
    client = site.middle().confirming()
    for n in (1, 2, 3):
        client.confirmed(b"%d" % n, queue="", exchange=queue, message_id=str(n))
    assert shown(site, queue)["remembered"] == 3
    assert [bodies(client, f"{queue}.{name}") for name in ("a", "b")] == [[b"1", b"2", b"3"]] * 2
    client.confirmed(b"2", queue="", exchange=queue, message_id="2")
    assert bodies(client, f"{queue}.a") == []
