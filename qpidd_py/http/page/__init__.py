"""The page for people: static files, which ask the API (`page.js`).  It needs nothing from another host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from aiohttp import web

FILES: Final = {"/": "index.html", **{f"/{name}": name for name in ("page.js", "timeline.js", "page.css")}}
_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_page(application: web.Application) -> None:
    for path, name in FILES.items():
        text = files(__name__).joinpath(name).read_text("utf-8")
        application.router.add_get(path, _sender(text, _TYPES[name.rpartition(".")[2]]))


def _sender(text: str, kind: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def send(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=kind, headers=_HEADERS)

    return send
