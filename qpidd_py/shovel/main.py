"""`qpid-shovel`: moves messages between brokers, as the parameters of its broker say.                          Shell.

A process of its own next to each broker: its work costs the broker what that of any other client costs.  Without
pika it says in one line what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from typing import Final

from qpidd_py.cli.client_socket import Target
from qpidd_py.cli.output import run_tool
from qpidd_py.cli.target import Options, Parser, add_address_options, add_login_options, run_parsed

PROGRAM: Final = "qpid-shovel"
USAGE: Final = "qpid-shovel [OPTIONS]"


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, usage=USAGE, add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("options").add_argument
    add_address_options(add)
    add_login_options(add)
    return parser


def run(options: Options, target: Target, seconds: float) -> int:
    """Raises all errors; `main` prints them as one line."""
    try:
        import pika  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "pika":
            raise
        print(f"{PROGRAM}: the Python package pika is missing; `pip install pika` installs it", file=sys.stderr)
        return 1
    asyncio.run(_serve(target, seconds))
    return 0


async def _serve(target: Target, seconds: float) -> None:
    """Until a signal."""
    from qpidd_py.shovel.beside import Broker
    from qpidd_py.shovel.worker import Worker

    work = asyncio.create_task(Worker(Broker(target, seconds)).serve())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    print(f"{PROGRAM}: runs the shovels of {target.address} while it is the primary", flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await work


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(format=f"%(asctime)s {PROGRAM}: %(message)s", level=logging.INFO)
    logging.getLogger("client_lib").setLevel(logging.ERROR)
    return run_tool(lambda words: run_parsed(make_parser(), words, run), arguments, f"{PROGRAM}: ")


if __name__ == "__main__":
    sys.exit(main())
