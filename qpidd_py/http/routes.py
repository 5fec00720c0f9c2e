"""The paths of the API and what each does.                                                                      Shell.

A handler gets a `Call` and returns what is sent as JSON, or None (204); it runs in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from qpidd_py.cli import definitions
from qpidd_py.http import actions, views
from qpidd_py.http.binding_routes import BINDING_ROUTES
from qpidd_py.http.call import Call, Created, Handler, Json, asks, listed, made, one
from qpidd_py.http.door import Problem, bad_request
from qpidd_py.http.node_routes import NODE_ROUTES
from qpidd_py.http.paging import numbers, part, shown_page
from qpidd_py.http.setting_routes import SETTING_ROUTES
from qpidd_py.management.pages import DEEPEST

TEST_QUEUE: Final = "aliveness-test"


# ---- lists


def _with_node(call: Call, method: str, **arguments: Any) -> tuple[Any, str]:
    """A list, and the name of the broker whose it is."""
    overview, items = call.door.ask_all([("broker.overview", {}), (method, arguments)])
    return items, str(overview["name"])


def _queues(call: Call) -> Any:
    if "page" in call.query:
        return call.queues.page(call.door, call.path.get("vhost"), call.query)
    items, node = _with_node(call, "queue.list", **call.host)
    return part(_queues_shown(call, items, node), call.query)


def _place(call: Call) -> dict[str, int] | None:
    """Where the page begins, for the broker; None: no page is wanted, or one that it does not make."""
    if "page" not in call.query:
        return None
    page, size = numbers(call.query)
    return {"offset": (page - 1) * size, "limit": size} if page * size <= DEEPEST else None


def _queues_shown(call: Call, items: Any, node: str) -> list[Json]:
    return call.rated("queue", [views.queue(item, node) for item in items])


def _queue(call: Call) -> Json:
    item, node = _with_node(call, "queue.info", queue=call["name"], **call.host)
    return _queues_shown(call, [item], node)[0]


def _exchange(call: Call) -> Json:
    return views.exchange(one(call.door.ask("exchange.list", **call.host), name=actions.exchange_name(call["name"])))


def _connections(call: Call) -> Any:
    """The broker makes the page, unless it has an order, is of a name, or far behind."""
    query, place = call.query, _place(call)
    if place is None or query.get("sort") or query.get("name") or "vhost" in call.path:
        items, node = _with_node(call, "session.list", **call.host)
        return part(_connections_shown(call, (item for item in items if not item["link"]), node), query)
    found, node = _with_node(call, "session.page", **place)
    return shown_page(_connections_shown(call, found["sessions"], node), found["matched"], found["total"], query)


def _connections_shown(call: Call, items: Any, node: str) -> list[Json]:
    return call.rated("connection", [views.connection(item, node) for item in items])


def _connection(call: Call) -> Json:
    return one(_connections_shown(call, *_with_node(call, "session.list")), name=call["name"])


def _close_connection(call: Call) -> None:
    _close(call, _connection(call))


def _close(call: Call, connection: Json) -> None:
    reason = call.query.get("reason", "closed by an administrator")
    call.door.ask("session.close", number=connection["number"], reason=reason)


def _connections_of(call: Call) -> list[Json]:
    found = _connections_shown(call, *_with_node(call, "session.list"))
    return [each for each in found if each["user"] == call["user"]]


def _close_connections_of(call: Call) -> None:
    for each in _connections_of(call):
        try:
            _close(call, each)
        except Problem as problem:
            if problem.status != 404:  # it has ended meanwhile; one of this process does, each time
                raise


def _all_channels(call: Call) -> list[Json]:
    items, node = _with_node(call, "channel.list", **call.host)
    return [views.channel(item, node) for item in items]


def _channels(call: Call) -> Any:
    return part(_all_channels(call), call.query)


def _channel(call: Call) -> Json:
    return one(_all_channels(call), name=call["name"])


def _channels_of_connection(call: Call) -> list[Json]:
    name = _connection(call)["name"]
    return [item for item in _all_channels(call) if item["connection_details"]["name"] == name]


def _overview(call: Call) -> Json:
    known, sums = call.door.ask_all([("broker.overview", {}), ("queue.totals", {})])
    return call.rated("overview", [views.overview(known, sums)], known["sight"])[0]


# ---- changes


def _declared(call: Call, passive: Callable[[Any], object], declare: Callable[[Any], object]) -> Created | None:
    """On a channel: asks whether it is there, and declares it."""

    def work(channel: Any) -> bool:
        is_new = actions.is_new(channel, passive)
        declare(channel)
        return is_new

    return made(call.door.on_channel(work))


def _declare_queue(call: Call) -> Created | None:
    name = call["name"]
    return _declared(
        call,
        lambda channel: channel.queue_declare(name, passive=True),
        lambda channel: actions.declare_queue(channel, call.body, name),
    )


def _delete_queue(call: Call) -> None:
    """404 for one that is not there, which AMQP would delete in silence."""
    unused, empty = (call.query.get(name) == "true" for name in ("if-unused", "if-empty"))

    def work(channel: Any) -> None:
        channel.queue_declare(call["name"], passive=True)
        channel.queue_delete(call["name"], if_unused=unused, if_empty=empty)

    call.door.on_channel(work)


def _purge(call: Call) -> None:
    call.door.on_channel(lambda channel: channel.queue_purge(call["name"]))


def _get(call: Call) -> list[Json]:
    return call.door.on_channel(lambda channel: actions.get(channel, call["name"], call.body))


def _declare_exchange(call: Call) -> Created | None:
    name = actions.exchange_name(call["name"])
    return _declared(
        call,
        lambda channel: channel.exchange_declare(name, passive=True),
        lambda channel: actions.declare_exchange(channel, call.body, name),
    )


def _delete_exchange(call: Call) -> None:
    """As `_delete_queue`."""
    unused = call.query.get("if-unused") == "true"

    def work(channel: Any) -> None:
        channel.exchange_declare(actions.exchange_name(call["name"]), passive=True)
        channel.exchange_delete(actions.exchange_name(call["name"]), if_unused=unused)

    call.door.on_channel(work)


def _publish(call: Call) -> Json:
    return call.door.on_channel(lambda channel: actions.publish(channel, call["name"], call.body))


# ---- virtual hosts


def _vhost(call: Call) -> Json:
    return views.vhost(one(call.door.ask("vhost.list"), name=call["name"]))


def _put_vhost(call: Call) -> Created | None:
    """Who makes one may do everything there, as in RabbitMQ.  A field that is empty, or false, says nothing."""
    if unknown := sorted(field for field, value in call.body.items() if field not in ("name", "vhost") and value):
        raise bad_request(f"{unknown[0]:.60}: a virtual host has a name only")
    name = call["name"]
    users, answer = call.door.ask_all([("user.list", {}), ("vhost.add", {"name": name, "tell_made": True})])
    is_new = answer.get("made")
    if is_new and any(user["name"] == call.user and user["cluster"] for user in users):  # others need no permission
        every = dict.fromkeys(("configure", "write", "read"), ".*")
        call.door.ask("permission.set", user=call.user, vhost=name, **every)
    return made(is_new)


# ---- the whole


def _definitions(call: Call) -> Json:
    found = definitions.exported(*call.door.ask_all([(name, call.host) for name in definitions.LISTED]))
    return definitions.of_host(found, call["vhost"]) if "vhost" in call.path else found


def _import(call: Call) -> None:
    """The broker judges the login of an import that makes nothing, too."""
    call.door.ask("user.self")
    content = call.body
    if "vhost" in call.path:
        one(call.door.ask("vhost.list"), name=call["vhost"])
        content = definitions.into_host(content, call["vhost"])
    actions.import_definitions(call.door, content)


def _alive(call: Call) -> Json:
    """Declares a queue, publishes to it and gets that."""

    def work(channel: Any) -> None:
        channel.queue_declare(TEST_QUEUE)
        channel.basic_publish("", TEST_QUEUE, b"test_message")
        channel.basic_get(TEST_QUEUE, auto_ack=True)

    call.door.on_channel(work)
    return {"status": "ok"}


def _relocate(call: Call) -> Json:
    to = call.body.get("to", "")
    if not isinstance(to, str):
        raise bad_request(f"to {to!r:.80}, wanted the name or address of a backup, or nothing")
    return call.door.ask("ha.relocate", to=to)  # type: ignore[no-any-return]


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/api/overview", _overview),
    ("GET", "/api/whoami", asks("user.self")),
    ("GET", "/api/vhosts", listed("vhost.list", views.vhost)),
    ("GET", "/api/vhosts/{name}", _vhost),
    ("PUT", "/api/vhosts/{name}", _put_vhost),
    ("DELETE", "/api/vhosts/{name}", asks("vhost.delete", "name")),
    ("GET", "/api/queues", _queues),
    ("GET", "/api/queues/{vhost}", _queues),
    ("GET", "/api/queues/{vhost}/{name}", _queue),
    ("PUT", "/api/queues/{vhost}/{name}", _declare_queue),
    ("DELETE", "/api/queues/{vhost}/{name}", _delete_queue),
    ("DELETE", "/api/queues/{vhost}/{name}/contents", _purge),
    ("POST", "/api/queues/{vhost}/{name}/get", _get),
    ("GET", "/api/exchanges", listed("exchange.list", views.exchange)),
    ("GET", "/api/exchanges/{vhost}", listed("exchange.list", views.exchange)),
    ("GET", "/api/exchanges/{vhost}/{name}", _exchange),
    ("PUT", "/api/exchanges/{vhost}/{name}", _declare_exchange),
    ("DELETE", "/api/exchanges/{vhost}/{name}", _delete_exchange),
    ("POST", "/api/exchanges/{vhost}/{name}/publish", _publish),
    ("GET", "/api/connections", _connections),
    ("GET", "/api/vhosts/{vhost}/connections", _connections),
    ("GET", "/api/connections/username/{user}", _connections_of),
    ("DELETE", "/api/connections/username/{user}", _close_connections_of),
    ("GET", "/api/connections/{name}", _connection),
    ("DELETE", "/api/connections/{name}", _close_connection),
    ("GET", "/api/connections/{name}/channels", _channels_of_connection),
    ("GET", "/api/channels", _channels),
    ("GET", "/api/channels/{name}", _channel),
    ("GET", "/api/vhosts/{vhost}/channels", _channels),
    ("GET", "/api/consumers", listed("subscription.list", views.consumer)),
    ("GET", "/api/consumers/{vhost}", listed("subscription.list", views.consumer)),
    *SETTING_ROUTES,
    *(
        (method, path, handler)
        for path in ("/api/definitions", "/api/all-configuration", "/api/definitions/{vhost}")
        for method, handler in (("GET", _definitions), ("POST", _import))
    ),
    ("GET", "/api/aliveness-test/{vhost}", _alive),
    *BINDING_ROUTES,
    *NODE_ROUTES,
    ("GET", "/api/ha/status", asks("ha.status")),
    ("GET", "/api/ha/query", asks("ha.query")),
    ("POST", "/api/ha/relocate", _relocate),
)
