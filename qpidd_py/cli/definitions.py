"""Definitions: users, permissions, parameters, queues and so on, as RabbitMQ exports and imports them.       Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from qpidd_py.broker.host_settings import check_name
from qpidd_py.broker.parameters import check_component, check_parameter
from qpidd_py.broker.quotas import NAME, VHOST_LIMITS
from qpidd_py.security.entries import HOST
from qpidd_py.security.scram import KIND

Json = dict[str, Any]
ALGORITHMS: Final = {"rabbit_password_hashing_sha256": "sha256", "rabbit_password_hashing_sha512": "sha512"}
OURS: Final = ("scrypt", KIND)
"""What begins our own hashes; exported as they are."""
_SALT: Final = 4
"""Octets in front of RabbitMQ's hashes."""
API: Final = "3.10.0"
"""The version of RabbitMQ's API that is spoken."""
DEFAULT_ARGUMENTS: Final = frozenset(("qpid.replicate",))
"""Every object has these; they say what a cluster does with it."""
LISTED: Final = (
    "vhost.list",
    "user.export",
    "permission.list",
    "topic.list",
    "policy.list",
    "limit.list",
    "parameter.list",
    "queue.list",
    "exchange.list",
    "binding.list",
)
"""The requests whose answers are the arguments of `exported`."""
_IN_HOSTS: Final = ("parameters", "permissions", "topic_permissions", "policies", "queues", "exchanges", "bindings")


class DefinitionError(ValueError):
    """Something of a file of definitions cannot be had here."""


def field(item: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Raises DefinitionError for a value of another type, or one that lacks."""
    found = item.get(name, default)
    if kind is bool and found in ("true", "false"):  # as rabbitmqadmin sends it
        return found == "true"
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise DefinitionError(f"{name} {found!r:.60}, wanted {kind.__name__}")
    return found


class Order(NamedTuple):
    """One thing to make: a management request, or (`method` empty) a declaration."""

    method: str
    arguments: Json


def exported(
    vhosts: list[Json],
    users: list[Json],
    permissions: list[Json],
    topics: list[Json],
    policies: list[Json],
    limits: list[Json],
    parameters: list[Json],
    queues: list[Json],
    exchanges: list[Json],
    bindings: list[Json],
) -> Json:
    """Of what the broker lists.  Without what ends with its connection, or was always there."""
    kept = [each for each in queues if not each["exclusive"]]
    names = {(each["vhost"], each["name"]) for each in kept}
    return {
        "rabbit_version": API,
        "rabbitmq_version": API,
        "users": [_user(each) for each in users if each["cluster"]],
        "vhosts": [{"name": each["name"]} for each in vhosts],
        "permissions": permissions,
        "topic_permissions": topics,
        "parameters": [
            *(_limits(each) for each in limits if "vhost" in each),
            *(parameter(each) for each in parameters),
        ],
        "policies": [policy(each) for each in policies if not each["operator"]],
        "queues": [_part(each, "name", "durable", "auto_delete") for each in kept],
        "exchanges": [
            _part(each, "name", "type", "durable", "auto_delete", "internal")
            for each in exchanges
            if not each["predeclared"]
        ],
        "bindings": [
            _part(each, "source", "destination", "destination_type", "routing_key")
            for each in bindings
            if each["destination_type"] != "queue" or (each["vhost"], each["destination"]) in names
        ],
    }


_OF_HOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")


def of_host(content: Json, host: str) -> Json:
    """What is in this virtual host, without its name: it can be taken into another one."""
    kept = {name: value for name, value in content.items() if name in (*_OF_HOST, "rabbit_version", "rabbitmq_version")}
    for kind in _OF_HOST:
        inside = [each for each in kept[kind] if each["vhost"] == host]
        kept[kind] = [{name: value for name, value in each.items() if name != "vhost"} for each in inside]
    return kept


def into_host(content: Mapping[str, Any], host: str) -> Json:
    """All of it is meant for this virtual host.  Raises DefinitionError."""
    return {kind: [{**each, "vhost": host} for each in _items(content, kind)] for kind in _OF_HOST}


def policy(item: Mapping[str, Any]) -> Json:
    return {name: item[name] for name in ("vhost", "name", "pattern", "apply-to", "definition", "priority")}


def parameter(item: Mapping[str, Any]) -> Json:
    return {name: item[name] for name in ("value", "vhost", "component", "name")}


def _limits(item: Json) -> Json:
    return {"component": VHOST_LIMITS, "name": NAME, "vhost": item["vhost"], "value": item["limits"]}


def _user(item: Json) -> Json:
    algorithm, _, rest = item["hash"].partition("$")
    names = {short: long for long, short in ALGORITHMS.items()}
    known = {"name": item["name"], "tags": item["tags"], "limits": item["limits"]}
    if algorithm in names:
        stored = base64.b64encode(bytes.fromhex(rest.replace("$", ""))).decode()
        return {**known, "password_hash": stored, "hashing_algorithm": names[algorithm]}
    return {**known, "password_hash": item["hash"], "hashing_algorithm": algorithm if algorithm in OURS else OURS[0]}


def _part(item: Mapping[str, Any], *names: str) -> Json:
    arguments = {name: value for name, value in item["arguments"].items() if name not in DEFAULT_ARGUMENTS}
    return {**{name: item[name] for name in names}, "vhost": item["vhost"], "arguments": arguments}


def stored_hash(item: Mapping[str, Any]) -> str:
    """Of a user as RabbitMQ or we have exported it.  Raises DefinitionError."""
    stored, algorithm = item.get("password_hash", ""), item.get("hashing_algorithm", "rabbit_password_hashing_sha256")
    if algorithm in OURS or not stored:
        return str(stored)
    if algorithm not in ALGORITHMS:
        raise DefinitionError(
            f"user {item.get('name')!r:.80}: hashing_algorithm {algorithm!r:.80}, wanted sha256 or sha512"
        )
    try:
        octets = base64.b64decode(stored, validate=True)
    except (ValueError, TypeError):
        raise DefinitionError(f"user {item.get('name')!r:.80}: password_hash is not base64") from None
    return f"{ALGORITHMS[algorithm]}${octets[:_SALT].hex()}${octets[_SALT:].hex()}"


def named_hosts(definitions: Mapping[str, Any]) -> set[str]:
    """The virtual hosts that something of a file is in.  Raises DefinitionError."""
    return {_host_of(each) for kind in _IN_HOSTS for each in _items(definitions, kind)}


def _host_of(item: Mapping[str, Any]) -> str:
    found = item.get("vhost", HOST)
    if not isinstance(found, str):
        raise DefinitionError(f"vhost {found!r:.80}, wanted a name")
    return found


def _made_hosts(definitions: Mapping[str, Any]) -> list[str]:
    """Those that a file makes.  Raises DefinitionError."""
    try:
        return [check_name(str(each.get("name", ""))) for each in _items(definitions, "vhosts")]
    except ValueError as error:
        raise DefinitionError(str(error)) from None


def orders(definitions: Mapping[str, Any], known: Collection[str] = (HOST,)) -> Iterator[Order]:
    """What to make, in order; `known`: the virtual hosts that are there.  Raises DefinitionError before the first for
    what cannot be had here."""
    parameters = list(_items(definitions, "parameters"))
    for each in parameters:
        _check_parameter(each)
    made = _made_hosts(definitions)
    if lacking := sorted(named_hosts(definitions) - {*known, *made}):
        raise DefinitionError(f"virtual host {lacking[0]!r:.80} is not there, and the definitions do not make it")
    users = [Order("user.put", _user_put(each)) for each in _items(definitions, "users")]
    yield from (Order("vhost.add", {"name": name}) for name in made if name not in known)
    yield from users
    for each in _items(definitions, "users"):
        if each.get("limits"):
            yield Order("limit.set", {"user": each.get("name"), "limits": each["limits"]})
    for each in parameters:
        if each.get("component") != VHOST_LIMITS:
            yield Order("parameter.set", _fields(each, "component", "name", "value") | {"early": True})
        elif each.get("value"):
            yield Order("limit.set", {"vhost": _host_of(each), "limits": each["value"]})
    for each in _items(definitions, "permissions"):
        yield Order("permission.set", _fields(each, "user", "configure", "write", "read"))
    for each in _items(definitions, "topic_permissions"):
        yield Order("topic.set", _fields(each, "user", "exchange", "write", "read"))
    for each in _items(definitions, "policies"):
        yield Order("policy.set", {**each, "vhost": _host_of(each)})
    for kind, what in (("exchanges", "exchange"), ("queues", "queue"), ("bindings", "binding")):
        for each in _items(definitions, kind):
            yield Order("", {"what": what, **each, "vhost": _host_of(each)})


class Plan(NamedTuple):
    """What an import does: first the requests, then the declarations of each virtual host."""

    requests: list[Order]
    declared: dict[str, list[Json]]


def plan(definitions: Mapping[str, Any], hosts: Callable[[], Collection[str]]) -> Plan:
    """`hosts` asks which virtual hosts there are.  Raises DefinitionError."""
    found = list(orders(definitions, hosts() if named_hosts(definitions) - {HOST} else {HOST}))
    declared: dict[str, list[Json]] = {}
    for order in found:
        if not order.method:
            declared.setdefault(order.arguments["vhost"], []).append(order.arguments)
    return Plan([order for order in found if order.method], declared)


def _fields(item: Mapping[str, Any], *names: str) -> Json:
    return {"vhost": _host_of(item), **{name: item.get(name) for name in names}}


def _user_put(item: Mapping[str, Any]) -> Json:
    tags = item.get("tags", [])
    return {
        "user": item.get("name"),
        "hash": stored_hash(item),
        "tags": [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else tags,
    }


def _items(definitions: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    found = definitions.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise DefinitionError(f"{kind}: wanted a list of objects")
    return found


def _check_parameter(item: Mapping[str, Any]) -> None:
    """Raises DefinitionError for one that cannot be had here, before others are made."""
    component, value = item.get("component"), item.get("value")
    if component == VHOST_LIMITS:
        return
    try:
        check_component(str(component))
        if not isinstance(value, dict):
            raise ValueError(f"value {value!r:.60}, wanted an object")
        check_parameter(str(component), value)
    except ValueError as error:
        raise DefinitionError(f"parameter {item.get('name')!r:.80}: {error}") from None
