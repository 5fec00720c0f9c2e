"""A function in a forked process of its own: it may hang, crash or leave the interpreter spoiled."""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLOW = 8
"""How many times its processor time a child may take by the clock, on a busy machine."""


@dataclass(eq=False)
class Child:
    """One call that is under way."""

    pid: int
    pipe: int
    until: float
    """Monotonic seconds."""
    text: bytes = b""
    late: bool = False
    began: float = field(default_factory=time.monotonic)

    def kill(self) -> None:
        """With the processes that it has started."""
        self.late = True
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(self.pid, signal.SIGKILL)  # it has not made its group yet, or has just ended

    def result(self) -> Any:
        """None when it was killed, has crashed, or has used up its time."""
        os.close(self.pipe)
        os.waitpid(self.pid, 0)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has left nothing behind
        return pickle.loads(self.text) if self.text and not self.late else None


def start(seconds: float, log: Path | None, function: Callable[..., Any], *arguments: Any) -> Child:
    """`seconds` of processor time; `log` gets what it prints."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Child(pid, reader, time.monotonic() + SLOW * seconds)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.close(reader)
        _redirect(log)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        text = pickle.dumps(function(*arguments))
        while text:
            text = text[os.write(writer, text) :]
    finally:
        os._exit(0)


def _redirect(log: Path | None) -> None:
    file = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)


def wait(children: list[Child]) -> list[Child]:
    """Those that have ended, at least one; the others go on."""
    done: list[Child] = []
    while not done:
        pipes, _, _ = select.select([child.pipe for child in children], [], [], 0.5)
        for child in children:
            if child.pipe in pipes:
                if not (octets := os.read(child.pipe, 1 << 20)):
                    done.append(child)
                child.text += octets
            elif time.monotonic() > child.until and not child.late:
                child.kill()
    return done


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Its result.  Raises RuntimeError when it did not come to an end."""
    child = start(600, None, function, *arguments)
    wait([child])
    if (result := child.result()) is None:
        raise RuntimeError(f"{function.__name__}{arguments} has failed")
    return result
