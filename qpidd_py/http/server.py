"""The HTTP server: authentication, bodies, errors; each request is handled in a thread.                         Shell.

Each request has HTTP's basic authentication, and the broker judges it.  `guest` is for this machine, as at the broker's
own port.  A page of another origin cannot make a browser change anything: its requests are refused (403).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from aiohttp import web

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Target
from qpidd_py.cli.definitions import DefinitionError
from qpidd_py.http.call import Call, Handler
from qpidd_py.http.door import Door, Problem, WrongLogin, bad_request
from qpidd_py.http.events import PATH as EVENTS
from qpidd_py.http.events import Readers
from qpidd_py.http.gate import Gate
from qpidd_py.http.page import add_page
from qpidd_py.http.paging import QueryError
from qpidd_py.http.queues import Queues
from qpidd_py.http.rates import Rates
from qpidd_py.http.routes import ROUTES
from qpidd_py.security.entries import HOST
from qpidd_py.security.users import DEFAULT_USER

log = logging.getLogger(__name__)

BODY_MAX: Final = 16 << 20
"""Octets of a request's body."""
AT_ONCE: Final = 16
"""Requests that are handled at a time; others wait."""
RETRY_AFTER: Final = "1"
"""Seconds: for a broker that is no primary, or not there, and for one login too many of an address."""
REALM: Final = 'Basic realm="qpidd management"'
BY_SCRIPT: Final = "X-Requested-With"
"""A request with this header comes from a page, whose browser would ask for the password by itself."""


def application(target: Target) -> web.Application:
    """`target`: the broker; its login is not used."""
    found = web.Application(client_max_size=BODY_MAX, middlewares=[_problems])
    add_page(found)
    pool, gate, rates, queues = ThreadPoolExecutor(AT_ONCE, "request"), Gate(), Rates(), Queues()
    for method, path, handler in ROUTES:
        found.router.add_route(method, path, _wrapped(target, handler, pool, gate, rates, queues))
    readers = Readers(pool, gate)
    found.router.add_route("GET", EVENTS, _events(target, readers))
    found.on_shutdown.append(readers.end)
    return found


def _wrapped(
    target: Target, handler: Handler, pool: ThreadPoolExecutor, gate: Gate, rates: Rates, queues: Queues
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        login = login_of(request)
        _check_origin(request)
        path = {name: unquote(value) for name, value in _raw(request).items()}
        door, body = Door(target._replace(login=login), path.get("vhost", HOST)), await _body(request)
        call = Call(door, path, dict(request.query), body, rates, queues, time.monotonic())
        async with gate.passed(login, request.remote or ""):
            result = await asyncio.get_running_loop().run_in_executor(pool, handler, call)
        if result is None or (result == {} and request.method != "GET"):
            return web.Response(status=201 if request.method in ("PUT", "POST") else 204)
        return web.json_response(result)

    return handle


def _events(target: Target, readers: Readers) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        door = Door(target._replace(login=login_of(request)))
        gone = lambda: request.transport is None or request.transport.is_closing()  # noqa: E731
        return web.json_response(await readers.answer(door, request.query, request.remote or "", gone))

    return handle


def _raw(request: web.Request) -> dict[str, str]:
    """The parts of the path as they were sent: `%2F` is a part of a name."""
    route = request.match_info.route.resource
    pattern = route.canonical.split("/") if route is not None else []
    parts = request.rel_url.raw_path.split("/")
    return {name[1:-1]: part for name, part in zip(pattern, parts, strict=False) if name.startswith("{")}


def login_of(request: web.Request) -> Login:
    """Raises Problem."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "basic":
        raise WrongLogin
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise WrongLogin from None
    if not colon or (user == DEFAULT_USER[0] and not _is_local(request.remote)):
        raise WrongLogin
    return Login(user, password, "")


def _is_local(address: str | None) -> bool:
    try:
        return ip_address(address or "").is_loopback
    except ValueError:
        return False


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get("Origin")
    if origin and request.method != "GET" and urlsplit(origin).netloc != request.host:
        raise Problem(403, "forbidden", f"a page of {origin[:200]!r} may not use this API")


async def _body(request: web.Request) -> dict[str, Any]:
    """Raises Problem."""
    octets = await request.read()
    if not octets:
        return {}
    try:
        found = json.loads(octets)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "not_json", str(error)) from None
    if not isinstance(found, dict):
        raise bad_request(f"the body is a JSON {type(found).__name__}, wanted an object")
    return found


@web.middleware
async def _problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except Problem as problem:
        return _told(problem, challenge=BY_SCRIPT not in request.headers)
    except (QueryError, DefinitionError) as error:
        return _told(bad_request(str(error)))
    except web.HTTPException as error:
        return _told(Problem(error.status, error.reason or "", error.reason or ""), error.headers.get("Allow"))
    except Exception:
        log.exception("%s %s", request.method, request.path[:200])
        return _told(Problem(500, "internal_error", "see the log of this process"))


def _told(problem: Problem, allow: str | None = None, challenge: bool = True) -> web.Response:
    headers = {"WWW-Authenticate": REALM} if problem.status == 401 and challenge else {}
    if problem.status in (429, 503):
        headers["Retry-After"] = RETRY_AFTER
    if allow is not None:
        headers["Allow"] = allow
    body = {"error": problem.error, "reason": problem.reason}
    return web.json_response(body, status=problem.status, headers=headers)
