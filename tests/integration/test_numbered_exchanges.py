"""Exchanges that number their messages: stand-alone, in a cluster, over a fail-over, over a restart with a journal, and
on a backup that has joined late and became the primary."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pamqp import commands

from tests.support.three_ways import Client, Site

Basic, Exchange, Queue, Tx = commands.Basic, commands.Exchange, commands.Queue, commands.Tx
HEADER = "qpid.msg_sequence"


@pytest.fixture
def site(one_of_five: Site) -> Site:
    return one_of_five


@pytest.fixture
def name(queue: str) -> str:
    return queue


def declare(client: Client, name: str, kind: str = "topic", numbering: Any = 1) -> None:
    declaration = Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments={HEADER: numbering})
    client.call(1, declaration, Exchange.DeclareOk)


def bind(client: Client, queue: str, exchange: str, key: str = "#", **arguments: Any) -> None:
    client.declare(queue, arguments=arguments)
    client.call(1, Queue.Bind(queue=queue, exchange=exchange, routing_key=key), Queue.BindOk)


def numbers(client: Client, queue: str) -> list[tuple[bytes, Any]]:
    found = []
    while (message := client.get(queue)) is not None:
        found.append((message[2], message[1].get(HEADER)))
    return found


def shown(site: Site, name: str) -> dict[str, Any]:
    return next(row for row in site.ask_primary("exchange.list") if row["name"] == name)


def test_numbers_go_on(site: Site, name: str) -> None:
    """Messages for no queue are counted as well: a consumer sees that it has missed them."""
    client = site.client().confirming()
    declare(client, name)
    bind(client, name, name, "mine.#")
    client.confirmed(b"1", b"2", queue="mine", exchange=name)
    client.confirmed(b"3", b"4", queue="other", exchange=name)
    client = site.middle().confirming()
    assert shown(site, name)["numbered"] == 4 and shown(site, name)["arguments"][HEADER] == 1
    client.confirmed(b"5", queue="mine", exchange=name, headers={HEADER: 1})
    assert numbers(client, name) == [(b"1", 1), (b"2", 2), (b"5", 5)]


def test_a_redeclaration_compares(site: Site, name: str) -> None:
    declare(site.client(), name)
    client = site.middle()
    declare(client, name, numbering=True)
    off: list[dict[str, Any]] = [{}, {HEADER: 0}]
    for arguments in off:
        again = Exchange.Declare(exchange=name, exchange_type="topic", durable=True, arguments=arguments)
        assert client.refusal(again) == 406


def test_two_exchanges_in_a_row_and_dead_letters(site: Site, name: str) -> None:
    client = site.client()
    first, second = f"{name}.first", f"{name}.second"
    for exchange in (first, second):
        declare(client, exchange, "fanout")
        bind(client, exchange, exchange)
    client.call(1, Exchange.Bind(destination=second, source=first, routing_key=""), Exchange.BindOk)
    ring = {"x-dead-letter-exchange": second, "x-max-length": 1}
    client.declare(f"{name}.ring", arguments=ring)
    client.confirming()
    client.confirmed(b"a", queue="", exchange=second)
    client.confirmed(b"b", queue="", exchange=first)
    client.confirmed(b"dies", queue=f"{name}.ring")
    client.confirmed(b"stays", queue=f"{name}.ring")
    client = site.middle().confirming()
    client.confirmed(b"c", queue="", exchange=first)
    client.confirmed(b"dies, too", queue=f"{name}.ring")
    assert numbers(client, first) == [(b"b", 1), (b"c", 2)]
    assert numbers(client, second) == [(b"a", 1), (b"b", 2), (b"dies", 3), (b"c", 4), (b"stays", 5)]


def test_a_transaction_and_an_exchange_that_is_made_again(site: Site, name: str) -> None:
    client = site.client()
    declare(client, name, "fanout")
    bind(client, name, name)
    client.call(1, Tx.Select(), Tx.SelectOk)
    for n in range(3):
        client.publish(b"%d" % n, "", exchange=name)
    client.call(1, Tx.Rollback(), Tx.RollbackOk)
    for n in range(3):
        client.publish(b"%d" % n, "", exchange=name)
    client.call(1, Tx.Commit(), Tx.CommitOk)
    client = site.middle().confirming()
    client.confirmed(b"3", queue="", exchange=name)
    assert numbers(client, name) == [(b"%d" % n, n + 1) for n in range(4)]
    client.call(1, Exchange.Delete(exchange=name), Exchange.DeleteOk)
    declare(client, name, "fanout")
    bind(client, name, name)
    client.confirmed(b"new", queue="", exchange=name)
    assert numbers(client, name) == [(b"new", 1)]


@pytest.mark.parametrize("site", ["fail-over"], indirect=True)
def test_no_number_twice_among_what_was_confirmed(site: Site, name: str) -> None:
    """Two publishers in a hurry; the primary dies under them.  What was confirmed has numbers of its own, in the order
    of its queue, and what comes after has higher ones."""
    client = site.client()
    declare(client, name, "fanout")
    bind(client, name, name)
    confirmed: list[bytes] = []
    threads = [threading.Thread(target=hurry, args=(site, name, b"%d" % n, confirmed)) for n in range(2)]
    for thread in threads:
        thread.start()
    while len(confirmed) < 300:
        assert any(thread.is_alive() for thread in threads)
    client = site.middle().confirming()
    for thread in threads:
        thread.join()
    client.confirmed(b"after", queue="", exchange=name)
    found = numbers(client, name)
    given = [number for _, number in found]
    assert given == sorted(set(given)) and found[-1][0] == b"after"
    assert set(confirmed) <= {body for body, _ in found}


def hurry(site: Site, name: str, who: bytes, confirmed: list[bytes]) -> None:
    """Publishes, 20 at a time, until the connection ends."""
    client = site.client().confirming()
    told = sent = 0
    try:
        while True:
            for _ in range(20):
                sent += 1
                client.publish(who + b".%d" % sent, "", exchange=name)
            while told < sent:
                frame = client.read()
                if frame is None or not isinstance(frame[1], Basic.Ack):
                    return
                upto = int(frame[1].delivery_tag or 0)
                confirmed += [who + b".%d" % n for n in range(told + 1, upto + 1)]
                told = upto
    except OSError:
        return
