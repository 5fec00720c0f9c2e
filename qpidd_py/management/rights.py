"""Which user may make which request, and what it is shown: one table (`RIGHTS`).                                 Pure.

| request | needs |
| --- | --- |
| `user.self` | nothing |
| lists, `broker.overview`, `queue.*` that show numbers | the tag management |
| `broker.info`, `event.list`, `shovel.list`, `route.bindings`, `route.changes` | the tag monitoring |
| `acl.show`, `ha.status`, `ha.query` | the same |
| `queue.peek`, `queue.purge`, `queue.bindings` | to read the queue |
| `route.paths` | to read the exchange |
| `queue.move` | to read the source, and to write the target |
| `queue.delete` | to configure the queue |
| `session.close` | to be its user, or to administer |
| `policy.*`, `parameter.*`, `shovel.restart` | the tag policymaker or administrator; operator policies: administrator |
| `parameter.set` | besides: to read, write and make what a shovel reads, writes and makes in this cluster |
| | each in the virtual host of that end; to read the exchange whose bindings it follows |
| `user.*`, `permission.*`, `topic.*`, `limit.*`, `vhost.add`, `vhost.delete`, `acl.reload` | to administer |
| other requests | the tag administrator; the HA module asks for more |

Who has one of the tags has the tag management, and an administrator has all tags.  Who has not the tag monitoring sees
what is its own (`sight`), and may ask about a virtual host that it may enter: all others are answered as one that is
not there.

A user administers who has the tag administrator in the settings, or is of ha-username; where there is no ha-username,
all users administer that may do everything.  Who may do everything has all tags.

Permissions are those in the virtual host that the request is about (`hosts.py`).

With an ACL file its rules have to allow a request, too:

| request | looked up |
| --- | --- |
| what needs the tag management or monitoring, lists | access query schemaclass=queue ... (the first word) |
| `queue.peek`, `queue.purge`, `queue.delete` | consume queue, purge queue, delete queue |
| `queue.move` | move queue queuename=TARGET, or reroute queue exchangename=EXCHANGE |
| `user.self` | nothing |
| `parameter.set` | as other requests; and consume queue, bind exchange, publish exchange: what a shovel does here |
| other requests | access method schemaclass=ha name=promote ... |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pamqp.commands import Queue

from qpidd_py.amqp.codec import make
from qpidd_py.broker.acl_lookups import of_queue
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.judging import DEFAULT, Judge, log_refusal
from qpidd_py.broker.parameters import FOLLOWS, local_host
from qpidd_py.broker.permissions import Permissions
from qpidd_py.broker.vhost import VHost
from qpidd_py.errors import AmqpError
from qpidd_py.management.request import Forbidden, Json
from qpidd_py.management.sight import ALL, Sight
from qpidd_py.security.acl import words
from qpidd_py.security.acl.rules import Lookup
from qpidd_py.security.acl.topics import EVERY_KEY, Pattern
from qpidd_py.security.entries import ADMINISTRATOR, CONFIGURE, MANAGEMENT, MONITORING, POLICYMAKER, READ, WRITE
from qpidd_py.security.rights import Access

Asker = ClientConnection | None
"""None: the broker itself."""
SHOW: Final = "acl.show"
RELOAD: Final = "acl.reload"
SHOWN: Final = 64
"""Characters of a name from a peer in an answer."""


def administers(asker: Asker) -> bool:
    return asker is None or asker.client.administers


def check_request(asker: Asker, method: str, arguments: Json) -> Sight:
    """What the request shows.  Raises Forbidden.  What is missing or wrong in the arguments is left to the request
    itself."""
    if asker is None:
        return ALL
    sight = sight_of_asker(asker)
    if RIGHTS.get(method) == NOTHING:
        return sight
    _check_permissions(asker, method, arguments)
    if method == "parameter.set":
        _check_shovel(asker, arguments.get("value"))
    refused = asker.acl.refused(_lookups(asker, method, arguments))
    if refused is not None:
        log_refusal(asker.broker.coming_and_going, asker.user, asker.peer, refused, Forbidden.code)
        raise Forbidden(f"{method[:SHOWN]}: {refused.text}")
    return sight


def sight_of_asker(asker: ClientConnection) -> Sight:
    access = asker.client.access
    if access.everything or access.has(MONITORING):
        return ALL
    return Sight(asker.broker.rights.entered(asker.user, access.certified), asker.user)


def access_of(asker: ClientConnection, arguments: Json) -> Access:
    """What it may do in the virtual host that a request is about."""
    host, access = arguments.get("vhost"), asker.client.access
    if not isinstance(host, str) or host == access.host:
        return access
    return asker.broker.rights.access(asker.user, host, access.certified)


def _vhost_of(asker: ClientConnection, arguments: Json) -> VHost:
    """The same virtual host; one that is not there is refused by the request itself."""
    return asker.broker.vhosts.get(str(arguments.get("vhost"))) or asker.vhost


def _lookups(asker: ClientConnection, method: str, arguments: Json) -> Iterator[Lookup]:
    group, _, verb = method[:SHOWN].partition(".")
    vhost, action = _vhost_of(asker, arguments), _ACTIONS.get(method)
    names = {name: str(arguments.get(name) or "") for name in ("queue", "source", "target", "exchange")}
    if action is not None:
        yield from of_queue(vhost, action, names["queue"])
    elif method == "queue.move":
        to = {"queuename": names["target"]} if names["target"] else {"exchangename": names["exchange"]}
        action = words.MOVE if names["target"] else words.REROUTE
        yield Lookup((action, words.QUEUE), {words.NAME: names["source"], **to})
    elif RIGHTS.get(method) in (MANAGEMENT, MONITORING) or verb == "list":
        named = {words.NAME: names["queue"]} if method == "queue.info" else {}
        yield Lookup((words.ACCESS, words.QUERY), {**named, words.CLASS: group})
    else:
        yield Lookup((words.ACCESS, words.METHOD), {words.NAME: verb, words.CLASS: group})
    if method == "parameter.set":
        yield from _of_shovel(asker, arguments.get("value"))


def _of_shovel(asker: ClientConnection, value: Any) -> Iterator[Lookup]:
    """What it does in this cluster; a key that is not given may be any."""
    if not isinstance(value, dict):
        return
    known = {name: each for name, each in value.items() if isinstance(each, str)}
    if (host := local_host(value.get("src-uri"))) is not None:
        for name in {"src-queue", "src-exchange-queue"} & known.keys():
            yield from of_queue(_vhost_of(asker, {"vhost": host}), words.CONSUME, known[name])
        if "src-exchange" in known:
            bound = {"queuename": known.get("src-exchange-queue", ""), words.KEY: known.get("src-exchange-key", "")}
            key = Pattern(bound[words.KEY])
            yield Lookup((words.BIND, words.EXCHANGE), {**bound, words.NAME: known["src-exchange"], words.KEY: key})
    if local_host(value.get("dest-uri")) is not None:
        given = known.get("dest-queue", known.get("dest-exchange-key"))
        target = {words.NAME: known.get("dest-exchange") or DEFAULT}
        yield Lookup((words.PUBLISH, words.EXCHANGE), {**target, words.KEY: Pattern(given or EVERY_KEY)})
        if value.get(FOLLOWS):
            yield Lookup((words.ACCESS, words.QUERY), {words.CLASS: "binding"})


def _check_permissions(asker: ClientConnection, method: str, arguments: Json) -> None:
    needs = RIGHTS.get(method, ADMINISTRATOR)
    if needs == ADMINISTERS:
        if not administers(asker):
            raise Forbidden(f"{method}: user {_name(asker)!r} is no administrator")
        return
    access = access_of(asker, arguments)
    if access.everything:
        return
    if isinstance(needs, Mapping):
        _check_names(asker, access, method, needs, arguments)
    elif needs == POLICYMAKER:
        _check_policies(asker, access, method, arguments)
    elif needs != OWN and not access.has(needs):
        raise Forbidden(f"{method[:SHOWN]}: user {_name(asker)!r} has no tag {needs}")
    if not access.enters and not access.has(MONITORING):
        raise _outside(asker, access, method)


def _check_names(
    asker: ClientConnection, access: Access, method: str, needs: Mapping[str, str], arguments: Json
) -> None:
    for name, permission in needs.items():
        wanted = arguments.get(name)
        if isinstance(wanted, str) and wanted and not access.may(permission, wanted):
            raise Forbidden(f"{method}: {permission} access to {name} {wanted!r} refused for user {_name(asker)!r}")


def _outside(asker: ClientConnection, access: Access, method: str) -> Forbidden:
    """The virtual host may be there, or not."""
    return Forbidden(f"{method[:SHOWN]}: access to vhost {access.host[:SHOWN]!r} refused for user {_name(asker)!r}")


def _check_policies(asker: ClientConnection, access: Access, method: str, arguments: Json) -> None:
    wanted = (ADMINISTRATOR,) if arguments.get("operator") else (ADMINISTRATOR, POLICYMAKER)
    if not any(access.has(tag) for tag in wanted):
        raise Forbidden(f"{method}: user {_name(asker)!r} has no tag {' or '.join(reversed(wanted))}")
    if not access.enters and not method.endswith(".list"):
        raise _outside(asker, access, method)


def _check_shovel(asker: ClientConnection, value: Any) -> None:
    """`qpid-shovel` may do more than who asks.  Of other brokers a shovel has a login of its own."""
    if not isinstance(value, dict) or asker.client.everything:
        return
    for uri in _ENDS:
        if (host := local_host(value.get(uri))) is not None:
            _check_end(asker, uri, host, value)


def _check_end(asker: ClientConnection, uri: str, host: str, value: Json) -> None:
    access, names = access_of(asker, {"vhost": host}), _ENDS[uri]
    if not access.enters:
        raise Forbidden(f"parameter.set: access to vhost {host[:SHOWN]!r} refused for user {_name(asker)!r}")
    for name, (permission, wanted) in ((name, need) for name, need in names.items() if name in value):
        _check_name(asker, access, permission, name, wanted or value[name])
    if value.get(FOLLOWS) and "dest-exchange" in names:
        _check_name(asker, access, READ, "dest-exchange", value.get("dest-exchange"))
    for end, name, permission, any_key in _TOPICS:
        exchange, key = value.get(name), value.get(f"{name}-key", any_key)
        if uri != end or not isinstance(exchange, str) or not isinstance(key, str | None):
            continue
        if not access.may_topics(permission, exchange, key):
            text = f"{permission} access to topic {key!r:.80} of {name} {exchange!r:.80}"
            raise Forbidden(f"parameter.set: {text} refused for user {_name(asker)!r}")
    vhost = _vhost_of(asker, {"vhost": host})
    for name in (name for name in names if name.endswith("-queue") and name in value):
        _check_queue(asker, access, vhost, value[name], value.get(f"{name}-args"))
    if uri == "dest-uri" and not value.keys() & names.keys():
        raise Forbidden(f"parameter.set: user {_name(asker)!r} may not write all exchanges: name one, or a queue")


def _check_name(asker: ClientConnection, access: Access, permission: str, name: str, wanted: Any) -> None:
    if isinstance(wanted, str) and not access.may(permission, wanted):
        text = f"{permission} access to {name} {wanted!r:.80}"
        raise Forbidden(f"parameter.set: {text} refused for user {_name(asker)!r}")


@dataclass
class _Asked:
    """Stands for a channel of the asker (`judging.Channel`)."""

    vhost: VHost
    last_queue: str = ""


def _check_queue(asker: ClientConnection, access: Access, vhost: VHost, name: Any, arguments: Any) -> None:
    """`qpid-shovel` makes a queue that is missing.  One that is there may be gone then, so its arguments count."""
    if not isinstance(name, str) or not isinstance(arguments, dict | None) or (name in vhost.queues and not arguments):
        return
    flags = {"passive": False, "durable": True, "exclusive": False, "auto_delete": False}
    try:
        judge = Judge(
            asker.user, asker.peer, asker.broker.coming_and_going, (Permissions(access, vhost.exchanges), asker.acl)
        )
        judge.method(_Asked(vhost), make(Queue.Declare, queue=name, arguments=arguments or {}, **flags))
    except AmqpError as error:
        raise Forbidden(f"parameter.set: {error.reply_text}") from None


def who(asker: Asker) -> Json:
    """The answer to `user.self`."""
    tags = set(asker.client.access.tags) if asker is not None else set()
    if administers(asker):
        tags.add(ADMINISTRATOR)
    elif asker is not None and asker.client.access.everything:
        tags.discard(ADMINISTRATOR)
    return {"name": _name(asker), "tags": sorted(tags)}


def _name(asker: Asker) -> str:
    return asker.user[:64] if asker is not None else ""


_ACTIONS: Final = {
    "queue.peek": words.CONSUME,
    "queue.bindings": words.CONSUME,
    "queue.purge": words.PURGE,
    "queue.delete": words.DELETE,
}
_ENDS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "src-uri": {"src-queue": (READ, ""), "src-exchange": (READ, ""), "src-exchange-queue": (READ, "")},
    "dest-uri": {"dest-queue": (WRITE, DEFAULT), "dest-exchange": (WRITE, "")},
}
"""Of a shovel: what it needs, and of which name, if it is not the value."""
_TOPICS: Final = (("src-uri", "src-exchange", READ, ""), ("dest-uri", "dest-exchange", WRITE, None))
"""Its exchanges, whose keys are looked at, and the key where none is given; None: any."""
NOTHING: Final = "nothing"
OWN: Final = "own"
"""The request itself looks at whose it is."""
ADMINISTERS: Final = "administers"
_METHODS: Final[Mapping[str, str]] = {
    NOTHING: "user.self",
    OWN: "session.close",
    MANAGEMENT: """
        broker.overview queue.list queue.page queue.info queue.totals queue.count queue.census exchange.list
        binding.list session.list session.page channel.list subscription.list vhost.list""",
    MONITORING: f"""
        broker.info event.list shovel.list route.bindings route.changes {SHOW} ha.status ha.query""",
    POLICYMAKER: """
        policy.list policy.set policy.clear parameter.list parameter.set parameter.clear shovel.restart""",
    ADMINISTERS: f"""
        user.list user.export user.put user.delete permission.list permission.set permission.clear topic.list topic.set
        topic.clear limit.list limit.set limit.clear vhost.add vhost.delete {RELOAD}""",
}
RIGHTS: Final[Mapping[str, str | Mapping[str, str]]] = {
    **{method: needs for needs, methods in _METHODS.items() for method in methods.split()},
    "queue.peek": {"queue": READ},
    "queue.purge": {"queue": READ},
    "queue.bindings": {"queue": READ},
    "route.paths": {"exchange": READ},
    "queue.move": {"source": READ, "target": WRITE, "exchange": WRITE},
    "queue.delete": {"queue": CONFIGURE},
}
"""What a request needs: a tag, or permissions for the names in these arguments.  Others need the tag administrator."""
