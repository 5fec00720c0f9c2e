"""The driver's core, without processes: that it does what rgmanager does."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rgmanager import cluster_conf
from tests.rgmanager.cluster import OWN, PRIMARY, SHIPPED, qpidd_service
from tests.rgmanager.cluster_conf import ConfError
from tests.rgmanager.manager import DISABLED, FAILED, STARTED, STOPPED, Manager, Run

Failing = tuple[str, str, str]
"""Resource, action, node."""


class World:
    """Carries every command out at once; `failing` ones answer 1."""

    def __init__(self, text: str = "") -> None:
        self.manager = Manager(cluster_conf.parse(text or OWN.read_text()))
        self.failing: set[Failing] = set()
        self.done: list[str] = []
        self.now = 0.0
        self.held: list[Run] | None = None
        """A list: commands wait in it instead of being carried out."""

    def carry_out(self, runs: list[Run]) -> "World":
        waiting = list(runs)
        while waiting:
            run = waiting.pop(0)
            if run.action != "status":
                self.done.append(f"{run.resource.name} {run.action} {run.node}")
            if self.held is not None:
                self.held.append(run)
                continue
            code = int((run.resource.name, run.action, run.node) in self.failing)
            waiting += self.manager.ended(run.number, code, self.now)
        return self

    def up(self, *nodes: str) -> "World":
        for node in nodes or ("node1", "node2", "node3"):
            self.carry_out(self.manager.node_up(node, self.now))
        self.done.clear()
        return self

    def pass_time(self, seconds: float = 1.0) -> "World":
        self.now += seconds
        return self.carry_out(self.manager.tick(self.now))

    def where(self) -> Mapping[str, tuple[str, str]]:
        return {name: (entry.state, entry.owner) for name, entry in self.manager.entries.items()}


IPS = ("192.0.2.10", "192.0.2.11")


def test_a_node_that_comes_up_gets_its_own_service_and_the_first_one_the_primary() -> None:
    world = World().up("node2")
    assert world.where()[qpidd_service("node2")] == (STARTED, "node2")
    assert world.where()[qpidd_service("node1")] == (STOPPED, "")
    assert world.where()[PRIMARY] == (STARTED, "node2")
    world.up("node1")
    assert world.where()[PRIMARY] == (STARTED, "node2"), "no fail-back without a domain"


def test_addresses_start_before_scripts_and_stop_after_them() -> None:
    world = World()
    world.carry_out(world.manager.node_up("node1", 0))
    wanted = ["qpidd start node1", *(f"{ip} start node1" for ip in IPS), "qpidd-primary start node1"]
    assert world.done == wanted
    world.done.clear()
    world.carry_out(world.manager.disable(PRIMARY, 0))
    assert world.done == ["qpidd-primary stop node1", *(f"{ip} stop node1" for ip in IPS)]


def test_status_is_asked_at_the_interval_and_only_of_what_is_started() -> None:
    world = World().up()
    world.held = []
    world.pass_time(0.5)
    assert world.held == []
    world.pass_time(0.5)
    assert sorted(run.service for run in world.held) == sorted(world.manager.entries)
    assert {run.action for run in world.held} == {"status"}
    world.pass_time(5)
    assert len(world.held) == 4, "one operation of a service at a time"


@pytest.mark.parametrize("by_agents", [False, True], ids=["poll", "agents"])
def test_the_shipped_interval_holds_whoever_sets_it(by_agents: bool) -> None:
    """Without `<action>` the script agent's own 30 s would be the outage, if it is read in that way."""
    shipped, own = (replace(cluster_conf.load(path), by_agents=by_agents) for path in (SHIPPED, OWN))
    assert {shipped.interval(service) for service in shipped.services} == {1.0}
    assert {own.interval(service) for service in own.services} == {30.0 if by_agents else 1.0}
    world = World()
    world.manager = Manager(shipped)
    world.up().held = []
    assert len(world.pass_time().held or ()) == len(shipped.services)


def test_restart_is_a_stop_and_a_start_on_the_same_node() -> None:
    world = World().up()
    world.failing = {("qpidd", "status", "node2")}
    world.pass_time()
    assert world.done == ["qpidd stop node2", "qpidd start node2"]
    assert world.where()[qpidd_service("node2")] == (STARTED, "node2")


def test_relocate_takes_the_next_node_and_the_same_one_last() -> None:
    world = World().up()
    world.failing = {("qpidd-primary", "status", "node1"), ("qpidd-primary", "start", "node2")}
    world.pass_time()
    scripts = [step for step in world.done if step.startswith("qpidd-primary")]
    tried = ["qpidd-primary stop node1", "qpidd-primary start node2", "qpidd-primary stop node2"]
    assert scripts == [*tried, "qpidd-primary start node3"]
    assert world.where()[PRIMARY] == (STARTED, "node3")


def test_what_cannot_start_anywhere_is_stopped_until_a_node_comes_up() -> None:
    world = World().up()
    world.failing = {("qpidd-primary", action, f"node{n}") for action in ("status", "start") for n in (1, 2, 3)}
    world.pass_time()
    assert [step[-5:] for step in world.done if "primary start" in step] == ["node2", "node3", "node1"]
    assert world.where()[PRIMARY] == (STOPPED, "")
    world.failing.clear()
    world.carry_out(world.manager.node_down("node3", world.now))
    assert world.where()[PRIMARY] == (STOPPED, "")
    world.up("node3")
    assert world.where()[PRIMARY] == (STARTED, "node1")


def test_a_failed_stop_is_the_end_until_an_administrator_disables_the_service() -> None:
    world = World().up()
    world.failing = {("qpidd-primary", "status", "node1"), ("qpidd-primary", "stop", "node1")}
    world.pass_time()
    assert world.where()[PRIMARY] == (FAILED, "")
    world.carry_out(world.manager.enable(PRIMARY, world.now))
    world.carry_out(world.manager.relocate(PRIMARY, world.now))
    assert world.where()[PRIMARY] == (FAILED, "")
    world.carry_out(world.manager.disable(PRIMARY, world.now))
    assert world.where()[PRIMARY] == (DISABLED, "")
    world.carry_out(world.manager.enable(PRIMARY, world.now))
    assert world.where()[PRIMARY] == (STARTED, "node1")


def test_a_disabled_service_is_left_alone() -> None:
    world = World().up()
    world.carry_out(world.manager.disable(PRIMARY, world.now))
    world.carry_out(world.manager.node_down("node2", world.now))
    world.up("node2")
    world.pass_time(10)
    assert world.where()[PRIMARY] == (DISABLED, "")


def test_recovery_disable() -> None:
    world = World(OWN.read_text().replace('recovery="relocate"', 'recovery="disable"')).up()
    world.failing = {("192.0.2.11", "status", "node1")}
    world.pass_time()
    assert world.where()[PRIMARY] == (DISABLED, "")


def test_services_of_a_dead_node_start_elsewhere_and_those_bound_to_it_wait() -> None:
    world = World().up()
    world.carry_out(world.manager.node_down("node1", world.now))
    assert world.done == [*(f"{ip} start node2" for ip in IPS), "qpidd-primary start node2"], "and no stop"
    assert world.where()[qpidd_service("node1")] == (STOPPED, "")
    world.up("node1")
    assert world.where()[qpidd_service("node1")] == (STARTED, "node1")


def test_an_operation_on_a_dead_node_is_given_up() -> None:
    world = World().up()
    world.failing = {("qpidd-primary", "status", "node1")}
    world.held = []
    world.pass_time()
    status = next(run for run in world.held if run.service == PRIMARY and run.resource.name == "192.0.2.10")
    world.held = None
    world.carry_out(world.manager.node_down("node1", world.now))
    assert world.where()[PRIMARY] == (STARTED, "node2")
    assert world.manager.ended(status.number, 1, world.now) == []


def test_requests_wait_for_the_operation_that_is_under_way() -> None:
    world = World().up()
    world.held = []
    world.carry_out(world.manager.relocate(PRIMARY, world.now, "node3"))
    world.carry_out(world.manager.disable(PRIMARY, world.now))
    assert [run.action for run in world.held] == ["stop"]
    run, world.held = world.held[0], None
    world.carry_out(world.manager.ended(run.number, 0, world.now))
    assert "qpidd-primary start node3" in world.done
    assert world.where()[PRIMARY] == (DISABLED, "")


def test_two_services_of_one_node_are_recovered_at_the_same_moment() -> None:
    world = World().up()
    world.failing = {("qpidd", "status", "node1"), ("qpidd-primary", "status", "node1")}
    world.held = []
    world.pass_time()
    runs, world.held = [run for run in world.held if run.node == "node1"], []
    for run in runs:  # the address first, and what follows it
        world.carry_out(world.manager.ended(run.number, int(run.resource.kind == "script"), world.now))
    while primary := [run for run in world.held if run.service == PRIMARY and run.action == "status"]:
        world.held = [run for run in world.held if run not in primary]
        code = int(primary[0].resource.kind == "script")
        world.carry_out(world.manager.ended(primary[0].number, code, world.now))
    assert sorted(f"{run.resource.name} {run.action}" for run in world.held) == ["qpidd stop", "qpidd-primary stop"]


@pytest.mark.parametrize("path", [OWN, SHIPPED], ids=["own", "shipped"])
def test_the_cluster_conf_is_the_one_of_the_book(path: Path) -> None:
    found = cluster_conf.load(path)
    assert found.nodes == ("node1", "node2", "node3")
    assert found.poll_interval == 1.0
    services = {service.name: service for service in found.services}
    assert set(services) == {*map(qpidd_service, found.nodes), PRIMARY}
    for node in found.nodes:
        service = services[qpidd_service(node)]
        assert service.domain is not None
        assert (service.domain.nodes, service.domain.restricted, service.recovery) == ((node,), True, "restart")
        assert [resource.file for resource in service.starting()] == ["/etc/init.d/qpidd"]
    primary = services[PRIMARY]
    assert (primary.domain, primary.recovery, primary.autostart) == (None, "relocate", True)
    kinds = [resource.kind for resource in primary.starting()]
    assert kinds == ["ip"] * (len(kinds) - 1) + ["script"]
    assert "ip" in kinds
    assert primary.starting()[-1].file == "/etc/init.d/qpidd-primary"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('recovery="relocate"', 'recovery="hope"', "hope"),
        ('domain="node1-domain"', 'domain="other"', "no such failover domain: other"),
        ('<script ref="qpidd"/>', '<script ref="qpid"/>', "no such resource"),
        ('failoverdomainnode name="node1"', 'failoverdomainnode name="node7"', "no such node: node7"),
        ('exclusive="0"', 'exclusive="1"', "exclusive"),
        ("<rm ", "<rm2 ", "wanted <cluster> with <rm>"),
    ],
)
def test_mistakes_in_the_file(old: str, new: str, text: str) -> None:
    broken = OWN.read_text().replace(old, new).replace("</rm>", "</rm2>" if "rm2" in new else "</rm>")
    with pytest.raises(ConfError, match=text):
        cluster_conf.parse(broken)


def test_domains_in_order_of_priority_and_trees() -> None:
    text = """
    <cluster name="c"><clusternodes>
      <clusternode name="b" nodeid="2"/><clusternode name="a" nodeid="1"/></clusternodes>
    <rm><failoverdomains><failoverdomain name="d" ordered="1">
      <failoverdomainnode name="a" priority="2"/><failoverdomainnode name="b" priority="1"/>
    </failoverdomain></failoverdomains>
    <service name="s" domain="d"><script name="outer" file="/o">
      <script name="inner" file="/i"/></script><ip address="192.0.2.1"/></service></rm></cluster>"""
    found = cluster_conf.parse(text)
    service = found.services[0]
    assert (found.nodes, found.poll_interval) == (("a", "b"), 10.0)
    assert service.domain is not None
    assert (service.domain.nodes, service.recovery) == (("b", "a"), "restart")
    assert [resource.name for resource in service.starting()] == ["192.0.2.1", "outer", "inner"]
    assert [resource.name for resource in service.stopping()] == ["inner", "outer", "192.0.2.1"]
