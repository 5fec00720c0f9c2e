"""Pages of queues in `qpid-http`: the broker judges each request, and one at a time asks for what has changed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.errors import ReplyCode
from qpidd_py.http import queues as shell
from qpidd_py.http.door import Problem
from qpidd_py.http.paging import QueryError
from qpidd_py.http.queues import Queues
from qpidd_py.http.table import STALE
from tests.support.wait import wait_for
from tests.unit.test_queue_table import Site

TIME = 60.0
PAGE = {"page": "1", "sort": "messages"}


class Served:
    """A broker behind a door; a census waits while it is `held`."""

    def __init__(self) -> None:
        self.site = Site(("/",))
        for number in range(5):
            self.site.publish(self.site.declare(f"q{number}"), number)
        self.asked: list[str] = []
        self.refused, self.now = "", 100.0
        self.sight = self.then = ""
        """Of the user when the request begins, and when the queues are listed."""
        self.go = threading.Event()
        self.go.set()

    @contextlib.contextmanager
    def open(self) -> Iterator[Served]:
        yield self

    def request(self, method: str, arguments: Any = None) -> Any:
        self.asked.append(method)
        if method == self.refused:
            raise RequestRefused("no tag monitoring", ReplyCode.ACCESS_REFUSED)
        if method == "queue.census":
            assert self.go.wait(TIME)
            *parts, end = self.site.ask(method, **(arguments or {}))
            return [*parts, {**end, "sight": self.then}]
        found = self.site.ask(method, **(arguments or {}))
        return {**found, "sight": self.sight} if method == "broker.overview" else found

    def seen_as(self, sight: str) -> None:
        self.sight = self.then = sight


@pytest.fixture
def served() -> Served:
    return Served()


def names(page: Any) -> list[str]:
    return [each["name"] for each in page["items"]]


def page(queues: Queues, served: Served, **query: str) -> list[str]:
    return names(queues.page(served, None, {**PAGE, **query}))  # type: ignore[arg-type]


def test_a_table_is_used_until_it_is_too_old(served: Served) -> None:
    queues = Queues(lambda: served.now)
    for _ in range(3):
        assert page(queues, served) == ["q0", "q1", "q2", "q3", "q4"]
    assert served.asked.count("queue.census") == 1 and served.asked.count("queue.count") == 3
    served.site.publish(served.site.queues[0], 9)
    served.now += 1.0
    assert page(queues, served) == ["q1", "q2", "q3", "q4", "q0"]
    assert served.asked.count("queue.census") == 2


def test_who_may_not_list_them_gets_no_page_of_others(served: Served) -> None:
    queues = Queues(lambda: served.now)
    page(queues, served)
    served.refused = "queue.count"
    with pytest.raises(Problem) as found:
        page(queues, served)
    assert found.value.status == 401


def test_a_wrong_page_does_not_reach_the_broker(served: Served) -> None:
    with pytest.raises(QueryError):
        page(Queues(lambda: served.now), served, page="none")
    assert served.asked == []


def test_one_asks_for_all(served: Served) -> None:
    """Those that have nothing to show wait for it."""
    queues = Queues(lambda: served.now)
    served.go.clear()
    with ThreadPoolExecutor(20) as pool:
        pages = [pool.submit(page, queues, served) for _ in range(20)]
        wait_for(lambda: served.asked.count("broker.overview") == 20, TIME)
        assert not any(each.done() for each in pages)
        served.go.set()
        assert all(each.result(TIME) == ["q0", "q1", "q2", "q3", "q4"] for each in pages)
    assert served.asked.count("queue.census") == 1


def test_nobody_waits_for_a_new_table_while_the_old_one_will_do(served: Served) -> None:
    queues = Queues(lambda: served.now)
    page(queues, served)
    served.now += 1.0
    served.go.clear()
    served.site.publish(served.site.queues[0], 9)
    with ThreadPoolExecutor(1) as pool:
        new = pool.submit(page, queues, served)
        wait_for(lambda: served.asked.count("queue.census") == 2, TIME)
        assert page(queues, served)[0] == "q0"
        served.go.set()
        assert new.result(TIME)[-1] == "q0"


def test_an_old_table_is_not_shown(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits too long for another is told so."""
    queues = Queues(lambda: served.now)
    page(queues, served)
    served.now += STALE + 1
    monkeypatch.setattr(shell, "SECONDS", 0.01)
    served.go.clear()
    with ThreadPoolExecutor(1) as pool:
        new = pool.submit(page, queues, served)
        wait_for(lambda: served.asked.count("queue.census") == 2, TIME)
        with pytest.raises(Problem) as found:
            page(queues, served)
        assert found.value.status == 503
        served.go.set()
        new.result(TIME)


def test_a_census_that_fails_leaves_the_next_one_free(served: Served) -> None:
    queues = Queues(lambda: served.now)
    served.refused = "queue.census"
    with pytest.raises(Problem):
        page(queues, served)
    served.refused = ""
    assert len(page(queues, served)) == 5


def test_of_many_users_the_tables_of_the_last_ones_are_kept_and_that_of_all_queues(served: Served) -> None:
    queues, most = Queues(lambda: served.now), shell.TABLES
    for sight in ("", *(f"user {number}" for number in range(most + 1))):
        served.seen_as(sight)
        assert len(page(queues, served)) == 5
    listed = served.asked.count("queue.census")
    assert listed == most + 2
    for sight, again in (("", 0), (f"user {most}", 0), ("user 1", 0), ("user 0", 1)):
        served.seen_as(sight)
        page(queues, served)
        assert served.asked.count("queue.census") == listed + again, sight


def test_what_was_listed_with_other_rights_is_not_shown(served: Served) -> None:
    queues = Queues(lambda: served.now)
    served.sight, served.then = "all that there was", "less"
    with pytest.raises(Problem) as found:
        page(queues, served)
    assert found.value.status == 503
    served.seen_as("less")
    assert len(page(queues, served)) == 5
