"""`qpid-http` walks the paths of RabbitMQ's management API 3.10: one table, from which all requests are made.

Each path is here with RabbitMQ's names, or refused (501) with a reason.  Of each: what GET and HEAD answer, what
OPTIONS allows and what else is refused (405), who is not known (401), who may not (401), what is not there (404), and
bodies that are wrong (400).
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

import pytest

from qpidd_py.http.node_routes import REFUSED
from qpidd_py.http.routes import ROUTES
from qpidd_py.security.entries import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER
from tests.integration.test_http_api import TIME, Api, served_api

METHODS: Final = ("GET", "PUT", "POST", "DELETE")
SAMPLE: Final = {
    "vhost": "%2F",
    "queue": "walked",
    "user": "walker",
}
"""What the parts of a path are called, where a row says nothing else."""


@dataclass(frozen=True)
class Row:
    """One path: as RabbitMQ writes it, filled (`there`), and with something that is not there (`missing`)."""

    path: str
    methods: str
    there: str = ""
    keys: str = ""
    """Of the answer to GET, or of the first of its list; `[]` in front: a list, which may be empty without keys."""
    missing: str = ""
    sees: str = MANAGEMENT
    """The tag that is needed to look; empty: none."""
    needs: str = ADMINISTRATOR
    """The tag that is needed to change something; empty: permissions."""
    bodies: tuple[Any, ...] = ()
    """That are wrong."""
    changes: str = ""
    """Methods for which `missing` is looked at, besides GET."""


QUEUE: Final = "name vhost durable auto_delete exclusive arguments node state policy messages messages_ready consumers"
EXCHANGE: Final = "name vhost type durable auto_delete internal arguments"
BINDING: Final = "source vhost destination destination_type routing_key arguments properties_key"
CONNECTION: Final = (
    "name user vhost peer_host peer_port state channels protocol node client_properties recv_oct send_oct"
)
CHANNEL: Final = "name number user vhost node connection_details consumer_count prefetch_count"
POLICY: Final = "vhost name pattern apply-to definition priority"
PERMISSION: Final = "user vhost configure write read"
TOPIC: Final = "user vhost exchange write read"
PARAMETER: Final = "component vhost name value"
HEALTH: Final = "status"
DEFINITIONS: Final = (
    "rabbit_version users vhosts permissions topic_permissions parameters policies queues exchanges bindings"
)
OF_HOST: Final = "rabbit_version parameters policies queues exchanges bindings"
NODES: Final = "name type running os_pid mem_used mem_limit mem_alarm disk_free_alarm"
WRONG: Final = (b"{", b"[]", b'{"a": NaN', b'{"name": "\\ud800"}', b'{"name": {"a": ["\xed\xa0\x80"]}}', b"[" * 100_000)
"""The fourth and the fifth have half a character, which no broker can be told."""
TABLE: Final[tuple[Row, ...]] = (
    Row("/overview", "GET", keys="management_version cluster_name object_totals queue_totals message_stats node"),
    Row("/cluster-name", "GET PUT", keys="name"),
    Row("/nodes", "GET", keys=f"[]{NODES}", sees=MONITORING),
    Row("/nodes/{node}", "GET", keys=NODES, missing="/nodes/none", sees=MONITORING),
    Row("/nodes/{node}/memory", "GET", keys="memory", missing="/nodes/none/memory", sees=MONITORING),
    Row("/nodes/{node}/memory/relative", "GET", keys="memory", missing="/nodes/none/memory/relative", sees=MONITORING),
    Row("/nodes/{node}/memory/ets", "GET"),
    Row("/nodes/{node}/memory/ets/relative", "GET"),
    Row("/nodes/{node}/memory/ets/{filter}", "GET", "/nodes/{node}/memory/ets/management"),
    Row("/nodes/{node}/memory/ets/{filter}/relative", "GET", "/nodes/{node}/memory/ets/management/relative"),
    Row("/extensions", "GET", keys="[]"),
    Row("/all-configuration", "GET POST", keys=DEFINITIONS, bodies=WRONG, sees=ADMINISTRATOR, needs=""),
    Row(
        "/definitions",
        "GET POST",
        keys=DEFINITIONS,
        bodies=(*WRONG, {"queues": 5}, {"queues": [{"name": 5}]}),
        sees=ADMINISTRATOR,
        needs="",
    ),
    Row(
        "/definitions/{vhost}",
        "GET POST",
        keys=OF_HOST,
        missing="/definitions/none",
        changes="POST",
        bodies=(*WRONG, {"queues": 5}),
        sees=ADMINISTRATOR,
        needs=MANAGEMENT,
    ),
    Row("/connections", "GET", keys=f"[]{CONNECTION}"),
    Row(
        "/connections/{name}",
        "GET DELETE",
        "/connections/*",
        CONNECTION,
        "/connections/none",
        changes="DELETE",
        needs=MANAGEMENT,
    ),
    Row("/connections/{name}/channels", "GET", "/connections/*/channels", "[]", "/connections/none/channels"),
    Row(
        "/connections/username/{user}", "GET DELETE", "/connections/username/guest", f"[]{CONNECTION}", needs=MANAGEMENT
    ),
    Row("/vhosts/{vhost}/connections", "GET", keys=f"[]{CONNECTION}", missing="/vhosts/none/connections"),
    Row("/channels", "GET", keys=f"[]{CHANNEL}"),
    Row("/channels/{name}", "GET", "/channels/*", CHANNEL, "/channels/none"),
    Row("/vhosts/{vhost}/channels", "GET", keys=f"[]{CHANNEL}", missing="/vhosts/none/channels"),
    Row("/consumers", "GET", keys="[]"),
    Row("/consumers/{vhost}", "GET", keys="[]", missing="/consumers/none"),
    Row("/exchanges", "GET", keys=f"[]{EXCHANGE}"),
    Row("/exchanges/{vhost}", "GET", keys=f"[]{EXCHANGE}", missing="/exchanges/none"),
    Row(
        "/exchanges/{vhost}/{name}",
        "GET PUT DELETE",
        "/exchanges/%2F/walked",
        EXCHANGE,
        "/exchanges/%2F/none",
        changes="DELETE",
        bodies=(*WRONG, {"type": 5}, {"type": "nonsense"}),
        needs="",
    ),
    Row(
        "/exchanges/{vhost}/{name}/bindings/source",
        "GET",
        "/exchanges/%2F/walked/bindings/source",
        f"[]{BINDING}",
        "/exchanges/none/walked/bindings/source",
    ),
    Row(
        "/exchanges/{vhost}/{name}/bindings/destination",
        "GET",
        "/exchanges/%2F/walked/bindings/destination",
        "[]",
        "/exchanges/none/walked/bindings/destination",
    ),
    Row(
        "/exchanges/{vhost}/{name}/publish",
        "POST",
        "/exchanges/%2F/walked/publish",
        missing="/exchanges/%2F/none/publish",
        bodies=(*WRONG, {}, {"routing_key": "k", "payload": "", "properties": {"colour": 1}}),
        needs="",
    ),
    Row("/queues", "GET", keys=f"[]{QUEUE}"),
    Row("/queues/{vhost}", "GET", keys=f"[]{QUEUE}", missing="/queues/none"),
    Row(
        "/queues/{vhost}/{name}",
        "GET PUT DELETE",
        "/queues/%2F/walked",
        QUEUE,
        "/queues/%2F/none",
        changes="DELETE",
        bodies=(*WRONG, {"durable": "maybe"}, {"arguments": []}),
        needs="",
    ),
    Row(
        "/queues/{vhost}/{name}/bindings",
        "GET",
        "/queues/%2F/walked/bindings",
        f"[]{BINDING}",
        "/queues/none/walked/bindings",
    ),
    Row(
        "/queues/{vhost}/{name}/contents",
        "DELETE",
        "/queues/%2F/walked/contents",
        missing="/queues/%2F/none/contents",
        changes="DELETE",
        needs="",
    ),
    Row(
        "/queues/{vhost}/{name}/actions",
        "POST",
        "/queues/%2F/walked/actions",
        missing="/queues/%2F/none/actions",
        bodies=(*WRONG, {}, {"action": "dance"}, {"action": "sync"}),
        changes="POST",
        needs=MANAGEMENT,
    ),
    Row(
        "/queues/{vhost}/{name}/get",
        "POST",
        "/queues/%2F/walked/get",
        bodies=(*WRONG, {}, {"ackmode": "take"}),
        needs="",
    ),
    Row("/bindings", "GET", keys=f"[]{BINDING}"),
    Row("/bindings/{vhost}", "GET", keys=f"[]{BINDING}", missing="/bindings/none"),
    Row(
        "/bindings/{vhost}/e/{source}/{kind}/{destination}",
        "GET POST",
        "/bindings/%2F/e/walked/q/walked",
        f"[]{BINDING}",
        "/bindings/none/e/walked/q/walked",
        changes="POST",
        bodies=(*WRONG, {"routing_key": 5}, {"arguments": 5}),
        needs="",
    ),
    Row(
        "/bindings/{vhost}/e/{source}/{kind}/{destination}/{key}",
        "GET DELETE",
        "/bindings/%2F/e/walked/q/walked/key",
        BINDING,
        "/bindings/%2F/e/walked/q/walked/none",
        changes="DELETE",
        needs=MANAGEMENT,
    ),
    Row("/vhosts", "GET", keys="[]name"),
    Row("/vhosts/{name}", "GET PUT DELETE", "/vhosts/walked", "name", "/vhosts/none", changes="DELETE", bodies=WRONG),
    Row(
        "/vhosts/{vhost}/permissions",
        "GET",
        keys=f"[]{PERMISSION}",
        missing="/vhosts/none/permissions",
        sees=ADMINISTRATOR,
    ),
    Row(
        "/vhosts/{vhost}/topic-permissions",
        "GET",
        keys=f"[]{TOPIC}",
        missing="/vhosts/none/topic-permissions",
        sees=ADMINISTRATOR,
    ),
    Row("/vhosts/{vhost}/start/{node}", "POST", missing="/vhosts/none/start/{node}", changes="POST", needs=MONITORING),
    Row("/users", "GET", keys="[]name tags", sees=ADMINISTRATOR),
    Row("/users/without-permissions", "GET", keys="[]name tags", sees=ADMINISTRATOR),
    Row("/users/bulk-delete", "POST", bodies=(*WRONG, {}, {"users": "walker"}, {"users": [5]})),
    Row(
        "/users/{name}",
        "GET PUT DELETE",
        "/users/walker",
        "name tags",
        "/users/none",
        changes="DELETE",
        bodies=(*WRONG, {}, {"password": 5, "tags": ""}, {"tags": "king"}),
        sees=ADMINISTRATOR,
    ),
    Row(
        "/users/{name}/permissions",
        "GET",
        "/users/walker/permissions",
        f"[]{PERMISSION}",
        "/users/none/permissions",
        sees=ADMINISTRATOR,
    ),
    Row(
        "/users/{name}/topic-permissions",
        "GET",
        "/users/walker/topic-permissions",
        f"[]{TOPIC}",
        "/users/none/topic-permissions",
        sees=ADMINISTRATOR,
    ),
    Row("/user-limits", "GET", keys="[]user value", sees=ADMINISTRATOR),
    Row("/user-limits/{user}", "GET", keys="[]user value", missing="/user-limits/none", sees=ADMINISTRATOR),
    Row("/user-limits/{user}/{limit}", "PUT DELETE", "/user-limits/walker/max-channels", bodies=(*WRONG, {})),
    Row("/whoami", "GET", keys="name tags", sees=""),
    Row("/permissions", "GET", keys=f"[]{PERMISSION}", sees=ADMINISTRATOR),
    Row(
        "/permissions/{vhost}/{user}",
        "GET PUT DELETE",
        keys=PERMISSION,
        missing="/permissions/%2F/none",
        changes="DELETE",
        bodies=(*WRONG, {}, {"configure": "(", "write": "", "read": ""}),
        sees=ADMINISTRATOR,
    ),
    Row("/topic-permissions", "GET", keys=f"[]{TOPIC}", sees=ADMINISTRATOR),
    Row(
        "/topic-permissions/{vhost}/{user}",
        "GET PUT DELETE",
        keys=f"[]{TOPIC}",
        missing="/topic-permissions/%2F/none",
        changes="DELETE",
        bodies=(*WRONG, {}),
        sees=ADMINISTRATOR,
    ),
    Row(
        "/topic-permissions/{vhost}/{user}/{exchange}",
        "DELETE",
        "/topic-permissions/%2F/walker/amq.topic",
        missing="/topic-permissions/%2F/walker/none",
        changes="DELETE",
    ),
    Row("/parameters", "GET", keys=f"[]{PARAMETER}", sees=POLICYMAKER),
    Row("/parameters/{component}", "GET", "/parameters/shovel", f"[]{PARAMETER}", sees=POLICYMAKER),
    Row(
        "/parameters/{component}/{vhost}",
        "GET",
        "/parameters/shovel/%2F",
        f"[]{PARAMETER}",
        "/parameters/shovel/none",
        sees=POLICYMAKER,
    ),
    Row(
        "/parameters/{component}/{vhost}/{name}",
        "GET PUT DELETE",
        "/parameters/shovel/%2F/walked",
        PARAMETER,
        "/parameters/shovel/%2F/none",
        changes="DELETE",
        bodies=(*WRONG, {}, {"value": 5}, {"value": {"colour": 1}}),
        sees=POLICYMAKER,
        needs=POLICYMAKER,
    ),
    Row("/global-parameters", "GET", keys="[]name value", sees=MONITORING),
    Row(
        "/global-parameters/{name}",
        "GET PUT DELETE",
        "/global-parameters/cluster_name",
        "name value",
        "/global-parameters/none",
        sees=MONITORING,
    ),
    *(
        row
        for kind in ("policies", "operator-policies")
        for row in (
            Row(f"/{kind}", "GET", keys=f"[]{POLICY}", sees=POLICYMAKER),
            Row(f"/{kind}/{{vhost}}", "GET", keys=f"[]{POLICY}", missing=f"/{kind}/none", sees=POLICYMAKER),
            Row(
                f"/{kind}/{{vhost}}/{{name}}",
                "GET PUT DELETE",
                f"/{kind}/%2F/walked",
                POLICY,
                f"/{kind}/%2F/none",
                changes="DELETE",
                bodies=(*WRONG, {}, {"pattern": "(", "definition": {"max-length": 1}}),
                sees=POLICYMAKER,
                needs=POLICYMAKER if kind == "policies" else ADMINISTRATOR,
            ),
        )
    ),
    Row("/aliveness-test/{vhost}", "GET", keys=HEALTH, missing="/aliveness-test/none", sees=""),
    Row("/health/checks/alarms", "GET", keys=HEALTH, sees=MONITORING),
    Row("/health/checks/local-alarms", "GET", keys=HEALTH, sees=MONITORING),
    Row(
        "/health/checks/certificate-expiration/{within}/{unit}",
        "GET",
        "/health/checks/certificate-expiration/1/weeks",
        sees=MONITORING,
    ),
    Row("/health/checks/port-listener/{port}", "GET", "/health/checks/port-listener/*", "status port", sees=MONITORING),
    Row(
        "/health/checks/protocol-listener/{protocol}",
        "GET",
        "/health/checks/protocol-listener/amqp091",
        "status protocol",
        sees=MONITORING,
    ),
    Row("/health/checks/virtual-hosts", "GET", keys=HEALTH, sees=MONITORING),
    Row("/health/checks/node-is-mirror-sync-critical", "GET", keys=HEALTH, sees=MONITORING),
    Row("/health/checks/node-is-quorum-critical", "GET", keys=HEALTH, sees=MONITORING),
    Row("/healthchecks/node", "GET", keys=HEALTH, sees=MONITORING),
    Row("/healthchecks/node/{node}", "GET", keys=HEALTH, missing="/healthchecks/node/none", sees=MONITORING),
    Row("/vhost-limits", "GET", keys="[]vhost value", sees=ADMINISTRATOR),
    Row("/vhost-limits/{vhost}", "GET", keys="[]vhost value", missing="/vhost-limits/none", sees=ADMINISTRATOR),
    Row("/vhost-limits/{vhost}/{limit}", "PUT DELETE", "/vhost-limits/%2F/max-queues", bodies=(*WRONG, {})),
    Row("/rebalance/queues", "POST"),
    Row("/feature-flags", "GET", keys="[]", sees=MONITORING),
    Row("/feature-flags/{name}/enable", "PUT", "/feature-flags/quorum_queue/enable"),
    Row("/reset", "DELETE"),
    Row("/reset/{node}", "DELETE"),
    Row("/auth", "GET", keys="oauth_enabled", sees=""),
    Row("/auth/attempts/{node}", "GET DELETE"),
    Row("/auth/attempts/{node}/source", "GET DELETE"),
    Row("/login", "POST"),
    Row("/shovels", "GET", keys="[]name vhost node type state", sees=MONITORING),
    Row("/shovels/{vhost}", "GET", keys="[]name vhost node type state", missing="/shovels/none", sees=MONITORING),
    Row(
        "/shovels/vhost/{vhost}/{name}",
        "GET DELETE",
        "/shovels/vhost/%2F/walked",
        "name vhost node type state",
        "/shovels/vhost/%2F/none",
        changes="DELETE",
        sees=MONITORING,
        needs=POLICYMAKER,
    ),
    Row(
        "/shovels/vhost/{vhost}/{name}/restart",
        "DELETE",
        "/shovels/vhost/%2F/walked/restart",
        missing="/shovels/vhost/%2F/none/restart",
        changes="DELETE",
        needs=POLICYMAKER,
    ),
    Row("/federation-links", "GET"),
    Row("/federation-links/{vhost}", "GET"),
)
SETTING: Final[tuple[tuple[str, str, Any], ...]] = (
    ("PUT", "/queues/%2F/walked", {}),
    ("PUT", "/exchanges/%2F/walked", {"type": "topic"}),
    ("POST", "/bindings/%2F/e/walked/q/walked", {"routing_key": "key"}),
    ("PUT", "/vhosts/walked", None),
    ("PUT", "/users/walker", {"password": "secret", "tags": ""}),
    ("PUT", "/users/alone", {"password": "secret", "tags": ""}),
    ("PUT", "/permissions/%2F/walker", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/topic-permissions/%2F/walker", {"exchange": "amq.topic", "write": ".*", "read": ".*"}),
    ("PUT", "/user-limits/walker/max-channels", {"value": 100}),
    ("PUT", "/vhost-limits/%2F/max-queues", {"value": 1000}),
    ("PUT", "/policies/%2F/walked", {"pattern": "^none", "definition": {"max-length": 5}}),
    ("PUT", "/operator-policies/%2F/walked", {"pattern": "^none", "definition": {"max-length": 5}}),
    (
        "PUT",
        "/parameters/shovel/%2F/walked",
        {"value": {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://h", "dest-queue": "b"}},
    ),
)
REFUSALS: Final = {(method, path.removeprefix("/api")) for method, path, _ in REFUSED}


def told(api: Api, method: str, path: str, body: Any = None, login: bool = True) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON and headers; `body`: JSON, or octets."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=TIME)
    token = base64.b64encode(f"{api.user}:{api.password}".encode()).decode()
    octets = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        connection.request(method, f"/api{path}", octets, {"Authorization": f"Basic {token}"} if login else {})
        answer = connection.getresponse()
        found = answer.read()
        return answer.status, json.loads(found) if found else None, dict(answer.getheaders())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """All that is walked by is there, and a client with a channel."""
    import pika

    with served_api(tmp_path_factory.mktemp("walk")) as api:
        set_up(api)
        client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.amqp_port, heartbeat=0))
        client.channel()
        yield api
        client.close()


def set_up(api: Api) -> None:
    for request in SETTING:
        assert api.request(*request)[0] in (201, 204), request


def filled(row: Row, api: Api, path: str = "") -> str:
    """The path with what is there; `path`: another one than that of the row."""
    path = path or row.there or row.path
    for name, value in {**SAMPLE, "node": quote(api.get("/cluster-name")["name"])}.items():
        path = path.replace(f"{{{name}}}", value)
    if "*" in path:
        names = {"connections": "connections", "channels": "channels"}
        kind = path.split("/")[1]
        found = [each["name"] for each in api.get(f"/{names[kind]}")] if kind in names else [str(api.amqp_port)]
        path = path.replace("*", quote(found[0], safe=""))
    assert "{" not in path, path
    return path


def having(*wanted: str) -> list[tuple[Row, str]]:
    """Each path with each of these methods that it has, and that is not refused."""
    found = [(row, method) for row in TABLE for method in wanted if method in row.methods.split()]
    return [(row, method) for row, method in found if (method, row.path) not in REFUSALS]


def each_of(found: list[tuple[Row, str]]) -> Any:
    named = lambda each: each.path if isinstance(each, Row) else each  # noqa: E731
    return pytest.mark.parametrize(("row", "method"), found, ids=named)


START: Final = "/vhosts/{vhost}/start/{node}"
"""Its body says nothing."""
MISSING: Final = [each for each in having(*METHODS) if each[0].missing and each[1] in ("GET", *each[0].changes.split())]
BODIES: Final = [each for each in having("PUT", "POST") if each[0].path != START]


rows = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.path)


def test_the_table_has_all_paths_and_each_once() -> None:
    table = [(method, row.path) for row in TABLE for method in row.methods.split()]
    routes = {(method, path.removeprefix("/api")) for method, path, _ in ROUTES if not path.startswith("/api/ha/")}
    assert set(table) == routes and len(set(table)) == len(table)
    assert len({row.path for row in TABLE}) == len(TABLE) > 90


@each_of(having("GET"))
def test_what_is_there(walked: Api, row: Row, method: str) -> None:
    path = filled(row, walked)
    status, found, _ = told(walked, method, path)
    assert status == 200, found
    keys = row.keys.removeprefix("[]").split()
    if row.keys.startswith("[]"):
        assert isinstance(found, list) and bool(found) >= bool(keys)
        found = found[0] if keys else {}
    assert isinstance(found, dict) and set(keys) <= found.keys(), found
    status, nothing, headers = told(walked, "HEAD", path)
    assert (status, nothing) == (200, None) and int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(("method", "path", "reason"), REFUSED, ids=lambda each: each[:40])
def test_what_is_refused_says_why(walked: Api, method: str, path: str, reason: str) -> None:
    (row,) = [each for each in TABLE if each.path == path.removeprefix("/api")]
    form = b"username=guest&password=guest" if method in ("PUT", "POST") else None
    status, found, _ = told(walked, method, filled(row, walked), form)
    assert (status, found) == (501, {"error": "not_implemented", "reason": reason})
    assert told(Api(walked.port, "guest", "wrong"), method, filled(row, walked))[0] == 401


@rows
def test_what_is_allowed(walked: Api, row: Row) -> None:
    path, methods = filled(row, walked), row.methods.split()
    allowed = {*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}
    status, found, headers = told(walked, "OPTIONS", path, login=False)
    also = {"GET", "HEAD", "PUT", "DELETE"} if row.path in SHADOWED else set()
    assert (status, found, set(headers["Allow"].split(", "))) == (200, None, allowed | also)
    for method in {*METHODS, "PATCH"} - allowed - also:
        status, found, headers = told(walked, method, path)
        assert status == 405 and found["reason"] and "Allow" in headers, (method, found)


SHADOWED: Final = ("/users/bulk-delete", "/users/without-permissions")
"""Paths that a name fits, too: they are of its methods as well."""


@rows
def test_who_is_not_known(walked: Api, row: Row) -> None:
    for method in row.methods.split():
        status, found, headers = told(walked, method, filled(row, walked), login=False)
        assert status == 401 and found["error"] == "not_authorised" and "WWW-Authenticate" in headers, method


@each_of(having(*METHODS))
def test_who_has_no_permission_changes_nothing(walked: Api, row: Row, method: str) -> None:
    status, found, _ = told(Api(walked.port, "alone", "secret"), method, filled(row, walked), {})
    assert status in (400, 401) and found["reason"], "400: the body is looked at first"
    assert (status == 401) or method in ("PUT", "POST")


@each_of(MISSING)
def test_what_is_not_there(walked: Api, row: Row, method: str) -> None:
    body = {"action": "sync"} if method == "POST" else None
    status, found, _ = told(walked, method, filled(row, walked, row.missing), body)
    assert status == 404 and found["error"] and found["reason"], found
    if method == "GET":
        assert told(walked, "HEAD", filled(row, walked, row.missing))[:2] == (404, None)


@each_of(BODIES)
def test_bodies_that_are_wrong(walked: Api, row: Row, method: str) -> None:
    assert row.bodies, "a method that takes a body can get a wrong one"
    for body in row.bodies:
        status, found, _ = told(walked, method, filled(row, walked), body)
        assert status == 400 and found["error"] and found["reason"], (body, found)


def test_nothing_was_changed_by_what_was_refused(walked: Api) -> None:
    """Runs last: all that was made at first is there."""
    for method, path, _ in SETTING:
        if "limits" not in path:
            assert told(walked, "GET", path)[0] == 200, (method, path)


def test_others_than_the_table(walked: Api) -> None:
    for path in ("/nothing", "/vhosts/%2F/deletion/protection", "/deprecated-features", "/queues/a/b/c/d", ""):
        status, found, _ = told(walked, "GET", path)
        assert status == 404 and found["error"] and found["reason"], path


# ---- what changes


def test_a_binding_is_called(walked: Api) -> None:
    """Clients of the API take the key for a delete from there."""
    path = "/bindings/%2F/e/walked/q/walked"
    for body, key in (
        ({"routing_key": "a.#"}, "a.%23"),
        ({}, "~"),
        ({"routing_key": "x", "arguments": {"n": 1}}, None),
    ):
        status, _, headers = told(walked, "POST", path, body)
        destination, _, found = headers["Location"].partition("/")
        told_key = unquote(found)
        assert (status, destination) == (201, "walked") and key in (None, told_key)
        assert told(walked, "GET", f"{path}/{found}")[1]["properties_key"] == told_key
        assert told(walked, "DELETE", f"{path}/{found}")[0] == 204
        assert told(walked, "GET", f"{path}/{found}")[0] == 404


def test_definitions_of_a_virtual_host(walked: Api) -> None:
    found = walked.get("/definitions/%2F")
    assert "walked" in {each["name"] for each in found["queues"]} and "users" not in found
    assert not any("vhost" in each for kind in ("queues", "exchanges", "policies") for each in found[kind])
    kept = {**found, "parameters": []}
    assert told(walked, "POST", "/definitions/walked", kept)[0] == 204
    assert walked.get("/definitions/walked")["queues"] == found["queues"]
    assert walked.get("/queues/walked/walked")["vhost"] == "walked"


def test_users_in_bulk(walked: Api) -> None:
    for name in ("one", "two"):
        told(walked, "PUT", f"/users/{name}", {"password": "x", "tags": ""})
    names = {each["name"] for each in walked.get("/users/without-permissions")}
    assert {"one", "two", "alone"} <= names and "walker" not in names
    assert told(walked, "POST", "/users/bulk-delete", {"users": ["one", "two", "none"]})[0] == 204
    assert not {"one", "two"} & {each["name"] for each in walked.get("/users")}


def test_topic_permissions_of_an_exchange(walked: Api) -> None:
    path = "/topic-permissions/%2F/walker"
    for exchange in ("amq.topic", "walked"):
        told(walked, "PUT", path, {"exchange": exchange, "write": "^a", "read": ".*"})
    assert len(walked.get(path)) == 2
    assert told(walked, "DELETE", f"{path}/walked")[0] == 204
    assert [each["exchange"] for each in walked.get(path)] == ["amq.topic"]
    assert walked.get("/vhosts/%2F/topic-permissions") == walked.get(path)


def test_connections_of_a_user(walked: Api) -> None:
    import pika

    login = pika.PlainCredentials("walker", "secret")
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", walked.amqp_port, credentials=login))
    [found] = walked.get("/connections/username/walker")
    assert found["user"] == "walker" and walked.get("/connections/username/none") == []
    assert told(walked, "DELETE", "/connections/username/walker")[0] == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        while True:
            client.process_data_events(TIME)


def test_health(walked: Api) -> None:
    status, found, _ = told(walked, "GET", "/health/checks/protocol-listener/mqtt")
    assert (status, found["status"], found["missing"]) == (503, "failed", "mqtt")
    for path in ("port-listener/1", "protocol-listener/amqps"):
        assert told(walked, "GET", f"/health/checks/{path}")[0] == 501
    for path in ("port-listener/x", f"port-listener/{'9' * 400}"):
        assert told(walked, "GET", f"/health/checks/{path}")[0] in (400, 501)


def test_an_import_of_nothing_needs_a_login(walked: Api) -> None:
    wrong = Api(walked.port, "guest", "wrong")
    assert [told(wrong, "POST", f"/definitions{host}", {})[0] for host in ("", "/%2F")] == [401, 401]
