"""The memory of this process, and how much it may take.                                                       Shell."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def available(of_process: Path = Path("/proc/self/cgroup"), cgroups: Path = CGROUPS) -> int:
    """Octets that this process may have: the least of the machine's memory, its cgroups' limits and `ulimit -v`."""
    limits = [os.sysconf("SC_PHYS_PAGES") * resource.getpagesize(), *_of_cgroups(of_process, cgroups)]
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(limits if address_space == resource.RLIM_INFINITY else [*limits, address_space])


def _of_cgroups(of_process: Path, cgroups: Path) -> Iterator[int]:
    """The limits of our control group and of all above it, in version 2 and 1."""
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            folder = cgroups / controllers / path.lstrip("/")
            for above in (folder, *folder.parents):
                if above.is_relative_to(cgroups):
                    yield from _limit(above / name)


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return
    if text.isdigit():
        yield int(text)


def resident() -> Callable[[], int]:
    """Measures the resident memory of this process, in octets, in some microseconds."""
    page = resource.getpagesize()
    file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    return lambda: int(os.pread(file, 64, 0).split()[1]) * page
