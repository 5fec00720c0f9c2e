"""`make deb`: installed, upgraded while a broker runs, removed and purged, in a Debian that debootstrap has made."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, make
from tests.support.system import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), needs("debootstrap", "dh", "dpkg-buildpackage", "unshare")]
NAMES = ("qpidd", "qpidd-agents", "qpidd-client", "qpidd-report")
ENTER = """
set -e
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --bind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/run"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive
exec chroot "$0" sh -c "$1"
"""
LIFE = """
set -eu
agent() {
    env OCF_ROOT=/usr/lib/ocf OCF_RESOURCE_INSTANCE=qpidd HA_RSCTMP=/run OCF_RESKEY_config=/etc/qpid/qpidd.conf \\
        OCF_RESKEY_CRM_meta_timeout=60000 /usr/lib/ocf/resource.d/qpid/qpidd "$1" 2>>/agent.log
}
apt-get update -qq
apt-get install -y -qq --no-install-recommends procps /debs/1/*.deb
echo "heartbeat=7" >>/etc/qpid/qpidd.conf
qpid-send --help >/dev/null
failover-report --help >/dev/null
agent start
before=$(head -n 1 /var/lib/qpidd/lock)
( while [ ! -e /done ]; do agent monitor && echo $? >>/monitors || echo $? >>/monitors; done ) &
apt-get install -y -qq --no-install-recommends /debs/2/*.deb
touch /done
wait
echo "monitors $(sort /monitors | uniq -c | tr -s ' \\n' ' ')"
echo "same $([ "$before" = "$(head -n 1 /var/lib/qpidd/lock)" ] && echo yes)"
echo "configuration $(tail -n 1 /etc/qpid/qpidd.conf)"
echo "agents $(ls -d /usr/lib/ocf/lib/qpid/agent-* | wc -l)"
agent stop
agent start
agent stop
apt-get purge -y -qq qpidd qpidd-agents qpidd-client qpidd-report
echo "left $(find / -xdev -name '*qpid*' ! -path '/debs*' ! -path '/var/log/apt*' | sort | tr '\\n' ' ')"
"""


@pytest.fixture(scope="module")
def debs() -> list[Path]:
    found = [ROOT / line for line in make("deb").split() if line.endswith(".deb")]
    assert sorted(path.name.split("_")[0] for path in found) == sorted(NAMES)
    return found


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root")
    root = tmp_path / "root"
    mirror = os.environ.get("MIRROR", "http://deb.debian.org/debian")
    words = ["debootstrap", "--variant=minbase", "--include=python3", "bookworm", str(root), mirror]
    done = subprocess.run(["unshare", "--mount", *words], capture_output=True, text=True, timeout=900)
    if done.returncode:
        pytest.skip(f"debootstrap cannot make a system here: {done.stdout[-300:]}{done.stderr[-300:]}")
    shutil.copy("/etc/resolv.conf", root / "etc")
    yield root
    shutil.rmtree(root, ignore_errors=True)


def newer(deb: Path, target: Path, work: Path) -> None:
    """The same package as the next version, with another agent."""
    subprocess.run(["dpkg-deb", "-R", str(deb), str(work)], check=True)
    control = work / "DEBIAN" / "control"
    control.write_text(re.sub(r"(\d+\.\d+\.\d+)-1\b", r"\1-2", control.read_text()))
    for agent in work.glob("usr/share/qpidd-agents/ocf/lib/qpid/agent-*"):
        agent.rename(agent.with_name("agent-000000000000"))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(work), str(target)], check=True, capture_output=True)


def run(root: Path, script: str) -> str:
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"]
    done = subprocess.run([*words, "bash", "-c", ENTER, str(root), script], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_installed_upgraded_and_purged(debs: list[Path], system: Path, tmp_path: Path) -> None:
    for version in ("1", "2"):
        (system / "debs" / version).mkdir(parents=True)
    for deb in debs:
        shutil.copy(deb, system / "debs/1")
        newer(deb, system / "debs/2", tmp_path / deb.stem)
    said = {key: value.strip() for key, _, value in (line.partition(" ") for line in run(system, LIFE).splitlines())}
    assert re.fullmatch(r"\d+ 0 ?", said["monitors"]), f"each succeeds while packages change: {said}"
    assert (said["same"], said["configuration"]) == ("yes", "heartbeat=7")
    assert said["agents"] == "2", "the one before stays for monitors that run"
    assert said["left"].split() == []


@needs("lintian")
def test_lintian_finds_no_error(debs: list[Path]) -> None:
    done = subprocess.run(["lintian", "--fail-on", "error", *map(str, debs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
