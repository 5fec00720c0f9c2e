"""What brokers, Pacemaker and Corosync write in the ordinary course of things: a story tells only what is special."""

from __future__ import annotations

from collections.abc import Iterable

from tests.spark.truth.world import World

NODES = ("node1", "node2", "node3")
DELAY = 0.0004
"""s on the network"""
NUMBERS = {"node1": 1, "node2": 2, "node3": 3}


def position(term: int, at: float) -> int:
    """100 messages a second."""
    return (term << 48) + 10_000 + round(at * 100)


def up(world: World, primary: str = "node1", at: float = -30.0, nodes: Iterable[str] = NODES, term: int = 1) -> None:
    """A new cluster: all are started, one is promoted, the others become ready within a second."""
    for node in nodes:
        world.broker(node, at, "start")
        world.broker(node, at + 0.01, "state", old="standalone", new="joining", reason="start")
    world.broker(primary, at + 0.4, "state", old="joining", new="recovering", reason="promoted", term=term)
    world.broker(primary, at + 0.4001, "promoted", term=term, last_pos=position(term, at))
    for node in nodes:
        if node != primary:
            ready(world, primary, node, at + 0.8, term)
    world.broker(primary, at + 0.9, "state", old="recovering", new="active", reason="all are back")


def ready(world: World, primary: str, backup: str, at: float, term: int, old: str = "catchup") -> None:
    """The primary lists it; the backup reads that 2 ms later."""
    world.broker(primary, at, "membership", peer=backup, result="ready", term=term)
    if old:
        world.broker(backup, at + 0.002, "state", old=old, new="ready", reason="listed by the primary", term=term)


def work(world: World, primary: str, backups: Iterable[str], begin: float, end: float, term: int) -> None:
    """Once a second: how far it is, and each link's heartbeat with the sender's clock."""
    backups = list(backups)
    at = begin
    while at < end:
        world.broker(primary, at, "repl_send", last_pos=position(term, at), term=term)
        world.broker(primary, at + 0.0001, "confirm_sent", last_pos=position(term, at), term=term)
        for backup in backups:
            world.broker(backup, at + 0.001, "repl_recv", last_pos=position(term, at) + 1, term=term)
            heartbeat(world, primary, backup, at + 0.002)
            heartbeat(world, backup, primary, at + 0.003)
        at += 1.0


def heartbeat(world: World, sender: str, receiver: str, at: float) -> None:
    wall = world.clocks[sender].wall(at, world.start)
    world.broker(receiver, at + DELAY, "clock", peer=sender, attrs={"peer_wall": str(wall)})


def promotion(world: World, node: str, at: float, term: int, voters: Iterable[str], old: str = "ready") -> None:
    """Asked at `at`; claimed 8 ms, promoted 16 ms later."""
    world.broker(node, at, "promote_request", attrs={"force": "False"})
    for voter in voters:
        world.broker(voter, at + 0.008, "claim", peer=node, result="granted", term=term)
    world.broker(node, at + 0.016, "state", old=old, new="recovering", reason="promoted", term=term)
    world.broker(node, at + 0.0161, "promoted", term=term, last_pos=position(term, at), attrs={"members": "2"})


def active(world: World, node: str, at: float) -> None:
    world.broker(node, at, "state", old="recovering", new="active", reason="every expected backup is back or given up")


def lost(world: World, nodes: Iterable[str], primary: str, at: float, reason: str) -> None:
    for node in nodes:
        world.broker(node, at, "primary_lost", peer=primary, reason=reason)


# ---- Pacemaker and Corosync -----------------------------------------------------------------------------------------


def token_lost(world: World, nodes: Iterable[str], at: float) -> None:
    text = "A processor failed, forming new configuration: token timed out (1000ms), waiting 1200ms for consensus."
    for node in nodes:
        world.corosync(node, at, "TOTEM", text)


def ring(world: World, nodes: Iterable[str], at: float, name: str, joined: str = "", left: str = "") -> None:
    change = (f" joined: {joined}" if joined else "") + (f" left: {left}" if left else "")
    for node in nodes:
        world.corosync(node, at, "TOTEM", f"A new membership ({name}) was formed. Members{change}")


def fsa(world: World, node: str, at: float, old: str, new: str) -> None:
    world.pacemaker(
        node, at, "controld", f"State transition {old} -> {new} | input=I_PE_CALC cause=C_FSA_INTERNAL origin=x"
    )


def idle(world: World, node: str, at: float) -> None:
    fsa(world, node, at, "S_TRANSITION_ENGINE", "S_IDLE")


def plan_failover(world: World, dc: str, at: float, old: str, new: str, number: int, fence: bool = True) -> None:
    """What the scheduler prints, and the graph that follows 20 ms later."""
    if fence:
        world.pacemaker(
            dc, at, "schedulerd", f"Cluster node {old} will be fenced: peer is no longer part of the cluster"
        )
        world.pacemaker(dc, at, "schedulerd", f"Actions: Fence (reboot) {old} 'peer is no longer part of the cluster'")
    world.pacemaker(
        dc, at, "schedulerd", f"Actions: Promote    broker:1     (                Unpromoted -> Promoted {new} )"
    )
    world.pacemaker(
        dc, at + 0.008, "schedulerd", f"Calculated transition {number}, saving inputs in /x/pe-input-{number}.bz2"
    )
    seconds = (world.clocks[dc].wall(at, world.start)) // 1_000_000
    ref = f"pe_calc-pacemaker-controld-{seconds}-{number}"
    world.pacemaker(
        dc, at + 0.012, "controld", f"Processing graph {number} (ref={ref}) derived from /x/pe-input-{number}.bz2"
    )


def fencing(world: World, dc: str, at: float, done: float, target: str, by: str) -> None:
    world.pacemaker(dc, at, "controld", f"Requesting fencing (reboot) targeting node {target} | action=1 timeout=60000")
    for node in sorted({dc, by}):
        text = (
            f"Operation 'reboot' targeting {target} by {by} for pacemaker-controld.51@{dc}: OK (complete) | id=d43e5649"
        )
        world.pacemaker(node, done, "fenced", text)


def promote(world: World, dc: str, at: float, done: float, node: str, number: int) -> None:
    """The DC initiates, the target is asked 1 ms later, its agent says ok, the DC confirms."""
    world.pacemaker(dc, at, "controld", f"Initiating promote operation broker_promote_0 on {node} | action 7")
    key = f"transition_key=7:{number}:0:1b6a3b2e-0000-4000-8000-000000000001 op_key=broker_promote_0"
    world.pacemaker(
        node, at + 0.001, "controld", f"Requesting local execution of promote operation for broker on {node} | {key}"
    )
    text = _result("promote", "broker", node, 22)
    world.pacemaker(node, done, "controld", text)
    text = f"Transition {number} action 7 (broker_promote_0 on {node}) confirmed: ok | rc=0 call-id=22"
    world.pacemaker(dc, done + 0.001, "controld", text)


def _result(task: str, resource: str, node: str, call: int) -> str:
    head = f"Result of {task} operation for {resource} on {node}: ok | CIB update 28, graph action confirmed"
    return f"{head}; call={call} key={resource}_{task}_0 rc=0"


def address(world: World, node: str, at: float) -> None:
    text = _result("start", "vip", node, 23)
    world.pacemaker(node, at, "controld", text)
