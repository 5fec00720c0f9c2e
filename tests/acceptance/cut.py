"""A cluster of real brokers of which one can be cut off from the others, while clients still reach all of them.

Each broker is known to the others by the address of a fault proxy: its own port, on an address of the loopback network
not used elsewhere.  Clients connect to the broker itself.  Needs no root: whose connection a proxy has accepted is
told by the kernel's list of sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.support.fault_proxy import FaultProxy
from tests.support.fault_streams import Pair
from tests.support.wait import wait_for

DIVIDED = "127.0.1.{}"
"""Where the proxies listen."""
READINGS = 5
OPTIONS = {
    "ha-safety": "quorum",
    "link-heartbeat-interval": "0.5",
    "link-maintenance-interval": "0.3",  # each connection is looked up in /proc, which takes milliseconds
    "ha-backup-timeout": "1",
}


class Wire(FaultProxy):
    """The way to one broker.  It can be shut for connections from some of the others."""

    def __init__(self, member: Member, number: int, refused: Callable[[int, int], bool]) -> None:
        """`refused(client's port, our port)`: are connections from there swallowed?"""
        super().__init__(member.port, at=(DIVIDED.format(number), member.port))
        self._refused = refused

    def divide(self) -> None:
        """What is under way and refused is lost from now on; no reset tells so."""
        self._do(self._divide())

    async def _divide(self) -> None:
        await asyncio.gather(*self._connecting)  # they were let in before the cut
        for pair in list(self._pairs):
            if self._refused(*self._ends(pair)):
                for stream in pair.streams.values():
                    stream.vanishing = True

    def join(self) -> None:
        """Connections that were swallowed end: both sides connect anew."""
        self._do(self._end_swallowed())

    async def _end_swallowed(self) -> None:
        for pair in list(self._pairs):
            if any(stream.vanishing for stream in pair.streams.values()):
                pair.end(reset=True)
        for client in self._idle:
            client.close()
        self._idle.clear()

    async def _connect(self, client: socket.socket) -> None:
        try:
            refused = self._refused(client.getpeername()[1], self.port)
        except OSError:  # it has ended meanwhile
            client.close()
            return
        if refused:
            self._idle.append(client)
        else:
            await super()._connect(client)

    def _ends(self, pair: Pair) -> tuple[int, int]:
        return pair.client_port, self.port


class DivisibleCluster(Cluster):
    """Three brokers in `quorum`; `cut_off` one of them, and `heal`."""

    def __init__(self, directory: Path, **options: str) -> None:
        self._stack = contextlib.ExitStack()
        self._wires: list[Wire] = []
        self._alone: Member | None = None
        super().__init__(directory, 3, **OPTIONS | options)

    @property
    def url(self) -> str:
        if not self._wires:
            self._wires = [Wire(member, number, self._divided) for number, member in enumerate(self.members, 1)]
        return ",".join(wire.address for wire in self._wires)

    def __enter__(self) -> DivisibleCluster:
        for wire in self._wires:
            self._stack.enter_context(wire)
        self.start()
        return self

    def close(self) -> None:
        self._stack.close()
        super().close()

    def wire(self, member: Member) -> Wire:
        """The way by which the other brokers reach it."""
        return self._wires[self.members.index(member)]

    def cut_off(self, member: Member) -> None:
        """Nothing passes between it and the other brokers, from now on; no connection is reset."""
        self._alone = member
        for wire in self._wires:
            wire.divide()

    def heal(self) -> None:
        if self._alone is not None:
            self._alone = None
            for wire in self._wires:
                wire.join()

    def await_stall(self, member: Member) -> None:
        """The primary knows that it is cut off: its confirms wait for brokers that it has lost."""
        wait_for(lambda: (member.ask("ha.query")["stalled"] or {}).get("why", "").startswith("lost"), what="a stall")

    def promote_other(self, member: Member, kill: bool) -> Member:
        """The one that was cut off is killed or lives on; another one is promoted, confirms, and is returned.

        Any: links that break again and again, as from one test to the next, cost a backup its place in the set."""
        if kill:
            member.kill()
        new = first_promotable([other for other in self.members if other is not member])
        new.wait_status("active")
        return new

    def _divided(self, client_port: int, server_port: int) -> bool:
        """Does a connection to that wire lead across the cut?"""
        alone = self._alone
        if alone is None:
            return False
        return (server_port == alone.port) != owns(alone, client_port, server_port)


def owns(member: Member, local: int, remote: int) -> bool:
    """Is the socket with these ports one of this process?"""
    wanted = f"socket:[{_inode(local, remote)}]"
    folder = f"/proc/{member.pid}/fd"
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"{folder}/{name}") == wanted:
                    return True
    return False


def _inode(local: int, remote: int) -> str:
    """Of the TCP socket with these ports; "" if there is none.

    The list is read in parts: when sockets come and go meanwhile, a part may lack one that is there all the time."""
    for _ in range(READINGS):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if (_port(words[1]), _port(words[2])) == (local, remote) and words[9] != "0":  # that of a closed one
                return words[9]
    return ""


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
