"""Everybody logs in at once: what a primary has to bear after a fail-over.

`python -m benchmarks.storm PORT CONNECTIONS USERS` is everybody: it prints the seconds until the last connection was
open, and how many broke and were made again.  At most AT_ONCE are under way.
"""

from __future__ import annotations

import re
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import pamqp.commands as commands

from benchmarks.cliffs import Client, probe, quantiles
from benchmarks.processes import BenchmarkError, wait_until
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.samples import Key, Sample
from qpidd_py.amqp.codec import encode_method
from qpidd_py.security.users import hash_password

CONNECTIONS: Final = 30_000
USERS: Final = 200
AT_ONCE: Final = 500
PER_ADDRESS: Final = 1000
"""Connections from one address: it has 28,000 ports, and the system searches long for one of the last free ones."""
TIME: Final = 60.0
HEADER: Final = b"AMQP\0\0\x09\x01"


def start_ok(user: str, password: str) -> bytes:
    return encode_method(0, commands.Connection.StartOk({}, "PLAIN", f"\0{user}\0{password}", "en_US"))


class Everybody:
    """Connections that log in and stay, as many as there are descriptors; then the oldest ones go."""

    def __init__(self, port: int, users: int) -> None:
        self._port = port
        self._words = [start_ok(f"user{number}", f"user{number}") for number in range(users)]
        self._open = encode_method(0, commands.Connection.TuneOk(0, 131072, 0)) + encode_method(
            0, commands.Connection.Open()
        )
        self._selector = selectors.EpollSelector()
        self._begun = 0
        self.done = self.broken = 0
        self._kept: deque[socket.socket] = deque()
        self._room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    def run(self, count: int) -> float:
        """Seconds until all are open."""
        begin = time.monotonic()
        while self.done < count:
            while self._begun < count and self._begun - self.done < AT_ONCE:
                self._connect()
            for key, _ in self._selector.select(1.0):
                self._go_on(key.fileobj, *key.data)
            if time.monotonic() - begin > TIME:
                raise BenchmarkError(f"{self.done} of {count} connections are open after {TIME:g} s")
        return time.monotonic() - begin

    def _connect(self) -> None:
        sock = socket.socket()
        sock.bind((f"127.0.1.{1 + self._begun // PER_ADDRESS}", 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", self._port))
        self._selector.register(sock, selectors.EVENT_WRITE, (0, self._begun % len(self._words)))
        self._begun += 1

    def _go_on(self, sock: Any, step: int, user: int) -> None:
        """It is connected, or a frame has come: connection.start, tune, or open-ok."""
        try:
            if step and not sock.recv(4096):
                raise ConnectionError("closed")
            if step < 3:
                sock.sendall((HEADER, self._words[user], self._open)[step])
        except OSError:
            self.broken += 1
            self._begun -= 1
            self._selector.unregister(sock)
            sock.close()
            return
        if step == 3:
            self._selector.unregister(sock)
            self._kept.append(sock)
            if len(self._kept) > self._room:
                self._kept.popleft().close()
            self.done += 1
        else:
            self._selector.modify(sock, selectors.EVENT_READ, (step + 1, user))


def user_file(file: Path, users: int) -> None:
    """The passwords are the names."""
    names = ["guest", *(f"user{number}" for number in range(users))]
    file.write_text("".join(f"{name}: {hash_password(name)}\n" for name in names))


def storm(connections: int = CONNECTIONS, users: int = USERS) -> list[Sample]:
    """Three brokers; the users were seen by the first primary, then it dies."""
    cluster = QpiddCluster(3, options=["--log-enable", "notice+", "--log-enable", "debug+:ha"])
    try:
        user_file(cluster.base / "users.yaml", users)
        cluster.options += ["--user-file", str(cluster.base / "users.yaml")]
        cluster.start()
        Client(cluster.ports[0])  # guest, who logs in again to watch
        Everybody(cluster.ports[0], users).run(users)
        wait_until(
            lambda: min(learned(cluster, 1), learned(cluster, 2)) > users, 5 * TIME, "backups know the passwords"
        )
        cluster.fail_over()
        return [Sample(Key(3, "storm", connections), cluster.name, _measured(cluster, connections, users))]
    finally:
        cluster.stop()


def learned(cluster: QpiddCluster, number: int) -> int:
    """Of how many users a backup knows the passwords."""
    log = (cluster.base / f"node{number}" / "log").read_text()
    return sum(map(int, re.findall(r"learned which passwords are right: of (\d+) users", log)))


def _measured(cluster: QpiddCluster, connections: int, users: int) -> dict[str, float]:
    port = cluster.ports[cluster.serving]
    Client(port)
    command = [sys.executable, "-m", "benchmarks.storm", str(port), str(connections), str(users)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        found: list[float] = []
        watcher = threading.Thread(target=lambda: found.extend(_probe_until(process, port)))
        watcher.start()
        assert process.stdout is not None
        words = process.stdout.read().split()
        watcher.join()
    if process.returncode or len(words) != 2:
        raise BenchmarkError(f"the storm has ended with {process.returncode}")
    log = (cluster.base / f"node{cluster.serving}" / "log").read_text()
    late = sum(log.count(word) for word in ("silent for", "did not run"))
    return {"seconds": float(words[0]), "broken": float(words[1]), "late_heartbeats": late, **quantiles(found, "ms")}


def _probe_until(process: subprocess.Popen[str], port: int) -> list[float]:
    found: list[float] = []
    while process.poll() is None:
        found += probe(port, 1.0)
    return found


if __name__ == "__main__":
    crowd = Everybody(int(sys.argv[1]), int(sys.argv[3]))
    print(crowd.run(int(sys.argv[2])), crowd.broken)
