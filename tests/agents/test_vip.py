"""The agent of the virtual IP, in a network of its own: what it does, says and sends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.test_ocf_contract import DTD, SCHEMA
from tests.support.system import missing, needs
from tests.support.wait import wait_for

SCRIPT = Path(__file__).resolve().parents[2] / "resource_agents" / "ocf" / "vip"
SUCCESS, GENERIC, ARGS, UNIMPLEMENTED, CONFIGURED, NOT_RUNNING = 0, 1, 2, 3, 6, 7
FOUR, SIX = "10.9.9.10", "fd00:9::10"
NETWORK = """
ip link add eth0 type veth peer name peer
ip link set lo up; ip link set eth0 up; ip link set peer up
ip addr add 10.9.9.1/24 dev eth0
ip -6 addr add fd00:9::1/64 dev eth0 nodad
echo ready; exec sleep infinity
"""
LISTEN = """
import socket, sys, time
kind, address = int(sys.argv[1], 16), bytes.fromhex(sys.argv[2])
ears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
ears.bind(("peer", 0))
ears.settimeout(30)
print("listens", flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    frame = ears.recv(2048)
    if int.from_bytes(frame[12:14], "big") == kind and address in frame[14:]:
        print("heard", flush=True)
        break
"""
"""For a frame of that kind with that address."""


class Network:
    """A node with an interface, and what is at its other end."""

    def __init__(self, directory: Path) -> None:
        words = ["unshare", "--net", *(() if os.geteuid() == 0 else ("--map-root-user",)), "sh", "-c", NETWORK]
        self.init = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.init.stdout is not None and self.init.stdout.readline() == "ready\n"
        self.directory = directory
        self.parameters = {"ip": FOUR, "cidr_netmask": "24", "nic": "eth0"}

    def words(self, *words: str) -> list[str]:
        user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        return ["nsenter", "--target", str(self.init.pid), "--net", *user, *words]

    def run(self, *words: str) -> str:
        return subprocess.run(self.words(*words), capture_output=True, text=True, check=True).stdout

    def __call__(self, action: str) -> tuple[int, str]:
        """Exit code and reason."""
        values = {f"OCF_RESKEY_{name}": value for name, value in self.parameters.items()}
        environment = {"HA_RSCTMP": str(self.directory), "OCF_RESOURCE_INSTANCE": "vip", **values}
        done = subprocess.run(
            self.words(str(SCRIPT), action), env=environment, capture_output=True, text=True, timeout=60
        )  # fmt: skip
        return done.returncode, done.stderr.removeprefix("ocf-exit-reason:").strip()

    @property
    def addresses(self) -> str:
        return self.run("ip", "-o", "addr", "show", "dev", "eth0")

    @property
    def announcer(self) -> str:
        """Process number; empty if there is none."""
        file = self.directory / "vip-vip.pid"
        pid = file.read_text().strip() if file.exists() else ""
        return pid if pid and Path(f"/proc/{pid}").exists() else ""

    def close(self) -> None:
        self.init.kill()
        self.init.communicate()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    if reason := missing("ip") or missing("unshare"):
        pytest.skip(reason)
    made = Network(tmp_path)
    yield made
    made("stop")
    made.close()


def test_the_whole_life(network: Network) -> None:
    assert network("monitor") == (NOT_RUNNING, "")
    assert network("stop") == (SUCCESS, "")
    for _ in range(2):
        assert network("start") == (SUCCESS, "")
        assert network("monitor") == (SUCCESS, "")
        assert f"{FOUR}/24 brd 10.9.9.255" in network.addresses
    for _ in range(2):
        assert network("stop") == (SUCCESS, "")
        assert network("monitor") == (NOT_RUNNING, "")
    assert "10.9.9.1/24" in network.addresses, "the others stay"


@pytest.mark.parametrize(("address", "mask"), [(FOUR, "24"), (SIX, "64")])
def test_neighbours_are_told_at_once(network: Network, address: str, mask: str) -> None:
    network.parameters |= {"ip": address, "cidr_netmask": mask}
    kind, wanted = ("0806", bytes([10, 9, 9, 10]).hex()) if address == FOUR else ("86dd", "20000000fd000009")
    command = network.words(sys.executable, "-c", LISTEN, kind, wanted)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ears:
        assert ears.stdout is not None and ears.stdout.readline() == "listens\n"
        assert network("start") == (SUCCESS, "")
        assert ears.stdout.readline() == "heard\n"
    assert network("monitor") == (SUCCESS, "")
    assert network("stop") == (SUCCESS, "")
    assert address not in network.addresses


def test_a_stop_ends_the_announcement(network: Network) -> None:
    """Otherwise the neighbours would come back to a node that no longer has the address."""
    assert network("start") == (SUCCESS, "")
    assert network.announcer
    assert network("stop") == (SUCCESS, "")
    wait_for(lambda: not network.announcer, what="the end of the announcement")
    pid_file = network.directory / "vip-vip.pid"
    pid_file.write_text(f"{os.getpid()}\n")
    assert network("stop") == (SUCCESS, ""), "a number that another process has by now is left alone"


def test_without_an_interface_the_one_of_the_network_is_taken(network: Network) -> None:
    network.parameters["nic"] = ""
    assert network("start") == (SUCCESS, "")
    assert FOUR in network.addresses and network("monitor") == (SUCCESS, "")


@pytest.mark.parametrize("address", ["192.0.2.1", "fd00:8::1"])
def test_an_address_of_no_network_is_not_started(network: Network, address: str) -> None:
    network.parameters |= {"ip": address, "nic": ""}
    code, reason = network("start")
    assert (code, "no interface in the network of" in reason) == (GENERIC, True), reason


def test_a_stop_takes_away_what_is_there(network: Network) -> None:
    """The parameters may have changed since the start."""
    assert network("start") == (SUCCESS, "")
    network.parameters |= {"cidr_netmask": "nonsense", "nic": "eth7"}
    assert network("stop") == (SUCCESS, "")
    assert FOUR not in network.addresses


def test_on_another_interface_it_has_failed(network: Network) -> None:
    network.run("ip", "addr", "add", f"{FOUR}/24", "dev", "peer")
    for action in ("start", "monitor"):
        assert network(action) == (GENERIC, f"{FOUR} is on peer, wanted on eth0")
    assert network("stop") == (SUCCESS, "") and network("monitor") == (NOT_RUNNING, "")


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"ip": ""}, CONFIGURED),
        ({"ip": "10.9.9.10; reboot"}, CONFIGURED),
        ({"cidr_netmask": "255.255.255.0"}, CONFIGURED),
        ({"cidr_netmask": "33"}, CONFIGURED),
        ({"cidr_netmask": "0"}, CONFIGURED),
        ({"nic": "-x"}, CONFIGURED),
        ({"ip": "10.9.9.999"}, GENERIC),
        ({"nic": "eth7"}, GENERIC),
    ],
)
def test_wrong_parameters(network: Network, parameters: dict[str, str], code: int) -> None:
    network.parameters |= parameters
    found, reason = network("start")
    assert found == code and reason
    assert network("validate-all")[0] == (code if code == CONFIGURED else SUCCESS)
    assert network("stop") == (SUCCESS, ""), "a failed stop would have the node fenced"


def test_an_interface_that_is_gone(network: Network) -> None:
    assert network("start") == (SUCCESS, "")
    network.run("ip", "link", "del", "eth0")
    assert network("monitor") == (NOT_RUNNING, "")
    assert network("stop") == (SUCCESS, "")


def test_wrong_usage(network: Network) -> None:
    assert network("promote")[0] == UNIMPLEMENTED


@needs("xmllint", str(DTD), SCHEMA)
def test_metadata(tmp_path: Path) -> None:
    file = tmp_path / "metadata.xml"
    file.write_text(subprocess.run([SCRIPT, "meta-data"], capture_output=True, text=True, check=True).stdout)
    for options in (["--valid"], ["--relaxng", SCHEMA]):
        command = ["xmllint", "--noout", "--nonet", "--path", str(DTD.parent), *options, str(file)]
        subprocess.run(command, check=True)


@needs("shellcheck")
def test_shellcheck() -> None:
    subprocess.run(["shellcheck", "-s", "sh", str(SCRIPT)], check=True)
