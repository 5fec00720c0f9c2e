"""`qpid-cluster`: the resource manager for one machine.

Shell.  `up` runs the supervisor (qpid_cluster/shell.py); every other command is one request to it through the socket in
the cluster's directory.  It is for demonstrations, tests and laptops, not for production: one machine is one point of
failure.  In production Pacemaker or rgmanager does this work; `render` (package `render`) writes their files, and needs
no running cluster.  Without a cluster file it runs a built-in cluster of three in `./qpid-cluster-data`.

Exit codes: 0 done; 1 refused, failed, or (status) the cluster has no primary; 2 wrong usage or cluster file;
3 the cluster is not running.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ha.qpid_cluster import cluster_file
from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.control import ControlError, NotRunning, request, supervisor_lock
from ha.qpid_cluster.rolling import RollingError
from qpidd_py.cli.output import ShowVersion
from qpidd_py.errors import ConfigError

PROGRAM = "qpid-cluster"
WARNING = "qpid-cluster is for one machine: demonstrations, tests, laptops. It is not for production."
DEFAULT = Path("config/cluster.yaml")
NODE_COMMANDS = {
    "kill": "kill -9 a broker; it is restarted after restart-delay",
    "stop": "stop a broker cleanly; it stays down until `start`",
    "pause": "freeze a broker with SIGSTOP, until `start`",
    "start": "start a broker that is down, resume one that is paused",
    "promote": "make this broker the primary; a living primary hands over to it",
}
INSTALLED = "/etc/qpid/qpidd.conf"
MANAGERS = ("local", "pacemaker", "rgmanager")
RENDERED = ("pacemaker", "rgmanager", "systemd", "compose", "vagrant", "all")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    arguments = make_parser().parse_args(argv)
    try:
        spec = _spec(arguments)
        return int(arguments.run(spec, arguments))
    except (ConfigError, ControlError, RollingError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 3 if isinstance(error, NotRunning) else 1


def _spec(arguments: argparse.Namespace) -> ClusterSpec:
    if arguments.config or arguments.command == "render" or DEFAULT.exists():
        return cluster_file.load(Path(arguments.config or DEFAULT))
    return cluster_file.built_in()


def make_parser() -> argparse.ArgumentParser:
    text = f"{WARNING} `render` writes files for clusters that are."
    parser = argparse.ArgumentParser(PROGRAM, description=text)
    parser.add_argument("--version", action=ShowVersion)
    text = f"cluster file ({DEFAULT}; if that is missing, three brokers in {cluster_file.BUILT_IN})"
    parser.add_argument("--config", metavar="FILE", help=text)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start all brokers, promote one, watch them")
    up.add_argument("--detach", action="store_true", help="go to the background once a primary is active")
    up.add_argument("--timeout", type=float, default=30.0, metavar="S", help="how long --detach waits (%(default)s)")
    up.set_defaults(run=_up)
    commands.add_parser("down", help="stop all brokers and the supervisor").set_defaults(run=_down)
    status = commands.add_parser("status", help="one line for each broker")
    status.add_argument("--json", action="store_true", help="everything, for programs")
    status.set_defaults(run=_status)
    for name, text in NODE_COMMANDS.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("node", metavar="NODE")
        command.set_defaults(run=_node_command)
        if name == "kill":
            command.add_argument("--hold", action="store_true", help="do not restart it before `start`")
        if name == "promote":
            command.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds (%(default)s)")
    _add_rolling(commands.add_parser("rolling-restart", help="restart all brokers, one at a time, the primary last"))
    _add_render(commands.add_parser("render", help="write the configuration for your own machines"))
    return parser


def _add_rolling(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    text = "what runs the brokers: local (this program), pacemaker or rgmanager (%(default)s)"
    add("--manager", choices=MANAGERS, default="local", metavar="NAME", help=text)
    add("--timeout", type=float, default=600.0, metavar="S", help="seconds for each step (%(default)s)")
    add("--resource", default="qpidd-clone", metavar="ID", help="of Pacemaker, the clone of the brokers (%(default)s)")
    text = "a broker of the cluster, as for qpid-ha; with pacemaker and rgmanager (that of this machine)"
    add("--broker", metavar="ADDRESS", help=text)
    add("--login", metavar="FILE", help=f"qpidd.conf with the login ({INSTALLED})")
    command.set_defaults(run=_rolling_restart)


def _add_render(command: argparse.ArgumentParser) -> None:
    # SUPPRESS: without the argument that of --config stays in force.
    command.add_argument("config", nargs="?", default=argparse.SUPPRESS, metavar="FILE", help="cluster file")
    command.add_argument("-o", "--output", required=True, metavar="DIR", help="output directory; created if missing")
    command.add_argument("--for", dest="kind", required=True, choices=RENDERED, help="the manager of the cluster")
    command.add_argument("--force", action="store_true", help="replace existing files that differ")
    command.add_argument("--json", action="store_true", help="print what was written as JSON")
    command.set_defaults(run=_render)


def _up(spec: ClusterSpec, arguments: argparse.Namespace) -> int:
    if arguments.detach:
        return _detach(spec, arguments.config, arguments.timeout)
    # Imported here because the other commands must be fast and need neither asyncio nor pamqp.
    from ha.qpid_cluster.shell import supervise

    print(WARNING, flush=True)
    supervise(spec)
    return 0


def _detach(spec: ClusterSpec, config: str | None, timeout: float) -> int:
    """Start the supervisor in a new session, and wait until the cluster is settled."""
    print(WARNING)
    spec.directory.mkdir(parents=True, exist_ok=True)
    output = spec.directory / "supervisor.out"
    with supervisor_lock(spec.directory):  # else the output of another supervisor would be lost
        output.write_bytes(b"")
    with output.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ha.qpid_cluster.main", *(["--config", config] if config else []), "up"],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    status: dict[str, Any] = {}
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            print(output.read_text(errors="replace").strip(), file=sys.stderr)
            return process.returncode or 1
        try:
            status = request(spec.control_path, "status")
        except NotRunning:
            status = {}
        if status.get("supervisor_pid") == process.pid and settled(status):
            print(table(status))
            return 0
        time.sleep(0.05)
    print(table(status) if status else "the supervisor does not answer")
    print(f"no primary with ready backups within {timeout:g} s; see {output}", file=sys.stderr)
    return 1


def settled(status: dict[str, Any]) -> bool:
    """True if a primary is active and every other wanted broker is ready."""
    states = [node["state"] for node in status.get("nodes", []) if node["process"] != "down" or node["wanted"]]
    return states.count("active") == 1 and status["primary"] is not None and states.count("ready") == len(states) - 1


def _down(spec: ClusterSpec, arguments: argparse.Namespace) -> int:
    try:
        request(spec.control_path, "down", timeout=60.0)
    except NotRunning:
        print("the cluster is not running")
    return 0


def _status(spec: ClusterSpec, arguments: argparse.Namespace) -> int:
    status = request(spec.control_path, "status")
    print(json.dumps(status, indent=2) if arguments.json else table(status))
    return 0 if status["primary"] else 1


def _node_command(spec: ClusterSpec, arguments: argparse.Namespace) -> int:
    spec.node(arguments.node)  # a wrong name gives another error than a cluster that is down
    within: float = getattr(arguments, "timeout", 10.0)
    options = {"node": arguments.node, "hold": getattr(arguments, "hold", False), "within": within}
    request(spec.control_path, arguments.command, timeout=within + 5.0, **options)
    return 0


def _rolling_restart(spec: ClusterSpec, arguments: argparse.Namespace) -> int:
    # Imported here because the other commands must be fast.
    from ha.qpid_cluster import managers
    from ha.qpid_cluster.rolling import Manager, restart_all

    if arguments.manager == "local":
        manager: Manager = managers.Local(spec.control_path)
    else:
        given = {"--broker": arguments.broker, "--config": arguments.login or installed_config()}
        words = [word for name, value in given.items() if value for word in (name, value)]
        pacemaker = arguments.manager == "pacemaker"
        manager = managers.Pacemaker(words, arguments.resource) if pacemaker else managers.Rgmanager(words)
    restart_all(manager, managers.waiting(arguments.timeout), lambda text: print(text, flush=True))
    return 0


def installed_config() -> str:
    """Empty if there is none."""
    return INSTALLED if Path(INSTALLED).exists() else ""


def _render(spec: ClusterSpec, arguments: argparse.Namespace) -> int:
    # Imported here because the other commands must be fast.
    from ha.qpid_cluster.render import users
    from ha.qpid_cluster.render.kinds import KINDS, render
    from ha.qpid_cluster.render.writer import WriteError, write

    directory = Path(arguments.output)
    try:
        states = write(directory, render(spec, arguments.kind), arguments.force)
        found = users.paths(spec, KINDS if arguments.kind == "all" else [arguments.kind])
        states |= {name: "unchanged" if (directory / name).exists() else "written" for name in found}
        password = users.write(directory, found)
    except WriteError as error:
        print(json.dumps({"error": str(error)}) if arguments.json else f"qpid-cluster: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        login = {"login": f"{users.USER}/{password}"} if password else {}
        print(json.dumps({"directory": str(directory), "files": states, **login}, indent=2))
        return 0
    for name, state in states.items():
        print(f"{state:<9} {directory / name}")
    if password:
        print(f"clients log in as {users.USER} with the password {password} (it is kept nowhere else)")
    return 0


def table(status: dict[str, Any]) -> str:
    """The status as a table of at most 80 columns."""
    lines = [f"cluster {status['cluster']}: primary {status['primary'] or 'none'}"]
    if status["election"]:
        lines.append(f"  looking for a primary: {status['election']['excuse'] or status['election']['reason']}")
    lines.append(f"{'NODE':<12} {'ADDRESS':<18} {'PROCESS':<8} {'PID':>7} {'MiB':>5} {'STATE':<10} {'POSITION':>14}")
    for node in status["nodes"]:
        position = node["position"]
        shown = "-" if position is None else f"{position >> 48}.{position & (1 << 48) - 1}"
        lines.append(
            f"{node['name']:<12} {node['address']:<18} {node['process']:<8} {node['pid'] or '-':>7} "
            f"{mebibytes(node['memory']):>5} {node['state'] or '-':<10} {shown:>14}"
        )
    return "\n".join(lines)


def mebibytes(octets: int | None) -> str:
    return "-" if octets is None else str(octets >> 20)


if __name__ == "__main__":
    sys.exit(main())
