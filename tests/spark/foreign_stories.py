"""What happened in clusters that are not ours, with the answers: written by hand, from the story and before any run.

`type`, `old`, `new`: of the one incident with all logs (None: there is none); `moves`: resource → (what, from, to);
`ended`: (resource, node) of instances that ended in order beside others, which all logs together tell;
`hints`: rules that must speak; `says`: what the reason must contain; `never`: what is wrong whatever is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.spark.foreign_world import DIALECTS, V11, V20, Cluster, Dialect, Layout

Move = tuple[str, str, str | None]


@dataclass(frozen=True)
class Foreign:
    cluster: Cluster
    type: str | None
    old: str | None = None
    new: str | None = None
    moves: Mapping[str, Move] = field(default_factory=dict)
    ended: tuple[tuple[str, str], ...] = ()
    hints: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


GROUP = ("fs", "db", "vip")


def _group_up(c: Cluster, node: str, at: float = -60) -> None:
    for number, rsc in enumerate(GROUP):
        c.run(at + number, "start", rsc, node)
    c.idle(at + 5)


def _group_starts(c: Cluster, node: str, at: float) -> float:
    for number, rsc in enumerate(GROUP):
        c.run(at + number, "start", rsc, node, took=0.5)
    c.idle(at + 4)
    return at + 4


def _group_stops(c: Cluster, node: str, at: float) -> None:
    for number, rsc in enumerate(reversed(GROUP)):
        c.run(at + number / 2, "stop", rsc, node)


def _moves(old: str, new: str | None, what: str = "moved", group: tuple[str, ...] = GROUP) -> dict[str, Move]:
    return dict.fromkeys(group, (what, old, new))


def _dies(c: Cluster, node: str = "n2") -> None:
    """A node's power is cut at 0; the token is missed at 1, its group was there."""
    c.lost(1, node, *(other for other in c.nodes if other != node))
    c.plan(2.25, *(("Move", rsc, f"{node} -> {c.dc}") for rsc in GROUP))
    c.ask(2.25, node)


def ipmi(d: Dialect, where: Layout) -> Foreign:
    """Two nodes, a group of Filesystem, a database and IPaddr2; fence_ipmilan resets n2."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    _dies(c)
    c.fenced(12.3, "n2")
    _group_starts(c, "n1", 12.4)
    return Foreign(c, "fencing", moves=_moves("n2", "n1"), says=("node n2 was fenced",))


def ipmi_at_the_second_try(d: Dialect, where: Layout) -> Foreign:
    """The management board did not answer at first."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    _dies(c)
    c.fenced(22.3, "n2", "Timer expired" if d in (V11, V20) else "Error occurred")
    c.ask(23, "n2")
    c.fenced(33, "n2")
    _group_starts(c, "n1", 33.1)
    return Foreign(c, "fencing", moves=_moves("n2", "n1"), hints=("fence-retries",), says=("node n2 was fenced",))


def no_device(d: Dialect, where: Layout) -> Foreign:
    """Nothing could fence n2: its group stays where it was."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    _dies(c)
    c.fenced(2.5, "n2", "No such device", by="<no-one>" if d in (V11, V20) else "unknown node")
    return Foreign(c, "fencing", hints=("fence-retries",), says=("no log here says that it was",))


def confirmed_by_hand(d: Dialect, where: Layout) -> Foreign:
    """The administrator says that n2 is down (`stonith_admin --confirm`)."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    _dies(c)
    c.fenced(2.5, "n2", "No such device", by="<no-one>" if d in (V11, V20) else "unknown node")
    c.fenced(95, "n2", how="off", by="a human", client="stonith_admin")
    _group_starts(c, "n1", 95.2)
    return Foreign(c, "fencing", moves=_moves("n2", "n1"), says=("said to be down by an administrator",))


def left_in_order(d: Dialect, where: Layout) -> Foreign:
    """`pcs cluster stop n2`: the group moves, n1 goes on."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    c.leave(0, "n2", took=4)
    c.plan(0.1, *(("Move", rsc, f"n2 -> {c.dc}") for rsc in GROUP))
    _group_stops(c, "n2", 0.2)
    c.lost(4.2, "n2", "n1", token=False)
    _group_starts(c, "n1", 5.6)
    never = ("all of the cluster",)
    return Foreign(c, "down", moves=_moves("n2", "n1"), says=("stopped on n2, and n1 went on",), never=never)


def standby(d: Dialect, where: Layout) -> Foreign:
    """`pcs node standby n2`: the group moves, nothing failed."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    c.plan(0.1, *(("Move", rsc, f"n2 -> {c.dc}") for rsc in GROUP))
    _group_stops(c, "n2", 0.2)
    _group_starts(c, "n1", 2)
    return Foreign(c, "moved", moves=_moves("n2", "n1"))


def restarted_in_place(d: Dialect, where: Layout) -> Foreign:
    """The database died; it and what stands on it are started again on the same node."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    c.found(0, "db", "n2", 7)
    c.plan(0.1, ("Recover", "db", "n2"), ("Restart", "vip", "n2"))
    c.run(0.2, "stop", "vip", "n2")
    c.run(0.4, "stop", "db", "n2")
    c.run(1, "start", "db", "n2", took=0.8)
    c.run(2, "start", "vip", "n2")
    c.idle(3)
    return Foreign(c, "unknown", moves={"db": ("restarted", "n2", "n2"), "vip": ("restarted", "n2", "n2")})


def no_quorum(d: Dialect, where: Layout) -> Foreign:
    """n1, the DC, is cut off with the group and stops it (no-quorum-policy=stop); n2 and n3 start it.  No fencing."""
    c = Cluster(d, where, nodes=("n1", "n2", "n3"))
    _group_up(c, "n1")
    c.lost(1, "n1", "n2", "n3")
    c.lost(1, "n2", "n1", ring=21)
    c.say(2.22, "n1", "controld", "quorum", new="lost")
    c.plan(2.3, *(("Stop", rsc, "n1") for rsc in GROUP))
    _group_stops(c, "n1", 2.4)
    c.idle(5)
    c.dc = "n2"
    c.say(2.25, "n2", "controld", "fsa", old="S_NOT_DC", new="S_ELECTION", reason="I_ELECTION")
    c.plan(24, *(("Start", rsc, "n2") for rsc in GROUP))
    _group_starts(c, "n2", 24.1)
    return Foreign(c, "unknown", moves=_moves("n1", "n2"))


def coordinator_dies(d: Dialect, where: Layout) -> Foreign:
    """n1, the DC, had nothing but that role; it is fenced, and the group of n2 goes on."""
    c = Cluster(d, where, nodes=("n1", "n2", "n3"))
    _group_up(c, "n2")
    c.dc = "n3"
    c.lost(1, "n1", "n2", "n3")
    c.say(2.25, "n3", "controld", "fsa", old="S_NOT_DC", new="S_ELECTION", reason="I_ELECTION")
    c.plan(3)
    c.ask(3, "n1")
    c.fenced(9, "n1")
    c.idle(9.1)
    return Foreign(c, "fencing", says=("node n1 was fenced",))


def unfenced(d: Dialect, where: Layout) -> Foreign:
    """A node joins and is let to the disks (fence_scsi): `on` is no fencing."""
    c = Cluster(d, where)
    _group_up(c, "n1")
    c.say(0, "n1", "controld", "asked", how="on", peer="n2")
    c.fenced(0.5, "n2", how="on")
    return Foreign(c, None)


def migrated(d: Dialect, where: Layout) -> Foreign:
    """A virtual machine moves while it runs."""
    c = Cluster(d, where)
    c.run(-60, "start", "vm", "n2")
    c.plan(0, ("Migrate", "vm", "n2 -> n1"))
    c.run(0.1, "migrate_to", "vm", "n2", took=4)
    c.run(4.2, "migrate_from", "vm", "n1")
    c.run(4.5, "stop", "vm", "n2")
    c.idle(5)
    return Foreign(c, None)


def daemons_end_in_order(d: Dialect, where: Layout) -> Foreign:
    """Both nodes are stopped, one after the other."""
    c = Cluster(d, where)
    _group_up(c, "n1")
    c.leave(0, "n2")
    c.lost(2.2, "n2", "n1", token=False)
    _group_stops(c, "n1", 5.1)
    c.leave(5, "n1")
    moves = {"fs": ("stopped", "n1", None), "db": ("stopped", "n1", None), "vip": ("stopped", "n1", None)}
    return Foreign(c, "down", moves=moves, says=("stopped on n1, n2",))


def controller_killed(d: Dialect, where: Layout) -> Foreign:
    c = Cluster(d, where)
    _group_up(c, "n1")
    child = "crmd" if d.old else "pacemaker-controld"
    c.say(0, "n1", "pacemakerd", "killed", child=child, pid=57)
    return Foreign(c, "controller", says=("software failed on n1",))


# ---- databases with a primary ---------------------------------------------------------------------------------------


def _database_up(c: Cluster, primary: str = "n1") -> None:
    """PAF: pgsqld is promoted on one node, `pgsql-vip` stands there."""
    for node in c.nodes:
        c.corosync(-120, node, "MAIN", "Corosync Cluster Engine ('3.1.7'): started and ready to provide service.")
        c.run(-90, "start", "pgsqld", node)
    c.run(-80, "promote", "pgsqld", primary)
    c.run(-79, "start", "pgsql-vip", primary)
    c.found(-78, "pgsqld", primary, 8, 8, every=15000)
    c.idle(-70)


def _promoted(c: Cluster, at: float, node: str) -> None:
    c.run(at, "promote", "pgsqld", node, took=0.9)
    c.run(at + 1, "start", "pgsql-vip", node)
    c.found(at + 1.5, "pgsqld", node, 8, 8, every=15000)
    c.idle(at + 2)


def paf_node_dies(d: Dialect, where: Layout) -> Foreign:
    c = Cluster(d, where, nodes=("n1", "n2", "n3"), dc="n2")
    _database_up(c)
    c.lost(1, "n1", "n2", "n3")
    c.plan(2.25, ("Promote", "pgsqld:1", "Slave -> Master n2" if d in (V11, V20) else "Unpromoted -> Promoted n2"))
    c.ask(2.25, "n1")
    c.fenced(10, "n1")
    _promoted(c, 10.1, "n2")
    return Foreign(c, "crash", "n1", "n2", {"pgsql-vip": ("moved", "n1", "n2")})


def paf_process_dies(d: Dialect, where: Layout) -> Foreign:
    """The postmaster of n1 is killed; n1 is demoted, stopped, and n2 promoted."""
    c = Cluster(d, where, dc="n2")
    _database_up(c)
    c.found(0, "pgsqld", "n1", 7, 8, every=15000)
    c.plan(0.1, ("Promote", "pgsqld:1", "Slave -> Master n2" if d in (V11, V20) else "Unpromoted -> Promoted n2"))
    c.run(0.2, "stop", "pgsql-vip", "n1")
    c.run(0.4, "demote", "pgsqld", "n1", took=0.5)
    c.run(1, "stop", "pgsqld", "n1")
    _promoted(c, 1.5, "n2")
    return Foreign(c, "kill", "n1", "n2", {"pgsql-vip": ("moved", "n1", "n2")})


def paf_standby(d: Dialect, where: Layout) -> Foreign:
    """`crm node standby n1`: a switch-over in order."""
    c = Cluster(d, where, dc="n2")
    _database_up(c)
    c.plan(0, ("Promote", "pgsqld:1", "Slave -> Master n2" if d in (V11, V20) else "Unpromoted -> Promoted n2"))
    c.run(0.2, "stop", "pgsql-vip", "n1")
    c.run(0.4, "demote", "pgsqld", "n1", took=0.5)
    c.run(1, "stop", "pgsqld", "n1")
    _promoted(c, 1.5, "n2")
    return Foreign(c, "planned", "n1", "n2", {"pgsql-vip": ("moved", "n1", "n2")})


def two_that_are_promoted(d: Dialect, where: Layout) -> Foreign:
    """Two DRBD devices, each primary on its own node, as it was meant; n2 leaves in order, and its one moves."""
    c = Cluster(d, where, nodes=("n1", "n2", "n3"), dc="n3")
    for number, (rsc, node) in enumerate((("drbd_a", "n1"), ("drbd_b", "n2"))):
        for each in ("n1", "n2"):
            c.run(-90 + number * 10, "start", rsc, each)
        c.run(-85 + number * 10, "promote", rsc, node)
    c.idle(-60)
    c.plan(0)
    c.run(0.2, "demote", "drbd_b", "n2")
    c.run(0.5, "stop", "drbd_b", "n2")
    c.run(0.5, "stop", "drbd_a", "n2")
    c.run(1, "promote", "drbd_b", "n1")
    c.idle(2)
    return Foreign(c, "moved", moves={"drbd_b": ("moved", "n2", "n1")}, ended=(("drbd_a", "n2"),))


# ---- sbd ------------------------------------------------------------------------------------------------------------


def poison_pill(d: Dialect, where: Layout) -> Foreign:
    """fence_sbd writes a reset into the slot of n2 on the shared disk; the sbd of n2 reads it and resets its node."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    _dies(c)
    c.sbd(2.4, "n1", "notice", "slot_msg: Writing reset to node slot n2", "/dev/sdb1")
    c.sbd(3.4, "n2", "notice", "servant_md: Received command reset from n1 on disk /dev/sdb1", "/dev/sdb1")
    c.sbd(3.4, "n2", "warning", "inquisitor_child: /dev/sdb1 requested a reset")
    c.sbd(3.4, "n2", "emerg", "do_exit: Rebooting system: reboot")
    c.fenced(12.3, "n2")
    _group_starts(c, "n1", 12.4)
    return Foreign(c, "fencing", moves=_moves("n2", "n1"), hints=("watchdog",), says=("node n2 was fenced",))


def watchdog(d: Dialect, where: Layout) -> Foreign:
    """sbd without a disk: n2 is cut off, loses quorum, and its sbd resets it; the others wait for ten seconds."""
    c = Cluster(d, where, nodes=("n1", "n2", "n3"))
    _group_up(c, "n2")
    _dies(c)
    c.sbd(5.3, "n2", "warning", "inquisitor_child: Servant pcmk is outdated (age: 4)")
    for second in (6, 7):
        said = f"No liveness for {second - 2}s exceeds watchdog warning timeout of 3s (healthy servants: 0)"
        c.sbd(second + 0.3, "n2", "warning", f"inquisitor_child: Latency: {said}")
    c.sbd(8.3, "n2", "emerg", "do_exit: Rebooting system: reboot")
    c.self_fenced(2.4, "n2")
    _group_starts(c, "n1", 12.6)
    return Foreign(
        c,
        "fencing",
        moves=_moves("n2", "n1"),
        hints=("self-fenced",),
        says=("by its own sbd",),
        never=("learned that",),
    )


def watchdog_unseen(d: Dialect, where: Layout) -> Foreign:
    """The same, and n2 hung: sbd wrote nothing, its watchdog reset it.  That it did, nobody says."""
    c = Cluster(d, where, nodes=("n1", "n2", "n3"))
    _group_up(c, "n2")
    _dies(c)
    c.self_fenced(2.4, "n2")
    _group_starts(c, "n1", 12.6)
    return Foreign(c, "fencing", moves=_moves("n2", "n1"), says=("taken for fenced",), never=("its own sbd",))


def pending(d: Dialect, where: Layout) -> Foreign:
    """n2 is started and not yet a member: its sbd waits, and nothing failed."""
    c = Cluster(d, where)
    _group_up(c, "n1")
    c.say(0, "n2", "pacemakerd", "up")
    c.sbd(3, "n2", "warning", "set_servant_health: Node state: pending", "pcmk")
    c.say(9, "n1", "controld", "state", peer="n2", old="lost", new="member")
    return Foreign(c, None)


def disks_lost(d: Dialect, where: Layout) -> Foreign:
    """The shared disks are gone; sbd goes on, since Pacemaker sees its peers."""
    c = Cluster(d, where)
    _group_up(c, "n1")
    for number, node in enumerate(c.nodes):
        c.sbd(number, node, "warning", "inquisitor_child: Servant /dev/sdb1 is outdated (age: 4)")
        c.sbd(number + 1, node, "warning", "inquisitor_child: Majority of devices lost - surviving on pacemaker")
    return Foreign(c, None)


# ---- an administrator's word ----------------------------------------------------------------------------------------


def _unmanaged(c: Cluster, by: str, on: str, off: str) -> None:
    """The database dies while nobody may start it but the administrator, who does."""
    _group_up(c, "n2")
    c.changed(-20, by, on)
    c.found(0, "db", "n2", 7)
    c.found(40, "db", "n2", 0)
    c.changed(60, by, off)
    c.idle(61)


def maintenance(d: Dialect, where: Layout) -> Foreign:
    """`pcs property set maintenance-mode=true`, and the database dies."""
    c = Cluster(d, where)
    _unmanaged(c, "cib-bootstrap-options-maintenance-mode", "maintenance-mode=true", "maintenance-mode=false")
    moves: dict[str, Move] = {"db": ("restarted", "n2", "n2")}
    never = ("the cluster's software failed", "ended in order")
    return Foreign(c, "unknown", moves=moves, hints=("unmanaged",), says=("db failed on n2",), never=never)


def unmanaged(d: Dialect, where: Layout) -> Foreign:
    """`crm resource unmanage db`."""
    c = Cluster(d, where)
    _unmanaged(c, "db-meta_attributes-is-managed", "is-managed=false", "is-managed=true")
    moves: dict[str, Move] = {"db": ("restarted", "n2", "n2")}
    return Foreign(c, "unknown", moves=moves, hints=("unmanaged",), says=("db failed on n2",))


def standby_by_command(d: Dialect, where: Layout) -> Foreign:
    """`crm node standby n2`, of which the DC's log has the line."""
    c = Cluster(d, where)
    _group_up(c, "n2")
    c.changed(0, "nodes-2-standby", "standby=on")
    c.plan(0.1, *(("Move", rsc, f"n2 -> {c.dc}") for rsc in GROUP))
    _group_stops(c, "n2", 0.2)
    _group_starts(c, "n1", 2)
    return Foreign(c, "moved", moves=_moves("n2", "n1"))


def paf_after_a_standby(d: Dialect, where: Layout) -> Foreign:
    """n3 is in standby for an update; then the node of the primary loses its power: nobody asked for that."""
    c = Cluster(d, where, nodes=("n1", "n2", "n3"), dc="n2")
    _database_up(c)
    c.changed(-40, "nodes-3-standby", "standby=on")
    c.run(-39, "stop", "pgsqld", "n3")
    c.idle(-38)
    c.lost(1, "n1", "n2", "n3")
    c.plan(2.25, ("Promote", "pgsqld:1", "Slave -> Master n2" if d in (V11, V20) else "Unpromoted -> Promoted n2"))
    c.ask(2.25, "n1")
    c.fenced(10, "n1")
    _promoted(c, 10.1, "n2")
    moves: dict[str, Move] = {"pgsql-vip": ("moved", "n1", "n2")}
    return Foreign(c, "crash", "n1", "n2", moves, (("pgsqld", "n3"),), never=("asked to hand over",))


def paf_after_maintenance(d: Dialect, where: Layout) -> Foreign:
    """Maintenance is over when the node of the primary dies."""
    c = Cluster(d, where, nodes=("n1", "n2", "n3"), dc="n2")
    _database_up(c)
    c.changed(-50, "cib-bootstrap-options-maintenance-mode", "maintenance-mode=true")
    c.changed(-20, "cib-bootstrap-options-maintenance-mode", "maintenance-mode=false")
    c.idle(-19)
    c.lost(1, "n1", "n2", "n3")
    c.plan(2.25, ("Promote", "pgsqld:1", "Slave -> Master n2" if d in (V11, V20) else "Unpromoted -> Promoted n2"))
    c.ask(2.25, "n1")
    c.fenced(10, "n1")
    _promoted(c, 10.1, "n2")
    return Foreign(c, "crash", "n1", "n2", {"pgsql-vip": ("moved", "n1", "n2")}, never=("asked to hand over",))


Story = Callable[[Dialect, Layout], Foreign]
STORIES: tuple[Story, ...] = (
    *(ipmi, ipmi_at_the_second_try, no_device, confirmed_by_hand, left_in_order, standby, restarted_in_place),
    *(no_quorum, coordinator_dies, unfenced, migrated, daemons_end_in_order, controller_killed),
    *(paf_node_dies, paf_process_dies, paf_standby, two_that_are_promoted),
    *(poison_pill, watchdog, watchdog_unseen, pending, disks_lost, maintenance, unmanaged, standby_by_command),
    *(paf_after_a_standby, paf_after_maintenance),
)
__all__ = ["DIALECTS", "STORIES", "Foreign", "Story"]
