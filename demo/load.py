"""One load process: `python -m demo.load ROLE ...`; SIGTERM ends it cleanly (a consumer drains its queue first)."""

import argparse
import importlib
import signal
from collections.abc import Sequence
from pathlib import Path

from demo.progress import Slot


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    addresses = [(host, int(port)) for host, _, port in (a.rpartition(":") for a in arguments.addresses.split(","))]
    style = importlib.import_module(f"demo.{arguments.style}")
    slot = Slot(Path(arguments.progress), arguments.slot)
    common = (arguments.name, arguments.queue, addresses, arguments.directory, slot)
    client = (
        style.Producer(*common, arguments.rate, arguments.size)
        if arguments.role == "producer"
        else style.Consumer(*common)
    )
    signal.signal(signal.SIGTERM, client.stop)
    client.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo.load", description=__doc__)
    parser.add_argument("role", choices=("producer", "consumer"))
    parser.add_argument("--name", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--addresses", required=True, help="HOST:PORT,HOST:PORT")
    parser.add_argument("--directory", required=True, help="for the event log")
    parser.add_argument("--progress", required=True, help="the shared file of demo.progress")
    parser.add_argument("--slot", type=int, required=True, help="our place in it")
    parser.add_argument("--style", choices=("plain", "library"), default="plain")
    parser.add_argument("--rate", type=float, default=500.0, help="messages a second")
    parser.add_argument("--size", type=int, default=256, help="octets of a body")
    return parser


if __name__ == "__main__":
    main()
