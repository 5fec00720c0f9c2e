"""A cluster of real brokers that a test steers with the management requests and with `qpid-ha`."""

import sys
from pathlib import Path
from typing import Any

from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from tests.support import programs
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

TIME = 60.0  # seconds; far beyond what anything here takes


class Members:
    """A cluster; the first broker becomes primary."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        names: str = "abc",
        login: str = "",
        process: type[BrokerProcess] = BrokerProcess,
    ) -> None:
        """`login`: USER/PASSWORD of the tool, and of the brokers among themselves."""
        self._login = login or "guest/guest"
        if login:
            user, _, password = login.partition("/")
            options = (*options, "--ha-username", user, "--ha-password", password)
        self._directory, self._options = directory, options
        self.brokers = {name: process(directory, name=name) for name in names}
        self.url = ",".join(broker.address for broker in self.brokers.values())
        for broker in self.brokers.values():
            self.configure(broker)

    def configure(self, broker: BrokerProcess) -> None:
        broker.options = [
            *("--ha-cluster", "yes", "--ha-brokers-url", self.url),
            *(() if "--ha-replicate" in self._options else ("--ha-replicate", "all")),
            *("--ha-slow-backup-latency", "0"),
            *self._options,
        ]

    def add(self, name: str) -> BrokerProcess:
        """One that the others were not told of; it knows all."""
        broker = self.brokers[name] = BrokerProcess(self._directory, name=name)
        self.url = f"{self.url},{broker.address}"
        self.configure(broker)
        return broker.start()

    def up(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        first = next(iter(self.brokers))
        self.tool("promote", "--cluster-manager", name=first)
        self.settled(first)

    def promote_newest(self, *names: str, behind: bool = False) -> str:
        """As a manager does: asks one after the other until one accepts; who is behind refuses and names the better.
        `behind`: another one may hold more, which was not confirmed."""
        refusals: list[str] = []

        def accepted() -> str:
            for name in names:
                try:
                    self.ask(name, "ha.promote", behind=behind)
                    return name
                except RequestRefused as error:
                    refusals.append(str(error))
            return ""

        return wait_for(accepted, TIME, lambda: f"a promotion: {refusals[-len(names) :]}")

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()

    def ask(self, name: str, method: str, **arguments: Any) -> Any:
        with ManagementSocket(Target("127.0.0.1", self.brokers[name].port), Deadline(TIME)) as connection:
            return connection.request(method, arguments)

    def states(self) -> dict[str, str]:
        """Of those that run."""
        running = [name for name, broker in self.brokers.items() if broker.running]
        return {name: self.ask(name, "ha.status")["state"] for name in running}

    def settled(self, primary: str) -> None:
        """`primary` is active, everybody else who runs is ready."""

        def found() -> bool:
            states = self.states()
            return states == {name: "active" if name == primary else "ready" for name in states}

        wait_for(found, TIME, lambda: f"{primary} active, the others ready: {self.states()}")

    def level(self) -> None:
        """Those that run are at one position: each of them may be promoted.  (No client changes anything.)"""

        def positions() -> set[int]:
            return {self.ask(name, "ha.query")["position"] for name, broker in self.brokers.items() if broker.running}

        wait_for(lambda: len(positions()) == 1, TIME, lambda: f"one position: {positions()}")

    def caught_up(self, name: str, primary: str) -> None:
        """It has what the primary has now, whatever clients go on to do."""
        wanted = self.ask(primary, "ha.query")["position"]
        wait_for(lambda: self.ask(name, "ha.query")["position"] >= wanted, TIME, f"{name} comes to {wanted}")

    def tool(self, *words: str, name: str = "a", code: int = 0, login: str = "") -> str:
        """What `qpid-ha` prints, with the cluster's login or another one."""
        url = f"{login or self._login}@{self.brokers[name].address}"
        command = [sys.executable, "-m", "ha.qpid_ha.main", *words, "-b", url]
        done = programs.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done
        return str(done.stdout)
