"""Names, addresses and paths of a lab.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUBNET: Final = "10.77.0."
PREFIX: Final = 24
CLIENTS_ADDRESS: Final = SUBNET + "1"
VIRTUAL_ADDRESS: Final = SUBNET + "100"
BRIDGE: Final = "br0"
PROJECT: Final = Path(__file__).resolve().parents[3]
PROVISION: Final = PROJECT / "vagrant" / "provision"

NODE_CONTROL: Final = Path("/run/lab")
"""Where a node sees the lab's control directory: the power unit's socket, the configuration."""


def node_names(count: int) -> list[str]:
    """node1, node2, ..."""
    return [f"node{number}" for number in range(1, count + 1)]


def node_address(name: str) -> str:
    """10.77.0.11 for node1."""
    return f"{SUBNET}{10 + int(name.removeprefix('node'))}"


def port_name(name: str) -> str:
    """The switch's end of a node's cable."""
    return f"p-{name}"


@dataclass(frozen=True)
class Layout:
    """Where things are.  `tmpfs` is private to the supervisor's mount namespace, the rest is for everybody."""

    directory: Path

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def control(self) -> Path:
        """Is `/run/lab` in the nodes."""
        return self.directory / "control"

    @property
    def power_socket(self) -> Path:
        return self.control / "power.sock"

    @property
    def config(self) -> Path:
        """The cluster's configuration as the provisioning scripts want it."""
        return self.control / "config"

    @property
    def supervisor_log(self) -> Path:
        return self.directory / "supervisor.log"

    @property
    def power_log(self) -> Path:
        """Time stamp in seconds of the epoch, and what was asked of the power unit and the switch."""
        return self.directory / "power.log"

    def console(self, name: str) -> Path:
        """What a node said before it had a log of its own."""
        return self.directory / f"{name}.console"

    @property
    def tmpfs(self) -> Path:
        return self.directory / "disks"

    def root(self, name: str) -> Path:
        """The file system of a node, mounted while the lab lives, whether the node is on or off."""
        return self.tmpfs / name / "root"
