"""The HTTP server: authentication, bodies, errors; each request is handled in a thread.                         Shell.

Each request has HTTP's basic authentication, and the broker judges it.  `guest` is for this machine, as at the broker's
own port.  A page of another origin cannot make a browser change anything: its requests are refused (403).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
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
from qpidd_py.http.call import Call, Created, Handler
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
SAFE: Final = ("GET", "HEAD")
"""They change nothing."""
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
        wrapped = _wrapped(target, handler, pool, gate, rates, queues)
        for name in SAFE if method == "GET" else (method,):
            found.router.add_route(name, path, wrapped)
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
        door, octets = Door(target._replace(login=login), path.get("vhost", HOST)), await request.read()
        call = Call(door, path, dict(request.query), octets, rates, queues, time.monotonic())
        async with gate.passed(login, request.remote or ""):
            result = await asyncio.get_running_loop().run_in_executor(pool, handler, call)
        return _answer(request.method, result)

    return handle


def _answer(method: str, result: Any) -> web.StreamResponse:
    if isinstance(result, Created):
        return web.Response(status=201, headers={"Location": result.location} if result.location else {})
    if result is None or (result == {} and method not in SAFE):
        return web.Response(status=204)
    return web.json_response(result)


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
    if origin and request.method not in SAFE and urlsplit(origin).netloc != request.host:
        raise Problem(403, "forbidden", f"a page of {origin[:200]!r} may not use this API")


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
    except web.HTTPMethodNotAllowed as error:
        return _not_allowed(request.method, sorted({*error.allowed_methods, "OPTIONS"}))
    except web.HTTPException as error:
        return _told(Problem(error.status, error.reason or "", error.reason or ""))
    except Exception:
        log.exception("%s %s", request.method, request.path[:200])
        return _told(Problem(500, "internal_error", "see the log of this process"))


def _not_allowed(method: str, allowed: list[str]) -> web.Response:
    """Also the answer to who asks what is allowed."""
    names = ", ".join(allowed)
    if method == "OPTIONS":
        return web.Response(headers={"Allow": names})
    answer = _told(Problem(405, "Method Not Allowed", f"{method:.40} is not possible here, but {names}"))
    answer.headers["Allow"] = names
    return answer


def _told(problem: Problem, challenge: bool = True) -> web.Response:
    headers = {"WWW-Authenticate": REALM} if problem.status == 401 and challenge else {}
    if problem.status in (429, 503):
        headers["Retry-After"] = RETRY_AFTER
    body = {"error": problem.error, "reason": problem.reason, **problem.more}
    return web.json_response(body, status=problem.status, headers=headers)
