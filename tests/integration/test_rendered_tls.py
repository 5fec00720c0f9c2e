"""Brokers that start with what `qpid-cluster render` writes for a cluster that takes only TLS."""

import subprocess
import sys
from pathlib import Path

from ha.qpid_cluster.cluster_file import parse
from ha.qpid_cluster.render.kinds import render
from tests.support import programs
from tests.support.certificates import Authority, needs_openssl
from tests.support.process import HeldPort
from tests.support.wait import wait_for
from tests.unit.ha.rendering import cluster

NODES = ("node1", "node2", "node3")


def rendered(folder: Path, options: str) -> dict[str, Path]:
    """The files of the nodes, with addresses of this machine, and the certificates of an authority of ours."""
    authority = Authority(folder / "tls")
    port = HeldPort().port
    text = cluster(3).replace("{ha-username: ha, ha-password: secret}", f"{{require-encryption: yes, {options}}}")
    files = render(parse(text.replace("port: 5672", f"port: {port}")), "systemd")
    found = {}
    for number, name in enumerate(NODES, 1):
        both = authority.certificate(f"broker{number}", f"IP:127.0.0.1{number}")
        (folder / name).mkdir()
        own = (
            files[f"qpidd-{name}.conf"]
            .replace("192.0.2.1", "127.0.0.1")
            .replace("/etc/qpid/tls/ca.pem", str(authority.file))
        )
        own = own.replace("/etc/qpid/tls/broker.crt", str(both.with_suffix(".crt")))
        own = own.replace("/etc/qpid/tls/broker.key", str(both.with_suffix(".key")))
        own = own.replace("/var/lib/qpidd", str(folder / name)).replace("user-file=", "# user-file=")
        found[name] = folder / f"{name}.conf"
        found[name].write_text(f"{own}interface=127.0.0.1{number}\n")
    return found


@needs_openssl
def test_rendered_brokers_find_each_other_over_tls(tmp_path: Path) -> None:
    files = rendered(tmp_path, "ha-username: ha, ha-password: secret")

    def qpid_ha(node: str, *words: str) -> str:
        command = [sys.executable, "-m", "ha.qpid_ha.main", *words, "--config", str(files[node])]
        return str(programs.run(command, capture_output=True, text=True, timeout=60).stdout)

    brokers = []
    try:
        for name in NODES:
            with (tmp_path / f"{name}.log").open("wb") as log:
                command = [sys.executable, "-m", "qpidd_py", "--config", str(files[name])]
                brokers.append(programs.start(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        wait_for(lambda: all(qpid_ha(name, "status") == "joining\n" for name in NODES), 60, "three brokers")
        assert qpid_ha("node1", "promote", "--cluster-manager") == ""
        wait_for(
            lambda: qpid_ha("node2", "status", "--all").count(" ready") == 2,
            60,
            lambda: qpid_ha("node2", "status", "--all"),
        )
        assert "ssl:127.0.0.11:" in qpid_ha("node3", "status", "--all")
    finally:
        for broker in brokers:
            broker.kill()
            broker.wait()
