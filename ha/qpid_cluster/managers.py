"""Cluster managers as `rolling.py` uses them: Pacemaker, rgmanager, and the supervisor of one machine.        Shell."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from ha.qpid_cluster.control import ControlError, request
from ha.qpid_cluster.rolling import RollingError, Wait

POLL: Final = 0.1
"""Seconds between two looks at the brokers."""
PATIENCE: Final = "5"
"""Seconds for the answer of one broker."""


def waiting(limit: float) -> Wait:
    """`limit`: seconds for each step."""

    def wait(condition: Callable[[], bool], what: str) -> None:
        unmet = retry_if_result(lambda met: not met)
        try:
            Retrying(retry=unmet, stop=stop_after_delay(limit), wait=wait_fixed(POLL))(condition)
        except RetryError:
            raise RollingError(f"{what} after {limit:g} s") from None

    return wait


class Brokers:
    """All members of the cluster, as they are listed at the beginning.  Each is named after its node."""

    def __init__(self, options: Sequence[str]) -> None:
        """`options`: of `qpid-ha`, for address and login.  Raises RollingError for members that do not answer."""
        self._config = [*options[options.index("--config") :][:2]] if "--config" in options else []
        answers = json.loads(run("qpid-ha", "query", "--all", "--json", "--timeout", PATIENCE, *options))
        silent = [f"{one['address']}: {one['error']}" for one in answers if "error" in one]
        if silent:
            raise RollingError(f"{', '.join(silent)}; wanted the answer of every broker")
        addresses = str(answers[0]["brokers_url"]).split(",")
        self._addresses = {str(one["name"]): address for one, address in zip(answers, addresses, strict=True)}
        if len(self._addresses) < len(answers):
            raise RollingError("two brokers have the same name, wanted that of its node for each (broker-name)")

    def states(self) -> Mapping[str, str]:
        return {name: self._state(address) for name, address in self._addresses.items()}

    def _state(self, address: str) -> str:
        try:
            return run("qpid-ha", "status", "--timeout", PATIENCE, "--broker", address, *self._config).strip()
        except RollingError:
            return ""


class Pacemaker(Brokers):
    """A ban stops the broker of a node, and nothing else there."""

    def __init__(self, options: Sequence[str], resource: str) -> None:
        """`resource`: the clone.  Raises RollingError, too, for one with bans or moves: `--clear` would remove them."""
        self._resource = resource
        constraints = ElementTree.fromstring(run("cibadmin", "--query", "--scope", "constraints"))
        locations = constraints.iterfind(f"rsc_location[@rsc='{resource}']")
        if found := [name for one in locations if (name := one.get("id", "")).startswith("cli-")]:
            raise RollingError(
                f"found {', '.join(found)}; wanted none, since the restart bans and moves by itself "
                f"(crm_resource --clear --resource {resource} removes them)"
            )
        super().__init__(options)

    def stop(self, node: str) -> None:
        self._run("--ban", "--node", node)

    def start(self, node: str) -> None:
        self._run("--clear", "--node", node)

    def move(self, node: str) -> None:
        self._run("--move", "--promoted", "--node", node)

    def moved(self) -> None:
        self._run("--clear")

    def _run(self, *words: str) -> None:
        run("crm_resource", *words, "--resource", self._resource)


class Rgmanager(Brokers):
    """Services are named as in the rendered cluster.conf."""

    def stop(self, node: str) -> None:
        run("clusvcadm", "-d", f"{node}-qpidd-service")

    def start(self, node: str) -> None:
        run("clusvcadm", "-e", f"{node}-qpidd-service", "-m", node)

    def move(self, node: str) -> None:
        run("clusvcadm", "-r", "qpidd-primary-service", "-m", node)

    def moved(self) -> None:
        pass


class Local:
    """The supervisor of one machine."""

    def __init__(self, control: Path) -> None:
        self._control = control

    def states(self) -> Mapping[str, str]:
        nodes = request(self._control, "status")["nodes"]
        return {node["name"]: node["state"] if node["process"] == "up" and node["state"] else "" for node in nodes}

    def stop(self, node: str) -> None:
        request(self._control, "stop", node=node)

    def start(self, node: str) -> None:
        try:
            request(self._control, "start", node=node)
        except ControlError as error:
            if "runs already" not in str(error):  # it has not stopped
                raise

    def move(self, node: str) -> None:
        request(self._control, "promote", timeout=15.0, node=node, within=10.0)

    def moved(self) -> None:
        pass


def run(*words: str) -> str:
    """The output.  Raises RollingError with what the program has said."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RollingError(f"{words[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise RollingError(f"{' '.join(words)}: exit code {done.returncode}: {said}")
    return done.stdout
