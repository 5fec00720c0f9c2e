"""A page in a real browser (Debian's Chromium), by its DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support import programs, system
from tests.support.wait import wait_for

TIME: Final = 60.0
_OPTIONS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


class Page:
    """One tab."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._loop, self._socket, self._numbers = loop, socket, itertools.count(1)

    def command(self, method: str, **parameters: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(self._command(method, parameters), TIME))

    async def _command(self, method: str, parameters: dict[str, Any]) -> Any:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, or of its promise."""
        found = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> Any:
        """Waits until the expression is true; its value."""
        return wait_for(lambda: self.run(script), TIME, lambda: f"{script}; the page: {self.run(_TEXT)}", poll=0.1)


_TEXT: Final = "document.body.innerText"


@contextlib.contextmanager
def opened(url: str, folder: Path, width: int = 1280) -> Iterator[Page]:
    """`folder`: for the browser's profile."""
    place = folder / "profile" / "DevToolsActivePort"
    command = [
        str(system.which("chromium")),
        *_OPTIONS,
        f"--user-data-dir={place.parent}",
        "--remote-debugging-port=0",
        "about:blank",
    ]
    process = programs.start(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loop = asyncio.new_event_loop()
    try:
        wait_for(lambda: place.exists() and place.read_text().count("\n") == 1, TIME, "the browser has a port")
        session, socket = loop.run_until_complete(_connected(int(place.read_text().split()[0])))
        try:
            page = Page(loop, socket)
            page.command(
                "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
            )
            page.command("Page.navigate", url=url)
            yield page
        finally:
            page.command("Browser.close")  # it removes its files in the folder for temporary ones
            loop.run_until_complete(session.close())
            process.wait(TIME)
    finally:
        process.terminate()
        process.wait(TIME)
        loop.close()


async def _connected(port: int) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    session = aiohttp.ClientSession()
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        tabs = await answer.json(content_type=None)
    tab = next(each for each in tabs if each["type"] == "page")
    return session, await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
