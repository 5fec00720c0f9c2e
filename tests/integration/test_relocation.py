"""The planned switch-over with real brokers and clients: nothing is lost, sent twice or delivered twice."""

import json
import threading
from collections import Counter
from typing import Any

from client_lib import Connection
from tests.support.members import TIME, Members
from tests.support.wait import wait_for


class Load:
    """A producer and a consumer with connections of their own; every event of both is kept."""

    def __init__(self, url: str, queue: str = "load") -> None:
        self.events: list[dict[str, Any]] = []
        self.confirmed: list[str] = []
        self.fetched: Counter[str] = Counter()
        self._stop = threading.Event()
        self.producer, self.consumer = (
            Connection(url, heartbeat=5, connect_timeout=30.0, on_event=self.events.append).open(TIME) for _ in range(2)
        )
        session = self.producer.session()
        session.declare_queue(queue, durable=True)
        self._sender = session.sender(queue, capacity=500, on_settled=self._settled)
        self._session = self.consumer.session()
        self._receiver = self._session.receiver(queue, capacity=50)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._fetch)]
        for thread in self._threads:
            thread.start()

    def _settled(self, message: Any, message_id: str, error: Exception | None) -> None:
        assert error is None, error
        self.confirmed.append(message_id)

    def _send(self) -> None:
        while not self._stop.wait(0.002):
            self._sender.send(b"x" * 500, sync=False)

    def _fetch(self) -> None:
        for message in self._receiver:
            self.fetched[str(message.id)] += 1
            self._session.acknowledge(message, sync=False)

    def run_on(self, count: int = 500) -> None:
        goal = len(self.confirmed) + count
        wait_for(lambda: len(self.confirmed) >= goal, TIME, f"{count} more confirms")

    def finish(self) -> None:
        self._stop.set()
        self._threads[0].join(TIME)
        self._sender.sync(TIME)
        wait_for(lambda: len(self.fetched) >= len(self.confirmed), TIME, "all fetched")
        assert self.producer.close(5) == []
        self.consumer.close(5)
        self._threads[1].join(TIME)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind and not event.get("planned")]

    def verdict(self) -> dict[str, int]:
        return {
            "resent": len(self.of("resend")),
            "lost": len(set(self.confirmed) - set(self.fetched)),
            "duplicated": sum(count > 1 for count in self.fetched.values()),
            "closes": len(self.of("disconnected")),
            "refusals": len(
                [event for event in self.of("connect_refused") if event.get("result") not in ("320", "abandoned")]
            ),
        }


CLEAN = {"resent": 0, "lost": 0, "duplicated": 0, "refusals": 0}


def test_a_switch_over_under_load_costs_no_message(members: Members) -> None:
    load = Load(members.url)
    load.run_on()
    out = members.tool("relocate", "--to", "b", name="c")
    assert out.startswith("b is primary; none was for ")
    load.run_on()
    members.settled("b")
    load.finish()
    assert load.verdict() == {**CLEAN, "closes": 2}
    reasons = {event["reason"] for event in load.of("disconnected")}
    assert all(f"the primary is {members.brokers['b'].address}" in reason for reason in reasons), reasons
    told = [event.get("attrs", {}) for event in load.of("connected")]
    print(f"gaps: {[int(attrs['outage_us']) / 1000 for attrs in told if 'outage_us' in attrs]} ms")


def test_there_and_back_again(members: Members) -> None:
    load = Load(members.url)
    for source, target in (("a", "c"), ("c", "a")):
        load.run_on()
        result = json.loads(members.tool("relocate", "--to", target, "--json", name=source))
        assert result["address"] == members.brokers[target].address
        members.settled(target)
    load.run_on()
    load.finish()
    assert load.verdict() == {**CLEAN, "closes": 4}


def test_a_target_that_cannot_follow_leaves_everything_as_it_was(members: Members) -> None:
    load = Load(members.url)
    load.run_on()
    members.brokers["b"].pause()
    out = members.tool("relocate", "--to", "b", "--timeout", "20", code=1)
    members.brokers["b"].resume()
    assert out.startswith("RequestRefused: ")
    load.run_on()
    members.settled("a")
    load.finish()
    assert load.verdict() == {**CLEAN, "closes": 0}
    assert load.of("blocked") == []


def test_demote_steps_down_in_place(members: Members) -> None:
    members.tool("demote", "--cluster-manager")
    assert members.states()["a"] == "joining"
    members.tool("promote", "--cluster-manager", name="c")
    members.settled("c")
