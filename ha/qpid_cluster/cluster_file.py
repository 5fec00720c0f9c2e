"""The cluster file of `qpid-cluster`: the brokers of a cluster, how they are watched, and on which machines they run.

`up` and the commands that go with it run such a cluster on one machine.  `render` writes the configuration of a
resource manager for the administrator's own machines; only `render` uses `deployment` (deployment.py) and a node's
`links` and `fencing`.

The format is YAML, because administrators edit it by hand.  Unknown names are refused with a list of the known ones, so
that a typing error does not leave a default in force unnoticed.  `parse` is pure; only `load` reads the disk.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from ha.qpid_cluster.cluster_values import NAME, duration, mapping, one_of, refuse_unknown, sequence
from ha.qpid_cluster.deployment import Deployment, parse_deployment, parse_links, parse_parameters
from qpidd_py.errors import ConfigError

SAFETY_MODES = ("manager", "availability", "quorum")
REGISTRIES = ("file", "none")
_DECIDED = {"port", "interface", "broker-name", "data-dir", "ha-cluster", "ha-cluster-name", "ha-brokers-url"} | {
    "ha-registry",
    "ha-registry-file",
    "daemon",
}
"""Options of `qpidd` that the supervisor sets itself or that do not work under it."""


BUILT_IN = "./qpid-cluster-data"
_BUILT_IN = """\
cluster: demo
directory: {directory}
nodes: [{{name: node1, port: 5801}}, {{name: node2, port: 5802}}, {{name: node3, port: 5803}}]
options: {{ha-replicate: all, ha-username: qpid-ha, ha-password: '{password}', link-heartbeat-interval: 0.5}}
"""


@dataclass(frozen=True)
class Watch:
    """How the supervisor watches and restarts; every value in seconds."""

    ping_interval: float = 0.1  # between the answer to one ping and the next
    hang_timeout: float = 1.0  # without an answer for so long, a broker counts as hung
    ask_timeout: float = 0.25  # how long an election waits for the positions of all brokers
    promote_timeout: float = 5.0  # how long a broker may take to answer a promotion
    relocate_timeout: float = 15.0  # how long a primary may take to hand over and answer
    start_timeout: float = 15.0  # a started process that never answers counts as hung after this
    gather_timeout: float = 10.0  # how long a fresh cluster waits for brokers that do not come up
    restart_delay: float = 1.0  # between a death and the restart; doubles while it dies at once
    restart_limit: float = 30.0  # the longest such delay
    stop_timeout: float = 5.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True)
class NodeSpec:
    """One broker of the cluster; `options` are those of `qpidd`, cluster-wide ones merged with its own."""

    name: str
    port: int
    host: str = "127.0.0.1"
    options: Mapping[str, str] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    """Addresses for Corosync; empty: `host`."""
    fencing: Mapping[str, str] = field(default_factory=dict)
    """Parameters of this node's own fence device."""

    @property
    def encrypted(self) -> bool:
        """The broker takes only TLS, and `port` is its TLS port."""
        return self.options.get("require-encryption", "no").lower() in ("yes", "true", "on", "1")

    @property
    def address(self) -> str:
        """For other brokers, and for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'ssl:' if self.encrypted else ''}{host}:{self.port}"


@dataclass(frozen=True)
class ClusterSpec:
    """A parsed cluster file."""

    name: str
    directory: Path
    nodes: tuple[NodeSpec, ...]
    watch: Watch = Watch()
    command: tuple[str, ...] = ()  # what starts a broker; empty: this Python with `-m qpidd_py`
    username: str = "guest"  # of the supervisor's own admin connections
    password: str = "guest"
    safety: str = "manager"
    registry: str = "file"
    """Where votes and in-sync sets are recorded in the mode `manager`: a file of the supervisor, or none."""
    deployment: Deployment | None = None

    def node(self, name: str) -> NodeSpec:
        """The node of that name.  Raises ConfigError with the names that exist."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise ConfigError(f"unknown node {name!r}; the nodes of cluster {self.name!r} are {known}")

    @property
    def brokers_url(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def control_path(self) -> Path:
        return self.directory / "control.sock"

    @property
    def registry_path(self) -> Path:
        return self.directory / "registry.json"


def built_in() -> ClusterSpec:
    """For `up` without a file.  The password is new at each call: those who may read a broker's file know it."""
    return parse(_BUILT_IN.format(directory=BUILT_IN, password=secrets.token_urlsafe(18)), "the built-in cluster")


def load(path: Path) -> ClusterSpec:
    """Read a cluster file; a relative `directory` in it is relative to the current directory."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the cluster file {path}: {error}") from error
    return parse(text, str(path))


def parse(text: str, source: str = "cluster file") -> ClusterSpec:
    """Parse YAML text.  Raises ConfigError with `source` and the wrong value."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that does not exist
        raise ConfigError(f"{source}: {error}") from error
    try:
        return _cluster(mapping(document, "the file"))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _cluster(document: Mapping[str, Any]) -> ClusterSpec:
    known = ("cluster", "directory", "host", "nodes", "options", "safety", "registry", "supervisor", "command")
    refuse_unknown(document, (*known, "deployment"), "the file")
    options = _options(document.get("options"), "options")
    host = str(document.get("host", "127.0.0.1"))
    nodes = tuple(_node(item, host, options) for item in sequence(document.get("nodes"), "nodes"))
    _refuse_doubles(nodes)
    name = str(document.get("cluster", "qpid"))
    return ClusterSpec(
        name=name,
        directory=Path(str(document.get("directory", f"./{name}-cluster"))).expanduser(),
        nodes=nodes,
        watch=_watch(document.get("supervisor")),
        command=tuple(str(word) for word in document.get("command") or ()),
        username=options.get("ha-username", "guest"),
        password=options.get("ha-password", "guest"),
        safety=one_of(document.get("safety", options.get("ha-safety", "manager")), SAFETY_MODES, "safety"),
        registry=one_of(document.get("registry", "file"), REGISTRIES, "registry"),
        deployment=parse_deployment(document.get("deployment")),
    )


def _node(item: object, host: str, options: Mapping[str, str]) -> NodeSpec:
    values = mapping(item, "a node")
    refuse_unknown(values, ("name", "port", "host", "options", "links", "fencing"), "a node")
    name = str(values.get("name", ""))
    if not NAME.fullmatch(name):
        raise ConfigError(f"a node needs a name of letters, digits, '-', '_' and '.'; found {name!r}")
    port = values.get("port")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise ConfigError(f"node {name}: port must be 0 (any free one) to 65535; found {port!r}")
    own = _options(values.get("options"), f"options of {name}")
    links = parse_links(values.get("links"), name)
    fencing = parse_parameters(values.get("fencing"), f"node {name}: fencing")
    return NodeSpec(name, port, str(values.get("host", host)), {**options, **own}, links, fencing)


def _watch(values: object) -> Watch:
    settings = mapping(values or {}, "supervisor")
    known = {item.name.replace("_", "-"): item.name for item in fields(Watch)}
    refuse_unknown(settings, known, "supervisor")
    return replace(Watch(), **{known[name]: duration(value, name) for name, value in settings.items()})


def _options(values: object, where: str) -> dict[str, str]:
    """Options as on the command line of `qpidd`: YAML's true and false become yes and no."""
    found = {}
    for name, value in mapping(values or {}, where).items():
        if isinstance(value, list | dict) or value is None:
            raise ConfigError(f"{where}: {name} must have one value; found {value!r}")
        if name in _DECIDED:
            raise ConfigError(f"{where}: {name} is set by the supervisor itself")
        found[str(name)] = ("yes" if value else "no") if isinstance(value, bool) else str(value)
    return found


def _refuse_doubles(nodes: tuple[NodeSpec, ...]) -> None:
    if not nodes:
        raise ConfigError("nodes: at least one is needed")
    names = [node.name for node in nodes]
    addresses = [node.address for node in nodes if node.port]
    for what, values in (("name", names), ("address", addresses)):
        double = next((value for value in values if values.count(value) > 1), None)
        if double is not None:
            raise ConfigError(f"two nodes have the {what} {double!r}")
