"""Process 1 of a node: file systems, network, first-boot provisioning, services; then it reaps orphans.      Shell.

Started by the supervisor in new pid, mount, uts, ipc and net namespaces, with a `Boot` as JSON in the first argument.
It prints its process id as the machine sees it, waits for a line (the cable is in), prints `up` when commands can be
run in the node, and only then provisions and starts the services, with `/var/log/boot.log` as output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tests.pacemaker.lab.mounts import bind, change_root, mount, read_only
from tests.pacemaker.lab.names import NODE_CONTROL

PROVISIONED: Final = Path("/var/lib/lab-provisioned")
BOOT_LOG: Final = Path("/var/log/boot.log")
FAILED: Final = "-- ended with"
"""So begins the last line of the boot log when a script has failed."""
PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Boot:
    """What a node is told by the supervisor."""

    name: str
    address: str
    """With prefix length."""
    root: str
    control: str
    binds: list[str] = field(default_factory=list)
    """Trees that the overlay does not show, because they are other file systems."""
    first: list[str] = field(default_factory=list)
    """Scripts of the first boot only."""
    always: list[str] = field(default_factory=list)
    """Scripts of every boot, after those."""
    environment: dict[str, str] = field(default_factory=dict)
    watchdog: bool = False
    """The node has one, and programs that reset nodes."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def file_systems(boot: Boot) -> None:
    """Everything is mounted below the new root, then that becomes the root."""
    root = Path(boot.root)
    bind(Path("/dev"), root / "dev")
    mount("tmpfs", root / "dev/shm", "mode=1777")
    for tree in boot.binds:
        (root / tree.lstrip("/")).mkdir(parents=True, exist_ok=True)
        bind(Path(tree), root / tree.lstrip("/"))
    mount("tmpfs", root / "run", "mode=755")
    control = root / str(NODE_CONTROL).lstrip("/")
    control.mkdir()
    bind(Path(boot.control), control)
    mount("proc", root / "proc")
    mount("sysfs", root / "sys")
    change_root(root)


def identity(name: str) -> None:
    """The host name, and the directories in /run that systemd-tmpfiles would make."""
    Path("/proc/sys/kernel/hostname").write_text(name)
    Path("/etc/hostname").write_text(name + "\n")
    for directory, mode in (("lock", 0o1777), ("lock/subsys", 0o755), ("resource-agents", 0o1755), ("corosync", 0o755)):
        path = Path("/run") / directory
        path.mkdir()
        path.chmod(mode)


def harmless() -> None:
    """Nothing in the node can reset the machine below it; `files/harmless` proves that before sbd is started.

    No sysrq, no watchdog of the machine, no settings of its kernel."""
    read_only(Path("/proc/sys/kernel"))
    plain = Path("/run/covered")
    plain.mkdir()
    for path in (Path("/proc/sysrq-trigger"), Path("/proc/sys/kernel/sysrq"), *Path("/dev").glob("watchdog*")):
        if path.exists():
            (plain / path.name).touch()
            bind(plain / path.name, path)
    Path("/run/watchdog").touch()


def network(address: str) -> None:
    for words in (
        ("link", "set", "lo", "up"),
        ("addr", "add", address, "dev", "eth0"),
        ("link", "set", "eth0", "up"),
    ):
        subprocess.run(["ip", *words], check=True)


def services(boot: Boot) -> None:
    """Runs the scripts one after the other; the first that fails ends it, as `set -e` would."""
    scripts = boot.always if PROVISIONED.exists() else [*boot.first, *boot.always]
    environment = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **boot.environment}
    for script in scripts:
        print(f"-- {script}", flush=True)
        code = subprocess.run(["bash", script], env=environment, stdin=subprocess.DEVNULL).returncode
        if code != 0:
            print(f"{FAILED} {code}", flush=True)
            return
    PROVISIONED.touch()


def reap() -> None:
    """For ever.  A service that died does not end the node."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


def main() -> None:
    # /proc is still the machine's, so this is our process id as the machine sees it.
    print(os.readlink("/proc/self"), flush=True)
    boot = Boot(**json.loads(sys.argv[1]))
    if not sys.stdin.readline():
        return
    file_systems(boot)
    identity(boot.name)
    if boot.watchdog:
        harmless()
    network(boot.address)
    print("up", flush=True)
    log = os.open(BOOT_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    if os.fork() == 0:
        services(boot)
        os._exit(0)
    reap()


if __name__ == "__main__":
    main()
