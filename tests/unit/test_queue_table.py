"""Pages of queues in any order: the census of the broker, and the table that is made of it, against a naive model."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from qpidd_py.broker.queue import DeclaredQueue, Effect
from qpidd_py.core import Route
from qpidd_py.http import table as tables
from qpidd_py.http import views
from qpidd_py.http.paging import QueryError, field, order, part
from qpidd_py.http.rates import WINDOW, counts_of
from qpidd_py.http.table import LOOKED_AT, STALE, Table
from qpidd_py.management import census
from qpidd_py.management.model import Management
from tests.unit.broker.peer import Replicated

HOSTS = ("/", "a", "b")
ROW = 56


class Site:
    """A broker with queues, who asks it, and how often."""

    def __init__(self, hosts: tuple[str, ...] = HOSTS) -> None:
        self.broker, self.rng = Replicated(), Random(7)
        self.management = Management(self.broker)
        self.queues: list[DeclaredQueue] = []
        for host in hosts[1:]:
            self.ask("vhost.add", name=host)

    def ask(self, method: str, **arguments: Any) -> Any:
        replies: list[Any] = []
        self.management.request(method, arguments, replies.append)
        self.broker.advance()
        assert all(reply["ok"] for reply in replies), replies
        return [item for reply in replies for item in reply["result"]] if len(replies) > 1 else replies[0]["result"]

    def declare(self, name: str, host: str = "/", **arguments: Any) -> DeclaredQueue:
        flags = [self.rng.random() < 0.5 for _ in range(2)]
        vhost = self.broker.vhosts.get(host)
        assert vhost is not None
        queue = vhost.declare_queue(None, name, flags[0], False, flags[1], arguments)[0]
        self.queues.append(queue)
        return queue

    def publish(self, queue: DeclaredQueue, times: int = 1) -> None:
        for _ in range(times):
            self.broker.engine.publish(Route([queue.core]), b"", b"k", bytes(14), bytes(self.rng.randrange(9)))

    def drop(self, queue: DeclaredQueue) -> None:
        vhost = self.broker.vhosts.get(queue.host)
        assert vhost is not None
        vhost.configuration.drop_queue(queue)
        self.queues.remove(queue)

    def census(self, table: Table) -> list[dict[str, Any]]:
        return self.ask("queue.census", vhost=None, **table.place)  # type: ignore[no-any-return]

    def refresh(self, table: Table, now: float = 1.0) -> list[dict[str, Any]]:
        parts = self.census(table)
        table.take(parts, now)
        return parts

    def naive(self, host: str | None, query: dict[str, str]) -> Any:
        items = [each for each in self.ask("queue.list", vhost=None) if host in (None, each["vhost"])]
        shown = [views.queue(each, "n") for each in sorted(items, key=lambda each: (each["vhost"], each["name"]))]
        return part(shown, query)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    """Few are looked at in a slice."""
    monkeypatch.setattr(census, "LOOKS", 7)
    found = Site()
    for number in range(60):
        arguments = {"x-max-length": number} if number % 4 == 0 else {}
        queue = found.declare(f"{'Orders' if number % 3 else 'bills'}.{number}", HOSTS[number % 3], **arguments)
        found.publish(queue, found.rng.randrange(4))
    return found


def without_rates(page: Any) -> Any:
    """The naive model has none."""
    if isinstance(page, dict):
        return {name: without_rates(each) for name, each in page.items() if not name.endswith("_details")}
    return [without_rates(each) for each in page] if isinstance(page, list) else page


COLUMNS = (
    "",
    "name",
    "vhost",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "message_bytes",
    "message_bytes_ready",
    "consumers",
    "message_stats.publish",
    "message_stats.deliver_get",
    "state",
    "policy",
    "durable",
    "type",
    "arguments.x-max-length",
    "effective_policy_definition",
    "no.such.column",
    "name.x",
)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("host", [None, "a"])
def test_pages_are_those_of_the_naive_model(site: Site, column: str, reverse: bool, host: str | None) -> None:
    table = Table()
    site.refresh(table)
    for page in range(1, 4 if host is None else 2):
        query = {"page": str(page), "page_size": "20", **({"sort": column} if column else {})}
        query |= {"sort_reverse": "true"} if reverse and column else {}
        assert without_rates(table.page(host, query, "n")) == site.naive(host, query)


@pytest.mark.parametrize(
    "query",
    [
        {"name": "ORDERS", "sort": "messages"},
        {"name": "ORDERS", "use_regex": "true"},
        {"name": "^bills.*[02]$", "use_regex": "true", "sort": "messages", "sort_reverse": "true"},
        {"name": "none"},
        {"columns": "name,message_stats.publish,no.such", "sort": "messages"},
        {"page_size": "500", "sort": "consumers"},
    ],
    ids=str,
)
def test_filters_and_columns(site: Site, query: dict[str, str]) -> None:
    table = Table()
    site.refresh(table)
    assert without_rates(table.page(None, {"page": "1", **query}, "n")) == site.naive(None, {"page": "1", **query})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"page": "4", "page_size": "20"}, "page 4, there are 3"),
        ({"page": "2", "name": "none"}, "page 2, there are 1"),
        ({"page": "1", "page_size": "501"}, "at most 500"),
        ({"page": "0"}, "page '0'"),
        ({"page": "1", "name": "(", "use_regex": "true"}, "pattern '('"),
    ],
)
def test_what_is_no_page(site: Site, query: dict[str, str], text: str) -> None:
    table = Table()
    site.refresh(table)
    with pytest.raises(QueryError) as found:
        table.page(None, query, "n")
    assert text in str(found.value)


def test_reverse_without_a_column(site: Site) -> None:
    table = Table()
    site.refresh(table)
    query = {"page": "1", "page_size": "60"}
    backwards = table.page(None, {**query, "sort_reverse": "true"}, "n")["items"]
    assert backwards == table.page(None, query, "n")["items"][::-1]


def test_queues_that_come_and_go_and_change(site: Site) -> None:
    """Two tables, which ask at different times, are right whenever they have asked."""
    both = [Table(), Table()]
    for number in range(300):
        match site.rng.randrange(6):
            case 0:
                site.declare(f"new.{number}", site.rng.choice(HOSTS))
            case 1:
                site.drop(site.rng.choice(site.queues))
            case 2:
                queue = site.rng.choice(site.queues)
                site.drop(queue)
                site.declare(queue.name, queue.host)
            case 3:
                site.publish(site.rng.choice(site.queues))
            case 4:
                queue = site.rng.choice(site.queues)
                queue.take(Effect(queue.arguments, policy=f"p{number}"))
            case _:
                table = site.rng.choice(both)
                site.refresh(table)
                query = {"page": "1", "page_size": "100", "sort": "messages"}
                assert without_rates(table.page(None, query, "n")) == site.naive(None, query)


def test_scans_that_take_turns(site: Site) -> None:
    """Each finds changes in queues that the other one has passed, and neither misses any."""
    both = [Table(), Table()]
    for table in both:
        site.refresh(table)
    for _ in range(40):
        scans: list[tuple[list[Any], Iterator[Any]]] = []
        for table in both:
            replies: list[Any] = []
            arguments = {"vhost": None, **table.place}
            scans.append((replies, site.management.work("queue.census", arguments, replies.append, None)))
        running = list(scans)
        while running:
            chosen = site.rng.choice(running)
            site.publish(site.rng.choice(site.queues))
            if next(chosen[1], False) is False:
                running.remove(chosen)
        for table, (replies, _) in zip(both, scans, strict=True):
            table.take([item for reply in replies for item in reply["result"]], 1.0)
    query = {"page": "1", "page_size": "100", "sort": "messages"}
    for table in both:
        site.refresh(table)
        assert without_rates(table.page(None, query, "n")) == site.naive(None, query)


def test_the_broker_begins_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = Table(), Site()
    site.refresh(table)
    monkeypatch.setattr(other.management._objects["queue.census"].__self__, "_history", "another")  # type: ignore[attr-defined]
    other.publish(other.declare("only"), 3)
    other.refresh(table)
    query = {"page": "1", "sort": "messages"}
    assert without_rates(table.page(None, query, "n")) == other.naive(None, query) and len(table) == 1


def test_a_table_that_is_not_sound_is_made_anew(site: Site) -> None:
    table = Table()
    parts = site.census(table)
    parts[-1]["total"] += 1
    table.take(parts, 1.0)
    assert table.place["history"] == "" and table.older(1.0)
    parts[-1]["total"] -= 1
    table.take([{**parts[0], "named": "[]"}, *parts[1:]], 2.0)
    assert table.place["history"] == "", "rows of queues that nobody has named"
    site.refresh(table)
    assert len(table) == 60 and not table.older(1.0)


# ---- what it costs


def told(parts: list[dict[str, Any]]) -> tuple[int, int]:
    """How many rows and names were sent."""
    changed = parts[:-1]
    return sum(len(b64decode(each["rows"])) // ROW for each in changed), sum(
        len(json.loads(each["named"])) for each in changed
    )


@pytest.mark.parametrize("queues", [500, 2000, 8000])
@pytest.mark.parametrize("changed", [0, 1, 16])
def test_what_is_sent_depends_on_what_changed(queues: int, changed: int) -> None:
    """Not on how many there are; a slice looks at LOOKS."""
    site, table = Site(("/",)), Table()
    for number in range(queues):
        site.declare(f"q{number}")
    assert told(site.refresh(table)) == (queues, queues)
    for queue in site.rng.sample(site.queues, changed):
        site.publish(queue, 5)
    replies: list[Any] = []
    turns = sum(1 for _ in site.management.work("queue.census", {"vhost": None, **table.place}, replies.append, None))
    parts = [item for reply in replies for item in reply["result"]]
    assert told(parts) == (changed, 0) and parts[-1]["numbers"] is None
    assert turns == -(-queues // census.LOOKS)
    table.take(parts, 2.0)
    for queue in site.rng.sample(site.queues, changed):
        site.drop(queue)
    parts = site.refresh(table)
    assert told(parts) == (0, 0) and len(table) == queues - changed and (parts[-1]["numbers"] is None) == (not changed)


def test_a_slice_of_new_queues_is_small() -> None:
    """All are told of to who comes: still none takes long.  The octets of each answer are counted."""
    site, sizes = Site(("/",)), list[int]()
    for number in range(3000):
        site.declare(f"queue with a name of some length {number}")
    replies: list[Any] = []
    for _ in site.management.work("queue.census", {}, replies.append, None):
        sizes.append(len(str(replies)))
        replies.clear()
    assert sum(map(bool, sizes)) >= 3 and max(sizes) < 3 * (1 << 16), sizes


def test_an_order_is_made_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for its pages, until something is taken; and few of them are kept."""
    made: list[Any] = []
    whole: Callable[..., Any] = tables._sorted

    def ordered(*given: Any) -> Any:
        made.append(given)
        return whole(*given)

    monkeypatch.setattr(tables, "_sorted", ordered)
    table = Table()
    site.refresh(table)
    for second in range(100, 105):
        site.refresh(table, float(second))
        for page in ("1", "2", "3"):
            table.page(None, {"page": page, "page_size": "20", "sort": "messages"}, "n")
    assert len(made) == 1
    for number in range(3 * tables.ORDERS):
        table.page(None, {"page": "1", "name": f"{number}"}, "n")
    assert len(table._orders) == tables.ORDERS
    site.publish(site.queues[0])
    site.refresh(table, 110.0)
    table.page(None, {"page": "1", "sort": "messages"}, "n")
    assert len(made) == 2 + 3 * tables.ORDERS


def test_a_page_shows_so_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those of the page are made whole."""
    shown: list[str] = []
    whole = tables.Row.shown

    def show(row: tables.Row, at: float, node: str = "") -> Any:
        shown.append(row.name)
        return whole(row, at, node)

    monkeypatch.setattr(tables.Row, "shown", show)
    table = Table()
    site.refresh(table)
    for column in (*tables._COLUMNS, *tables._RATES):
        shown.clear()
        table.page(None, {"page": "2", "page_size": "20", "sort": column}, "n")
        assert len(shown) == 20, column


def test_when_it_is_made_anew(site: Site) -> None:
    """The more queues, the longer it is shown: a broker looks at LOOKED_AT a second, at most."""
    table = Table()
    assert table.older(0.0) and table.older(0.0, STALE), "it was never made"
    site.refresh(table, 5.0)
    wanted = 60 / LOOKED_AT
    assert not table.older(5.0 + 0.9 * wanted) and table.older(5.0 + 1.1 * wanted)
    assert not table.older(5.0 + 1.1 * wanted, STALE) and table.older(5.1 + STALE, STALE)


# ---- rates


def rate(table: Table, queue: DeclaredQueue) -> float:
    page = table.page(None, {"page": "1", "page_size": "100", "name": queue.name}, "n")
    [found] = [each for each in page["items"] if (each["vhost"], each["name"]) == (queue.host, queue.name)]
    return float(found["message_stats"]["publish_details"]["rate"])


def test_rates_are_those_of_the_time_between(site: Site) -> None:
    table, busy = Table(), site.queues[5]
    query = {"page": "1", "sort": "message_stats.publish_details.rate", "sort_reverse": "true", "page_size": "3"}
    site.refresh(table, 10.0)
    assert rate(table, busy) == 0.0
    site.publish(busy, 40)
    site.publish(site.queues[6], 20)
    site.refresh(table, 14.0)
    assert rate(table, busy) == 10.0
    first = table.page(None, query, "n")["items"]
    assert [each["name"] for each in first][:2] == [busy.name, site.queues[6].name]
    assert [each["message_stats"]["publish_details"]["rate"] for each in first] == [10.0, 5.0, 0.0]
    for second in range(15, 40):
        site.refresh(table, float(second))
    assert rate(table, busy) == 0.0
    site.publish(busy, 30)
    site.refresh(table, 40.0)
    assert rate(table, busy) == 30.0, "it has rested until the look before"
    site.publish(busy, 30)
    site.refresh(table, 40.1)
    site.refresh(table, 46.0)
    assert rate(table, busy) == round(60 / 7, 2)
    site.publish(busy, 1000)
    site.refresh(table, 200.0)
    assert rate(table, busy) == 0.0, "nobody has looked for a minute"


def test_rates_are_those_of_all_answers(site: Site) -> None:
    """Whatever a queue does, its rate is one of the last WINDOW to thrice as long."""
    table, queue, counts = Table(), site.queues[9], dict[int, int]()
    site.refresh(table, 0.0)
    for second in range(1, 300):
        site.publish(queue, site.rng.choice([0, 0, 3, 50]) if second % 60 < 40 else 0)
        site.refresh(table, float(second))
        counts[second] = queue.core.enqueued
        if second > 3 * WINDOW:
            passed = range(1, int(3 * WINDOW) + 1)
            possible = [round((counts[second] - counts[second - each]) / each, 2) for each in passed]
            assert rate(table, queue) in (0.0, *possible), second
        if second % 60 == 59:
            assert rate(table, queue) == 0.0


def test_columns_are_those_of_the_whole_view(site: Site) -> None:
    """The short cuts name what the view has."""
    site.queues[3].take(Effect({}, policy="p"))
    table = Table()
    site.refresh(table, 1.0)
    for number, queue in enumerate(site.queues):
        site.publish(queue, number)
    site.refresh(table, 3.0)
    for row in table._rows.values():
        shown = row.shown(3.0)
        for column, short in tables._COLUMNS.items():
            assert order(short(row)) == order(field(shown, column)), column
        for number, column in enumerate(tables._RATES):
            assert row.rate(number, 3.0) == field(shown, column), column
        assert tuple(rated(row.counts) for rated in tables._RATED) == counts_of("queue", shown)
