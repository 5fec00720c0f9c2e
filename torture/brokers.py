"""The brokers of a campaign: one real `qpidd` per host, and the operations on its process.  Shell."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, Final, ParamSpec

from testkit.power import PowerCut
from torture.network import Host

PORT: Final = 5672
USER, PASSWORD = "ha", "secret"
SYNC_MS: Final = 2
"""How long a sync takes on a disk that forgets."""
DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG

_libc = ctypes.CDLL(None)
P = ParamSpec("P")


@dataclass(frozen=True)
class Exit:
    """A process that ended without being killed or stopped by the campaign."""

    broker: str
    code: int
    elapsed: float
    log: str


def die_with_parent() -> None:
    """For a child process: nothing of a campaign outlives it, not even when it is killed."""
    _libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)


def _locked(method: Callable[Concatenate[Broker, P], None]) -> Callable[Concatenate[Broker, P], None]:
    """One thread at a time: faults and the manager may act on the same process."""

    def call(self: Broker, /, *arguments: P.args, **named: P.kwargs) -> None:
        with self._lock:
            method(self, *arguments, **named)

    return call


class Broker:
    """One host and the process on it, which is started and killed any number of times.  `disk` numbers its data
    directories: a broker that is replaced begins with an empty one."""

    def __init__(
        self,
        name: str,
        host: Host,
        directory: Path,
        options: Sequence[str],
        unwanted: list[Exit],
        forgetful: Path | None = None,
    ) -> None:
        """`forgetful`: the library with which its disk forgets what was not synced (`testkit/power.py`)."""
        self.name = name
        self._forgetful = forgetful
        self.host = host
        self.options = list(options)
        self.address = f"{host.address}:{PORT}"
        self.member = True
        """True if it is a member of the cluster now."""
        self.paused = 0
        """The number of faults that keep it stopped (SIGSTOP)."""
        self.touched = -1e9
        """When a fault on it last began or ended, in monotonic seconds."""
        self.held_down = 0
        """The number of faults that keep it dead."""
        self.died = 0.0
        """When it was killed last."""
        self.starts = 0
        self.started = 0.0
        """When it was started last."""
        self._disk = 1
        self._directory = directory
        self._unwanted = unwanted
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    @property
    def data_dir(self) -> Path:
        return self._directory / f"{self.name}-disk{self._disk}"

    @property
    def _power(self) -> PowerCut | None:
        undo = self.data_dir.with_name(f"{self.data_dir.name}-undo")
        return PowerCut(self._forgetful, self.data_dir, undo, SYNC_MS, "events") if self._forgetful else None

    def lose_cache(self, rng: random.Random) -> int:
        """After a kill, as a power cut of its host does.  Returns the number of changes that were not on its disk."""
        return self._power.cut(rng) if self._power else 0

    @property
    def log_file(self) -> Path:
        return self._directory / f"{self.name}.log"

    @property
    def running(self) -> bool:
        process = self._process  # other threads read it too
        return process is not None and process.poll() is None

    @property
    def responsive(self) -> bool:
        """Running and not stopped, so that it can answer."""
        return self.running and not self.paused

    @_locked
    def start(self, brokers_url: str) -> None:
        """Without a URL: alone.  From the main thread only: the process dies with the thread that has started it."""
        if self.running:
            return
        self.collect()
        self.starts += 1
        self.started = time.monotonic()
        words = [
            *(sys.executable, "-m", "qpidd_py", "--port", str(PORT), "--interface", self.host.address),
            *("--data-dir", str(self.data_dir), "--broker-name", self.name),
            *(("--ha-cluster", "yes", "--ha-brokers-url", brokers_url, "--ha-replicate", "all") if brokers_url else ()),
            *("--ha-username", USER, "--ha-password", PASSWORD, *self.options),
        ]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("QPID_")}
        clean |= self._power.environment if self._power else {}
        with self.log_file.open("ab") as log, self.host.inside():
            log.write(f"---- start {self.starts} at {time.monotonic():.3f}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    @_locked
    def kill(self) -> None:
        """SIGKILL; also of a stopped process."""
        self.touched = self.died = time.monotonic()
        self.collect()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @_locked
    def terminate(self) -> None:
        """SIGTERM."""
        self.collect()
        if self._process is not None:
            self._process.terminate()

    @_locked
    def ended(self, timeout: float) -> None:
        """After `terminate`: waits for a clean end, which does not count as unexpected; kills a process that does not
        end."""
        if self._process is None:
            return
        try:
            if self._process.wait(timeout) in (0, -signal.SIGTERM):  # the latter while it was still starting
                self._process = None
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    @_locked
    def pause(self) -> None:
        self.touched = time.monotonic()
        self.paused += 1
        if self.running and self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    @_locked
    def resume(self) -> None:
        self.touched = time.monotonic()
        self.paused -= 1
        if not self.paused and self.running and self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def replace_disk(self) -> None:
        """Only while it is down."""
        self._disk += 1

    @_locked
    def collect(self) -> None:
        """Notes a process that has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            code, self._process = self._process.returncode, None
            self.died = time.monotonic()
            self._unwanted.append(Exit(self.name, code, time.monotonic(), self._last_words()))

    def _last_words(self) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-5:])


def url(brokers: Sequence[Broker]) -> str:
    """ha-brokers-url of the present members."""
    return ",".join(broker.address for broker in brokers if broker.member)
