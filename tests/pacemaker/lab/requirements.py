"""Why there can be no lab here.      Shell."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

PROGRAMS: Final = {
    "corosync": "corosync", "corosync-cmapctl": "corosync", "pacemakerd": "pacemaker", "crm_mon": "pacemaker-cli-utils",
    "cibadmin": "pacemaker-cli-utils", "ip": "iproute2", "bridge": "iproute2", "nsenter": "util-linux",
    "unshare": "util-linux", "setpriv": "util-linux", "pgrep": "procps",
}  # fmt: skip
"""What must be there, and the Debian package that brings it."""
AGENT: Final = Path("/usr/lib/ocf/resource.d/heartbeat/IPaddr2")
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
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None})
    if not AGENT.exists():
        missing.append("resource-agents")
    if missing:
        return f"the lab needs the packages {' '.join(missing)}"
    return _kernel_problem()


def _kernel_problem() -> str:
    """Tries what the lab will do: namespaces, an overlay of / on a tmpfs, a bridge and a pair of interfaces."""
    with tempfile.TemporaryDirectory(prefix="lab-trial-") as directory:
        words = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--propagation", "private"]
        done = subprocess.run([*words, "bash", "-c", TRIAL, directory], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"the kernel does not give the lab what it needs: {done.stderr.strip()}"
