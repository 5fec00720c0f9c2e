"""What the two ends of a connection tell each other of their clocks, and what a client writes about its deliveries."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import commands

from client_lib.connecting.transport import CLIENT_ID, CONN_ID, TIME
from tests.support.wait import wait_for
from tests.unit.client_lib.link_lab import CALM, LinkLab, links
from tests.unit.client_lib.scripted_broker import Peer
from tests.unit.client_lib.test_client_failover import Lab, lab

__all__ = ["lab", "links"]  # fixtures

DAY = 86_400_000_000


def connected(links: LinkLab, **properties: object) -> dict[str, Any]:
    broker = links.broker()
    broker.properties = properties
    links.connected(broker, **CALM)
    return next(event for event in links.events if event["kind"] == "connected")


def test_the_brokers_clock_is_carried_to_the_moment_of_the_row(links: LinkLab) -> None:
    before, said = time.time_ns() // 1000, time.time_ns() // 1000 - DAY
    event = connected(links, **{TIME: said, "cluster_name": "node7"})
    assert event["attrs"]["broker"] == "node7"
    elapsed = event["ts_wall"] - before
    assert said < int(event["attrs"]["peer_wall"]) <= said + elapsed


@pytest.mark.parametrize("said", ["now", -5, 0, None])
def test_a_broker_that_says_no_time(links: LinkLab, said: object) -> None:
    assert "peer_wall" not in connected(links, **({} if said is None else {TIME: said})).get("attrs", {})


def test_a_client_says_who_it_is_and_what_its_clock_shows(links: LinkLab, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, Any]] = []
    handle = Peer._handle

    def listen(peer: Peer, channel: int, value: Any) -> None:
        if isinstance(value, commands.Connection.StartOk):
            said.append(dict(value.client_properties))
        handle(peer, channel, value)

    monkeypatch.setattr(Peer, "_handle", listen)
    before = time.time_ns() // 1000
    event = connected(links)
    (properties,) = said
    assert before <= properties[TIME] <= event["ts_wall"]
    assert (properties[CLIENT_ID], properties[CONN_ID]) == (event["client_id"], event["conn_id"])


def test_a_delivery_that_may_be_a_second_copy_says_so(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    session.declare_queue("q")
    for number, headers in enumerate(({}, {"x-resent": True}, {"x-resent": True}, {})):
        properties = commands.Basic.Properties(message_id=f"p:{number}", headers=dict(headers))
        with broker.store.lock:
            broker.store.queues["q"].append(("q", properties, b"", number == 2))
    receiver = session.queue_receiver("q", no_ack=True)
    for _ in range(4):
        receiver.fetch(30)
    wait_for(lambda: len(delivered(lab)) == 4)
    assert delivered(lab) == [("p:0", None, None), ("p:1", True, None), ("p:2", True, True), ("p:3", None, None)]
    acks = [event for event in lab.events if event["kind"] == "ack"]
    assert sum(int(event.get("attrs", {}).get("count", 1)) for event in acks) == 4


def delivered(lab: Lab) -> list[tuple[str, Any, Any]]:
    rows = [event for event in list(lab.events) if event["kind"] == "deliver"]
    return [(row["msg_id"], row.get("resend"), row.get("redelivered")) for row in rows]
