"""The units under a real systemd, which is the first process of a machine in namespaces."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.packaging.machine import Machine
from tests.support.system import needs

pytestmark = needs("systemctl", "systemd-analyze")


UNITS = Path(__file__).resolve().parents[2] / "packaging/systemd"


def test_instances_differ_in_names_and_paths_only() -> None:
    """systemd has no way to say "as that other unit"."""

    def lines(name: str) -> list[str]:
        text = (UNITS / name).read_text()
        return text[text.index("[Unit]") :].splitlines()

    one, many = lines("qpidd.service"), lines("qpidd@.service")
    assert len(one) == len(many)
    differing = {line.partition("=")[0] for line, other in zip(one, many, strict=True) if line != other}
    commands = {"ExecStart", "ExecStartPre", "ExecStop"}
    assert differing == {"Description", "Environment", "RuntimeDirectory", "StateDirectory", *commands}


def exposure(unit: Path) -> float:
    """0 (nothing to take) to 10, as systemd judges the unit."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"exposure level for \S+: ([\d.]+)", said.stdout)
    assert found, said.stdout + said.stderr
    return float(found[1])


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: str(unit.name))
def test_units_give_away_little(unit: Path) -> None:
    assert exposure(unit) <= 2.5
    text = unit.read_text()
    assert "\nUser=qpidd\n" in text and "\nCapabilityBoundingSet=\n" in text and "\nNoNewPrivileges=yes\n" in text


def test_a_unit_without_a_sandbox_is_noticed(tmp_path: Path) -> None:
    open_unit = tmp_path / "open.service"
    text = (UNITS / "qpidd.service").read_text()
    open_unit.write_text(text.partition("NoNewPrivileges=")[0])
    assert exposure(open_unit) > 5


@pytest.fixture
def bootable(machine: Machine) -> Machine:
    try:
        machine.boot("true")
    except (OSError, AssertionError) as error:
        pytest.skip(f"no systemd can be the first process of a namespace here: {error}")
    return machine


FUNCTIONS = """
/usr/share/qpidd/post-install
pid() { systemctl show --property MainPID --value $1; }
until_is() { # TEXT COMMAND...
    local wanted=$1
    shift
    until [ "$("$@" 2>&1)" = "$wanted" ]; do read -t 0.05 <> <(:) || true; done
}
"""


def test_starts_restarts_and_stops(bootable: Machine) -> None:
    """Type=notify: `start` returns when the broker answers. A killed one and a frozen one come back by themselves."""
    said = bootable.boot(
        FUNCTIONS
        + """
        mkdir -p /etc/systemd/system/qpidd.service.d
        printf '[Service]\\nWatchdogSec=1\\n' >/etc/systemd/system/qpidd.service.d/test.conf
        systemctl daemon-reload
        systemctl start qpidd
        qpid-ha ping && echo answers
        stat --format %U /proc/$(pid qpidd)
        for signal in KILL STOP; do
            kill -$signal $(pid qpidd)
            until_is standalone qpid-ha status
            until_is active systemctl is-active qpidd
        done
        systemctl show --property NRestarts qpidd
        systemctl stop qpidd
        systemctl show --property Result --property ExecMainStatus qpidd
        """
    )
    assert said.split() == ["answers", "qpidd", "NRestarts=2", "Result=success", "ExecMainStatus=0"]


CLUSTER = """
for name in a:5701 b:5702; do
    cat >/etc/qpid/${name%:*}.conf <<END
port=${name#*:}
broker-name=${name%:*}
ha-cluster=yes
ha-brokers-url=127.0.0.1:5701,127.0.0.1:5702
ha-replicate=all
ha-safety=manager
ha-registry=none
log-to-file=/var/log/qpidd/${name%:*}.log
END
    systemctl start qpidd@${name%:*}
done
qpid-ha promote --cluster-manager -b 127.0.0.1:5701
until_is ready qpid-ha status -b 127.0.0.1:5702
"""


def test_several_on_one_machine_say_their_state(bootable: Machine) -> None:
    said = bootable.boot(
        FUNCTIONS
        + CLUSTER
        + """
        until_is active qpid-ha status -b 127.0.0.1:5701
        systemctl status --no-pager qpidd@a | grep Status:
        systemctl status --no-pager qpidd@b | grep Status:
        """
    )
    first, second = said.splitlines()
    assert "active: primary" in first
    assert "ready: backup" in second


def test_stop_that_would_lose_messages_is_obeyed_at_the_second_request(bootable: Machine) -> None:
    """systemd takes no refusal, and would kill in the end: so the reason is written down, and the stop is in order."""
    said = bootable.boot(
        FUNCTIONS
        + CLUSTER
        + """
        qpid-config add queue orders -b 127.0.0.1:5701
        systemctl stop qpidd@b
        systemctl stop qpidd@a
        systemctl show --property Result --property ExecMainStatus qpidd@a
        grep --count 'SIGTERM is refused: a is primary, and no backup is in sync' /var/log/qpidd/a.log
        """
    )
    assert said.split() == ["Result=success", "ExecMainStatus=0", "1"]


def test_primary_unit_promotes_and_demotes(bootable: Machine) -> None:
    said = bootable.boot(
        FUNCTIONS
        + """
        printf 'ha-cluster=yes\\nha-brokers-url=127.0.0.1:5672\\n' >>/etc/qpid/qpidd.conf
        printf 'ha-safety=manager\\nha-registry=none\\n' >>/etc/qpid/qpidd.conf
        systemctl start qpidd-primary
        until_is active qpid-ha status
        systemctl stop qpidd-primary
        until_is joining qpid-ha status
        systemctl start qpidd-primary
        kill -KILL $(pid qpidd)
        until_is inactive systemctl is-active qpidd-primary
        echo gone
        """
    )
    assert said.strip() == "gone"


def test_cluster_of_one_machine_runs_in_its_sandbox(bootable: Machine) -> None:
    """The supervisor starts, kills and watches its brokers."""
    said = bootable.boot(
        FUNCTIONS
        + """
        cat >/etc/qpid/cluster.yaml <<END
directory: /var/lib/qpidd/cluster
nodes: [{name: a, port: 5701}, {name: b, port: 5702}]
options: {ha-replicate: all, ha-username: ha, ha-password: secret}
END
        systemctl start qpid-cluster
        cluster() { runuser -u qpidd -- qpid-cluster --config /etc/qpid/cluster.yaml "$@"; }
        until cluster status 2>&1 | grep -q ' ready '; do read -t 0.05 <> <(:) || true; done
        cluster kill a
        until cluster status 2>&1 | grep -q '^b .* active '; do read -t 0.05 <> <(:) || true; done
        echo taken over
        systemctl stop qpid-cluster
        systemctl show --property Result qpid-cluster
        """
    )
    assert said.splitlines() == ["taken over", "Result=success"]
