"""Control groups with little memory, of version 2 or 1, for processes of a test.  Needs root."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.wait import wait_for

ROOT = Path("/sys/fs/cgroup")


def writable() -> str:
    """Why no group can be made here; empty if one can."""
    try:
        group = MemoryGroup("probe", 1 << 30)
    except OSError as error:
        return f"no control group with a limit of memory: {error}"
    group.remove()
    return ""


class MemoryGroup:
    """Raises OSError where none can be made."""

    def __init__(self, name: str, octets: int) -> None:
        version_1 = ROOT / "memory"
        parent = version_1 if version_1.is_dir() else ROOT
        limits = ["memory.limit_in_bytes"] if version_1.is_dir() else ["memory.max", "memory.swap.max"]
        self.path = parent / f"qpidd-test-{os.getpid()}-{name}"
        self.path.mkdir()
        try:
            (self.path / limits[0]).write_text(str(octets))
            for swap in limits[1:]:
                (self.path / swap).write_text("0")
        except OSError:
            self.remove()
            raise

    def inside(self, command: list[str]) -> list[str]:
        """The command, in this group from its first moment."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh", *command]

    def remove(self) -> None:
        """When its processes have ended."""

        def removed() -> bool:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return True
            except OSError:
                return False
            return True

        wait_for(removed, 10, lambda: f"{self.path} is empty")
