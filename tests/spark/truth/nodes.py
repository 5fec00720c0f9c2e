"""Stories of a Pacemaker cluster: 2, 3, 4, 11, 12; and of its clocks: 14."""

from __future__ import annotations

from collections.abc import Callable

from tests.spark.truth import scenes
from tests.spark.truth.story import Story
from tests.spark.truth.world import START, World

DC = "node3"


def _calm(world: World, brokers: bool = True) -> None:
    """Until 0; node1 is primary.  Rings and an earlier promotion let the clocks be compared."""
    for node in scenes.NODES:
        world.corosync(node, -60.0, "MAIN", "Corosync Cluster Engine 3.1.7 starting up")
        world.pacemaker(node, -59.5, "pacemakerd", "Starting Pacemaker 2.1.5 | build=x")
    scenes.ring(world, scenes.NODES, -50.0, "1.d", joined="1 2 3")
    world.pacemaker(DC, -41.0, "schedulerd", "Actions: Promote    broker:0     (    Unpromoted -> Promoted node1 )")
    scenes.promote(world, DC, -40.0, -39.8, "node1", 1)
    _probe(world, -35.0, "node1", 2)
    _probe(world, -34.0, "node2", 2)
    scenes.idle(world, DC, -30.0)
    if brokers:
        scenes.up(world, at=-40.3)
        scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)


def _probe(world: World, at: float, node: str, number: int) -> None:
    """An operation there and back: DC, node, node, DC."""
    world.pacemaker(DC, at, "controld", f"Initiating monitor operation broker_monitor_1000 on {node} | action 9")
    key = f"transition_key=9:{number}:0:1b6a3b2e-0000-4000-8000-000000000001 op_key=broker_monitor_1000"
    text = f"Requesting local execution of monitor operation for broker on {node} | {key}"
    world.pacemaker(node, at + 0.001, "controld", text)
    text = f"Result of monitor operation for broker on {node}: ok | CIB update 9, graph action confirmed; call=9"
    world.pacemaker(node, at + 0.020, "controld", f"{text} key=broker_monitor_1000 rc=0")
    text = f"Transition {number} action 9 (broker_monitor_1000 on {node}) confirmed: ok | rc=0 call-id=9"
    world.pacemaker(DC, at + 0.021, "controld", text)


def _lost(world: World, survivors: tuple[str, ...] = ("node2", "node3")) -> None:
    """The token is missed 0.9 s after 0, the ring without node1 stands at 2.1."""
    scenes.token_lost(world, survivors, 0.9)
    scenes.ring(world, ("node2", "node3"), 2.1, "2.1a", left="1")
    scenes.fsa(world, DC, 2.105, "S_IDLE", "S_POLICY_ENGINE")


def _brokers_take_over(world: World, at: float) -> None:
    scenes.promotion(world, "node2", at, 2, ["node3"])
    scenes.ready(world, "node2", "node3", at + 0.1, 2, old="")
    scenes.active(world, "node2", at + 0.101)
    scenes.work(world, "node2", ["node3"], at + 2, at + 8, 2)


def crash() -> Story:
    """2: node1, the primary's, dies at 0 and is fenced."""
    world = World()
    _calm(world)
    _lost(world)
    scenes.plan_failover(world, DC, 2.15, "node1", "node2", 8)
    scenes.fencing(world, DC, 2.18, 2.6, "node1", "node2")
    scenes.promote(world, DC, 2.605, 2.8, "node2", 8)
    _brokers_take_over(world, 2.65)
    scenes.address(world, "node2", 3.2)
    scenes.idle(world, DC, 3.3)
    world.broker("node1", 30.0, "start")
    scenes.ready(world, "node2", "node1", 31.0, 2)
    return Story(
        "2 a node crashes and is fenced",
        world.files(),
        world,
        "crash",
        "node1",
        "node2",
        phases={
            # 1000 ms, the token's timeout, before it was missed
            "fault": (-0.1, 0.9),
            "detection": (0.9, 2.1),
            "decision": (2.1, 2.15),
            "fencing": (2.18, 2.6),
            "promotion": (2.605, 2.8),
            "recovering": (2.666, 2.751),
            "path": (2.8, 3.2),
            "redundancy": (2.6661, 31.0),
            "all_clients": (2.6661, 3.4),
        },
        outages=[("p1", 0.0, 3.3), ("c1", 0.0, 3.4)],
        dual=[("node1", "node2", "excluded", "excluded", 66.1)],
    )


def _cut_off(world: World) -> None:
    """node1 is alone from 0 on, lives, and knows it."""
    _lost(world, scenes.NODES)
    scenes.ring(world, ("node1",), 2.1, "1.1a", left="2 3")
    world.corosync(
        "node1", 2.101, "QUORUM", "This node is within the non-primary component and will NOT provide any service."
    )
    for peer in ("node2", "node3"):
        world.broker("node1", 1.0, "backup_lost", peer=peer, reason="no frame for 1 s")
    scenes.lost(world, ("node2", "node3"), "node1", 1.0, "no frame for 1 s")
    # it lives, so its own lines do not say when it was cut off
    world.broker("node1", 0.5, "repl_send", last_pos=scenes.position(1, 0.5))
    world.broker("node1", 1.5, "isolated", result="begun", reason="no majority")


def partition() -> Story:
    """3: node1, the primary's, is cut off; fenced before node2 is promoted."""
    world = World()
    _calm(world)
    _cut_off(world)
    scenes.plan_failover(world, DC, 2.15, "node1", "node2", 8)
    scenes.fencing(world, DC, 2.18, 2.6, "node1", "node2")
    scenes.promote(world, DC, 2.605, 2.8, "node2", 8)
    _brokers_take_over(world, 2.65)
    scenes.address(world, "node2", 3.2)
    scenes.idle(world, DC, 3.3)
    return Story(
        "3 partition, the primary in the minority",
        world.files(),
        world,
        "partition",
        "node1",
        "node2",
        phases={
            "fault": (-0.1, 0.9),
            "detection": (0.9, 2.1),
            "decision": (2.1, 2.15),
            "fencing": (2.18, 2.6),
            "promotion": (2.605, 2.8),
            "path": (2.8, 3.2),
            "redundancy": "not ready again: node1",
        },
        dual=[("node1", "node2", "excluded", "excluded", 66.1)],
        hints=["isolated"],
    )


def late_fencing() -> Story:
    """4: node2 is promoted at 2.6661, node1 is fenced 900 ms later; both confirmed meanwhile."""
    world = World()
    _calm(world)
    _cut_off(world)
    scenes.plan_failover(world, DC, 2.15, "node1", "node2", 8, fence=False)
    scenes.promote(world, DC, 2.605, 2.8, "node2", 8)
    _brokers_take_over(world, 2.65)
    for at in (2.9, 3.2):
        world.broker("node1", at, "confirm_sent", first_pos=1, last_pos=scenes.position(1, at))
    for at in (3.0, 3.1):
        world.broker("node2", at, "confirm_sent", first_pos=1, last_pos=scenes.position(2, at))
    world.broker("node1", 3.4, "repl_send", last_pos=scenes.position(1, 3.4))
    scenes.fencing(world, DC, 3.1, 3.5661, "node1", "node2")
    scenes.address(world, "node2", 3.7)
    scenes.idle(world, DC, 3.8)
    return Story(
        "4 partition, fenced too late",
        world.files(),
        world,
        "partition",
        "node1",
        "node2",
        phases={"fencing": (3.1, 3.566), "promotion": (2.605, 2.8), "path": (2.8, 3.7)},
        dual=[("node1", "node2", "certain", "certain", -900.0)],
        hints=["late-or-no-fencing", "isolated"],
    )


def false_alarm() -> Story:
    """11: the token is lost, and the same ring comes back."""
    world = World()
    _calm(world)
    scenes.token_lost(world, scenes.NODES, 0.9)
    scenes.ring(world, scenes.NODES, 1.4, "1.11")
    return Story(
        "11 false alarm",
        world.files(),
        world,
        "false-alarm",
        None,
        None,
        phases={
            "fault": (-0.1, 0.9),
            "detection": (0.9, 1.4),
            "decision": "no plan",
            "fencing": "no log here asks for fencing",
            "promotion": "no log here shows a promotion",
        },
        dual=[],
    )


def cleanup() -> World:
    """12: a cleanup and its re-probe: `Promote` is planned, and what runs is found."""
    world = World()
    _calm(world)
    text = "Actions: Promote    broker:0     (    Stopped -> Promoted node1 )"
    world.pacemaker(DC, 0.0, "schedulerd", text)
    world.pacemaker(DC, 0.008, "schedulerd", "Calculated transition 10, saving inputs in /x/pe-input-10.bz2")
    text = "Transition 10 action 4 (broker_monitor_0 on node1): expected 'not running' but got 'promoted'"
    world.pacemaker(DC, 0.2, "controld", f"{text} | target-rc=7 rc=8 call-id=35")
    scenes.idle(world, DC, 1.0)
    scenes.work(world, "node1", ["node2", "node3"], 1.0, 6.0, 1)
    return world


def _zoned(world: World, zones: dict[str, str], modified: int, name: str) -> Story:
    """The story of the crash as Pacemaker and Corosync alone tell it."""
    _calm(world, brokers=False)
    _lost(world)
    scenes.plan_failover(world, DC, 2.15, "node1", "node2", 8)
    scenes.fencing(world, DC, 2.18, 2.6, "node1", "node2")
    scenes.promote(world, DC, 2.605, 2.8, "node2", 8)
    scenes.address(world, "node2", 3.2)
    scenes.idle(world, DC, 3.3)
    return Story(
        name,
        world.files(),
        world,
        "crash",
        "node1",
        "node2",
        phases={
            "fault": (-0.1, 0.9),
            "detection": (0.9, 2.1),
            "decision": (2.1, 2.15),
            "fencing": (2.18, 2.6),
            "promotion": (2.605, 2.8),
            "recovering": "no log of the broker on node2",
            "path": (2.8, 3.2),
            "redundancy": "no log of any broker",
        },
        dual=[("node1", "node2", "excluded", "excluded", 200.0)],
        unknown=["no log of any broker", "no log of any client"],
        # two ticks and the way there and back bound each clock
        error=0.025,
        options={"zones": zones, "modified": modified},
    )


def wrong_zone() -> Story:
    """14: node2's logs are an hour ahead, and no log says so."""
    world = World()
    world.clocks["node2"].zone = 1.0
    return _zoned(world, {"*": "UTC"}, START + 3_600_000_000, "14 a wrong zone")


def daylight_saving() -> Story:
    """14: in Berlin clocks go from 02:00 to 03:00 at 0; node2 stands there, and its zone is told."""
    world = World(start=1_774_746_000_000_000)  # 2026-03-29 01:00:00 UTC
    files = _berlin(world)
    story = _zoned(world, {"*": "UTC", "node2": "Europe/Berlin"}, world.start + 3_600_000_000, "14 daylight saving")
    return Story(**{**vars(story), "files": files(story)})


def _berlin(world: World) -> Callable[[Story], dict[str, list[bytes]]]:
    """node2's text logs in the local time of Berlin: an hour ahead before 0, two after."""

    def files(story: Story) -> dict[str, list[bytes]]:
        world.clocks["node2"].zone = 1.0
        before = world.files()
        world.clocks["node2"].zone = 2.0
        after = world.files()
        world.clocks["node2"].zone = 0.0
        right = world.files()
        made = dict(right)
        for name in right:
            if name.startswith("node2/"):
                passed = sum(b" 00:" in line[:12] for line in right[name])
                made[name] = before[name][:passed] + after[name][passed:]
        return made

    return files


def new_year() -> Story:
    """14: from 2026 into 2027 at 0; the lines have no year."""
    world = World(start=1_798_761_600_000_000)  # 2027-01-01 00:00:00 UTC
    return _zoned(world, {"*": "UTC"}, world.start + 60_000_000, "14 over New Year")


STORIES = (crash, partition, late_fencing, false_alarm, wrong_zone, daylight_saving, new_year)
