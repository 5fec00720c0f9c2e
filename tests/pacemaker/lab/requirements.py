"""Why there can be no lab here.      Shell."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support import system

PROGRAMS: Final = (
    "corosync", "corosync-cmapctl", "pacemakerd", "crm_mon", "cibadmin", "ip", "bridge", "nsenter", "unshare",
    "setpriv", "pgrep",
)  # fmt: skip
"""What must be there."""
AGENT_FILE: Final = "/usr/lib/ocf/resource.d/heartbeat/IPaddr2"
AGENT: Final = Path(AGENT_FILE)
TRIAL: Final = """
set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" overlay "$0/root"
ip link add br0 type bridge
ip link add p1 type veth peer name p2
"""


@functools.cache
def problem() -> str:
    """Empty when a lab can be made here; else one line for the reason of a skipped test."""
    if os.geteuid() != 0:
        return "the lab needs root"
    lacking = [program for program in PROGRAMS if system.which(program, system.WITH_SBIN) is None]
    missing = sorted({system.package(program) for program in lacking})
    if not AGENT.exists():
        missing.append(system.package(AGENT_FILE))
    if missing:
        return f"the lab needs the packages {' '.join(missing)}"
    return _kernel_problem()


def _kernel_problem() -> str:
    """Tries what the lab will do: namespaces, an overlay of / on a tmpfs, a bridge and a pair of interfaces."""
    with tempfile.TemporaryDirectory(prefix="lab-trial-") as directory:
        words = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--propagation", "private"]
        done = subprocess.run([*words, "bash", "-c", TRIAL, directory], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"the kernel does not give the lab what it needs: {done.stderr.strip()}"
