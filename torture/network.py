"""Hosts in network namespaces of their own, joined by a switch that can cut, delay and slow each direction.      Shell.

A host is a namespace with one TUN device.  Everything that real hosts do happens: a host without a broker refuses the
connection, a cut host is silent, TCP repeats what was lost on the way.  Needs root for the namespaces and
`/dev/net/tun`; the machine's own network is not touched, and nothing outlives this process: the namespaces go with
their descriptors.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from testkit.rules import RECEIVE_BUFFER, SEND_BUFFER
from torture.paths import CLEAR, Effect, Path, combined

NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
TUNSETIFF: Final = 0x400454CA
TUN_WITHOUT_HEADER: Final = 0x1001  # IFF_TUN | IFF_NO_PI
DEVICE: Final = "tun0"
MTU: Final = 16000
"""Octets; bigger packets are fewer packets, and the switch is Python."""
SUBNET: Final = "10.77.0."

_libc = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """The namespaces cannot be made here; says why."""


def _check(result: int, what: str) -> None:
    if result != 0:
        raise NetworkError(f"{what}: {os.strerror(ctypes.get_errno())}")


class Host:
    """One namespace, with its address."""

    def __init__(self, number: int) -> None:
        self.address = f"{SUBNET}{number}"
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.unshare(NEW_NETWORK), "a network namespace")
            self._namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.device = self._open_device()
            finally:
                _check(_libc.setns(home, NEW_NETWORK), "back to the own namespace")
        finally:
            os.close(home)

    def _open_device(self) -> int:
        try:
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), TUN_WITHOUT_HEADER))
        except OSError as error:
            raise NetworkError(f"/dev/net/tun: {error.strerror}") from None
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{self.address}/24", "dev", DEVICE),
            ("link", "set", DEVICE, "mtu", str(MTU), "up"),
        ):
            done = subprocess.run(["ip", *words], capture_output=True, text=True)
            if done.returncode:
                raise NetworkError(f"ip {' '.join(words)}: {done.stderr.strip()}")
        _limit("tcp_wmem", SEND_BUFFER)
        _limit("tcp_rmem", RECEIVE_BUFFER)
        return device

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread opens and starts in here belongs to the host."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(self._namespace, NEW_NETWORK), f"the namespace of {self.address}")
            try:
                yield
            finally:
                _check(_libc.setns(home, NEW_NETWORK), "back to the own namespace")
        finally:
            os.close(home)

    def close(self) -> None:
        os.close(self.device)
        os.close(self._namespace)


def _limit(name: str, octets: int) -> None:
    """Of this thread's namespace."""
    with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
        file.write(f"4096 16384 {octets}")


class Network:
    """All hosts and the switch between them."""

    def __init__(self, hosts: int) -> None:
        """Hosts are numbered from 1.  Raises NetworkError."""
        self.hosts = [Host(number) for number in range(1, hosts + 1)]
        devices = [host.device for host in self.hosts]
        words = [f"{host.address}={host.device}" for host in self.hosts]
        self._switch = subprocess.Popen(
            [sys.executable, "-m", "torture.switch", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=devices, start_new_session=True,
        )  # fmt: skip
        self._effects: dict[Path, list[Effect]] = {}

    def lay(self, path: Path, effect: Effect) -> None:
        """In force when this returns; to be taken away by `lift` with the same arguments."""
        self._effects.setdefault(path, []).append(effect)
        self._tell(path)

    def lift(self, path: Path, effect: Effect) -> None:
        self._effects[path].remove(effect)
        self._tell(path)

    def effect(self, source: str, destination: str) -> Effect:
        """What lies on a path now."""
        return combined(self._effects.get((source, destination), ()))

    def connected(self, one: str, other: str) -> bool:
        """No direction between them is cut."""
        return one == other or not (self.effect(one, other).cut or self.effect(other, one).cut)

    def disturbed(self, address: str) -> bool:
        """True if there is an effect on a path from or to this address."""
        return any(address in path and combined(effects) != CLEAR for path, effects in self._effects.items())

    def _tell(self, path: Path) -> None:
        assert self._switch.stdin is not None and self._switch.stdout is not None
        command = {"path": list(path), **self.effect(*path).to_json()}
        try:
            self._switch.stdin.write(json.dumps(command).encode() + b"\n")
            self._switch.stdin.flush()
        except BrokenPipeError:
            raise NetworkError("the switch has ended") from None
        if not self._switch.stdout.readline():
            raise NetworkError("the switch has ended")

    def close(self) -> None:
        assert self._switch.stdin is not None
        self._switch.stdin.close()
        try:
            self._switch.wait(5.0)
        except subprocess.TimeoutExpired:
            self._switch.kill()
            self._switch.wait()
        for host in self.hosts:
            host.close()


def problem() -> str:
    """Why namespaces cannot be made here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        Host(1).close()
    except (NetworkError, OSError) as error:
        return str(error)
    return ""
