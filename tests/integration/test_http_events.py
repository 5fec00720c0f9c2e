"""`/api/ha/events` in front of real brokers: many who wait, who go away, whose rights go, whose broker goes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest

from qpidd_py.http.events import READERS
from tests.integration.test_http_api import GUEST, TIME, Api, serving
from tests.support.members import Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

PATH = "/ha/events"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, int]]:
    folder = tmp_path_factory.mktemp("events")
    with BrokerProcess(folder) as broker, serving(broker, folder) as port:
        yield broker, port


@pytest.fixture
def api(served: tuple[BrokerProcess, int]) -> Api:
    return Api(served[1])


def sessions(api: Api) -> int:
    """Of tools, but for the one that asks."""
    return len(api.get("/connections")) - 1


def waiting(pool: ThreadPoolExecutor, api: Api, wait: int = 30) -> Future[tuple[int, Any]]:
    """A request that waits for a queue that is declared."""
    newest = api.get(f"{PATH}?limit=1")
    place = f"since={newest['next']}&history={newest['history']}"
    before = sessions(api)
    future = pool.submit(api.request, "GET", f"{PATH}?{place}&wait={wait}&type=queueDeclare")
    wait_for(lambda: sessions(Api(api.port)) > before or future.done(), TIME, "it waits")
    return future


def test_one_that_waits_gets_the_next_event(api: Api) -> None:
    with ThreadPoolExecutor() as pool:
        future = waiting(pool, api)
        api.request("PUT", "/exchanges/%2F/unwanted", {"type": "fanout"})
        api.request("PUT", "/queues/%2F/one", {})
        code, found = future.result()
    (event,) = found["events"]
    assert code == 200 and event["event"] == "queueDeclare" and event["queue"] == "one"
    assert found["next"] == found["last"] >= event["number"] and found["missed"] == 0
    again = api.get(f"{PATH}?since={event['number'] - 1}&history={found['history']}&limit=1")
    assert again["events"] == [event]
    assert [each["event"] for each in api.get(f"{PATH}?type=exchangeDeclare&limit=1")["events"]] == ["exchangeDeclare"]


WRONG = ["limit=-1", "since=1&since=2", "since=%00", "type=x", "x=1", "since=" + "9" * 30, "wait=5", "since=1;wait=1"]


@pytest.mark.parametrize("query", WRONG)
def test_wrong_queries(api: Api, query: str) -> None:
    code, found = api.request("GET", f"{PATH}?{query}")
    assert (code, found["error"]) == (400, "bad_request") and found["reason"].startswith(
        ("parameter ", *query.split("="))
    )


def full(api: Api, place: str) -> bool:
    """Whether no other can wait."""
    code, found = api.request("GET", f"{PATH}?{place}&wait=1")
    assert code == 200 or (code, found["error"]) == (429, "too_many_requests")
    return code == 429


def test_a_hundred_readers_delay_nobody_and_those_who_go_are_noticed(api: Api) -> None:
    place = f"since={api.get(PATH)['next']}&type=queueDelete"
    head = f"GET /api{PATH}?{place}&wait=30 HTTP/1.1\r\nHost: x\r\nAuthorization: {GUEST}\r\n\r\n".encode()
    readers: list[socket.socket] = []
    begun = float("-inf")

    def all_wait() -> bool:
        """On a busy machine the first may have had their time before the last have come: then once more."""
        nonlocal begun
        if time.monotonic() > begun + 25:
            begun = time.monotonic()
            for _ in range(READERS + 10):
                readers.append(socket.create_connection(("127.0.0.1", api.port)))
                readers[-1].sendall(head)
        return full(api, place)

    wait_for(all_wait, TIME, "all wait")
    wait_for(lambda: sessions(api) <= 1, TIME, lambda: f"one follows the events: {sessions(api)}")
    assert api.get("/whoami")["name"] == "guest" and "events" in api.get(PATH)
    for each in readers[10:]:
        each.close()
    wait_for(lambda: not full(api, place), 15, "they are gone long before their time")
    api.request("PUT", "/queues/%2F/short", {})
    api.request("DELETE", "/queues/%2F/short")
    lines = [each.makefile("rb").readline() for each in readers[:10]]
    assert set(lines) <= {b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 429 Too Many Requests\r\n"}
    for each in readers:
        each.close()
    wait_for(lambda: sessions(api) == 0, TIME, "no connection is left")


TAKEN: list[tuple[str, Callable[[Api], Any]]] = [
    ("tag", lambda api: api.request("PUT", "/users/anna", {"password": "x", "tags": ""})),
    ("user", lambda api: api.request("DELETE", "/users/anna")),
]


@pytest.mark.parametrize(("what", "take"), TAKEN)
def test_a_right_that_is_taken_away_meanwhile(api: Api, what: str, take: Callable[[Api], Any]) -> None:
    api.request("PUT", "/users/anna", {"password": "x", "tags": "monitoring"})
    api.request("PUT", "/permissions/%2F/anna", {"configure": "", "write": "", "read": ""})
    anna = Api(api.port, "anna", "x")
    with ThreadPoolExecutor() as pool:
        future = waiting(pool, anna)
        assert take(api)[0] in (201, 204)
        assert api.request("PUT", f"/queues/%2F/secret.{what}", {})[0] == 201
        code, found = future.result()
    assert "secret" not in str(found) and (code in (401, 503) or not found["events"]), "or the test came after its time"
    assert anna.request("GET", PATH)[0] == 401
    api.request("DELETE", "/users/anna")


def test_who_may_read(api: Api) -> None:
    assert Api(api.port, "guest", "wrong").request("GET", PATH)[0] == 401
    api.request("PUT", "/users/anna", {"password": "x", "tags": "policymaker"})
    api.request("PUT", "/permissions/%2F/anna", {"configure": ".*", "write": ".*", "read": ".*"})
    code, found = Api(api.port, "anna", "x").request("GET", PATH)
    assert code == 401 and found["reason"] == "event.list: user 'anna' has no tag monitoring"
    api.request("DELETE", "/users/anna")


def test_first_logins_that_wait_keep_no_other_from_logging_in(api: Api) -> None:
    """Of an address two logins that are not known are tried at a time: one that waits is known."""
    place = f"since={api.get(PATH)['next']}&wait=30&type=queueDelete"
    for name in "abcd":
        api.request("PUT", f"/users/{name}", {"password": "x", "tags": "monitoring"})
        api.request("PUT", f"/permissions/%2F/{name}", {"configure": "", "write": "", "read": ""})
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(Api(api.port, name, "x").request, "GET", f"{PATH}?{place}") for name in "abc"]
        assert Api(api.port, "d", "x").get("/whoami")["name"] == "d"
        assert not any(each.done() for each in futures)
        for name in "abcd":
            api.request("DELETE", f"/users/{name}")
        assert {each.result()[0] for each in futures} <= {401, 503}


def test_a_broker_that_ends_and_begins_anew(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, serving(broker, tmp_path) as port, ThreadPoolExecutor() as pool:
        api = Api(port)
        before = api.get(PATH)
        future = waiting(pool, api)
        broker.kill()
        code, found = future.result()
        assert (code, found["error"]) == (503, "service_unavailable")
        broker.start()
        api.request("PUT", "/queues/%2F/new", {})
        after = api.get(f"{PATH}?since={before['next'] + 100}&history={before['history']}&type=queueDeclare")
        assert after["history"] != before["history"] and [each["queue"] for each in after["events"]] == ["new"]


def test_a_fail_over_is_told_by_the_new_primary(tmp_path: Path) -> None:
    members = Members(tmp_path)
    try:
        members.up()
        with serving(members.brokers["b"], tmp_path) as port, ThreadPoolExecutor() as pool:
            api = Api(port)
            assert api.get("/ha/query")["status"] == api.get("/ha/status")["state"] == "ready"
            newest = api.get(PATH)
            place = f"since={newest['next']}&history={newest['history']}"
            future = pool.submit(api.get, f"{PATH}?{place}&wait=30&type=ha.promoted")
            members.brokers["a"].kill()
            members.promote_newest("b")
            (event,) = future.result()["events"]
            lost = api.get(f"{PATH}?{place}&type=ha.primary_lost,ha.state")["events"]
            assert event["event"] == "ha.promoted" and lost[0]["event"] == "ha.primary_lost"
            assert [each.get("new") for each in lost[1:]][-2:] == ["joining", "recovering"] or "recovering" in str(lost)
    finally:
        members.close()


def test_qpid_http_ends_at_once_while_one_waits(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, ThreadPoolExecutor() as pool:
        with serving(broker, tmp_path) as port:
            future = waiting(pool, Api(port))
        code, found = future.result(5)
        assert (code, found["events"]) == (200, [])


def test_a_reader_that_does_not_read_holds_no_broker(served: tuple[BrokerProcess, int], api: Api) -> None:
    """Its answer is made, and the connection to the broker is closed."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served[0].port))
    channel = connection.channel()
    for number in range(1000):
        channel.queue_declare(f"q{number}" + "x" * 200, exclusive=True)
    head = f"GET /api{PATH}?since=0&limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: {GUEST}\r\n\r\n".encode()
    with closing(socket.socket()) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", api.port))
        reader.sendall(head)
        tools = lambda: [each for each in api.get("/connections") if "Pika" not in str(each)]  # noqa: E731
        wait_for(lambda: len(tools()) == 1, TIME, "only the one that asks")
    connection.close()
