"""Prints how it was started, for tests of how programs are started: python -m tests.support.shown [HOW]."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def words(name: str) -> list[str]:
    return [word for word in Path(f"/proc/self/{name}").read_text().split("\0") if word]


def main() -> int:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    state = {
        "name": __name__,
        "arguments": sys.argv,
        "path": sys.path[0],
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "shown": [words("cmdline"), sorted(words("environ"))],
        "input": sys.stdin.read(),
        "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],  # the last one lists them
        "leads a session": os.getsid(0) == os.getpid(),
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "imported": sorted(name for name in sys.modules if name.startswith(("qpidd_py", "ha", "client_lib"))),
    }
    print(json.dumps(state))
    print("errors", file=sys.stderr)
    if how == "raise":
        raise ValueError("as told")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "at once":
        os._exit(5)
    return 3


if __name__ == "__main__":
    sys.exit(main())
