"""`qpid-send` and `qpid-receive` as they are installed: without pika they say in one line what is missing.

They belong to the client library, which stands alone and cannot be imported without pika.
"""

import sys
from importlib import import_module

FAILED = 1


def send() -> int:
    return _run("qpid-send", "client_lib.cli.send")


def receive() -> int:
    return _run("qpid-receive", "client_lib.cli.receive")


def _run(program: str, module: str) -> int:
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "pika":
            raise
        text = f"the Python package {error.name} is missing; `pip install {error.name}` installs it"
        print(f"{program}: {text}", file=sys.stderr)
        return FAILED
    return int(found.main())
