"""The paths of bindings.                                                                                     Shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from qpidd_py.http import actions, views
from qpidd_py.http.call import Call, Created, Handler, Json, one
from qpidd_py.http.door import Problem, not_found
from qpidd_py.http.paging import part


def _bindings(call: Call) -> Any:
    return part(_bindings_of(call), call.query)


def _bindings_of(call: Call, **wanted: str) -> list[Json]:
    """Those with these fields.  Raises Problem for a virtual host that is not there."""
    found = _default_bindings(call, wanted) if wanted.get("source", "") == "" else []
    if wanted.get("source") != "":
        found += [views.binding(each) for each in call.door.ask("binding.list", **call.host)]
    return [item for item in found if all(item[name] == value for name, value in wanted.items())]


def _default_bindings(call: Call, wanted: Mapping[str, str]) -> list[Json]:
    """Each queue has one.  One queue is asked for by itself."""
    call.door.ask("queue.count", **call.host)
    if wanted.get("destination_type") == "exchange":
        return []
    if "destination" not in wanted:
        return [views.default_binding(each["name"], each["vhost"]) for each in call.door.ask("queue.list", **call.host)]
    try:
        queue = call.door.ask("queue.info", queue=wanted["destination"], **call.host)
    except Problem as problem:
        if problem.status == 404:
            return []
        raise
    return [views.default_binding(queue["name"], queue["vhost"])]


def _bindings_from(call: Call) -> list[Json]:
    return _bindings_of(call, source=actions.exchange_name(call["name"]))


def _bindings_to(kind: str) -> Handler:
    return lambda call: _bindings_of(call, destination=call["name"], destination_type=kind)


_KINDS: Final = {"q": "queue", "e": "exchange"}


def _kind(call: Call) -> str:
    if call["kind"] not in _KINDS:
        raise not_found()
    return _KINDS[call["kind"]]


def _bind(call: Call) -> Created:
    """It says how the binding is called, from the path on."""
    kind, source = _kind(call), actions.exchange_name(call["source"])
    call.door.on_channel(lambda channel: actions.bind(channel, source, kind, _destination(call), call.body))
    key = views.properties_key(call.body.get("routing_key", ""), call.body.get("arguments", {}))
    return Created(f"{quote(call['destination'], safe='')}/{quote(key, safe='~')}")


def _destination(call: Call) -> str:
    return call["destination"] if call["kind"] == "q" else actions.exchange_name(call["destination"])


def _binding(call: Call) -> Json:
    """Each queue has one to the default exchange, by its own name."""
    return one(_between(call), properties_key=call["key"])


def _unbind(call: Call) -> None:
    found = _binding(call)
    call.door.on_channel(lambda channel: actions.unbind(channel, found))


def _between(call: Call) -> list[Json]:
    source = actions.exchange_name(call["source"])
    return _bindings_of(call, source=source, destination=_destination(call), destination_type=_kind(call))


BINDING_ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/api/queues/{vhost}/{name}/bindings", _bindings_to("queue")),
    ("GET", "/api/exchanges/{vhost}/{name}/bindings/source", _bindings_from),
    ("GET", "/api/exchanges/{vhost}/{name}/bindings/destination", _bindings_to("exchange")),
    ("GET", "/api/bindings", _bindings),
    ("GET", "/api/bindings/{vhost}", _bindings),
    ("GET", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}", _between),
    ("POST", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}", _bind),
    ("GET", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{key}", _binding),
    ("DELETE", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{key}", _unbind),
)
