"""Hosts on one Ethernet: network namespaces with a veth each, joined by a bridge.  Needs root.

The bridge is in the clients' namespace; the machine's own network is not touched.  An address can be moved from one
host to another as a cluster manager does it, with a gratuitous ARP.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from typing import Final

from tests.support.system import missing

NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
SUBNET: Final = "10.78.0."
_libc = ctypes.CDLL(None, use_errno=True)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


class Host:
    """A namespace; `number` is the last part of its address."""

    def __init__(self, name: str, number: int) -> None:
        self.namespace = f"qf{os.getpid()}-{name}"
        self.address = f"{SUBNET}{number}"
        self.device = "eth0"
        _run("ip", "netns", "add", self.namespace)
        self.ip("link", "set", "lo", "up")

    def ip(self, *words: str) -> None:
        """The command `ip` inside."""
        _run("ip", "-n", self.namespace, *words)

    def command(self, *words: str) -> list[str]:
        """What starts a program inside."""
        return ["ip", "netns", "exec", self.namespace, *words]

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread opens belongs to the host, and so do threads that it starts."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)
        finally:
            os.close(home)
            os.close(there)

    def take(self, address: str) -> None:
        """Gives the host one more address and tells everybody."""
        self.ip("addr", "add", f"{address}/24", "dev", self.device)
        with self.inside(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((self.device, 0))
            mac, ip = wire.getsockname()[4], socket.inet_aton(address)
            head = b"\xff" * 6 + mac + b"\x08\x06" + b"\0\1\x08\0\6\4\0\1"
            wire.send(head + mac + ip + b"\0" * 6 + ip)

    def close(self) -> None:
        _run("ip", "netns", "del", self.namespace)


class Ethernet:
    """The clients' host and `count` others.  A context manager."""

    def __init__(self, count: int) -> None:
        self._made = contextlib.ExitStack()
        try:
            self.clients = self._host("clients", 1)
            self.clients.ip("link", "add", "eth0", "type", "bridge")
            self._up(self.clients)
            self.hosts = [self._host(f"node{number}", 10 + number) for number in range(1, count + 1)]
            for number, host in enumerate(self.hosts, 1):
                self.clients.ip("link", "add", f"p{number}", "type", "veth", "peer", "eth0", "netns", host.namespace)
                self.clients.ip("link", "set", f"p{number}", "master", "eth0", "up")
                self._up(host)
        except BaseException:
            self._made.close()
            raise

    def _host(self, name: str, number: int) -> Host:
        host = Host(name, number)
        self._made.callback(host.close)
        return host

    @staticmethod
    def _up(host: Host) -> None:
        host.ip("addr", "add", f"{host.address}/24", "dev", host.device)
        host.ip("link", "set", host.device, "up")

    def unplug(self, host: Host) -> None:
        """Nothing reaches the host any more, and nothing comes from it."""
        self.clients.ip("link", "set", f"p{self.hosts.index(host) + 1}", "down")

    def plug(self, host: Host) -> None:
        self.clients.ip("link", "set", f"p{self.hosts.index(host) + 1}", "up")

    def __enter__(self) -> Ethernet:
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()


def problem() -> str:
    """Why this cannot be had here; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if reason := missing("ip"):
        return reason
    try:
        with Ethernet(1):
            return ""
    except OSError as error:
        return str(error)
