"""The package on a machine: unpacked, set up, used as an administrator uses it."""

import json
import re

from tests.packaging.machine import Machine
from tests.support.system import needs

UNITS = ("qpidd.service", "qpidd-primary.service", "qpid-cluster.service", "qpidd@blue.service")

START = """
/usr/share/qpidd/post-install
runuser -u qpidd -- /usr/bin/qpidd --daemon --wait 20
"""
MEASURE = """
import json, resource, subprocess
used = []
for _ in range(9):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["/usr/bin/qpid-ha", "ping"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
print(json.dumps(sorted(used)))
"""


def test_programs_run_in_their_final_place(machine: Machine) -> None:
    programs = (
        "qpid-ha help",
        *(f"{name} --help" for name in ("qpid-config", "qpid-cluster", "qpid-send", "qpid-receive", "failover-report")),
    )
    said = machine.run(f"qpidd --version; {'; '.join(programs)}")
    assert said.startswith("qpidd-py 0.")
    assert "usage: qpid-ha <command>" in said
    assert "usage: qpid-send [-b URL]" in said and "usage: qpid-receive [-b URL]" in said
    assert "usage: failover-report [-h] [--version] VERB" in said


def test_report_without_its_engines_says_what_is_missing(machine: Machine) -> None:
    """They are half a gigabyte that a broker's machine does not need; what only reads documents works without."""
    said = machine.run("failover-report report /etc -o /tmp/out --engine duckdb 2>&1 || echo $?")
    assert "DuckDB is not installed" in said and "make install EXTRAS=client,spark" in said and said.endswith("2\n")


def test_user_directories_and_owners(machine: Machine) -> None:
    said = machine.run(
        """
        /usr/share/qpidd/post-install
        /usr/share/qpidd/post-install
        stat -c '%n %U:%G %a' /run/qpidd /var/lib/qpidd /var/log/qpidd /etc/qpid/qpidd.conf
        getent passwd qpidd
        groupadd --force haclient
        /usr/share/qpidd/post-install
        id -nG qpidd
        """
    )
    *modes, account, groups = said.splitlines()
    assert modes == [
        "/run/qpidd qpidd:qpidd 750",
        "/var/lib/qpidd qpidd:qpidd 750",
        "/var/log/qpidd qpidd:qpidd 750",
        "/etc/qpid/qpidd.conf root:qpidd 640",
    ]
    assert account.endswith(":/var/lib/qpidd:/usr/sbin/nologin")
    assert groups.split() == ["qpidd", "haclient"]


def test_user_is_made_without_systemd_too(machine: Machine) -> None:
    said = machine.run("rm -f $(type -P systemd-sysusers); /usr/share/qpidd/post-install; id -nu qpidd")
    assert said.strip() == "qpidd"


def test_wrong_python_is_said_clearly(machine: Machine) -> None:
    said = machine.run("ln -sfn /bin/false /usr/lib/qpidd/bin/python3; ! /usr/share/qpidd/post-install 2>&1")
    assert "does not run here. It was built for 3." in said


def test_broker_of_the_default_configuration(machine: Machine) -> None:
    """Runs as its user, is reached from this machine only, answers, logs where logrotate looks, and stops."""
    said = machine.run(
        START
        + """
        qpid-ha status
        qpid-config add queue orders
        qpid-send -a orders --content-string sent
        qpid-receive -a orders
        stat -c '%U' /proc/$(qpidd --check --config /etc/qpid/qpidd.conf)
        ls /var/lib/qpidd/lock /var/log/qpidd/qpidd.log
        grep -c 'Broker running on 127.0.0.1:5672' /var/log/qpidd/qpidd.log
        qpidd --quit
        """
    )
    assert said.split() == ["standalone", "sent", "qpidd", "/var/lib/qpidd/lock", "/var/log/qpidd/qpidd.log", "1"]


def test_processor_time_of_a_ping(machine: Machine) -> None:
    """Resource agents call it all the time: about 30 ms here, 55 ms from a virtual environment for development."""
    said = machine.run(f"{START}\n/usr/bin/python3 - <<'END'\n{MEASURE}\nEND\nqpidd --quit")
    used = json.loads(said.splitlines()[-1])
    assert used[0] < 0.1, used


@needs("logrotate")
def test_rotation_loses_no_line(machine: Machine) -> None:
    """Sessions are logged while the files are rotated three times; every one of them is in some file."""
    said = machine.run(
        "echo 'log-enable=info+' >>/etc/qpid/qpidd.conf"
        + START
        + """
        (for ((i = 0; ; i++)); do [ -e /tmp/rotated ] && break; qpid-ha ping; done; echo "$i pings" >/tmp/pings) &
        pings=$!  # not %1, which bash forgets when the job has ended
        for ((i = 1; i <= 3; i++)); do
            until (($(wc -l </var/log/qpidd/qpidd.log) >= 20)); do read -t 0.05 <> <(:) || true; done
            logrotate --force --state /tmp/state /etc/logrotate.d/qpidd
            until [ -e /var/log/qpidd/qpidd.log ]; do read -t 0.05 <> <(:) || true; done
        done
        touch /tmp/rotated
        wait "$pings"
        qpidd --quit
        cat /tmp/pings
        ls /var/log/qpidd
        zcat --force /var/log/qpidd/* | grep -o '<Connection [0-9]*.*user guest'
        """
    )
    assert {"qpidd.log", "qpidd.log.1", "qpidd.log.2.gz", "qpidd.log.3.gz"} <= set(said.split())
    (pings,) = re.findall(r"^(\d+) pings", said, re.MULTILINE)
    assert int(pings) > 20
    assert {int(number) for number in re.findall(r"<Connection (\d+)", said)} == set(range(1, int(pings) + 1))


@needs("systemd-analyze")
def test_units_are_valid(machine: Machine) -> None:
    """Unknown keys, missing programs, impossible orders: all are warnings of this tool."""
    said = machine.run(
        f"""
        /usr/share/qpidd/post-install
        cd /usr/lib/systemd/system
        systemd-analyze verify --man=no {" ".join(UNITS)} 2>&1 | grep -i qpid || true
        """
    )
    assert said == ""


@needs("systemd-analyze")
def test_check_of_units_finds_what_is_wrong(machine: Machine) -> None:
    said = machine.run(
        """
        cd /usr/lib/systemd/system
        sed -i 's/^WatchdogSec=/WatchDogSeconds=/; s|^ExecStart=/usr/bin/qpidd|ExecStart=/usr/bin/qpiddd|' qpidd.service
        systemd-analyze verify --man=no qpidd.service 2>&1 | grep -i qpid || true
        """
    )
    assert "WatchDogSeconds" in said
    assert "qpiddd" in said


@needs("systemd-tmpfiles")
def test_tmpfiles_makes_what_post_install_makes(machine: Machine) -> None:
    said = machine.run(
        """
        /usr/share/qpidd/post-install
        rmdir /run/qpidd /var/lib/qpidd /var/log/qpidd
        systemd-tmpfiles --create /usr/lib/tmpfiles.d/qpidd.conf
        stat -c '%U:%G %a' /run/qpidd /var/lib/qpidd /var/log/qpidd | sort -u
        """
    )
    assert said.strip() == "qpidd:qpidd 750"
