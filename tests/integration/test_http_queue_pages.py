"""Pages of queues under attack: queues come and go, everybody asks at once, users see nothing, names of every kind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from qpidd_py.http.table import STALE
from tests.integration.test_http_api import TIME, Api, served_api, serving
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

HOSTS = 50
QUEUES = 40
"""In each virtual host."""
OTHERS = ("/queues/v4", "/queues/none")
SORTED = "page_size=100&sort=messages&sort_reverse=true&columns=name,vhost,messages"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with served_api(tmp_path_factory.mktemp("pages")) as found:
        for number in range(HOSTS):
            assert found.request("PUT", f"/vhosts/v{number}")[0] == 201
            queues = [{"name": f"q{queue:02}", "durable": False} for queue in range(QUEUES)]
            assert found.request("POST", f"/definitions/v{number}", {"queues": queues})[0] == 204
        yield found


def pages(api: Api, path: str = "/queues", query: str = SORTED) -> list[dict[str, Any]]:
    """All of them, one after the other."""
    found, page, last = list[dict[str, Any]](), 1, 1
    while page <= last:
        code, answer = api.request("GET", f"{path}?page={page}&{query}")
        if code == 400 and "there are" in answer["reason"]:
            break  # some have gone meanwhile
        assert code == 200, answer
        found, page, last = found + answer["items"], page + 1, answer["page_count"]
    return found


def publish(api: Api, vhost: str, queue: str, times: int) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.amqp_port, vhost))
    channel = connection.channel()
    channel.confirm_delivery()
    for _ in range(times):
        channel.basic_publish("", queue, b"")
    connection.close()


def test_the_longest_of_all_come_first(api: Api) -> None:
    for number in range(5):
        publish(api, f"v{number}", "q07", 10 + number)
    wanted = [{"name": "q07", "vhost": f"v{number}", "messages": 10 + number} for number in range(4, -1, -1)]
    wait_for(lambda: pages(api)[:5] == wanted, TIME, lambda: str(pages(api)[:5]))
    assert len(pages(api)) == HOSTS * QUEUES
    inside = pages(api, "/queues/v3")
    assert inside[0] == wanted[1] and len(inside) == QUEUES and {each["vhost"] for each in inside} == {"v3"}


def test_queues_come_and_go_while_they_are_paged(api: Api) -> None:
    """Each page is in order and whole; in the end there is nothing of what has gone."""
    over = threading.Event()

    def churn() -> int:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.amqp_port, "v9"))
        channel, number = connection.channel(), 0
        while not over.is_set():
            number += 1
            channel.queue_declare(f"churn{number}")
            channel.basic_publish("", f"churn{number}", b"")
            channel.queue_delete(f"churn{number - 20}")
        for each in range(number - 20, number + 1):
            channel.queue_delete(f"churn{each}")
        connection.close()
        return number

    with ThreadPoolExecutor(1) as pool:
        churned = pool.submit(churn)
        try:
            for _ in range(20):
                code, page = api.request("GET", f"/queues?page=1&{SORTED}")
                counts = [each["messages"] for each in page["items"]]
                assert code == 200 and counts == sorted(counts, reverse=True) and len(counts) == 100
                pages(api, "/queues/v9")
        finally:
            over.set()
        assert churned.result(TIME) > 20
    left = lambda: {each["name"] for each in pages(api, "/queues/v9")}  # noqa: E731
    wait_for(lambda: left() == {f"q{number:02}" for number in range(QUEUES)}, TIME, lambda: str(left()))


def test_everybody_asks_at_once(api: Api) -> None:
    columns = ("messages", "consumers", "message_bytes", "name", "state", "message_stats.publish_details.rate", "none")
    asked = [f"/queues?page={1 + number % 20}&page_size=100&sort={columns[number % 7]}" for number in range(100)]
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda path: api.request("GET", path), asked))
    assert {code for code, _ in answers} == {200}
    assert {page["total_count"] for _, page in answers} == {HOSTS * QUEUES}


def test_who_may_see_one_virtual_host_sees_no_other(api: Api) -> None:
    """The broker says who gets pages, and of what."""
    for user, tags in (("anna", ""), ("maria", "management"), ("mona", "monitoring")):
        api.request("PUT", f"/users/{user}", {"password": "secret", "tags": tags})
        api.request("PUT", f"/permissions/v3/{user}", {"configure": ".*", "write": ".*", "read": ".*"})
    pages(api)
    anna, maria = (Api(api.port, user, "secret") for user in ("anna", "maria"))
    for asker, paths in ((anna, ("/queues", "/queues/v3")), (anna, OTHERS), (maria, OTHERS)):
        for path in paths:
            code, answer = asker.request("GET", f"{path}?page=1&{SORTED}")
            assert code == 401 and "items" not in answer, (asker.user, path, answer)
    for path in ("/queues", "/queues/v3"):
        found = maria.get(f"{path}?page=1&{SORTED}")
        assert found["total_count"] == QUEUES and {each["vhost"] for each in found["items"]} == {"v3"}
    mona = Api(api.port, "mona", "secret")
    assert mona.request("GET", f"/queues/v3?page=1&{SORTED}")[1]["total_count"] == QUEUES
    api.request("DELETE", "/permissions/v3/mona")
    api.request("PUT", "/users/mona", {"tags": "", "password": "secret"})
    assert mona.request("GET", f"/queues/v3?page=1&{SORTED}")[0] == 401, "at once"
    assert Api(api.port, "guest", "wrong").request("GET", f"/queues?page=1&{SORTED}")[0] == 401


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("page=21&page_size=100&sort=messages", 400),
        ("page=999999999&page_size=500", 400),
        ("page=1&sort=no.such.column&sort_reverse=true", 200),
        ("page=1&sort=name.name", 200),
        ("page=1&sort=arguments.x", 200),
        ("page=1&sort=" + "a." * 2000, 200),
        ("page=1&sort_reverse=maybe&sort=messages", 200),
        ("page=1&name=%28&use_regex=true", 400),
        ("page=1&name=" + quote("(a*)*" * 50) + "&use_regex=true", 200),
        ("page=1&name=%00&sort=messages", 200),
        ("page=1&columns=,,name,,messages.x", 200),
        ("page=-1", 400),
        ("page=1&page_size=0", 400),
        ("page=", 400),
    ],
    ids=lambda each: str(each)[:40],
)
def test_strange_pages(api: Api, query: str, code: int) -> None:
    found = api.request("GET", f"/queues?{query}")
    assert found[0] == code, found


def _has(api: Api, name: str, query: str) -> bool:
    return name in {each["name"] for each in pages(api, "/queues/v1", query)}


def test_names_of_every_kind(api: Api) -> None:
    """Also octets that are no text, for a pattern, too."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.amqp_port, "v1"))
    for name in ("ä/ö", "\U0001f407", "a\u0000b"):
        connection.channel().queue_declare(name, exclusive=True)
    for query in ("name=%C3%A4", "name=%C3%A4&use_regex=true", "use_regex=true&name=."):
        wait_for(partial(_has, api, "ä/ö", query), TIME)
    connection.close()


def test_the_broker_is_another_one(tmp_path: Path) -> None:
    """Nothing of the one before is shown."""
    with BrokerProcess(tmp_path) as broker, serving(broker, tmp_path) as port:
        api = Api(port)
        api.request("POST", "/definitions", {"queues": [{"name": f"old{number}"} for number in range(30)]})
        assert len(pages(api)) == 30
        broker.kill()
        assert api.request("GET", f"/queues?page=1&{SORTED}")[0] == 503
        broker.start()
        api.request("PUT", "/queues/%2F/new", {})
        wait_for(lambda: [each["name"] for each in pages(api)] == ["new"], 6 * STALE)
