"""What our driver takes from a `cluster.conf`: nodes, failover domains, resources, services.  Pure.

rgmanager's own part is `cluster/rm`: `<failoverdomains>`, `<resources>` and one `<service>` each.  A service holds
resources, by `ref` or in place, also one within another.  rgmanager does not start them in the order of the file but in
that of their kinds: an address (7) before a script (9), and it stops the script (1) before the address (2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

START_ORDER: Final = {"ip": 7, "script": 9}
STOP_ORDER: Final = {"script": 1, "ip": 2}
RECOVERIES: Final = ("restart", "relocate", "disable")
POLL_INTERVAL: Final = 10.0
"""Seconds, when `rm` has no `status_poll_interval`."""


OWN_INTERVALS: Final = {"script": 30.0, "ip": 20.0}
"""Seconds between two status checks by the agents' own metadata."""


class ConfError(Exception):
    """The file makes no sense."""


@dataclass(frozen=True)
class Resource:
    """`name` of a script with its `file`, or an ip with its address as name; `children` start after it."""

    kind: str
    name: str
    file: str = ""
    children: tuple[Resource, ...] = ()
    interval: float = 0.0
    """Seconds between two status checks, by its `<action>` or else its agent."""


@dataclass(frozen=True)
class Domain:
    """`nodes` in the order of preference; `restricted`: never on another one."""

    name: str
    nodes: tuple[str, ...]
    restricted: bool = False


@dataclass(frozen=True)
class Service:
    name: str
    resources: tuple[Resource, ...]
    domain: Domain | None = None
    autostart: bool = True
    recovery: str = "restart"

    def starting(self) -> list[Resource]:
        return list(_ordered(self.resources, START_ORDER))

    def stopping(self) -> list[Resource]:
        return list(_ordered(self.resources, STOP_ORDER, inside_first=True))


@dataclass(frozen=True)
class Cluster:
    name: str
    nodes: tuple[str, ...]
    """By their ids."""
    services: tuple[Service, ...]
    poll_interval: float = POLL_INTERVAL
    by_agents: bool = False
    """How rgmanager is read: each resource has its own interval, and the poll only looks whether it is over."""

    def interval(self, service: Service) -> float:
        """Seconds between two status checks of its scripts."""
        scripts = [resource.interval for resource in service.starting() if resource.kind == "script"]
        return max(self.poll_interval, *scripts) if self.by_agents else self.poll_interval


def _ordered(resources: tuple[Resource, ...], order: dict[str, int], inside_first: bool = False) -> Iterator[Resource]:
    for resource in sorted(resources, key=lambda found: order[found.kind]):
        inside = _ordered(resource.children, order, inside_first)
        if inside_first:
            yield from inside
            yield resource
        else:
            yield resource
            yield from inside


def load(path: Path) -> Cluster:
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> Cluster:
    """Raises ConfError."""
    root = ElementTree.fromstring(text)
    manager = root.find("rm")
    if root.tag != "cluster" or manager is None:
        raise ConfError("wanted <cluster> with <rm> in it")
    nodes = sorted(root.iterfind("clusternodes/clusternode"), key=lambda node: int(node.attrib["nodeid"]))
    names = tuple(node.attrib["name"] for node in nodes)
    domains = {item.attrib["name"]: _domain(item, names) for item in manager.iterfind("failoverdomains/failoverdomain")}
    shared = {_key(item): item for item in manager.iterfind("resources/*")}
    services = tuple(_service(item, domains, shared) for item in manager.iterfind("service"))
    interval = float(manager.get("status_poll_interval", POLL_INTERVAL))
    return Cluster(root.attrib["name"], names, services, interval)


def _domain(item: Element, names: tuple[str, ...]) -> Domain:
    members = list(item.iterfind("failoverdomainnode"))
    if _yes(item, "ordered"):
        members.sort(key=lambda member: int(member.get("priority", "100")))
    nodes = tuple(member.attrib["name"] for member in members)
    if unknown := set(nodes) - set(names):
        raise ConfError(f"failover domain {item.attrib['name']}: no such node: {', '.join(sorted(unknown))}")
    return Domain(item.attrib["name"], nodes, _yes(item, "restricted"))


def _service(item: Element, domains: dict[str, Domain], shared: dict[tuple[str, str], Element]) -> Service:
    name, domain, recovery = item.attrib["name"], item.get("domain"), item.get("recovery", "restart")
    if domain is not None and domain not in domains:
        raise ConfError(f"service {name}: no such failover domain: {domain}")
    if recovery not in RECOVERIES:
        raise ConfError(f"service {name}: recovery={recovery!r}, wanted {', '.join(RECOVERIES)}")
    if _yes(item, "exclusive"):
        raise ConfError(f"service {name}: exclusive=1 is beyond this driver")
    return Service(
        name,
        tuple(_resource(child, shared) for child in item),
        domains[domain] if domain is not None else None,
        _yes(item, "autostart", "1"),
        recovery,
    )


def _resource(item: Element, shared: dict[tuple[str, str], Element]) -> Resource:
    ref = item.get("ref")
    if item.tag not in START_ORDER or (ref is not None and (item.tag, ref) not in shared):
        raise ConfError(f"no such resource: <{item.tag} ref={ref!r}>")
    found = shared[item.tag, ref] if ref is not None else item
    children = tuple(_resource(child, shared) for child in item if child.tag != "action")
    return Resource(item.tag, _key(found)[1], found.get("file", ""), children, _interval(found))


def _interval(item: Element) -> float:
    action = item.find("action[@name='status']")
    return float(action.attrib["interval"]) if action is not None else OWN_INTERVALS[item.tag]


def _key(item: Element) -> tuple[str, str]:
    return item.tag, item.get("name") or item.attrib["address"]


def _yes(item: Element, name: str, default: str = "0") -> bool:
    return item.get(name, default).lower() in ("1", "yes", "true", "on")
