"""Mounting, and changing the root: system calls that Python lacks.      Shell."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_RDONLY: Final = 1
MS_REMOUNT: Final = 32
MNT_DETACH: Final = 2
SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(kind: str, target: Path, options: str = "") -> None:
    """A new file system of this kind."""
    result = _libc.mount(kind.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(0), options.encode())
    _check(result, f"mount {kind} on {target}")


def bind(source: Path, target: Path) -> None:
    """The tree at `source`, with all that is mounted below, at `target`, too."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(MS_BIND | MS_REC), None)
    _check(result, f"bind {source} to {target}")


def read_only(target: Path) -> None:
    """The tree at `target` cannot be written in this mount namespace."""
    bind(target, target)
    flags = ctypes.c_ulong(MS_BIND | MS_REMOUNT | MS_RDONLY)
    _check(_libc.mount(None, os.fsencode(target), None, flags, None), f"remount {target}")


def unmount(target: Path) -> None:
    """Away from the names at once; really gone with the last user."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def overlay(lower: Path, directory: Path) -> Path:
    """A writable view of `lower`; what is written goes to `directory`, which must be on a tmpfs or another disk."""
    upper, work, root = (directory / name for name in ("upper", "work", "root"))
    for path in (upper, work, root):
        path.mkdir(parents=True, exist_ok=True)
    mount("overlay", root, f"lowerdir={lower},upperdir={upper},workdir={work}")
    return root


def change_root(root: Path) -> None:
    """This process and its mount namespace have `root` as their root from now on, and nothing of the former one."""
    os.chdir(root)
    # Both names may be the same: the old root is then stacked on the new one, and one unmount uncovers it.
    _check(_libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), f"pivot_root to {root}")
    _check(_libc.umount2(b".", MNT_DETACH), "unmount the old root")
    os.chdir("/")
