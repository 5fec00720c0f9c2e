"""The paths of users, permissions, policies, limits, parameters and shovels.                                  Shell."""

from __future__ import annotations

from typing import Any, Final

from qpidd_py.broker.parameters import SHOVEL, check_component
from qpidd_py.cli import definitions
from qpidd_py.http import views
from qpidd_py.http.actions import wanted
from qpidd_py.http.call import Call, Created, Handler, Json, asks, listed, made, one
from qpidd_py.http.door import bad_request
from qpidd_py.http.paging import part
from qpidd_py.security.users import hash_password

# ---- users


def _user(call: Call) -> Json:
    return views.user(one(call.door.ask("user.list"), name=call["name"]))


def _put(call: Call, method: str, **arguments: Any) -> Created | None:
    return made(call.door.ask(method, **arguments, tell_made=True).get("made"))


def _put_user(call: Call) -> Created | None:
    """`password`, or `password_hash` ("": none) with its `hashing_algorithm`; `tags` with commas, or a list."""
    tags = call.body.get("tags")
    if tags is None:
        raise bad_request("tags are missing, wanted names with commas between them")
    if "password" in call.body:
        stored = hash_password(wanted(call.body, "password", str))
    elif "password_hash" in call.body:
        stored = definitions.stored_hash({"name": call["name"], **call.body})
    else:
        stored = ""
    found = [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else tags
    return _put(call, "user.put", user=call["name"], hash=stored, tags=found)


def _without_permissions(call: Call) -> Any:
    """Users of the cluster; others need none."""
    users, permissions = call.door.ask_all([("user.list", {}), ("permission.list", {})])
    known = {each["user"] for each in permissions}
    return part([views.user(each) for each in users if each["cluster"] and each["name"] not in known], call.query)


def _delete_users(call: Call) -> None:
    """Those that are there."""
    names = wanted(call.body, "users", list)
    there = {each["name"] for each in call.door.ask("user.list") if each["cluster"]}
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise bad_request(f"users: {wrong[0]!r:.80}, wanted names")
    call.door.ask_all([("user.delete", {"user": name}) for name in dict.fromkeys(names) if name in there])


def _permission(call: Call) -> Json:
    return one(call.door.ask("permission.list"), user=call["user"], vhost=call["vhost"])


def _put_permission(call: Call) -> Created | None:
    patterns = {name: wanted(call.body, name, str) for name in ("configure", "write", "read")}
    return _put(call, "permission.set", user=call["user"], vhost=call["vhost"], **patterns)


def _put_topic(call: Call) -> Created | None:
    """It is there with any exchange, as for RabbitMQ."""
    values = {name: wanted(call.body, name, str) for name in ("exchange", "write", "read")}
    return _put(call, "topic.set", user=call["user"], vhost=call["vhost"], **values)


def _topic(call: Call) -> list[Json]:
    found = call.door.ask("topic.list", **call.host)
    return [item for item in found if item["user"] == call["user"]] or [one([])]


def _drop_topic(call: Call) -> None:
    """Those of a user, or that of one exchange."""
    known = [item for item in _topic(call) if call.path.get("exchange") in (None, item["exchange"])]
    one(known)
    call.door.ask("topic.clear", user=call["user"], vhost=call["vhost"], exchange=call.path.get("exchange", ""))


def _of_user(method: str) -> Handler:
    def found(call: Call) -> list[Json]:
        users, items = call.door.ask_all([("user.list", {}), (method, {})])
        one(users, name=call["name"])
        return [item for item in items if item["user"] == call["name"]]

    return found


# ---- policies


_POLICY: Final = ("pattern", "apply-to", "priority", "definition")


def _policies(call: Call, operator: bool) -> list[Json]:
    found = call.door.ask("policy.list", **call.host)
    return [definitions.policy(item) for item in found if item["operator"] is operator]


def _put_policy(operator: bool) -> Handler:
    def put(call: Call) -> Created | None:
        known = {name: call.body[name] for name in _POLICY if name in call.body}
        return _put(call, "policy.set", name=call["name"], vhost=call["vhost"], operator=operator, **known)

    return put


def _policy_routes(path: str, operator: bool) -> tuple[tuple[str, str, Handler], ...]:
    every: Handler = lambda call: part(_policies(call, operator), call.query)  # noqa: E731
    single = f"/api/{path}/{{vhost}}/{{name}}"
    return (
        ("GET", f"/api/{path}", every),
        ("GET", f"/api/{path}/{{vhost}}", every),
        ("GET", single, lambda call: one(_policies(call, operator), name=call["name"])),
        ("PUT", single, _put_policy(operator)),
        ("DELETE", single, asks("policy.clear", "name", "vhost", operator=operator)),
    )


# ---- limits


def _limits(whose: str) -> Handler:
    """Those of all users, or of the virtual host; of one, if the path names it."""

    def limits(call: Call) -> list[Json]:
        name = call.path.get(whose)
        if name is not None and whose == "user":
            one(call.door.ask("user.list"), name=name)
        found = [
            item for item in call.door.ask("limit.list", **call.host) if whose in item and name in (None, item[whose])
        ]
        return [{whose: item[whose], "value": item["limits"]} for item in found]

    return limits


def _put_limit(whose: str) -> Handler:
    def put(call: Call) -> None:
        """There is each limit, as for RabbitMQ: that of no number, too."""
        call.door.ask("limit.set", **{whose: call[whose]}, limits={call["limit"]: wanted(call.body, "value", int)})

    return put


def _limit_routes(whose: str) -> tuple[tuple[str, str, Handler], ...]:
    path = f"/api/{whose}-limits"
    return (
        ("GET", path, _limits(whose)),
        ("GET", f"{path}/{{{whose}}}", _limits(whose)),
        ("PUT", f"{path}/{{{whose}}}/{{limit}}", _put_limit(whose)),
        ("DELETE", f"{path}/{{{whose}}}/{{limit}}", asks("limit.clear", whose, "limit")),
    )


# ---- parameters and shovels


def _parameters(call: Call) -> Any:
    """All, or those of a component."""
    component = call.path.get("component")
    if component is not None:
        _check_component(component)
    found = (item for item in call.door.ask("parameter.list", **call.host) if component in (None, item["component"]))
    return part([definitions.parameter(item) for item in found], call.query)


def _check_component(name: str) -> None:
    try:
        check_component(name)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _parameter(call: Call) -> Json:
    return definitions.parameter(
        one(call.door.ask("parameter.list", **call.host), component=call["component"], name=call["name"])
    )


def _put_parameter(call: Call) -> Created | None:
    value = wanted(call.body, "value", dict)
    where = {"component": call["component"], "name": call["name"], "vhost": call["vhost"]}
    return _put(call, "parameter.set", **where, value=value)


def _shovels(call: Call) -> Any:
    info, items = call.door.ask_all([("broker.info", {}), ("shovel.list", call.host)])
    return part([views.shovel(item, info["name"]) for item in items], call.query)


def _shovel(call: Call) -> Json:
    info, items = call.door.ask_all([("broker.info", {}), ("shovel.list", call.host)])
    return views.shovel(one(items, name=call["name"]), info["name"])


_PARAMETER: Final = "/api/parameters/{component}/{vhost}/{name}"
_SHOVEL: Final = "/api/shovels/vhost/{vhost}/{name}"
SETTING_ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/api/vhosts/{vhost}/permissions", listed("permission.list")),
    ("GET", "/api/vhosts/{vhost}/topic-permissions", listed("topic.list")),
    ("GET", "/api/users", listed("user.list", views.user)),
    ("GET", "/api/users/without-permissions", _without_permissions),
    ("POST", "/api/users/bulk-delete", _delete_users),
    ("GET", "/api/users/{name}", _user),
    ("PUT", "/api/users/{name}", _put_user),
    ("DELETE", "/api/users/{name}", lambda call: call.door.ask("user.delete", user=call["name"])),
    ("GET", "/api/users/{name}/permissions", _of_user("permission.list")),
    ("GET", "/api/users/{name}/topic-permissions", _of_user("topic.list")),
    ("GET", "/api/permissions", listed("permission.list")),
    ("GET", "/api/permissions/{vhost}/{user}", _permission),
    ("PUT", "/api/permissions/{vhost}/{user}", _put_permission),
    ("DELETE", "/api/permissions/{vhost}/{user}", asks("permission.clear", "user", "vhost")),
    ("GET", "/api/topic-permissions", listed("topic.list")),
    ("GET", "/api/topic-permissions/{vhost}/{user}", _topic),
    ("PUT", "/api/topic-permissions/{vhost}/{user}", _put_topic),
    ("DELETE", "/api/topic-permissions/{vhost}/{user}", _drop_topic),
    ("DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", _drop_topic),
    *_policy_routes("policies", False),
    *_policy_routes("operator-policies", True),
    *_limit_routes("user"),
    *_limit_routes("vhost"),
    ("GET", "/api/parameters", _parameters),
    ("GET", "/api/parameters/{component}", _parameters),
    ("GET", "/api/parameters/{component}/{vhost}", _parameters),
    ("GET", _PARAMETER, _parameter),
    ("PUT", _PARAMETER, _put_parameter),
    ("DELETE", _PARAMETER, asks("parameter.clear", "component", "name", "vhost")),
    ("GET", "/api/shovels", _shovels),
    ("GET", "/api/shovels/{vhost}", _shovels),
    ("GET", _SHOVEL, _shovel),
    ("DELETE", _SHOVEL, asks("parameter.clear", "name", "vhost", component=SHOVEL)),
    ("DELETE", f"{_SHOVEL}/restart", asks("shovel.restart", "name", "vhost")),
)
