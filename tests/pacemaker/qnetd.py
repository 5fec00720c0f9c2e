"""corosync-qnetd next to the clients, and the certificates that it and the nodes need, as the README says. Shell.

`corosync-qdevice-net-certutil -Q` does the same over ssh.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.pacemaker.cluster import Cluster
from tests.support.wait import wait_for

PRIVATE: Final = """
set -e
mount -t tmpfs none /etc/corosync
mkdir -p /etc/corosync/qnetd /run/corosync-qnetd
mount -t tmpfs none /run/corosync-qnetd
corosync-qnetd-certutil -i
touch "$0/ready"
exec corosync-qnetd -f -4 -l "$1" -s req
"""
"""In a mount namespace of its own: nothing of the machine is touched."""
DATABASE: Final = "/etc/corosync/qdevice/net/nssdb"
TIME: Final = 60.0


@contextmanager
def serving(cluster: Cluster, address: str, directory: Path) -> Iterator[None]:
    """qnetd runs, and all nodes have its vote."""
    script = ("unshare", "--mount", "--propagation", "private", "bash", "-c", PRIVATE, str(directory), address)
    with open(directory / "qnetd.log", "wb") as log:
        server = cluster.lab.clients.popen(*script, stdout=log, stderr=log)
    try:
        wait_for((directory / "ready").exists, TIME, lambda: (directory / "qnetd.log").read_text())
        _introduce(cluster, server.pid, directory)
        cluster.wait_for(lambda: all(_voted(cluster, node.name) for node in cluster.lab.nodes), TIME, "its vote")
        yield
    finally:
        server.kill()
        server.wait()


def _introduce(cluster: Cluster, server: int, directory: Path) -> None:
    first, *others = cluster.lab.nodes
    authority = _read(server, "qnetd-cacert.crt")
    for node in cluster.lab.nodes:
        node.path("/etc/corosync/ca.crt").write_bytes(authority)
        node.run("corosync-qdevice-net-certutil", "-i", "-c", "/etc/corosync/ca.crt", check=True)
    first.run("corosync-qdevice-net-certutil", "-r", "-n", "lab", check=True)
    (directory / "node.crq").write_bytes(first.path(f"{DATABASE}/qdevice-net-node.crq").read_bytes())
    sign = ("corosync-qnetd-certutil", "-s", "-c", str(directory / "node.crq"), "-n", "lab")
    done = subprocess.run(["nsenter", "-t", str(server), "-m", *sign], capture_output=True, text=True, timeout=TIME)
    assert done.returncode == 0, done.stdout + done.stderr
    signed = _read(server, "cluster-lab.crt")
    first.path("/etc/corosync/signed.crt").write_bytes(signed)
    first.run("corosync-qdevice-net-certutil", "-M", "-c", "/etc/corosync/signed.crt", check=True)
    key = first.path(f"{DATABASE}/qdevice-net-node.p12").read_bytes()
    for node in others:
        node.path("/etc/corosync/node.p12").write_bytes(key)
        node.run("corosync-qdevice-net-certutil", "-m", "-c", "/etc/corosync/node.p12", check=True)
    for node in cluster.lab.nodes:
        node.run("corosync-qdevice", check=True)


def _voted(cluster: Cluster, name: str) -> bool:
    return "Total votes:      3" in cluster.node(name).run("corosync-quorumtool", "-s").stdout


def _read(server: int, name: str) -> bytes:
    return Path(f"/proc/{server}/root/etc/corosync/qnetd/nssdb", name).read_bytes()
