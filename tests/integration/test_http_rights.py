"""Who may do what by `qpid-http`: the matrix of rights, and what nobody is told of another's.

The matrix is made from the table of `test_http_walk`: each path × method × tag.  The promise stands by itself, for all
routes that there are: of two users in two virtual hosts neither is told a name of the other, and none of its answers
depends on whether, or how much, the other has.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pika
import pytest

from qpidd_py.http.events import PATH as EVENTS
from qpidd_py.http.routes import ROUTES
from qpidd_py.security.entries import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, TAGS
from tests.integration.test_http_api import Api, served_api
from tests.integration.test_http_walk import METHODS, REFUSALS, SETTING, TABLE, Row, each_of, filled, set_up, told
from tests.support.slow import mostly_slow

HAS: Final = {
    "": ("", *TAGS),
    MANAGEMENT: TAGS,
    POLICYMAKER: (POLICYMAKER, ADMINISTRATOR),
    MONITORING: (MONITORING, ADMINISTRATOR),
    ADMINISTRATOR: (ADMINISTRATOR,),
}
"""Whose users have a tag, by their own one."""
EVERY: Final = {"configure": ".*", "write": ".*", "read": ".*"}
HARMLESS: Final = {
    "/connections/username/{user}": "/connections/username/none",
    "/queues/{vhost}/{name}/get": "/queues/%2F/none/get",
}
"""What a change is tried with, where the row's own path would change what others need."""
BODIES: Final = {
    "/users/bulk-delete": {"users": []},
    "/queues/{vhost}/{name}/actions": {"action": "sync"},
    "/queues/{vhost}/{name}/get": {"ackmode": "ack_requeue_true"},
    "/exchanges/{vhost}/{name}/publish": {"routing_key": "k", "payload": ""},
}
CELLS: Final = [(row, method) for row in TABLE for method in row.methods.split()]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Users that are called as their tags, all with all permissions; and a client of another one."""
    with served_api(tmp_path_factory.mktemp("matrix")) as api:
        set_up(api)
        for tag in HAS[""]:
            assert api.request("PUT", f"/users/has-{tag}", {"password": "secret", "tags": tag})[0] == 201
            for host in ("%2F", "walked"):
                assert api.request("PUT", f"/permissions/{host}/has-{tag}", EVERY)[0] == 201
        client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.amqp_port, heartbeat=0))
        client.channel()
        yield api
        client.close()


@each_of(CELLS)
def test_who_may_do_what(matrix: Api, row: Row, method: str) -> None:
    """A change is tried where it changes nothing that others need."""
    if (method, row.path) in REFUSALS:
        needs = ""
        answers: tuple[int, ...] = (501,)
    elif method == "GET":
        needs, answers = row.sees, (200,)
    else:
        needs, answers = row.needs, (200, 201, 204, 400, 404)
    other = row.missing if method == "DELETE" else ""
    path = filled(row, matrix, HARMLESS.get(row.path) or other if method != "GET" else "")
    sample = next((body for put, there, body in SETTING if (put, f"{there}") == (method, path)), {})
    body = None if method in ("GET", "DELETE") else BODIES.get(row.path, sample)
    for tag in HAS[""]:
        status, found, _ = told(Api(matrix.port, f"has-{tag}", "secret"), method, path, body)
        hidden = "*" in row.there and needs == MANAGEMENT and tag not in HAS[MONITORING]
        wanted = (404,) if hidden else answers
        assert status in (wanted if tag in HAS[needs] else (401,)), (tag, status, found)
    if method == "DELETE" and not other:
        set_up(matrix)


# ---- the promise


@dataclass
class Side:
    """A user, its virtual host, and what is there; all names begin with `word`, which nobody can guess."""

    word: str

    def name(self, kind: str) -> str:
        return f"{self.word}-{kind}"

    def called(self, path: str) -> str:
        """A path of the API, for what this side has."""
        names = {"kind": "q", "component": "shovel", "key": "key", "node": "none", "limit": "max-queues", "port": "1"}
        for kind in ("vhost", "user", "queue", "exchange"):
            names[kind] = self.name(kind)
        names |= {"source": names["exchange"], "destination": names["queue"], "name": self._own(path)}
        return re.sub(r"{(\w+)}", lambda found: quote(names.get(found[1], "x"), safe=""), path)

    def _own(self, path: str) -> str:
        kind = path.split("/")[1]
        kinds = {"vhosts": "vhost", "users": "user", "queues": "queue", "exchanges": "exchange"}
        return self.name(kinds.get(kind, "other"))


class House:
    """Two sides that have the same, in one broker."""

    def __init__(self, root: Api, stack: ExitStack) -> None:
        self.root, self._stack = root, stack
        self.anna, self.bob, self.nobody = (Side(secrets.token_hex(12)) for _ in range(3))
        for side in (self.anna, self.bob):
            self._make(side)

    def user(self, side: Side) -> Api:
        return Api(self.root.port, side.name("user"), "secret")

    def tag(self, tag: str) -> None:
        for side in (self.anna, self.bob):
            self._done("PUT", f"/users/{side.name('user')}", {"password": "secret", "tags": tag})

    def _done(self, method: str, path: str, body: Any = None) -> None:
        status, found = self.root.request(method, path, body)
        assert status in (201, 204), (method, path, found)

    def _make(self, side: Side) -> None:
        host, user, other = side.name("vhost"), side.name("user"), side.name("other")
        self._done("PUT", f"/vhosts/{host}")
        self._done("PUT", f"/users/{user}", {"password": "secret", "tags": ""})
        self._done("PUT", f"/permissions/{host}/{user}", EVERY)
        self._done("PUT", f"/topic-permissions/{host}/{user}", {"exchange": "amq.topic", "write": ".*", "read": ".*"})
        self._done("PUT", f"/user-limits/{user}/max-channels", {"value": 100})
        self._done("PUT", f"/vhost-limits/{host}/max-queues", {"value": 1000})
        policy = {"pattern": f"^{side.word}", "definition": {"max-length": 500}}
        for kind in ("policies", "operator-policies"):
            self._done("PUT", f"/{kind}/{host}/{other}", policy)
        ends = {"src-uri": f"amqp:///{host}", "src-queue": side.name("queue")}
        value = {**ends, "dest-uri": f"amqp://{side.word}", "dest-queue": "b"}
        self._done("PUT", f"/parameters/shovel/{host}/{other}", {"value": value})
        self.more(side, "")

    def more(self, side: Side, suffix: str) -> None:
        """Queues and others, and a client with a consumer, a message that it has and one that waits."""
        login = pika.PlainCredentials(side.name("user"), "secret")
        properties = {"connection_name": side.name("connection"), "product": side.name("product")}
        found = pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.root.amqp_port, side.name("vhost"), login, heartbeat=0, client_properties=properties
            )
        )
        self._stack.callback(found.close)
        channel, queue, exchange = found.channel(), side.name("queue") + suffix, side.name("exchange") + suffix
        channel.confirm_delivery()
        channel.queue_declare(queue, arguments={"x-dead-letter-exchange": exchange})
        channel.exchange_declare(exchange, "topic")
        channel.queue_bind(queue, exchange, "key")
        channel.queue_bind(queue, exchange, side.name("key"), {"header": side.word})
        for number in range(4):
            channel.basic_publish(exchange, "key", f"{side.word} {number}".encode())
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume(queue, lambda *_: None, consumer_tag=side.name("tag"))
        found.process_data_events(0)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with served_api(tmp_path_factory.mktemp("house")) as api, ExitStack() as stack:
        yield House(api, stack)


GETS: Final = sorted({path.removeprefix("/api") for method, path, _ in ROUTES if method == "GET"} | {EVENTS[4:]})
QUERIES: Final = (
    "",
    "?page=1",
    "?page=1&page_size=500&sort=messages&sort_reverse=true",
    "?page=1&sort=name&sort_reverse=true&use_regex=true&name=.*",
    "?sort=vhost&columns=name,vhost,messages,user,consumer_count,client_properties",
)
tagged = pytest.mark.parametrize("tag", mostly_slow([POLICYMAKER, MANAGEMENT, ""], 1))
"""Who has policymaker sees what is shown to the other ones, and more."""


def answer(api: Api, method: str, path: str, body: Any = None) -> str:
    """All of it, without what no two answers have in common."""
    status, found, headers = told(api, method, path, body)
    kept = {name: value for name, value in headers.items() if name not in ("Date", "Content-Length")}
    return f"{status} {json.dumps(kept)} {json.dumps(_settled(found))}"


CHANGES: Final = ("recv_oct", "send_oct", "recv_oct_details", "send_oct_details")


def _settled(found: Any) -> Any:
    """Without what this very request does: it is a connection of its user, with a channel, while it lasts."""
    if isinstance(found, list):
        clients = [each for each in found if not (isinstance(each, dict) and _is_ours(each))]
        return [_settled(each) for each in clients]
    if isinstance(found, dict):
        return {name: _settled(value) for name, value in found.items() if name not in CHANGES}
    return found


def _is_ours(item: dict[str, Any]) -> bool:
    return item.get("client_properties", {}).get("product") == "qpidd-py" or item.get("consumer_count") == 0


@tagged
@pytest.mark.parametrize("path", GETS)
def test_no_answer_has_a_name_of_another(house: House, path: str, tag: str) -> None:
    house.tag(tag)
    for mine, other in ((house.anna, house.bob), (house.bob, house.anna)):
        for query in (*QUERIES, f"?name={other.word}", f"?page=1&name={other.word[:2]}"):
            found = answer(house.user(mine), "GET", mine.called(path) + query)
            assert other.word not in found, found


@tagged
def test_what_is_anothers_is_as_what_is_not_there(house: House, tag: str) -> None:
    """Each method of each route: the same answer, but for the name that was asked for."""
    house.tag(tag)
    anna = house.user(house.anna)
    for method, path, _ in ROUTES:
        row = next((row for row in TABLE if row.path == path.removeprefix("/api")), None)
        bodies: list[Any] = [None] if method in ("GET", "DELETE") else [{}, BODIES.get(row.path, {}) if row else {}]
        if method == "PUT":
            bodies += [sample for put, there, sample in SETTING if put == method and there.split("/")[1] in path]
        for body in bodies:
            for query in ("", "?page=1", "?page=1&sort=messages"):
                theirs, nobodys = (
                    answer(anna, method, side.called(path.removeprefix("/api")) + query, body).replace(side.word, "?")
                    for side in (house.bob, house.nobody)
                )
                assert theirs == nobodys, (method, path, body)


@tagged
def test_no_answer_depends_on_what_another_has(house: House, tag: str) -> None:
    """Not by counts either, nor by pages that there are.  One path changes what is anna's own."""
    house.tag(tag)
    paths = [path for path in GETS if not path.startswith("/aliveness-test")]
    asked = [house.anna.called(path) + query for path in paths for query in QUERIES]
    anna = house.user(house.anna)
    before = {path: answer(anna, "GET", path) for path in asked}
    for number in range(3):
        house.more(house.bob, f"-{tag}-{number}")
    for path, found in before.items():
        assert answer(anna, "GET", path) == found, path


def test_what_is_theirs_is_shown(house: House) -> None:
    """Or the tests above could not fail."""
    house.tag(MANAGEMENT)
    for side in (house.anna, house.bob):
        api, host = house.user(side), side.name("vhost")
        assert [each["name"] for each in api.get("/vhosts")] == [host]
        for path in ("/queues", "/queues?page=1&sort=messages", f"/queues/{host}?page=1", "/exchanges", "/bindings"):
            found = api.get(path)
            items = found["items"] if isinstance(found, dict) else found
            assert any(side.word in json.dumps(each) for each in items), path
            assert {each["vhost"] for each in items} == {host}, path
        for path in ("/connections", "/channels", f"/vhosts/{host}/connections", "/connections?page=1"):
            found = api.get(path)
            items = found["items"] if isinstance(found, dict) else found
            assert items and {each["user"] for each in items} == {side.name("user")}, path
        assert {each["channel_details"]["user"] for each in api.get("/consumers")} == {side.name("user")}
        totals = api.get("/overview")
        assert totals["object_totals"]["queues"] == len(api.get("/queues"))
        assert totals["queue_totals"]["messages"] == sum(each["messages"] for each in api.get("/queues"))
        assert api.get(f"/aliveness-test/{host}") == {"status": "ok"}
    house.tag(POLICYMAKER)
    mine = house.user(house.anna)
    for path in ("/policies", "/operator-policies", "/parameters"):
        assert [each["name"] for each in mine.get(path)] == [house.anna.name("other")], path
    house.tag(MONITORING)
    assert {house.anna.name("vhost"), house.bob.name("vhost"), "/"} == {each["name"] for each in mine.get("/vhosts")}
    assert house.bob.word in json.dumps([mine.get("/queues?page=1"), mine.get("/connections")])


def test_a_permission_that_goes_takes_the_pages_with_it(house: House) -> None:
    """At once, though the table of the queues is kept."""
    house.tag(MANAGEMENT)
    anna, host, user = house.user(house.anna), house.bob.name("vhost"), house.anna.name("user")
    house.root.request("PUT", f"/permissions/{host}/{user}", EVERY)
    assert {each["vhost"] for each in anna.get("/queues?page=1")["items"]} == {host, house.anna.name("vhost")}
    house.root.request("DELETE", f"/permissions/{host}/{user}")
    for path in ("/queues?page=1", "/queues?page=1&page_size=1&sort=messages", "/queues"):
        found = json.dumps(anna.get(path))
        assert house.bob.word not in found and house.anna.word in found
    assert anna.request("GET", f"/queues/{host}?page=1")[0] == 401


def test_a_connection_of_another_is_not_closed(house: House) -> None:
    house.tag(MANAGEMENT)
    anna, name = house.user(house.anna), house.bob.name("user")
    [found, *_] = house.root.get(f"/connections/username/{name}")
    assert anna.request("DELETE", f"/connections/{quote(found['name'], safe='')}")[0] == 404
    assert anna.request("DELETE", f"/connections/username/{name}")[0] == 204
    assert found["name"] in {each["name"] for each in house.root.get(f"/connections/username/{name}")}


def test_the_methods_of_the_matrix_are_all() -> None:
    assert {method for _, method in CELLS} == set(METHODS)


def test_who_watches_needs_no_permission(house: House) -> None:
    """It sees all, and may touch nothing."""
    user, anna = "watcher", house.anna
    assert house.root.request("PUT", f"/users/{user}", {"password": "secret", "tags": MONITORING})[0] == 201
    watcher = Api(house.root.port, user, "secret")
    names = {found["name"] for found in watcher.request("GET", "/queues")[1]}
    assert {anna.name("queue"), house.bob.name("queue")} <= names
    assert watcher.request("GET", "/overview")[0] == watcher.request("GET", "/nodes")[0] == 200
    for host in ("%2F", anna.name("vhost")):
        for method, path, body in (
            ("PUT", f"/queues/{host}/made", {}),
            ("DELETE", f"/queues/{host}/{anna.name('queue')}", None),
            ("DELETE", f"/queues/{host}/{anna.name('queue')}/contents", None),
            ("POST", f"/queues/{host}/{anna.name('queue')}/get", {"ackmode": "ack_requeue_false", "count": 1}),
            ("POST", f"/exchanges/{host}/amq.default/publish", {"routing_key": anna.name("queue"), "payload": "p"}),
        ):
            assert watcher.request(method, path, body)[0] == 401, (method, path)
    assert _as_a_tool(house, user, lambda channel: channel.queue_declare("made")) == 403
    assert _as_a_tool(house, user, lambda channel: channel.basic_get(anna.name("queue"))) in (403, 404)
    assert house.root.request("PUT", f"/users/{user}", {"password": "secret", "tags": MANAGEMENT})[0] == 204
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        _as_a_tool(house, user, lambda channel: None)
    assert house.root.request("DELETE", f"/users/{user}")[0] == 204


def _as_a_tool(house: House, user: str, work: Callable[[Any], object]) -> int:
    """Any client may say that it is one: the code with which its channel ends."""
    login, tool = pika.PlainCredentials(user, "secret"), {"qpid.ha-admin": True}
    place = pika.ConnectionParameters("127.0.0.1", house.root.amqp_port, "", login, client_properties=tool)
    connection = pika.BlockingConnection(place)
    try:
        work(connection.channel())
    except pika.exceptions.ChannelClosedByBroker as error:
        return int(error.reply_code)
    finally:
        connection.close()
    return 0
