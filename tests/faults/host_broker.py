"""A member of a cluster on a host of its own, which is a network namespace."""

import subprocess
import sys
from pathlib import Path

from tests.faults.namespaces import Host
from tests.support.process import BrokerProcess

PORT = 5672


class HostBroker(BrokerProcess):
    """`peers` as in `ha-brokers-url`."""

    def __init__(self, host: Host, directory: Path, peers: str, *options: str) -> None:
        common = ("--ha-cluster", "yes", "--ha-brokers-url", peers, "--ha-replicate", "all", "--auth", "no")
        super().__init__(directory, *common, *options, name=host.namespace, port=PORT)
        self.host = host

    def command(self) -> list[str]:
        return self.host.command(*[word if word != "127.0.0.1" else "0.0.0.0" for word in super().command()])

    def ask(self, *words: str) -> str:
        """qpid-ha, on this host; what it prints."""
        program = [sys.executable, "-m", "ha.qpid_ha.main", *words, "-b", f"127.0.0.1:{PORT}"]
        done = subprocess.run(self.host.command(*program), capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    @property
    def status(self) -> str:
        return self.ask("status").strip()
