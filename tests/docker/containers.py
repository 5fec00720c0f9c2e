"""A cluster of broker containers on a network of its own, through the `docker` package.

Addresses are fixed, so that a container that was cut off comes back where its peers and clients look for it.  The
clients are on this machine and speak to those addresses: no ports are published.
"""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound

from tests.support.wait import wait_for

NAMES = ("node1", "node2", "node3")
START_TIME = 60.0  # seconds; three engines' worth of containers on two cores
LOGIN = ("qpid-ha", "secret")


class Containers:
    """Three brokers; removed with their network and volumes when the block ends, whatever has happened."""

    def __init__(self, engine: docker.DockerClient, image: str, **options: str) -> None:
        """`options` are options of the broker, with underscores: ha_safety="manager"."""
        self._engine, self._image = engine, image
        self._prefix = f"qpidd-test-{random.randrange(1 << 32):08x}"
        self._settings = {
            "ha_cluster": "yes",
            "ha_brokers_url": ",".join(f"{name}:5672" for name in NAMES),
            "ha_replicate": "all",
            "ha_safety": "quorum",
            "ha_username": LOGIN[0],
            "ha_password": LOGIN[1],
            **options,
        }
        self._network: Any = None
        self._containers: dict[str, Any] = {}
        self.addresses: dict[str, str] = {}

    def __enter__(self) -> Containers:
        try:
            self._network, subnet = self._make_network()
            for number, name in enumerate(NAMES, 11):
                self.addresses[name] = f"{subnet}.{number}"
                self._containers[name] = self._make(name)
            for container in self._containers.values():
                container.start()
            for name in NAMES:
                self.wait_state(name, "joining")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            print(self.logs())
        self.close()

    def close(self) -> None:
        for container in self._containers.values():
            container.remove(force=True, v=True)
        self._containers.clear()
        if self._network is not None:
            self._network.remove()
            self._network = None

    def _make_network(self) -> tuple[Any, str]:
        """A bridge and the first three parts of its addresses, which are not used elsewhere."""
        for _ in range(20):
            subnet = f"10.{random.randrange(100, 250)}.{random.randrange(256)}"
            pools = [docker.types.IPAMPool(subnet=f"{subnet}.0/24", gateway=f"{subnet}.1")]
            try:
                ipam = docker.types.IPAMConfig(pool_configs=pools)
                return self._engine.networks.create(self._prefix, driver="bridge", ipam=ipam), subnet
            except APIError as error:
                refused = error
        raise AssertionError(f"no network: {refused}")

    def _make(self, name: str) -> Any:
        environment = {f"QPID_{key.upper()}": value for key, value in self._settings.items()}
        endpoint = self._engine.api.create_endpoint_config(ipv4_address=self.addresses[name], aliases=[name])
        return self._engine.containers.create(
            self._image,
            name=f"{self._prefix}-{name}",
            hostname=name,
            environment={**environment, "QPID_BROKER_NAME": name},
            network=self._network.name,
            networking_config={self._network.name: endpoint},
        )

    # ---- what is done to them

    def signal(self, name: str, signal: str = "SIGKILL") -> None:
        """From outside: inside, the kernel protects the first process of a container."""
        self._containers[name].kill(signal)

    def start(self, name: str) -> None:
        self._containers[name].start()

    def stop(self, name: str) -> int:
        """With SIGTERM; the exit code."""
        self._containers[name].stop(timeout=20)
        return int(self._containers[name].wait()["StatusCode"])

    def cut(self, name: str) -> None:
        self._network.disconnect(self._containers[name])

    def heal(self, name: str) -> None:
        self._network.connect(self._containers[name], ipv4_address=self.addresses[name], aliases=[name])

    # ---- what is asked

    def run(self, name: str, *words: str) -> tuple[int, str]:
        """Exit code and output of a program inside."""
        code, output = self._containers[name].exec_run(list(words))
        return int(code), output.decode(errors="replace")

    def state(self, name: str) -> str:
        """As `qpid-ha status` says it inside, also when it cannot be reached from outside; or why it does not."""
        return self.run(name, "qpid-ha", "status", "--timeout", "3")[1].strip()

    def health(self, name: str) -> str:
        container = self._containers[name]
        container.reload()
        return str(container.attrs["State"].get("Health", {}).get("Status", "none"))

    def wait_health(self, name: str, wanted: str) -> None:
        wait_for(lambda: self.health(name) == wanted, START_TIME, lambda: f"{name}: {self.health(name)}", poll=0.1)

    def wait_state(self, name: str, wanted: str) -> None:
        wait_for(lambda: self.state(name) == wanted, START_TIME, lambda: f"{name}: {self.state(name)}", poll=0.1)

    def promote(self, name: str) -> None:
        """As a person does it by hand; a survey may still find that a majority is not back."""

        def promoted() -> bool:
            self.said = self.run(name, "qpid-ha", "promote", "--cluster-manager")
            return self.said[0] == 0

        wait_for(promoted, START_TIME, lambda: f"promotion of {name}: {self.said}", poll=0.1)

    @property
    def url(self) -> str:
        return ",".join(f"{LOGIN[0]}/{LOGIN[1]}@{address}:5672" for address in self.addresses.values())

    def logs(self) -> str:
        found = []
        for name, container in self._containers.items():
            try:
                found.append(f"---- log of {name} ----\n{container.logs().decode(errors='replace')}")
            except NotFound:
                found.append(f"---- {name} is gone ----")
        return "\n".join(found)


def engine_or_reason() -> tuple[docker.DockerClient | None, str]:
    """A client of the engine that DOCKER_HOST names (or the usual socket), else why there is none."""
    try:
        engine = docker.from_env()
        engine.ping()
    except (DockerException, OSError) as error:
        return None, f"no Docker engine answers: {error}"
    return engine, ""
