"""The files for Docker: each broker in its own container, promoted by hand; or all in one, with a manager."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from string import Template

import yaml

from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec
from ha.qpid_cluster.render import readmes, users
from ha.qpid_cluster.render.broker import DATA
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.text import period

PORT = 5672
"""Inside each container."""

_COMPOSE = Template("""\
# Cluster $cluster in containers, one broker in each. Written by qpid-cluster render.
#
#     docker compose up --detach --wait
#     docker compose exec $first qpid-ha promote --cluster-manager
#     docker compose exec $first qpid-ha status --all
#
# Only you promote; see README.md.

x-broker: &broker
  image: $image
  # It comes back as backup, empty, and never promotes itself.
  restart: unless-stopped
  # A primary without a backup in sync refuses the first signal; then comes SIGKILL.
  stop_grace_period: 15s
  networks: [qpid]
  # Does it answer? Says nothing of its role: backups are healthy, too.
  healthcheck:
    test: [CMD, qpid-ha, ping, --broker, "127.0.0.1:$port", --timeout, "2"]
    interval: 2s
    timeout: 3s
    retries: 3
    start_period: 10s

# Options of qpidd, see `docker run --rm $plain_image --help`.
x-options: &options
$options
services:
$services
networks:
  # The brokers find each other by name.
  qpid:

volumes:
$volumes""")
_SERVICE = Template("""\
  $name:
    <<: *broker
    hostname: $name
    environment:
      <<: *options
$own    ports: ["$published:$port"]
    # Vote, in-sync set and journal: they must outlive the container.
    volumes: ["$name-data:$data"$users]
""")
_ONE = Template("""\
# Cluster $cluster in one container, with qpid-cluster as manager: it starts the brokers, watches them, and promotes.
# Written by qpid-cluster render.
#
#     docker compose up --detach
#     docker compose exec cluster qpid-cluster --config $config status
#     docker compose exec cluster qpid-cluster --config $config kill $first
#
# For trying things out: one container is one point of failure.

services:
  cluster:
    image: $image
    entrypoint: [qpid-cluster, --config, $config]
    command: [up]
    # The brokers listen on the addresses in cluster.yaml, and tell them to clients.
    network_mode: host
    restart: unless-stopped
    stop_grace_period: 30s
    healthcheck:
      # Healthy: there is a primary.
      test: [CMD, qpid-cluster, --config, $config, status]
      interval: 2s
      timeout: 3s
      retries: 5
      start_period: 10s
    volumes:
      - ./cluster.yaml:$config:ro
      - data:$data

volumes:
  data:
""")
_ONE_CONFIG = "/etc/qpid/cluster.yaml"


def render(spec: ClusterSpec) -> dict[str, str]:
    names = {"cluster": spec.name, "image": _text(deployment(spec).image)}
    first, second = spec.nodes[0].name, spec.nodes[min(1, len(spec.nodes) - 1)].name
    url = ",".join(f"{node.name}:{PORT}" for node in spec.nodes)
    shared = _shared(spec, url)
    return {
        "README.md": readmes.COMPOSE.substitute(
            names,
            image=deployment(spec).image,
            first=first,
            second=second,
            port=PORT,
            url=url,
            nodes=", ".join(node.name for node in spec.nodes),
            published=",".join(f"localhost:{port}" for port in published(spec)),
            users="" if users.own(spec) else readmes.COMPOSE_USERS,
            safety=readmes.COMPOSE_SAFETY[spec.safety],
        ),
        "compose.yaml": _COMPOSE.substitute(
            names,
            first=first,
            port=PORT,
            plain_image=deployment(spec).image,
            options=_variables(shared, "  "),
            services="\n".join(_service(spec, node, port, shared) for node, port in _with_ports(spec)),
            volumes="".join(f"  {node.name}-data:\n" for node in spec.nodes),
        ),
        "one-container/compose.yaml": _ONE.substitute(names, first=first, config=_ONE_CONFIG, data=DATA),
        "one-container/cluster.yaml": _cluster_file(spec),
    }


def published(spec: ClusterSpec) -> list[int]:
    """Ports on this machine: those of the cluster file, or counted on from it if all nodes have the same."""
    ports = [node.port for node in spec.nodes]
    if len(set(ports)) == len(ports) and 0 not in ports:
        return ports
    return [(ports[0] or PORT) + index for index in range(len(ports))]


def _with_ports(spec: ClusterSpec) -> list[tuple[NodeSpec, int]]:
    return list(zip(spec.nodes, published(spec), strict=True))


def _common(spec: ClusterSpec) -> dict[str, str]:
    """Options of the file that are equal on all nodes."""
    common = dict(spec.nodes[0].options)
    for node in spec.nodes:
        common = {name: value for name, value in common.items() if node.options.get(name) == value}
    common.setdefault("ha-replicate", "all")
    common.setdefault("journal", "yes")
    return common


def _shared(spec: ClusterSpec, url: str) -> dict[str, str]:
    """Options that are equal on all brokers."""
    common = _common(spec)
    member = {"ha-cluster": "yes", "ha-cluster-name": spec.name, "ha-brokers-url": url, "ha-safety": spec.safety}
    registry = {"ha-registry": "none"} if spec.safety == "manager" else {}
    return {"port": str(PORT), "user-file": users.INSTALLED, **registry, **member, **common, "ha-safety": spec.safety}


def _service(spec: ClusterSpec, node: NodeSpec, port: int, shared: Mapping[str, str]) -> str:
    own = {name: value for name, value in node.options.items() if shared.get(name) != value and name != "ha-safety"}
    variables = _variables({"broker-name": node.name, **own}, "      ")
    mounted = "" if "user-file" in node.options else f', "./{users.FILE}:{users.INSTALLED}:ro"'
    return _SERVICE.substitute(users=mounted, name=node.name, own=variables, published=port, port=PORT, data=DATA)


def _variables(options: Mapping[str, str], indent: str) -> str:
    names = {name: "QPID_" + name.replace("-", "_").replace(".", "_").upper() for name in options}
    return "".join(f"{indent}{names[name]}: {_text(value)}\n" for name, value in options.items())


def _text(value: str) -> str:
    """A YAML string; Compose would replace variables after a dollar sign."""
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")


def _own(node: NodeSpec, common: Mapping[str, str]) -> dict[str, dict[str, str]]:
    own = {name: value for name, value in node.options.items() if common.get(name) != value}
    return {"options": own} if own else {}


def _cluster_file(spec: ClusterSpec) -> str:
    """The cluster on one machine, for the container that has all of it."""
    ports = {node.name: port for node, port in _with_ports(spec)}
    common = _common(spec)
    content = {
        "cluster": spec.name,
        "directory": f"{DATA}/cluster",
        "host": "127.0.0.1",
        "nodes": [{"name": node.name, "port": ports[node.name], **_own(node, common)} for node in spec.nodes],
        "options": common,
        "safety": spec.safety,
        "registry": spec.registry,
        "supervisor": {name.replace("_", "-"): period(value) for name, value in asdict(spec.watch).items()},
        "command": ["/usr/bin/qpidd"],
    }
    head = "# Written by qpid-cluster render, for compose.yaml in the same folder.\n"
    return head + yaml.safe_dump(content, sort_keys=False)
