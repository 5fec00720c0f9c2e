"""`qpid-http`: rabbitmqadmin's vocabulary against RabbitMQ and us, rights, and what a hostile client sends."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from qpidd_py.http.gate import OF_ADDRESS, WAITING
from qpidd_py.security.users import hash_password
from tests.support import programs
from tests.support.openapi import check_answer
from tests.support.process import BrokerProcess, HeldPort
from tests.support.rabbit import rabbit_cluster
from tests.support.system import needs
from tests.support.wait import wait_for

TIME = 60.0
GUEST = f"Basic {base64.b64encode(b'guest:guest').decode()}"


class Api:
    """One server of the API, asked as a user."""

    def __init__(self, port: int, user: str = "guest", password: str = "guest") -> None:
        self.port, self.user, self.password = port, user, password
        self.amqp_port = 0
        """Of its broker, where a test wants it."""

    def request(
        self, method: str, path: str, body: Any = None, raw: bytes | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        found = urllib.request.Request(f"http://127.0.0.1:{self.port}/api{path}", data, method=method)
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        for name, value in {"Authorization": f"Basic {token}", "Content-Type": "application/json", **headers}.items():
            found.add_header(name, value)
        try:
            with urllib.request.urlopen(found, timeout=TIME) as answer:
                status, told = answer.status, _json(answer.read())
        except urllib.error.HTTPError as error:
            status, told = error.code, _json(error.read())
        if path.startswith("/ha/"):
            check_answer(f"/api{path.partition('?')[0]}", method, status, told)
        return status, told

    def get(self, path: str) -> Any:
        code, found = self.request("GET", path)
        assert code == 200, found
        return found


def _json(octets: bytes) -> Any:
    return json.loads(octets) if octets else None


@contextlib.contextmanager
def serving(broker: BrokerProcess, folder: Path) -> Iterator[int]:
    """The port of a `qpid-http` for the broker."""
    held = HeldPort()
    port = held.port
    held.release()
    command = [sys.executable, "-m", "qpidd_py.http.main", "-b", broker.address, "--listen", f"127.0.0.1:{port}"]
    log = folder / "http.log"
    with log.open("ab") as output:
        process = programs.start(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for(lambda: "serves http" in log.read_text(), TIME, lambda: f"it serves: {log.read_text()}")
        yield port
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        process.terminate()
        process.wait(TIME)


@contextlib.contextmanager
def served_api(folder: Path, *options: str) -> Iterator[Api]:
    """Of a broker with these options."""
    with BrokerProcess(folder, *options) as broker, serving(broker, folder) as port:
        found = Api(port)
        found.amqp_port = broker.port
        yield found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, int]]:
    folder = tmp_path_factory.mktemp("http")
    with BrokerProcess(folder) as broker, serving(broker, folder) as port:
        yield broker, port


@pytest.fixture
def api(served: tuple[BrokerProcess, int]) -> Iterator[Api]:
    """Emptied afterwards."""
    found = Api(served[1])
    yield found
    for queue in found.get("/queues"):
        found.request("DELETE", f"/queues/%2F/{urllib.request.quote(queue['name'], safe='')}")  # type: ignore[attr-defined]
    for exchange in found.get("/exchanges"):
        if exchange["name"] and not exchange["name"].startswith("amq."):
            found.request("DELETE", f"/exchanges/%2F/{exchange['name']}")
    for policy in found.get("/policies"):
        found.request("DELETE", f"/policies/%2F/{policy['name']}")
    for name in ("max-queues", "max-connections"):
        found.request("DELETE", f"/vhost-limits/%2F/{name}")
    for user in found.get("/users"):
        found.request("DELETE", f"/users/{user['name']}")


# ---- rabbitmqadmin

VOCABULARY = (
    'declare queue name=q durable=true arguments={"x-max-length":5}',
    "declare queue name=q durable=false",
    "declare exchange name=x type=topic",
    "declare exchange name=y type=nonsense",
    "declare exchange name=f type=fanout durable=false",
    "declare binding source=x destination=q routing_key=a.#",
    "declare binding source=x destination=none routing_key=a",
    "declare binding source=x destination_type=exchange destination=f routing_key=b",
    "publish exchange=x routing_key=a.b payload=hello",
    "publish exchange=x routing_key=c payload=nowhere",
    "publish exchange=none routing_key=c payload=nowhere",
    'publish routing_key=q payload=more properties={"delivery_mode":2,"content_type":"text/plain"}',
    "get queue=q count=5",
    "get queue=q ackmode=ack_requeue_false",
    "get queue=none",
    "purge queue name=q",
    "get queue=q",
    "list queues name durable auto_delete",
    "list queues vhost name",
    "list exchanges name type durable internal",
    "list bindings source destination destination_type routing_key properties_key",
    "list vhosts name",
    "declare vhost name=v",
    "declare vhost name=v",
    "list vhosts name",
    "-V v declare queue name=q durable=true",
    "-V v declare binding source=amq.topic destination=q routing_key=a.#",
    "-V v publish exchange=amq.topic routing_key=a.b payload=there",
    "-V v get queue=q count=5",
    "-V v list bindings vhost source destination",
    "-V none declare queue name=q",
    "-V none get queue=q",
    "-V none list queues name",
    "declare vhost_limit vhost=v name=max-queues value=1",
    "-V v declare queue name=q2",
    "list queues vhost name",
    "delete vhost name=v",
    "delete vhost name=v",
    "list vhosts name",
    "list queues vhost name",
    "declare user name=anna password=secret tags=monitoring",
    "declare permission vhost=/ user=anna configure=^a write= read=.*",
    "declare permission vhost=/ user=none configure=^a write= read=.*",
    "declare permission vhost=/ user=anna configure=( write= read=.*",
    "list permissions user vhost configure write read",
    "delete permission vhost=/ user=anna",
    "delete user name=anna",
    "delete user name=anna",
    "delete binding source=x destination_type=queue destination=q properties_key=a.%23",
    "delete binding source=x destination_type=queue destination=q properties_key=none",
    "delete exchange name=x",
    "delete exchange name=x",
    'declare policy name=p pattern=^q definition={"max-length":1} priority=3 apply-to=queues',
    'declare policy name=p2 pattern=^q definition={"nonsense":1}',
    'declare policy name=p2 pattern=^q definition={"max-length":"x"}',
    'declare policy name=p2 pattern=( definition={"max-length":1}',
    "declare policy name=p2 pattern=^q definition={} apply-to=nodes",
    'declare operator_policy name=o pattern=q definition={"max-length":4}',
    'declare operator_policy name=o2 pattern=q definition={"overflow":"drop-head"}',
    "publish routing_key=q payload=1",
    "publish routing_key=q payload=2",
    "get queue=q count=5",
    "list policies",
    "list operator_policies",
    "delete policy name=p",
    "delete operator_policy name=o",
    "delete policy name=p",
    "delete queue name=q",
    "delete queue name=q",
)
OWN = ("amq.failover", "amq.rabbitmq.trace", "guest")
"""Rows with these: exchanges that one of both lacks; our `guest` has everything without a permission."""


def told(port: int, words: str) -> tuple[bool, list[str]]:
    """Whether it succeeded, and the lines of a table, in any order."""
    command = ["rabbitmqadmin", "-H", "127.0.0.1", "-P", str(port), "-f", "tsv", *words.split(" ")]
    done = programs.run(command, capture_output=True, text=True, timeout=TIME)
    rows = sorted(line for line in done.stdout.splitlines() if not any(word in line for word in OWN))
    return done.returncode == 0, rows if words.startswith(("list", "get")) and not done.returncode else []


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Api]:
    """RabbitMQ's own."""
    with rabbit_cluster(plugins="rabbitmq_management") as found:
        api = Api(found.management_port)
        api.amqp_port = found.ports[0]
        yield api


@needs("rabbitmqadmin")
def test_rabbitmqadmins_vocabulary(api: Api, rabbit: Api) -> None:
    theirs = [told(rabbit.port, words) for words in VOCABULARY]
    ours = [told(api.port, words) for words in VOCABULARY]
    different = [
        f"{words}: {mine}, RabbitMQ: {other}"
        for words, mine, other in zip(VOCABULARY, ours, theirs, strict=True)
        if mine != other
    ]
    assert not different, "\n".join(different)


def _refused(port: int, user: str, password: str, vhost: str) -> str:
    """What connection.close says to a client that enters."""
    login = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters("127.0.0.1", port, vhost, login, socket_timeout=TIME)
    try:
        pika.BlockingConnection(parameters).close()
    except pika.exceptions.AMQPConnectionError as error:
        return str(error.args[0])
    return ""


def _told_about_virtual_hosts(api: Api, port: int) -> list[str]:
    api.request("PUT", "/vhosts/v")
    api.request("PUT", "/users/anna", {"password": "secret", "tags": ""})
    found = [_refused(port, "anna", "secret", vhost) for vhost in ("v", "none", "V", "")]
    parameters = pika.ConnectionParameters("127.0.0.1", port, "v", socket_timeout=TIME)
    connection = pika.BlockingConnection(parameters)
    api.request("DELETE", "/vhosts/v")
    try:
        for _ in range(int(TIME)):
            connection.process_data_events(1)
    except pika.exceptions.ConnectionClosedByBroker as error:
        text = error.reply_text.replace("is down", "is deleted")  # RabbitMQ says the one or the other
        found.append(f"{error.reply_code} {text}")
    api.request("DELETE", "/users/anna")
    return found


def test_clients_are_told_about_virtual_hosts_as_by_rabbitmq(
    api: Api, served: tuple[BrokerProcess, int], rabbit: Api
) -> None:
    ours = _told_about_virtual_hosts(api, served[0].port)
    assert ours == _told_about_virtual_hosts(rabbit, rabbit.amqp_port) and len(ours) == 5


def test_definitions_of_a_real_rabbitmq(api: Api, rabbit: Api) -> None:
    rabbit.request("DELETE", "/exchanges/%2F/f")
    rabbit.request("PUT", "/users/anna", {"password": "secret", "tags": "monitoring"})
    rabbit.request("PUT", "/permissions/%2F/anna", {"configure": "^a", "write": ".*", "read": ".*"})
    arguments = {"x-max-length": 7, "x-dead-letter-exchange": "x"}
    rabbit.request("PUT", "/queues/%2F/q", {"durable": True, "arguments": arguments})
    rabbit.request("PUT", "/exchanges/%2F/x", {"type": "headers", "durable": True})
    limit = {"pattern": "^q", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
    rabbit.request("PUT", "/policies/%2F/p", limit)
    bound: dict[str, Any] = {"routing_key": "k", "arguments": {"x-match": "any", "n": 1}}
    rabbit.request("POST", "/bindings/%2F/e/x/q/q", bound)
    rabbit.request("PUT", "/user-limits/anna/max-channels", {"value": 9})
    rabbit.request("PUT", "/vhost-limits/%2F/max-queues", {"value": 99})
    rabbit.request("PUT", "/vhosts/v", {"description": "another", "tags": "some"})
    rabbit.request("PUT", "/permissions/v/anna", {"configure": "", "write": "^q", "read": ".*"})
    rabbit.request("PUT", "/queues/v/q", {"durable": True, "arguments": {"x-max-length": 8}})
    rabbit.request("PUT", "/exchanges/v/x", {"type": "fanout", "durable": True})
    rabbit.request("PUT", "/policies/v/p", {**limit, "priority": 2})
    content = rabbit.get("/definitions")
    rabbit.request("DELETE", "/vhosts/v")
    content["global_parameters"] = []
    content["users"] = [user for user in content["users"] if user["name"] != "guest"]
    content["permissions"] = [each for each in content["permissions"] if each["user"] != "guest"]
    assert api.request("POST", "/definitions", content)[0] == 204
    mine = api.get("/definitions")
    assert api.get("/queues/%2F/q")["effective_policy_definition"] == {"max-length": 5}
    for kind in ("queues", "exchanges", "users", "permissions", "policies", "parameters"):
        ours, theirs = (
            sorted(found[kind], key=lambda each: json.dumps(each, sort_keys=True)) for found in (mine, content)
        )
        assert ours == theirs, kind
    assert [each["name"] for each in mine["vhosts"]] == ["/", "v"]
    assert [(each["source"], each["arguments"]) for each in mine["bindings"]] == [("x", bound["arguments"])]
    assert api.request("DELETE", "/vhosts/v")[0] == 204
    anna = Api(api.port, "anna", "secret")
    assert anna.get("/whoami") == {"name": "anna", "tags": ["monitoring"]}
    assert anna.request("PUT", "/queues/%2F/b", {})[0] == 401 and anna.request("PUT", "/queues/%2F/a", {})[0] == 201


# ---- what is there already

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
POLICY = {"pattern": "^none", "definition": {"max-length": 5}}
SHOVEL = {"value": {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}}
TWICE: tuple[tuple[str, str, Any, int, int], ...] = (
    ("PUT", "/vhosts/v", None, 201, 204),
    ("PUT", "/vhosts/%2F", None, 204, 204),
    ("PUT", "/queues/%2F/again", {"durable": True}, 201, 204),
    ("PUT", "/queues/%2F/again", {"durable": True, "arguments": {"x-max-length": 5}}, 400, 400),
    ("PUT", "/queues/v/again", {"durable": True}, 201, 204),
    ("PUT", "/queues/none/q", {}, 404, 404),
    ("PUT", "/exchanges/%2F/again", {"type": "topic", "durable": True}, 201, 204),
    ("PUT", "/exchanges/%2F/again", {"type": "direct", "durable": True}, 400, 400),
    ("PUT", "/exchanges/%2F/amq.topic", {"type": "topic", "durable": True}, 204, 204),
    ("PUT", "/exchanges/%2F/amq.default", {"type": "direct", "durable": True}, 401, 401),
    ("PUT", "/users/u", {"password": "u", "tags": ""}, 201, 204),
    ("PUT", "/permissions/%2F/u", ALL, 201, 204),
    ("PUT", "/permissions/v/u", ALL, 201, 204),
    ("PUT", "/topic-permissions/%2F/u", {"exchange": "amq.topic", "write": ".*", "read": ".*"}, 201, 204),
    ("PUT", "/topic-permissions/%2F/u", {"exchange": "x", "write": ".*", "read": ".*"}, 204, 204),
    ("PUT", "/policies/%2F/again", POLICY, 201, 204),
    ("PUT", "/policies/v/again", POLICY, 201, 204),
    ("PUT", "/operator-policies/%2F/again", POLICY, 201, 204),
    ("PUT", "/user-limits/u/max-channels", {"value": 100}, 204, 204),
    ("PUT", "/vhost-limits/v/max-queues", {"value": 100}, 204, 204),
    ("PUT", "/parameters/shovel/%2F/s", SHOVEL, 201, 204),
    ("POST", "/bindings/%2F/e/again/q/again", {"routing_key": "k"}, 201, 201),
    ("POST", "/bindings/%2F/e/amq.default/q/again", {"routing_key": "k"}, 401, 401),
    ("POST", "/bindings/%2F/e/amq.default/q/again", {"routing_key": "again"}, 401, 401),
    ("POST", "/bindings/%2F/e/amq.default/q/none", {"routing_key": "k"}, 401, 401),
    ("POST", "/bindings/%2F/e/again/e/amq.default", {"routing_key": "k"}, 401, 401),
    ("GET", "/bindings/%2F/e/amq.default/q/again", None, 200, 200),
    ("GET", "/bindings/%2F/e/amq.default/q/again/again", None, 200, 200),
    ("GET", "/bindings/%2F/e/amq.default/q/again/k", None, 404, 404),
    ("GET", "/bindings/%2F/e/again/e/amq.default", None, 200, 200),
    ("DELETE", "/bindings/%2F/e/amq.default/q/again/again", None, 401, 401),
    ("DELETE", "/bindings/%2F/e/amq.default/q/again/k", None, 404, 404),
    ("DELETE", "/bindings/%2F/e/again/q/again/k", None, 204, 404),
)
"""Requests, and what the first and the second one of a kind are answered with."""


def _twice(api: Api) -> list[tuple[int, int]]:
    found = [tuple(api.request(*request)[0] for _ in range(2)) for *request, _, _ in TWICE]
    for path in (
        "/parameters/shovel/%2F/s",
        "/operator-policies/%2F/again",
        "/policies/%2F/again",
        "/exchanges/%2F/again",
    ):
        api.request("DELETE", path)
    for path in ("/queues/%2F/again", "/vhosts/v", "/users/u"):
        assert api.request("DELETE", path)[0] == 204
    return found  # type: ignore[return-value]


def test_what_is_there_already_is_answered_with_204(api: Api) -> None:
    wrong = [
        (request, codes, found)
        for (*request, first, second), found in zip(TWICE, _twice(api), strict=True)
        if found != (codes := (first, second))
    ]
    assert not wrong, wrong


def test_rabbitmq_answers_so_too(rabbit: Api) -> None:
    """But for shovels, whose plugin it has not here."""
    found = zip(TWICE, _twice(rabbit), strict=True)
    wrong = [(each, codes) for each, codes in found if codes != each[3:] and "/shovel/" not in each[1]]
    assert not wrong, wrong


# ---- limits

LIMITS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/user-limits", None),
    *(("PUT", "/user-limits/anna/max-channels", {"value": value}) for value in (2, 0, -1, "x", 1.5, None)),
    ("PUT", "/user-limits/anna/max-channels", {}),
    ("PUT", "/user-limits/anna/max-connections", {"value": 1}),
    ("PUT", "/user-limits/anna/max-nothing", {"value": 1}),
    ("GET", "/user-limits", None),
    ("GET", "/user-limits/anna", None),
    ("GET", "/user-limits/nobody", None),
    ("DELETE", "/user-limits/anna/max-channels", None),
    ("DELETE", "/user-limits/anna/max-channels", None),
    ("GET", "/user-limits/anna", None),
    ("PUT", "/vhost-limits/%2F/max-queues", {"value": 1}),
    ("PUT", "/vhost-limits/%2F/max-connections", {"value": "1"}),
    ("PUT", "/vhost-limits/%2F/max-nothing", {"value": 1}),
    ("PUT", "/vhost-limits/none/max-queues", {"value": 1}),
    ("GET", "/vhost-limits", None),
    ("GET", "/vhost-limits/%2F", None),
    ("DELETE", "/vhost-limits/%2F/max-queues", None),
)


def test_limits_as_rabbitmq_has_them(api: Api, rabbit: Api) -> None:
    found = []
    for each in (api, rabbit):
        each.request("DELETE", "/vhost-limits/%2F/max-queues")
        each.request("PUT", "/users/anna", {"password": "secret", "tags": ""})
        each.request("DELETE", "/user-limits/anna/max-channels")
        answers = [each.request(*request) for request in LIMITS]
        found.append([(code, body) if code == 200 else "done" if code < 300 else code for code, body in answers])
    pairs = zip(LIMITS, *found, strict=True)
    different = [f"{request}: {ours}, RabbitMQ: {theirs}" for request, ours, theirs in pairs if ours != theirs]
    assert not different, "\n".join(different)
    assert api.get("/user-limits") == [{"user": "anna", "value": {"max-connections": 1}}]
    api.request("DELETE", "/users/anna")
    assert api.get("/user-limits") == []


# ---- parameters and shovels


def test_shovels_from_beginning_to_end(api: Api) -> None:
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://u:secret@h", "dest-queue": "b"}
    path = "/parameters/shovel/%2F/s"
    assert api.request("PUT", path, {"value": value})[0] == 201
    mine = {"component": "shovel", "vhost": "/", "name": "s", "value": value}
    assert api.get(path) == mine and api.get("/parameters/shovel/%2F") == api.get("/parameters") == [mine]
    assert api.get("/definitions")["parameters"] == [mine]
    (shovel,) = api.get("/shovels")
    assert (shovel["state"], shovel["type"], shovel["vhost"]) == ("terminated", "dynamic", "/")
    assert "no qpid-shovel has reported" in shovel["reason"] and "secret" not in str(shovel)
    assert api.get("/shovels/vhost/%2F/s") == shovel
    code, answer = api.request("DELETE", "/shovels/vhost/%2F/s/restart")
    assert code == 400 and "no qpid-shovel has reported" in answer["reason"]
    assert api.request("DELETE", "/shovels/vhost/%2F/none/restart")[0] == 404
    assert api.request("GET", "/shovels/vhost/%2F/s/restart")[0] == 405
    assert api.request("DELETE", "/shovels/vhost/%2F/s")[0] == 204 and api.get("/parameters/shovel") == []
    assert api.request("POST", "/definitions", {"parameters": [mine]})[0] == 204 and api.get("/parameters") == [mine]
    assert api.request("DELETE", path)[0] == 204
    wrong = {
        "/parameters/federation-upstream/%2F/s": "federation by upstreams is not here",
        "/parameters/shovel/%2F/s": "key 'colour': expected some of src-protocol",
        "/parameters/shovel/none/s": "",
    }
    for path, reason in wrong.items():
        code, answer = api.request("PUT", path, {"value": {**value, "colour": 5}})
        assert code == (400 if reason else 404) and reason in answer["reason"], answer
    assert api.request("GET", "/parameters/federation-upstream")[0] == 400
    assert api.request("PUT", "/parameters/shovel/%2F/s", {"value": "x"})[0] == 400
    for path in ("/parameters/shovel/%2F/s", "/shovels/vhost/%2F/s"):
        assert api.request("GET", path)[0] == api.request("DELETE", path)[0] == 404


# ---- rights


def test_the_broker_judges(api: Api) -> None:
    api.request("PUT", "/users/anna", {"password": "secret", "tags": ""})
    anna = Api(api.port, "anna", "secret")
    assert anna.request("GET", "/whoami")[0] == 401, "no permission"
    api.request("PUT", "/permissions/%2F/anna", {"configure": "", "write": "", "read": "^q$"})
    api.request("PUT", "/queues/%2F/q", {})
    codes = {
        path: anna.request(method, path, body)[0]
        for method, path, body in (
            ("GET", "/whoami", None),
            ("GET", "/queues", None),
            ("GET", "/users", None),
            ("PUT", "/users/eve", {"tags": ""}),
            ("POST", "/queues/%2F/q/get", {"ackmode": "ack_requeue_true", "count": 1}),
            ("POST", "/exchanges/%2F/amq.default/publish", {"routing_key": "q", "payload": "", "properties": {}}),
            ("GET", "/definitions", None),
        )
    }
    assert codes == {
        "/whoami": 200,
        "/queues": 401,
        "/users": 401,
        "/users/eve": 401,
        "/queues/%2F/q/get": 200,
        "/exchanges/%2F/amq.default/publish": 401,
        "/definitions": 401,
    }
    assert Api(api.port, "anna", "wrong").request("GET", "/whoami")[0] == 401


@pytest.mark.parametrize("value", ["", "Basic", "Basic !", "Basic Z3Vlc3Q=", "Bearer x", "Basic /w=="])
def test_broken_logins(api: Api, value: str) -> None:
    assert api.request("GET", "/whoami", Authorization=value)[0] == 401


def test_a_page_of_another_origin_changes_nothing(api: Api) -> None:
    assert api.request("PUT", "/queues/%2F/q", {}, Origin="http://evil.example")[0] == 403
    assert api.get("/queues") == []
    assert api.request("PUT", "/queues/%2F/q", {}, Origin=f"http://127.0.0.1:{api.port}")[0] == 201


WRONG: list[tuple[str, str, Any, int]] = [
    ("GET", "/nothing", None, 404),
    ("PATCH", "/queues", {}, 405),
    ("GET", "/queues/other", None, 404),
    ("GET", "/queues/%2F/none", None, 404),
    ("PUT", "/queues/%2F/q", {"durable": "maybe"}, 400),
    ("PUT", "/queues/%2F/q", {"arguments": []}, 400),
    ("PUT", "/queues/%2F/q", {"arguments": {"x-max-length": -1}}, 400),
    ("PUT", "/queues/%2F/amq.x", {}, 401),
    ("PUT", "/queues/%2F/" + "q" * 300, {}, 400),
    ("PUT", "/exchanges/%2F/x", {"type": 5}, 400),
    ("PUT", "/exchanges/%2F/x", {"type": "nonsense"}, 400),
    ("POST", "/queues/%2F/none/get", {"ackmode": "ack_requeue_true"}, 404),
    ("POST", "/queues/%2F/none/get", {"ackmode": "take"}, 400),
    ("POST", "/queues/%2F/none/get", {"ackmode": "ack_requeue_true", "count": 1001}, 400),
    ("POST", "/exchanges/%2F/amq.topic/publish", {"routing_key": "k"}, 400),
    ("POST", "/exchanges/%2F/amq.topic/publish", {"routing_key": "k" * 300, "payload": ""}, 400),
    (
        "POST",
        "/exchanges/%2F/amq.topic/publish",
        {"routing_key": "k", "payload": "%", "payload_encoding": "base64"},
        400,
    ),
    ("POST", "/exchanges/%2F/amq.topic/publish", {"routing_key": "k", "payload": "", "properties": {"colour": 1}}, 400),
    (
        "POST",
        "/exchanges/%2F/amq.topic/publish",
        {"routing_key": "k", "payload": "", "properties": {"delivery_mode": "x"}},
        400,
    ),
    ("POST", "/bindings/%2F/e/none/q/none", {}, 404),
    ("POST", "/bindings/%2F/e/amq.topic/z/none", {}, 404),
    ("DELETE", "/bindings/%2F/e/amq.topic/q/none/key", None, 404),
    ("PUT", "/users/anna", {"password": "x"}, 400),
    ("PUT", "/users/anna", {"password": "x", "tags": "king"}, 400),
    ("PUT", "/users/anna", {"password_hash": "x", "tags": ""}, 400),
    ("PUT", "/users/guest", {"password": "x", "tags": ""}, 400),
    ("PUT", "/permissions/%2F/none", {"configure": "", "write": "", "read": ""}, 404),
    ("DELETE", "/exchanges/%2F/none", None, 404),
    ("DELETE", "/exchanges/%2F/amq.default", None, 401),
    ("DELETE", "/users/none", None, 404),
    ("DELETE", "/connections/none", None, 404),
    ("POST", "/definitions", {"queues": [{"name": 5}]}, 400),
    ("POST", "/definitions", {"bindings": [{"source": "x"}]}, 400),
    ("POST", "/definitions", {"queues": 5}, 400),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), WRONG, ids=lambda each: str(each)[:60])
def test_wrong_requests(api: Api, method: str, path: str, body: Any, code: int) -> None:
    found = api.request(method, path, body)
    assert found[0] == code, found
    assert found[1]["error"] and found[1]["reason"]


@pytest.mark.parametrize("raw", [b"{", b"[]", b"5", b"\xff", b"[" * 100_000, b'{"a": NaN'])
def test_bodies_that_are_none(api: Api, raw: bytes) -> None:
    assert api.request("PUT", "/queues/%2F/q", raw=raw)[0] == 400


@pytest.mark.parametrize(
    "line", [b"GET /api/\xc3\xa9 y HTTP/1.1", b"\x16\x03\x01\x02", b"GET / HTTP/9.9", b"A" * 100_000]
)
def test_what_is_no_http_is_refused_and_not_logged(
    served: tuple[BrokerProcess, int], tmp_path: Path, line: bytes
) -> None:
    """Or anybody could fill the disk: each was a traceback of 20 lines (`serving` looks for one)."""
    with serving(served[0], tmp_path) as port:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), TIME) as peer:
            peer.sendall(line + b"\r\n\r\n")
            assert b"400 Bad Request" in peer.recv(65536)
        assert len((tmp_path / "http.log").read_text().splitlines()) == 1


def test_a_body_that_is_too_large(api: Api) -> None:
    """The answer may come before all is sent."""
    with contextlib.suppress(urllib.error.URLError):
        assert api.request("POST", "/definitions", raw=b" " * (17 << 20))[0] == 413
    assert api.get("/whoami")["name"] == "guest"


def test_names_with_every_sign(api: Api) -> None:
    for name in ("a/b", "a b", "ä", "100%", "a?b=c", "~", "."):
        quoted = urllib.request.quote(name, safe="")  # type: ignore[attr-defined]
        assert api.request("PUT", f"/queues/%2F/{quoted.replace('.', '%2E')}", {})[0] == 201, name
    assert sorted(each["name"] for each in api.get("/queues")) == sorted(("a/b", "a b", "ä", "100%", "a?b=c", "~", "."))


def test_many_wrong_logins_delay_nobody_who_is_known(api: Api) -> None:
    """The broker takes its time over each of them."""
    wrong = Api(api.port, "guest", "wrong")
    api.get("/whoami")
    with ThreadPoolExecutor(30) as pool:
        asked = [pool.submit(wrong.request, "GET", "/whoami") for _ in range(30)]
        wait_for(lambda: any(each.done() for each in asked), TIME, "the first answer")
        for _ in range(3):
            api.get("/whoami")
        assert not all(each.done() for each in asked), "a known login did not wait for them"
        codes = [each.result()[0] for each in asked]
    assert set(codes) == {401, 429} and codes.count(429) >= 30 - OF_ADDRESS - WAITING


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, serving(broker, tmp_path) as port:
        assert Api(port).request("GET", "/overview")[0] == 200
        broker.kill()
        code, found = Api(port).request("GET", "/overview")
        assert (code, found["error"]) == (503, "service_unavailable")
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/overview", headers={"Authorization": GUEST})
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=TIME)
        assert refusal.value.headers["Retry-After"] == "1"
        broker.start()
        assert Api(port).request("GET", "/overview")[0] == 200


def test_many_queues_in_pages(api: Api) -> None:
    queues = [{"name": f"q{number}", "durable": False} for number in range(2000)]
    assert api.request("POST", "/definitions", {"queues": queues})[0] == 204
    found = api.get("/queues?page=20&page_size=100&sort=name&columns=name")
    assert (found["page_count"], found["item_count"], found["items"][0]) == (20, 100, {"name": "q909"})


def test_a_closed_connection(served: tuple[BrokerProcess, int], api: Api) -> None:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served[0].port))
    names = [
        each["name"]
        for each in api.get("/connections")
        if each["client_properties"].get("product", "").startswith("Pika")
    ]
    quoted = urllib.request.quote(names[0], safe="")  # type: ignore[attr-defined]
    assert api.request("DELETE", f"/connections/{quoted}?reason=maintenance")[0] == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
        while True:
            connection.process_data_events(TIME)


CHANNEL = {
    "number": 1,
    "user": "guest",
    "vhost": "/",
    "state": "running",
    "confirm": True,
    "transactional": False,
    "prefetch_count": 3,
    "global_prefetch_count": 0,
    "consumer_count": 1,
    "messages_unacknowledged": 3,
    "messages_unconfirmed": 0,
}


def busy_channel(port: int, api: Api, wanted: dict[str, Any]) -> dict[str, Any]:
    """As the API shows a channel with a consumer that acknowledges nothing, when it is as wanted."""
    import pika

    with contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for _ in range(5):
            channel.basic_publish("", queue, b"")
        channel.basic_qos(prefetch_count=3)
        channel.basic_consume(queue, lambda *_: None)

        def shown() -> dict[str, Any]:
            connection.process_data_events(0.1)
            found = (api.get(f"/channels/{urllib.parse.quote(each['name'])}") for each in api.get("/channels"))
            return next((each for each in found if wanted.items() <= each.items()), {})

        found = wait_for(shown, TIME, lambda: f"a busy channel: {api.get('/channels')}")
        name = urllib.parse.quote(found["connection_details"]["name"])
        assert [each["name"] for each in api.get(f"/connections/{name}/channels")] == [found["name"]]
        return found


def test_a_channel_as_rabbitmq_shows_it(rabbit: Api, served: tuple[BrokerProcess, int], api: Api) -> None:
    theirs = busy_channel(rabbit.amqp_port, rabbit, CHANNEL)
    ours = busy_channel(served[0].port, api, CHANNEL)
    assert set(ours) <= set(theirs), "a name of our own would be a field that no tool reads"
    assert theirs["name"].endswith(" (1)") and ours["name"].endswith(" (1)")


def test_a_channel(served: tuple[BrokerProcess, int], api: Api) -> None:
    found = busy_channel(served[0].port, api, CHANNEL)
    assert api.get("/overview")["object_totals"]["channels"] >= 1
    assert api.request("GET", f"/channels/{urllib.parse.quote(found['name'])}9")[0] == 404


def test_hash_password_is_what_the_broker_takes(api: Api) -> None:
    stored = hash_password("secret", log2n=4)
    body = {"password_hash": stored, "hashing_algorithm": "scrypt", "tags": "administrator"}
    assert api.request("PUT", "/users/anna", body)[0] == 201
    api.request("PUT", "/permissions/%2F/anna", {"configure": "", "write": "", "read": ""})
    assert Api(api.port, "anna", "secret").get("/users")[0]["name"] == "anna"


# ---- rates


def test_rates_of_queues_connections_and_the_whole(api: Api) -> None:
    assert api.request("PUT", "/queues/%2F/rated", {})[0] == 201
    paths = ("/overview", "/queues/%2F/rated", "/queues?page=1&name=rated", "/queues", "/connections")
    message = {"properties": {}, "routing_key": "rated", "payload": "x", "payload_encoding": "string"}

    def rates() -> list[float]:
        api.request("POST", "/exchanges/%2F/amq.default/publish", message)
        overview, queue, page, queues, _ = (api.get(path) for path in paths)
        each = [queue, page["items"][0], next(item for item in queues if item["name"] == "rated")]
        found = [item["message_stats"]["publish_details"]["rate"] for item in [overview, *each]]
        lengths = [item["messages_details"]["rate"] for item in [overview["queue_totals"], *each]]
        return [*found, *lengths]

    assert api.get("/overview")["rates_mode"] == "basic"
    wait_for(lambda: min(rates()) > 0, TIME)
    for connection in api.get("/connections"):
        assert connection["recv_oct_details"]["rate"] >= 0 and connection["send_oct_details"]["rate"] >= 0
    found = api.get("/queues?sort=message_stats.publish_details.rate&sort_reverse=true&columns=name,messages_details")
    assert found[0]["name"] == "rated" and set(found[0]) == {"name", "messages_details"}
