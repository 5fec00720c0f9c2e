"""`qpid-http`: pages, definitions and names of bindings.  The paths are in tests/integration/test_http_api.py."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pika
import pytest

from qpidd_py.amqp.codec import SPECIFIED
from qpidd_py.broker.parameters import PROPERTIES
from qpidd_py.cli.definitions import DefinitionError, Order, _user, exported, orders, stored_hash
from qpidd_py.http.paging import QueryError, part
from qpidd_py.http.views import properties_key
from qpidd_py.security.scram import scram_entry
from qpidd_py.security.users import hash_password, password_matches, usable

ITEMS: list[dict[str, Any]] = [
    {"name": f"q{number}", "messages": number % 3, "a": {"b": number}} for number in range(25)
]


def names(found: Any) -> list[str]:
    return [item["name"] for item in (found["items"] if isinstance(found, dict) else found)]


def test_pages() -> None:
    assert part(ITEMS, {}) == ITEMS
    found = part(ITEMS, {"page": "3", "page_size": "10"})
    assert names(found) == ["q20", "q21", "q22", "q23", "q24"]
    numbers = {name: found[name] for name in ("item_count", "filtered_count", "total_count", "page_count")}
    assert numbers == {"item_count": 5, "filtered_count": 25, "total_count": 25, "page_count": 3}
    assert part([], {"page": "1"})["items"] == []


def test_names_order_and_columns() -> None:
    assert names(part(ITEMS, {"name": "Q2"})) == ["q2", "q20", "q21", "q22", "q23", "q24"]
    assert names(part(ITEMS, {"name": "^q2$", "use_regex": "true"})) == ["q2"]
    assert names(part(ITEMS, {"sort": "a.b", "sort_reverse": "true"}))[:2] == ["q24", "q23"]
    assert names(part(ITEMS, {"sort": "messages"}))[:3] == ["q0", "q3", "q6"], "equal ones stay in order"
    assert part(ITEMS[:1], {"columns": "name,a.b,c"}) == [{"name": "q0", "a": {"b": 0}}]
    mixed: list[dict[str, Any]] = [{"name": 1}, {"name": "x"}, {}]
    assert part(mixed, {"sort": "name"}) == [{"name": 1}, {}, {"name": "x"}]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"page": "0"}, "page '0'"),
        ({"page": "x"}, "page 'x'"),
        ({"page": "٣"}, "wanted a number"),
        ({"page": "9" * 5000}, "wanted a number"),
        ({"page": "4", "page_size": "10"}, "page 4, there are 3"),
        ({"page": "1", "page_size": "501"}, "at most 500"),
        ({"name": "(", "use_regex": "true"}, "pattern '('"),
    ],
)
def test_wrong_queries(query: dict[str, str], text: str) -> None:
    with pytest.raises(QueryError) as found:
        part(ITEMS, query)
    assert text in str(found.value)


def test_keys_of_bindings_differ() -> None:
    keys: list[tuple[str, dict[str, Any]]] = [
        ("", {}),
        ("a", {}),
        ("a.#", {}),
        ("~", {}),
        ("", {"x": 1}),
        ("", {"x": "1"}),
        ("a", {"x": 1}),
    ]
    found = [properties_key(key, arguments) for key, arguments in keys]
    assert found[:3] == ["~", "a", "a.%23"] and len(set(found)) == len(keys)


def test_hashes_of_rabbitmq() -> None:
    """salt and sha256 of salt and password, as its documentation says."""
    octets = b"\x90\x8d\xc6\x0a" + hashlib.sha256(b"\x90\x8d\xc6\x0atest12").digest()
    stored = stored_hash({"name": "u", "password_hash": base64.b64encode(octets).decode()})
    assert usable(stored) and password_matches("test12", stored) and not password_matches("test13", stored)
    assert stored_hash({"name": "u", "password_hash": ""}) == ""


@pytest.mark.parametrize("stored", [hash_password("x", log2n=1), scram_entry("x", iterations=4096), ""])
def test_our_own_hashes_come_back_as_they_went(stored: str) -> None:
    shown = _user({"name": "u", "tags": [], "limits": {}, "hash": stored})
    assert shown["hashing_algorithm"] == (stored.partition("$")[0] or "scrypt")
    assert stored_hash(shown) == stored


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"policies": [{"name": "p", "vhost": "v"}]}, "virtual host 'v'"),
    ({"parameters": [{"name": "s", "component": "federation-upstream"}]}, "parameter 's': component 'federation-ups"),
    ({"parameters": [{"name": "s", "component": "shovel", "value": 1}]}, "parameter 's': value 1, wanted an object"),
    ({"parameters": [{"name": "s", "component": "shovel", "value": {"x": 1}}]}, "parameter 's': key 'x': expected"),
    ({"vhosts": [{"name": ""}]}, "virtual host '': expected 1 to 128 octets"),
    ({"vhosts": [{"name": "v"}], "queues": [{"name": "q", "vhost": "w"}]}, "virtual host 'w' is not there"),
    ({"queues": [{"name": "q", "vhost": 1}]}, "vhost 1, wanted a name"),
    ({"queues": [{"name": "q", "vhost": "v"}]}, "virtual host 'v'"),
    ({"queues": {}}, "queues: wanted a list"),
    ({"queues": [1]}, "queues: wanted a list"),
    ({"users": [{"name": "u", "password_hash": "%"}]}, "user 'u': password_hash is not base64"),
    ({"users": [{"name": "u", "password_hash": "AA==", "hashing_algorithm": "md5"}]}, "hashing_algorithm 'md5'"),
]


@pytest.mark.parametrize(("content", "text"), WRONG)
def test_what_cannot_be_had_is_refused_before_anything_is_made(content: dict[str, Any], text: str) -> None:
    content = {"exchanges": [{"name": "x", "vhost": "/"}], **content}
    with pytest.raises(DefinitionError) as found:
        next(orders(content))
    assert text in str(found.value)


def test_definitions_go_out_and_come_in() -> None:
    arguments = {"x-max-length": 5, "qpid.replicate": "all"}
    queue = {
        "name": "q",
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": arguments,
    }
    mine = {**queue, "name": "mine", "exclusive": True}
    exchange = {**queue, "name": "x", "type": "topic", "internal": False, "predeclared": False}
    old = {**exchange, "name": "amq.topic", "predeclared": True}
    ends = {"source": "x", "vhost": "/", "destination_type": "queue", "routing_key": "a", "arguments": {}}
    bindings = [{**ends, "destination": "q"}, {**ends, "destination": "mine"}]
    user = {"name": "u", "tags": ["monitoring"], "hash": "sha256$00000000$" + "11" * 32, "cluster": True}
    user["limits"] = {"max-channels": 1}
    limits: list[dict[str, Any]] = [{"user": "u", "limits": {}}, {"vhost": "/", "limits": {"max-queues": 5}}]
    permission = {"user": "u", "vhost": "/", "configure": "", "write": "", "read": ".*"}
    kept = {
        "name": "p",
        "vhost": "/",
        "pattern": "^q",
        "apply-to": "all",
        "priority": 0,
        "definition": {"max-length": 1},
    }
    policies = [{**kept, "operator": False}, {**kept, "name": "o", "operator": True}]
    shovel: dict[str, Any] = {"component": "shovel", "vhost": "/", "name": "s"}
    shovel["value"] = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://u:p@h", "dest-queue": "a"}
    parameters = [{**shovel, "uid": 5}]
    content = exported(
        [{"name": "/"}],
        [user],
        [permission],
        [],
        policies,
        limits,
        parameters,
        [queue, mine],
        [exchange, old],
        bindings,
    )
    assert content["policies"] == [kept] and content["parameters"][1:] == [shovel]
    made = list(orders(content))
    assert made[0] == Order("user.put", {"user": "u", "hash": user["hash"], "tags": ["monitoring"]})
    assert made[1] == Order("limit.set", {"user": "u", "limits": {"max-channels": 1}})
    assert made[2] == Order("limit.set", {"vhost": "/", "limits": {"max-queues": 5}})
    assert made.pop(3) == Order("parameter.set", {**shovel, "early": True}), "exchanges come later"
    assert made[3] == Order("permission.set", permission)
    assert made[4] == Order("policy.set", kept)
    assert [(each.arguments["what"], each.arguments.get("name")) for each in made[5:]] == [
        ("exchange", "x"),
        ("queue", "q"),
        ("binding", None),
    ]
    assert made[6].arguments["arguments"] == {"x-max-length": 5}


def test_properties_have_the_names_that_clients_give_them() -> None:
    """`type` is called otherwise by the library that decodes methods."""
    assert all(hasattr(pika.BasicProperties(), name) for name in SPECIFIED) and "type" in PROPERTIES
