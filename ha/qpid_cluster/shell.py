"""The shell of the local supervisor: processes, admin connections, the control socket and the clock.

`supervisor.py` makes all decisions; this module executes its effects and feeds it events.  One asyncio loop, one
thread.

Files in the cluster's directory: `supervisor.log` (each decision with its reason), `NODE.conf` (a broker's options),
`NODE.log` (its output), `NODE/` (its data directory), `control.sock` (one JSON object a line, each answered by one),
`supervisor.lock`, and `events/` (the decisions as JSON lines; those of the brokers are in `NODE/events/`).
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ha.dial import Dial, client_tls, why
from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec
from ha.qpid_cluster.control import ControlError, listen, supervisor_lock
from ha.qpid_cluster.events import SupervisorEvents
from ha.qpid_cluster.processes import Processes, broker_command, is_free, resident_octets, with_port, write_config
from ha.qpid_cluster.supervision import (
    Ask,
    Effect,
    ManagedBroker,
    Note,
    Process,
    Promote,
    Refused,
    Relocate,
    Report,
    Signal,
    Start,
)
from ha.qpid_cluster.supervisor import Supervisor
from ha.shell.management_link import End, ManagementLink, Reply
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.amqp.management_client import Answer
from qpidd_py.errors import ConfigError

HISTORY = 500  # notes kept for the command `history`
TICK = 0.02  # seconds between two checks of the deadlines
RECONNECT = 0.03  # seconds between two attempts to open an admin connection to a broker that does not listen yet
RECONNECT_LIMIT = 1.0  # the same, growing, to one that refuses us
PORT_WAIT = 2.0  # seconds for the ports of the brokers to become free
CONNECT_TIMEOUT = 2.0  # seconds; for a hung broker the kernel accepts the connection, but there is no handshake


class ClusterShell:
    """Runs one cluster until it is told to go down."""

    def __init__(self, spec: ClusterSpec, echo: TextIO | None = None) -> None:
        self._ports = contextlib.ExitStack()
        nodes = tuple(with_port(node, self._ports) for node in spec.nodes)
        self.spec = replace(spec, nodes=nodes, directory=spec.directory.resolve())
        self.core = Supervisor([node.name for node in spec.nodes], spec.watch)
        self._echo = echo
        self._links: dict[str, ManagementLink] = {}
        self._connecting: dict[str, asyncio.Task[None]] = {}
        self._processes: Processes
        self._log: TextIO
        self._events: SupervisorEvents
        self._stopped = asyncio.Event()
        self._dials = {node.name: dial(spec, node) for node in spec.nodes}
        self._history: deque[dict[str, Any]] = deque(maxlen=HISTORY)

    async def run(self) -> None:
        """Bring the cluster up, watch it, and return when it is down.  Raises ConfigError if it runs already."""
        directory = self.spec.directory
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack, self._ports:
            stack.enter_context(supervisor_lock(directory))
            await self._ports_are_free()
            self._log = stack.enter_context((directory / "supervisor.log").open("a", encoding="utf-8", buffering=1))
            self._events = SupervisorEvents(directory, self.spec.name)
            stack.callback(self._events.close)
            loop = asyncio.get_running_loop()
            self._processes = Processes(loop, self._exited)
            stack.callback(self._processes.kill_all)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.close)
            await self._serve()

    async def _ports_are_free(self) -> None:
        """Raises ControlError; brokers that a killed supervisor has left need a moment to end."""
        deadline = time.monotonic() + PORT_WAIT
        while taken := next((node.address for node in self.spec.nodes if not is_free(node)), None):
            if time.monotonic() > deadline:
                raise ControlError(f"{taken} is used by another program; a cluster file can name another port")
            await asyncio.sleep(TICK)

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._control, sock=listen(self.spec.control_path))
        try:
            self._do(self.core.begin(time.monotonic()))
            while not (self.core.closing and self.core.all_down):
                await asyncio.sleep(TICK)
                self._do(self.core.tick(time.monotonic()))
        finally:
            self.spec.control_path.unlink(missing_ok=True)
            server.close()
            for link in list(self._links.values()):
                link.close()
            for task in self._connecting.values():
                task.cancel()
            self._note(Note("down", "the cluster is down"))
            self._stopped.set()
            await asyncio.sleep(0.05)  # the answers to `down` go out

    def close(self) -> None:
        """Begin the clean stop; `run` returns when all brokers are down."""
        if not self.core.closing:
            self._do(self.core.close(time.monotonic()))

    # ---- effects -----------------------------------------------------------------------------------------------

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Ask):
                self._request(effect.node, "ha.ask", {}, partial(self._answered, effect.node, effect.serial))
            elif isinstance(effect, Promote):
                self._request(effect.node, "ha.promote", {}, partial(self._promoted, effect.node, effect.serial))
            elif isinstance(effect, Relocate):
                relocated = partial(self._relocated, effect.serial)
                self._request(effect.node, "ha.relocate", {"to": effect.target}, relocated)
            elif isinstance(effect, Signal):
                self._processes.signal(effect.node, effect.number)
            elif isinstance(effect, Start):
                self._start(effect.node)
            else:
                self._note(effect)

    def _start(self, name: str) -> None:
        node = self.spec.node(name)
        try:
            write_config(self.spec, node)
            pid = self._processes.start(name, broker_command(self.spec, node), self.spec.directory / f"{name}.log")
        except OSError as error:
            self._exited(name, f"cannot be started: {error}")
            return
        self._do(self.core.started(name, pid, time.monotonic()))
        self._reconnect(name)

    def _request(self, name: str, method: str, arguments: Mapping[str, Any], reply: Reply) -> None:
        link = self._links.get(name)
        if link is not None:
            link.request(method, arguments, reply)

    def _note(self, note: Note) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        line = f"{stamp} {note.kind}: {note.text}"
        print(line, file=self._log)
        if self._echo is not None:
            print(line, file=self._echo, flush=True)
        self._history.append({"ts_mono": time.monotonic_ns() // 1000, "kind": note.kind, "node": note.node,
                              "text": note.text, "attrs": dict(note.attrs)})  # fmt: skip
        self._events.note(note)

    # ---- events ------------------------------------------------------------------------------------------------

    def _exited(self, name: str, how: str) -> None:
        link = self._links.pop(name, None)
        if link is not None:
            link.close()
        self._do(self.core.exited(name, how, time.monotonic()))

    def _answered(self, name: str, serial: int, answer: Answer) -> None:
        if answer.ok and isinstance(answer.result, dict):
            self._do(self.core.answered(name, serial, Report.from_answer(answer.result), time.monotonic()))

    def _promoted(self, name: str, serial: int, answer: Answer) -> None:
        self._do(self.core.promoted(name, serial, None if answer.ok else answer.error, time.monotonic()))

    def _relocated(self, serial: int, answer: Answer) -> None:
        self._do(self.core.relocated(serial, None if answer.ok else answer.error, time.monotonic()))

    # ---- admin connections -------------------------------------------------------------------------------------

    def _reconnect(self, name: str) -> None:
        task = self._connecting.get(name)
        if (task is None or task.done()) and not self._stopped.is_set():
            self._connecting[name] = asyncio.ensure_future(self._connect(name))

    async def _connect(self, name: str) -> None:
        """Try until the connection to the broker is open or its process is gone."""
        pause, told = RECONNECT, ""
        while self.core.nodes[name].process is not Process.DOWN:
            refused = await self._attempt(name)
            if refused is None:
                return
            if refused and refused != told:
                told = refused
                self._note(Note("admin_refused", f"admin connection to {name}: {refused}", name, {"reason": refused}))
            pause = min(RECONNECT_LIMIT, pause * 2) if refused else RECONNECT
            await asyncio.sleep(pause)

    async def _attempt(self, name: str) -> str | None:
        """None: it is open; empty: no process listens or answers yet; else the broker's reason for a refusal."""
        loop, node = asyncio.get_running_loop(), self.spec.node(name)
        opened: asyncio.Future[str] = loop.create_future()
        link = self._new_link(name, opened)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                options = self._dials[name].options(node.address, CONNECT_TIMEOUT)
                await loop.create_connection(lambda: link, node.host, node.port, **options)
                return await opened or None
        except (OSError, TimeoutError) as error:
            link.close()
            return why(error) if isinstance(error, ssl.SSLError) else ""

    def _new_link(self, name: str, opened: "asyncio.Future[str]") -> ManagementLink:
        pid = self.core.nodes[name].pid

        def on_open() -> None:
            if opened.done() or self.core.nodes[name].pid != pid:
                link.close()
                return
            self._links[name] = link
            opened.set_result("")
            self._do(self.core.connected(name, time.monotonic()))

        def on_close(end: End) -> None:
            reason = end.reason
            if not opened.done():
                opened.set_result(reason)
            if self._links.get(name) is link:
                del self._links[name]
                if self.core.nodes[name].process is not Process.DOWN:
                    self._note(Note("admin_closed", f"admin connection to {name}: {reason}", name, {"reason": reason}))
                    self._do(self.core.disconnected(name, time.monotonic()))
                    self._reconnect(name)

        link = ManagementLink(self._dials[name].login, on_close, on_open)
        return link

    # ---- control -----------------------------------------------------------------------------------------------

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                answer = await self._command(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _command(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            return {"ok": True, "result": await self._execute(request)}
        except (Refused, ConfigError, ValueError, KeyError, TypeError) as error:
            return {"ok": False, "error": str(error) or type(error).__name__}

    async def _execute(self, request: dict[str, Any]) -> Any:
        command, now = request["command"], time.monotonic()
        if command == "status":
            return self.status(now)
        if command == "history":
            return list(self._history)
        if command == "down":
            self.close()
            await self._stopped.wait()
            return None
        name = self.spec.node(str(request.get("node"))).name
        if command == "kill":
            return self._do(self.core.kill(name, bool(request.get("hold")), now))
        if command not in ("stop", "pause", "start", "promote"):
            raise Refused(f"unknown command {command!r}")
        self._do(getattr(self.core, command)(name, now))
        if command == "promote":
            return await self._until_primary(name, float(request.get("within", 10.0)))
        return None

    async def _until_primary(self, name: str, within: float) -> dict[str, Any]:
        """Wait for the result of a promotion.  Raises Refused with the reason, or the name of the broker promoted
        instead."""
        deadline = time.monotonic() + within
        while self.core.preferred == name or self.core.election is not None or self.core.switch_over is not None:
            if time.monotonic() > deadline:
                raise Refused(f"{name} is not primary after {within:g} s; see supervisor.log")
            await asyncio.sleep(TICK)
        if self.core.primary != name:
            raise Refused(self.core.refusal or f"{self.core.primary} was promoted, not {name}; see supervisor.log")
        return {"primary": name}

    def status(self, now: float) -> dict[str, Any]:
        """What `qpid-cluster status --json` prints."""
        election = self.core.election
        return {
            "cluster": self.spec.name,
            "primary": self.core.primary or None,
            "election": None if election is None else {"reason": election.reason, "phase": election.phase.value,
                                                       "excuse": election.told, "rounds": election.rounds},
            "supervisor_pid": os.getpid(),
            "directory": str(self.spec.directory),
            "nodes": [self._node_status(node, now) for node in self.core.nodes.values()],
        }  # fmt: skip

    def _node_status(self, node: ManagedBroker, now: float) -> dict[str, Any]:
        answers = node.process is Process.UP or (node.process is Process.STARTING and not node.silent_since)
        report = node.report if answers else None  # a silent broker's last answer may be outdated
        return {
            "name": node.name,
            "address": self.spec.node(node.name).address,
            "process": "paused" if node.paused else node.process.value,
            "pid": node.pid or None,
            "memory": resident_octets(node.pid) if node.pid else None,
            "state": report.state if report else None,
            "epoch": report.epoch if report else None,
            "position": report.position if report else None,
            "in_sync": list(report.members) if report else [],
            "starts": node.starts,
            "wanted": node.wanted,
            "silent": round(now - node.silent_since, 3) if node.silent_since is not None else 0.0,
        }


def supervise(spec: ClusterSpec, quiet: bool = False) -> None:
    """Run the supervisor in this process until it is stopped (control socket, SIGTERM, SIGINT)."""

    async def main() -> None:
        await ClusterShell(spec, None if quiet else sys.stdout).run()

    asyncio.run(main())


def dial(spec: ClusterSpec, node: NodeSpec) -> Dial:
    """How the supervisor reaches a broker, with the broker's own certificate if it takes only TLS.  Raises
    ConfigError."""
    login = Login(spec.username, spec.password, node.options.get("ha-mechanism", ""))
    if not node.encrypted:
        return Dial(login)
    own = "ha-ssl" if "ha-ssl-cert" in node.options else "ssl"
    authorities = node.options.get("ha-ssl-ca") or node.options.get("ssl-ca")
    if not authorities:
        raise ConfigError(f"node {node.name}: require-encryption: expected ha-ssl-ca or ssl-ca, to know the brokers by")
    certificate, key = (node.options.get(f"{own}-{what}") for what in ("cert", "key"))
    return Dial(
        login, client_tls(Path(authorities), Path(certificate) if certificate else None, Path(key) if key else None)
    )
