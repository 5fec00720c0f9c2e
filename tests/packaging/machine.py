"""A machine to install on, which is this one seen through an overlay: what is written stays in memory and is gone with
the namespaces.  Needs root, overlayfs, `unshare` and `chroot`.
"""

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.wait import wait_for

# The new root is made inside the new mount namespace, so that nothing has to be taken away afterwards.
MAKE = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs {place}
mkdir {place}/upper {place}/work {place}/root
mount -t overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work overlay {place}/root
mount --rbind /dev {place}/root/dev
mount -t proc proc {place}/root/proc
mount -t tmpfs -o mode=1777 tmpfs {place}/root/tmp
mount -t tmpfs -o mode=0755 tmpfs {place}/root/run
ip link set lo up
"""
# Its own systemd is the first process, with nothing to start but the script; what it must not touch is read-only.
BOOT = """
cd {place}/root
mount --rbind /sys sys
mount --make-rslave sys
for hierarchy in sys/fs/cgroup/systemd sys/fs/cgroup; do
    if [ -e $hierarchy/cgroup.procs ]; then
        type=$(stat -f -c %T $hierarchy)
        umount -l $hierarchy
        if [ $type = cgroup2fs ]; then mount -t cgroup2 cgroup2 $hierarchy
        else mount -t cgroup -o none,name=systemd cgroup $hierarchy; fi
        break
    fi
done
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -o remount,bind,ro sys
rm -rf etc/systemd/system/* {wanted}
mkdir -p mnt result
mount --bind {result} mnt
cat >usr/lib/systemd/system/test.target <<'END'
[Unit]
Wants=test.service
END
cat >usr/lib/systemd/system/test.service <<'END'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
StandardOutput=file:/mnt/output
StandardError=file:/mnt/errors
ExecStart=/bin/bash /mnt/script
ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS >/mnt/code; systemctl --force --force poweroff'
END
pivot_root . result
umount -l /result
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=test.target
"""
# Of the machine that we look through: its services, devices, file systems.
WANTED = "usr/lib/systemd/system/{sysinit,basic,local-fs,sockets,timers,multi-user,graphical}.target.wants/*"
SEPARATE = ("--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid")
NAMESPACES = (*SEPARATE, "--propagation", "private", "--fork", "--kill-child=KILL")


class Machine:
    """Each call of `run` is a machine of its own, just set up, with the package unpacked."""

    def __init__(self, place: Path, package: Path) -> None:
        """`place`: an empty directory to mount on."""
        self._place, self._package = place, package

    def run(self, script: str, timeout: float = 60.0) -> str:
        """What the script (of bash, ended by its first failure) prints; everything that it started is gone then."""
        inside = shlex.join(["/bin/bash", "-c", f"set -euo pipefail\n{script}"])
        done = self._call(f"exec chroot {shlex.quote(str(self._place))}/root {inside}", timeout)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def boot(self, script: str, timeout: float = 90.0) -> str:
        """The same, started by a systemd of its own."""
        result = self._place.with_name("result")
        result.mkdir(exist_ok=True)
        for name in ("code", "output", "errors"):
            (result / name).unlink(missing_ok=True)
        (result / "script").write_text(f"set -euo pipefail\nexport HOME=/root\n{script}")
        boot = BOOT.replace("{place}", str(self._place)).replace("{result}", str(result)).replace("{wanted}", WANTED)
        with cgroup(self._place.parent.name) as enter:
            done = self._call(boot, timeout, enter)
        found = {name: (result / name).read_text() for name in ("code", "output", "errors") if (result / name).exists()}
        assert found.get("code", "").strip() == "0", f"{found}\n{done.stdout}\n{done.stderr}"
        return found["output"]

    def _call(self, last: str, timeout: float, first: str = "") -> "subprocess.CompletedProcess[str]":
        place = shlex.quote(str(self._place))
        steps = [MAKE.format(place=place), f"tar -xzf {shlex.quote(str(self._package))} -C {place}/root", last]
        inside = shlex.join(["unshare", *NAMESPACES, "bash", "-c", "\n".join(steps)])
        command = ["bash", "-c", f"{first}\nexec {inside}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def why_not(self) -> str:
        """Why there can be no such machine here; empty: it works."""
        command = ["unshare", *NAMESPACES, "bash", "-c", MAKE.format(place=shlex.quote(str(self._place)))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except FileNotFoundError as error:
            return str(error)
        return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[str]:
    """A control group of its own for a systemd; what a shell has to do to enter it.  Removed with those below it."""
    named = Path("/sys/fs/cgroup/systemd")
    group = (named if named.exists() else Path("/sys/fs/cgroup")) / f"qpidd-{os.getpid()}-{name}"
    group.mkdir()
    try:
        yield f"echo $$ >{shlex.quote(str(group))}/cgroup.procs"
    finally:
        below = [path for path in group.rglob("*") if path.is_dir()]
        for path in [*sorted(below, key=lambda path: -len(path.parts)), group]:
            wait_for(lambda path=path: removed(path), 60, f"end of {path}")  # type: ignore[misc]


def removed(group: Path) -> bool:
    """A group is busy until the kernel has buried its last process."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True
