"""The paths of nodes, health checks and logins, and those of RabbitMQ that cannot mean the same here.           Shell.

`REFUSED` is answered with 501 and its reason, after the broker has accepted the login.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.http import views
from qpidd_py.http.actions import wanted
from qpidd_py.http.call import Call, Handler, Json, one
from qpidd_py.http.door import Problem, bad_request, not_found
from qpidd_py.http.paging import part

OK: Final = {"status": "ok"}


def _info(call: Call) -> Json:
    """Raises Problem for another node."""
    info: Json = call.door.ask("broker.info")
    if call.path.get("node", info["name"]) != info["name"]:
        raise not_found()
    return info


def _cluster_name(call: Call) -> Json:
    return {"name": call.door.ask("broker.overview")["name"]}


def _nodes(call: Call) -> Any:
    return part([views.node(_info(call))], call.query)


def _node(call: Call) -> Json:
    return views.node(_info(call))


def _memory(call: Call) -> Json:
    return {"memory": views.memory(_info(call))}


def _relative_memory(call: Call) -> Json:
    found = views.memory(_info(call))
    whole = found["total"]["rss"] or 1
    return {"memory": {**{name: 100 * found[name] // whole for name in found if name != "total"}, "total": 100}}


def _global_parameters(call: Call) -> Any:
    return part([{"name": "cluster_name", "value": _info(call)["name"]}], call.query)


def _global_parameter(call: Call) -> Json:
    found: list[Json] = _global_parameters(call)
    return one(found, name=call["name"])


def _act(call: Call) -> None:
    """On a queue that is there."""
    call.door.ask("queue.info", queue=call["name"], **call.host)
    action = wanted(call.body, "action", str)
    if action not in ("sync", "cancel_sync"):
        raise bad_request(f"action {action!r:.80}, wanted sync or cancel_sync")
    raise bad_request(f"{action}: a backup gets all that it lacks by itself, so there is nothing to begin or to end")


def _start_vhost(call: Call) -> None:
    """All are started."""
    _info(call)
    one(call.door.ask("vhost.list"), name=call["vhost"])


# ---- health


def _healthy(call: Call) -> Json:
    """The broker answers; nothing can be down by itself."""
    _info(call)
    return OK


def _failed(reason: str, **more: Any) -> Problem:
    return Problem(503, "failed", reason, {"status": "failed", **more})


def _alarms(call: Call) -> Json:
    alarms = _info(call)["alarms"]
    if alarms:
        raise _failed("; ".join(f"{name}: {reason}" for name, reason in alarms.items()))
    return OK


def _old_check(call: Call) -> Json:
    """It says with 200 what has failed, too."""
    try:
        return _alarms(call)
    except Problem as problem:
        if "status" not in problem.more:
            raise
        return {"status": "failed", "reason": problem.reason}


def _port(call: Call) -> Json:
    _info(call)
    known = call.door.target.port
    if not (call["port"].isascii() and call["port"].isdecimal()):
        raise bad_request(f"port {call['port']!r:.80}, wanted a number")
    if int(call["port"][:9]) != known:
        raise refusal(f"only port {known} is known here, at which qpid-http reaches the broker")
    return {**OK, "port": known}


def _protocol(call: Call) -> Json:
    _info(call)
    here = "amqp/ssl" if call.door.target.tls else "amqp"
    protocol = _ALIASES.get(call["protocol"], call["protocol"])
    if protocol in (here, "http"):
        return {**OK, "protocol": protocol}
    if protocol.startswith("amqp"):
        raise refusal(f"only {here} is known here, by which qpid-http reaches the broker")
    raise _failed("No active listener", missing=protocol, protocols=[here, "http"])


_ALIASES: Final = {
    **dict.fromkeys(("amqp091", "amqp0.9.1", "amqp0-9-1"), "amqp"),
    **dict.fromkeys(("amqps", "amqp/tls"), "amqp/ssl"),
}


def _critical(call: Call) -> Json:
    """Whether a stop of this broker would leave no other that has all."""
    query: Mapping[str, Any] = call.door.ask("ha.query") if _info(call)["clustered"] else {"status": "standalone"}
    if query["status"] in ("active", "recovering"):
        if not any(each.get("counts") and each["id"] != query.get("broker_id") for each in query["members"]):
            raise _failed("no backup has all: if this broker stops, none can take over")
    elif query["status"] != "standalone":
        where = query.get("primary") or "none is known"
        raise refusal(f"this broker is {query['status']}: only the primary ({where}) knows what its stop would mean")
    return OK


# ---- refusals


def refusal(reason: str) -> Problem:
    return Problem(501, "not_implemented", reason)


def _refused(reason: str) -> Handler:
    """The broker judges the login first."""

    def refuse(call: Call) -> None:
        call.door.ask("user.self")
        raise refusal(reason)

    return refuse


_NO_TABLES: Final = "there are no ETS tables"
_NO_FLAGS: Final = "there are no feature flags: members of two versions work together, see upgrade.md"
_NO_GLOBAL: Final = "the name of the cluster is an option of the brokers, and there are no other global parameters"
_NO_ATTEMPTS: Final = "logins are not counted: refused ones are in the broker's log and in /api/ha/events"
_NO_RESET: Final = "there are no statistics to be reset: counters are those of the broker, for as long as it runs"
_NO_LINKS: Final = "there is no federation by upstreams: routes are shovels, see qpid-route and /api/shovels"
_NO_EXPIRY: Final = "certificates are files of the broker, which qpid-http does not read"
REFUSED: Final[tuple[tuple[str, str, str], ...]] = (
    ("PUT", "/api/cluster-name", _NO_GLOBAL),
    ("GET", "/api/nodes/{node}/memory/ets", _NO_TABLES),
    ("GET", "/api/nodes/{node}/memory/ets/relative", _NO_TABLES),
    ("GET", "/api/nodes/{node}/memory/ets/{filter}", _NO_TABLES),
    ("GET", "/api/nodes/{node}/memory/ets/{filter}/relative", _NO_TABLES),
    ("PUT", "/api/feature-flags/{name}/enable", _NO_FLAGS),
    ("PUT", "/api/global-parameters/{name}", _NO_GLOBAL),
    ("DELETE", "/api/global-parameters/{name}", _NO_GLOBAL),
    ("GET", "/api/health/checks/certificate-expiration/{within}/{unit}", _NO_EXPIRY),
    ("DELETE", "/api/reset", _NO_RESET),
    ("DELETE", "/api/reset/{node}", _NO_RESET),
    ("POST", "/api/rebalance/queues", "all queues are on the primary: `qpid-ha relocate` moves it"),
    ("GET", "/api/auth/attempts/{node}", _NO_ATTEMPTS),
    ("DELETE", "/api/auth/attempts/{node}", _NO_ATTEMPTS),
    ("GET", "/api/auth/attempts/{node}/source", _NO_ATTEMPTS),
    ("DELETE", "/api/auth/attempts/{node}/source", _NO_ATTEMPTS),
    ("POST", "/api/login", "there are no sessions: each request has its login (HTTP basic authentication)"),
    ("GET", "/api/federation-links", _NO_LINKS),
    ("GET", "/api/federation-links/{vhost}", _NO_LINKS),
)
_CHECKS: Final = "/api/health/checks"
_NODE: Final = "/api/nodes/{node}"
_NO_OAUTH: Final = {"oauth_enabled": False, "oauth_client_id": "", "oauth_provider_url": ""}
NODE_ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/api/cluster-name", _cluster_name),
    ("GET", "/api/nodes", _nodes),
    ("GET", _NODE, _node),
    ("GET", f"{_NODE}/memory", _memory),
    ("GET", f"{_NODE}/memory/relative", _relative_memory),
    ("GET", "/api/extensions", lambda call: call.door.ask("broker.overview") and []),
    ("GET", "/api/feature-flags", lambda call: _info(call) and []),
    ("GET", "/api/global-parameters", _global_parameters),
    ("GET", "/api/global-parameters/{name}", _global_parameter),
    ("GET", "/api/auth", lambda call: call.door.ask("user.self") and _NO_OAUTH),
    ("POST", "/api/queues/{vhost}/{name}/actions", _act),
    ("POST", "/api/vhosts/{vhost}/start/{node}", _start_vhost),
    ("GET", f"{_CHECKS}/alarms", _alarms),
    ("GET", f"{_CHECKS}/local-alarms", _alarms),
    ("GET", f"{_CHECKS}/virtual-hosts", _healthy),
    ("GET", f"{_CHECKS}/port-listener/{{port}}", _port),
    ("GET", f"{_CHECKS}/protocol-listener/{{protocol}}", _protocol),
    ("GET", f"{_CHECKS}/node-is-mirror-sync-critical", _critical),
    ("GET", f"{_CHECKS}/node-is-quorum-critical", _critical),
    ("GET", "/api/healthchecks/node", _old_check),
    ("GET", "/api/healthchecks/node/{node}", _old_check),
    *((method, path, _refused(reason)) for method, path, reason in REFUSED),
)
