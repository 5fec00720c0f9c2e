"""Stories of brokers under their own manager: 1, 6, 7, 8, 9, 10, 15, 19, 20."""

from __future__ import annotations

from tests.spark.truth import files, scenes
from tests.spark.truth.story import Story
from tests.spark.truth.world import World


def _killed(world: World) -> None:
    """node1, the primary, dies at 0; qpid-cluster sees it 20 ms later."""
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)
    scenes.lost(world, ["node2", "node3"], "node1", 0.003, "Connection reset by peer")
    world.manager(0.020, "exit", peer="node1", reason="signal 9 (SIGKILL)")
    world.manager(0.0202, "election", reason="the primary node1 died (signal 9 (SIGKILL))")
    world.manager(0.022, "promote_request", peer="node2", reason="the primary node1 died")


def _taken_over(world: World) -> None:
    scenes.promotion(world, "node2", 0.023, 2, ["node3"])
    world.manager(0.041, "promoted", peer="node2", reason="the primary node1 died")
    scenes.ready(world, "node2", "node3", 0.150, 2, old="")
    scenes.active(world, "node2", 0.151)
    scenes.work(world, "node2", ["node3"], 1.5, 10.0, 2)


def _comes_back(world: World, node: str, primary: str, at: float, term: int) -> None:
    world.broker(node, at, "start")
    world.broker(node, at + 0.001, "state", old="standalone", new="joining", reason="start")
    scenes.ready(world, primary, node, at + 1.0, term)


def kill(world: World | None = None) -> Story:
    """1: a clean kill -9 of the primary, three nodes."""
    world = World() if world is None else world
    _killed(world)
    _taken_over(world)
    _comes_back(world, "node1", "node2", 1.0, 2)
    return Story(
        "1 kill -9",
        world.files(),
        world,
        "kill",
        "node1",
        "node2",
        phases={
            # its last line is the heartbeat that it got at -1
            "fault": (-0.9966, 0.003),
            "detection": (0.003, 0.0202),
            "decision": (0.0202, 0.022),
            "fencing": "no log here asks for fencing",
            "promotion": (0.023, 0.0391),
            "recovering": (0.039, 0.151),
            "path": "no resource was started on node2",
            "first_client": (0.0391, 0.060),
            "all_clients": (0.0391, 0.180),
            "redundancy": (0.0391, 2.0),
        },
        dual=[("node1", "node2", "excluded", "excluded", 19.1)],
        outages=[("p1", 0.001, 0.060), ("c1", 0.002, 0.180)],
    )


def hang() -> Story:
    """6: SIGSTOP of the primary from 0 to 6; no node is fenced.  Both held the role; no sign that both confirmed."""
    world = World()
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)
    world.manager(1.0, "hung", peer="node1", attrs={"seconds": "1.0"})
    world.manager(1.0001, "election", reason="the primary node1 hangs")
    world.manager(1.001, "promote_request", peer="node2", reason="the primary node1 hangs")
    scenes.promotion(world, "node2", 1.010, 2, ["node3"])
    scenes.ready(world, "node2", "node3", 1.3, 2, old="")
    scenes.active(world, "node2", 1.301)
    scenes.work(world, "node2", ["node3"], 1.5, 10.0, 2)
    world.broker("node1", 6.0, "demote", reason="node2 claims epoch 2", term=2)
    world.broker("node1", 6.001, "state", old="active", new="joining", reason="deposed by a higher epoch")
    scenes.ready(world, "node2", "node1", 6.1, 2)
    return Story(
        "6 hang and return",
        world.files(),
        world,
        "hang",
        "node1",
        "node2",
        phases={
            "fault": (-0.9966, 1.0),
            "detection": (1.0, 1.0),
            "decision": (1.0, 1.001),
            "promotion": (1.010, 1.0261),
            "recovering": (1.026, 1.301),
            "redundancy": (1.0261, 6.1),
            "first_client": "no client is known",
        },
        dual=[("node1", "node2", "certain", "possible", -4973.9)],
        unknown=["no log of any client"],
    )


def catching_up() -> Story:
    """7: the primary dies while node3 is catching up, and node1 does not come back."""
    world = World()
    for node in scenes.NODES[:2]:
        world.broker(node, -30.0, "start")
    world.broker("node1", -29.0, "promoted", term=1, last_pos=scenes.position(1, -29))
    scenes.ready(world, "node1", "node2", -28.5, 1)
    world.broker("node1", -28.4, "state", old="recovering", new="active")
    world.broker("node3", -3.0, "start")
    world.broker("node3", -2.9, "state", old="joining", new="catchup", reason="first frame from the primary", term=1)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)
    scenes.lost(world, ["node2", "node3"], "node1", 0.003, "Connection reset by peer")
    world.manager(0.020, "exit", peer="node1", reason="signal 9 (SIGKILL)")
    world.broker("node3", 0.0225, "promote_request", result="refused", reason="it is catching up")
    scenes.promotion(world, "node2", 0.040, 2, ["node3"])
    scenes.ready(world, "node2", "node3", 1.0, 2)
    scenes.active(world, "node2", 1.001)
    scenes.work(world, "node2", ["node3"], 1.5, 10.0, 2)
    return Story(
        "7 a backup in catch-up",
        world.files(),
        world,
        "kill",
        "node1",
        "node2",
        phases={
            "promotion": (0.040, 0.0561),
            "recovering": (0.056, 1.001),
            "redundancy": "not ready again: node1",
        },
        dual=[("node1", "node2", "excluded", "excluded", 36.1)],
        hints=["promotion-failed"],
    )


def twice() -> Story:
    """8: the new primary dies while it recovers; one incident with two promotions."""
    world = World()
    _killed(world)
    scenes.promotion(world, "node2", 0.023, 2, ["node3"])
    # the link's heartbeats go on: without them the clocks could not be compared
    scenes.heartbeat(world, "node2", "node3", 0.2)
    scenes.heartbeat(world, "node3", "node2", 0.2)
    scenes.lost(world, ["node3"], "node2", 0.503, "Connection reset by peer")
    world.manager(0.520, "exit", peer="node2", reason="signal 9 (SIGKILL)")
    world.manager(0.522, "promote_request", peer="node3", reason="the primary node2 died")
    scenes.promotion(world, "node3", 0.530, 3, [])
    scenes.active(world, "node3", 0.9)
    return Story(
        "8 a second failure while recovering",
        world.files(),
        world,
        "kill",
        "node1",
        "node3",
        promotions=2,
        phases={
            "fault": (-0.9966, 0.003),
            "promotion": (0.530, 0.5461),
            "recovering": (0.546, 0.9),
            "redundancy": "not ready again: node1, node2",
        },
        dual=[("node1", "node2", "excluded", "excluded", 19.1), ("node2", "node3", "excluded", "excluded", 26.1)],
        hints=["rapid-succession"],
    )


def all_die() -> Story:
    """9: power failure of all at 0; a minute later all start, and node3 is promoted with empty hands."""
    world = World()
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)
    for node in scenes.NODES:
        world.broker(node, 60.0, "start")
        world.broker(node, 60.001, "state", old="standalone", new="joining", reason="start")
    scenes.heartbeat(world, "node1", "node3", 60.5)
    scenes.heartbeat(world, "node3", "node1", 60.5)
    world.broker("node3", 62.0, "promote_request", attrs={"force": "False"})
    world.broker("node3", 62.016, "state", old="joining", new="recovering", reason="promoted", term=2)
    world.broker("node3", 62.0161, "promoted", term=2, last_pos=2 << 48, attrs={"total_failure": "true"})
    scenes.ready(world, "node3", "node1", 63.0, 2)
    scenes.ready(world, "node3", "node2", 63.5, 2)
    scenes.active(world, "node3", 63.6)
    return Story(
        "9 all die",
        world.files(),
        world,
        "crash",
        "node1",
        "node3",
        phases={
            "fault": (-0.9966, 60.0),
            "promotion": (62.0, 62.0161),
            "recovering": (62.016, 63.6),
            "redundancy": (62.0161, 63.5),
            "all_clients": "never back: p1",
        },
        outages=[("p1", 0.0, None), ("c1", 0.0, 63.7)],
        dual=[("node1", "node3", "excluded", "excluded", 2016.1)],
        near=["not-ready", "total_failure", "behind-confirmed"],
        hints=["near-miss"],
        censored=True,
    )


def planned() -> Story:
    """10: a planned switch-over."""
    world = World()
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)
    world.broker("node1", 0.0, "relocate", peer="node2", result="begin")
    world.broker("node1", 0.053, "demote", reason="relocation to node2")
    world.broker("node1", 0.0531, "state", old="active", new="joining", reason="stepped down")
    scenes.promotion(world, "node2", 0.055, 2, ["node1", "node3"])
    world.broker("node1", 0.0725, "relocate", peer="node2", result="done")
    scenes.ready(world, "node2", "node3", 0.1, 2, old="")
    scenes.ready(world, "node2", "node1", 0.11, 2)
    scenes.active(world, "node2", 0.111)
    scenes.work(world, "node2", ["node1", "node3"], 1.5, 6.0, 2)
    return Story(
        "10 planned switch-over",
        world.files(),
        world,
        "planned",
        "node1",
        "node2",
        phases={
            "fault": (0.0, 0.0),
            "detection": "it was asked for",
            "decision": (0.0, 0.055),
            "fencing": "no log here asks for fencing",
            "promotion": (0.055, 0.0711),
            "recovering": (0.071, 0.111),
            "redundancy": (0.0711, 0.11),
            "all_clients": (0.0711, 0.13),
        },
        outages=[("p1", 0.02, 0.13)],
        dual=[("node1", "node2", "excluded", "excluded", 18.1)],
    )


def log_lost() -> Story:
    """15: the first story without any log of node1."""
    story = kill()
    kept = files.without(story.files, "node1/")
    return Story(
        "15 a node's log is lost",
        kept,
        story.world,
        "kill",
        "node1",
        "node2",
        phases={
            "fault": "no sign of life of node1",
            "detection": (0.003, 0.0202),
            "promotion": (0.023, 0.0391),
            "recovering": (0.039, 0.151),
            "redundancy": (0.0391, 2.0),
        },
        # nothing says when node1 had become primary, so there is no pair to judge
        dual=[],
        unknown=["no log of node1", "no log of any client"],
    )


def unreplicated() -> Story:
    """19: node1 confirms what node3 does not hold yet (a bug); nothing is lost, for node2 holds it."""
    world = World()
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -1.5, 1)
    world.broker("node1", -0.9, "confirm_sent", first_pos=scenes.position(1, -1), last_pos=scenes.position(1, -0.9))
    world.broker("node3", -0.6, "repl_recv", last_pos=scenes.position(1, -2.0))
    scenes.lost(world, ["node2", "node3"], "node1", 0.003, "Connection reset by peer")
    world.manager(0.020, "exit", peer="node1", reason="signal 9 (SIGKILL)")
    scenes.promotion(world, "node2", 0.023, 2, ["node3"])
    scenes.ready(world, "node2", "node3", 0.150, 2, old="")
    scenes.active(world, "node2", 0.151)
    scenes.work(world, "node2", ["node3"], 1.5, 6.0, 2)
    return Story(
        "19 confirmed before it was replicated",
        world.files(),
        world,
        "kill",
        "node1",
        "node2",
        phases={"promotion": (0.023, 0.0391)},
        dual=[("node1", "node2", "excluded", "excluded", 19.1)],
        near=["confirmed-before-replicated"],
        hints=["near-miss"],
    )


def never() -> Story:
    """20: no broker may be promoted; the clients never come back."""
    world = World()
    _killed(world)
    world.broker("node2", 0.030, "promote_request", result="refused", reason="node3 does not answer")
    for second in range(1, 30):
        world.manager(float(second), "no_primary", reason="no broker is known to hold everything; waiting for node1")
    return Story(
        "20 it never recovers",
        world.files(),
        world,
        "kill",
        "node1",
        None,
        phases={
            "fault": (-0.9966, 0.003),
            "detection": (0.003, 0.0202),
            "decision": (0.0202, 0.022),
            "promotion": "no log here shows a promotion",
            "recovering": "no log here shows a promotion",
            "all_clients": "never back: c1, p1",
            "redundancy": "no log here shows a promotion",
        },
        outages=[("p1", 0.001, None), ("c1", 0.002, None)],
        hints=["promotion-failed", "none-promoted"],
        censored=True,
    )


STORIES = (kill, hang, catching_up, twice, all_die, planned, log_lost, unreplicated, never)
