"""`qpid-http`: serves RabbitMQ's management API for a broker.                                                   Shell.

A process of its own next to each broker: whatever it does costs the broker some management requests and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import sys
from collections.abc import Sequence
from typing import Final

from qpidd_py.cli.client_socket import Target
from qpidd_py.cli.output import run_tool
from qpidd_py.cli.target import (
    Options,
    Parser,
    add_address_options,
    add_listen_options,
    add_login_options,
    listen_address,
    run_parsed,
)

PROGRAM: Final = "qpid-http"
PORT: Final = 15672
"""As RabbitMQ's."""
USAGE: Final = "qpid-http [OPTIONS]"


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, usage=USAGE, add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("options").add_argument
    add_listen_options(add, PORT)
    add_address_options(add)
    add_login_options(add)
    return parser


def run(options: Options, target: Target, _: float) -> int:
    """Raises all errors; `main` prints them as one line."""
    if name := _missing():
        print(f"{PROGRAM}: the Python package {name} is missing; `pip install {name}` installs it", file=sys.stderr)
        return 1
    host, port = listen_address(options)
    tls = None
    if options.listen_certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(options.listen_certificate, options.listen_key)
    asyncio.run(_serve(target, host, port, tls))
    return 0


def _missing() -> str | None:
    """A package of the extra `http` that is not installed."""
    try:
        import aiohttp  # noqa: F401
        import pika  # noqa: F401
    except ModuleNotFoundError as error:
        return error.name
    return None


async def _serve(target: Target, host: str, port: int, tls: ssl.SSLContext | None) -> None:
    """Until a signal."""
    from aiohttp import web

    from qpidd_py.http.server import application

    runner = web.AppRunner(application(target), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port, ssl_context=tls).start()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    print(f"{PROGRAM}: serves http{'s' * bool(tls)}://{host}:{port}/api for {target.address}", flush=True)
    await ended.wait()
    await runner.cleanup()


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(format=f"%(asctime)s {PROGRAM}: %(message)s")
    for name in ("pika", "aiohttp.server"):  # of peers that break a protocol, whose requests are answered
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return run_tool(lambda words: run_parsed(make_parser(), words, run), arguments, f"{PROGRAM}: ")


if __name__ == "__main__":
    sys.exit(main())
