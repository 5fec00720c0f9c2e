"""The switch between the network namespaces: one process that passes IP packets from one TUN device to another. Shell.

    python -m torture.switch ADDRESS=FD ...      the devices, already open

Commands come as JSON lines on the standard input, `{"path": [from, to], "cut": …, "delay": …, "rate": …}`; each is
answered with a line on the standard output when it is in force.  The end of the input ends the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Final

from torture.paths import Effect, Wires, addresses

PACKET: Final = 65536
BURST: Final = 64
"""Packets that are read from one device before the others have their turn."""
COMMANDS: Final = 0


class Switch:
    """The loop."""

    def __init__(self, devices: dict[str, int]) -> None:
        self._devices = devices
        self._by_device = {device: address for address, device in devices.items()}
        self._wires = Wires()
        self._poll = select.epoll()
        self._text = b""
        for device in (COMMANDS, *self._by_device):
            os.set_blocking(device, False)
            self._poll.register(device, select.EPOLLIN)

    def run(self) -> None:
        """Until the input ends."""
        while True:
            for device, _ in self._poll.poll(self._patience()):
                if device != COMMANDS:
                    self._packets(device)
                elif not self._commands():
                    return
            for path, packet in self._wires.due(time.monotonic()):
                self._deliver(path[1], packet)

    def _patience(self) -> float:
        """Seconds until a packet is due; epoll counts milliseconds."""
        due = self._wires.next_due()
        return -1 if due is None else max(0.0, due - time.monotonic())

    def _packets(self, device: int) -> None:
        now = time.monotonic()
        for _ in range(BURST):
            try:
                packet = os.read(device, PACKET)
            except BlockingIOError:
                return
            path = addresses(packet)
            if path is not None and self._wires.offer(path, packet, now):
                self._deliver(path[1], packet)

    def _deliver(self, address: str, packet: bytes) -> None:
        device = self._devices.get(address)
        if device is not None:
            with contextlib.suppress(OSError):  # a full queue of the device: a switch drops, too
                os.write(device, packet)

    def _commands(self) -> bool:
        data = os.read(COMMANDS, PACKET)
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            source, destination = command["path"]
            effect = Effect(bool(command["cut"]), float(command["delay"]), float(command["rate"]))
            self._wires.set((source, destination), effect, time.monotonic())
            sys.stdout.write("\n")
            sys.stdout.flush()
        return bool(data)


def main(argv: Sequence[str]) -> None:
    pairs = (word.partition("=") for word in argv)
    Switch({address: int(device) for address, _, device in pairs}).run()


if __name__ == "__main__":
    main(sys.argv[1:])
