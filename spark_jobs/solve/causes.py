"""The type of an incident, by rules over its facts (pure).

planned      requested: relocation, standby, a clean stop; or an orderly demotion without any failure
partition    two rings of one sequence; the primary went on alone, and knew it
controller   a daemon of the cluster's software ended on the primary's node, the node itself lived
hang         the primary stood still and came back, or its machine did not schedule it
crash        its node was lost
power-loss   it and other brokers ended without a clean stop, all were down, and they came back with their journals
kill         its process died, the node lived
unknown      it was replaced, and nothing here tells these apart
false-alarm  the token was lost, and no node left
no-failover  a broker that was not primary was lost; or clients had an outage while the primary lived
fencing      somebody asked for the fencing of its node; or a node was fenced, and no log here knows a primary
down         Pacemaker was stopped in order, in such a cluster; on all of its nodes, or on some
moved        resources of such a cluster ended or moved, and nothing else had failed
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_jobs.schema import Event
from spark_jobs.solve import ordinary, power
from spark_jobs.solve.ordinary import Cause
from spark_jobs.solve.signs import (
    MANAGER,
    OWN,
    Facts,
    Promotion,
    attr,
    certainly_before,
    is_done,
    is_failed_monitor,
    is_loss,
    is_request,
    matches,
    select,
    subject,
)

NEEDS_PRIMARY: Final = frozenset(
    {"planned", "fencing", "partition", "controller", "hang", "crash", "kill", "power-loss", "unknown"}
)
"""Types in which the service was away: a primary had to come back."""
_PRIMARY: Final = re.compile(r"the primary (\S+) (?:died|hangs|is down)")
_CLOSED: Final = re.compile(r"reset|closed|refused|EOF|end of file|broken pipe", re.I)


def clients_only(facts: Facts) -> Cause:
    kind = "no-failover" if facts.own and _would_be_here(facts, ()) else "unknown"
    return Cause(kind, "clients stood still, and no log of the cluster says why")


def _would_be_here(facts: Facts, rows: Sequence[Event]) -> bool:
    """Is a promotion that no log shows none?  If whoever promotes has a log here: the manager; a DC with quorum, which
    was idle in the end; or all nodes that any log names."""
    if any(event.get("source") == MANAGER for event in facts.rows):
        return True
    alone = {event.get("node") for event in rows if _is_minority(event, event.get("node"))}
    if any(matches(event, "fsa", new="S_IDLE") and event.get("node") not in alone for event in rows):
        return True
    if facts.own and facts.promotions and {*facts.brokers} <= facts.own.keys():
        return True
    managed = facts.daemons["pacemaker"]
    unnamed = max((len(attr(event, "left").split()) for event in rows), default=0)
    return {*facts.brokers, *facts.members, *facts.written} <= managed and len(managed) > unnamed


@dataclass(frozen=True)
class CauseScene:
    """What a rule looks at.  `before`: rows until the first promotion; `after`: rows from then on."""

    facts: Facts
    rows: Sequence[Event]
    before: Sequence[Event]
    after: Sequence[Event]
    victim: str

    @property
    def near(self) -> Sequence[Event]:
        return self.facts.around(self.rows)

    def all(self, *kinds: str, **columns: object) -> list[Event]:
        return select(self.rows, *kinds, **columns)

    def early(self, *kinds: str, **columns: object) -> list[Event]:
        return select(self.before, *kinds, **columns)

    def is_dead(self, event: Event) -> bool:
        """The monitor no longer finds the primary's broker."""
        return self.facts.is_dead_broker(event) and subject(event) == self.victim


def of(facts: Facts, rows: Sequence[Event], old: Promotion | None, promotions: Sequence[Promotion]) -> Cause:
    """`rows`: the incident's facts; `old`: the primary when it began."""
    victim = old.node if old else _named(facts, rows, promotions)
    if not facts.has_primary or not (victim or promotions):
        return ordinary.of(facts, rows)
    hi = promotions[0].hi if promotions else None
    before = [event for event in rows if hi is None or event["ts_lo"] <= hi]
    after = [event for event in rows if hi is not None and event["ts_lo"] > hi]
    scene = CauseScene(facts, rows, before, after, victim or "")
    if not promotions and not _primary_gone(scene):
        alarm = _alarm(scene)
        if _would_be_here(facts, rows):
            return alarm
        why = f"{alarm.why}, and no log here says whether the primary stayed"
        return Cause("unknown", why, alarm.evidence)
    found = next(filter(None, (rule(scene) for rule in _RULES)), None)
    if found is not None:
        return replace(found, victim=victim)
    what = "was replaced" if promotions else "was lost"
    why = f"the primary {what}, and no log tells whether its process, its node or the network failed"
    if victim is None:
        why = f"{promotions[0].node} was promoted, and no log here tells of a primary before it"
    return Cause("unknown", why, victim=victim)


def _named(facts: Facts, rows: Sequence[Event], promotions: Sequence[Promotion]) -> str | None:
    """The node that the others name as the lost primary."""
    new = {promotion.node for promotion in promotions}
    for event in rows:
        if event["kind"] == "primary_lost" and event.get("peer"):
            return str(event["peer"])
        said = _PRIMARY.match(event.get("reason") or "") if event.get("source") == MANAGER else None
        if said and said[1] not in new:
            return said[1]
        if _gives_up(facts, event) and subject(event) not in new:
            return subject(event)
        if matches(event, "will_fence", "fence_op_done") and event.get("peer") and promotions:
            return str(event["peer"])
        if event["kind"] == "demote" and event.get("node"):
            return str(event["node"])
    return None


def _gives_up(facts: Facts, event: Event) -> bool:
    """A plan that ends a primary: `Stop broker ( Promoted node2 )`, `Demote broker ( Promoted -> Unpromoted n )`."""
    ends = event["kind"] == "plan" and attr(event, "task") in ("stop", "demote", "move", "recover")
    return ends and (event.get("old") or event.get("new")) == "Promoted" and not facts.is_other(event)


def _primary_gone(scene: CauseScene) -> bool:
    about = scene.all("primary_lost", "exit", "hung", "will_fence", "fence_op_done", peer=scene.victim)
    own = scene.all("demote", "stop", "fenced_self", "sbd_reset", node=scene.victim)
    return bool(about or own) or any(map(scene.is_dead, scene.rows))


def _alarm(scene: CauseScene) -> Cause:
    tokens, left = scene.all("token_lost"), [*filter(is_loss, scene.rows)]
    asked, fenced = scene.all("fence_request", "will_fence"), scene.all("fence_op_done", "fence_notify")
    died = [e for e in scene.all("daemon_exit") if e.get("node") != scene.victim]
    if asked or fenced:
        why = f"{ordinary.fenced_node(fenced, asked, scene.near)}; it was not the primary's"
        return Cause("no-failover", why, (*asked[:2], *fenced[:2]))
    if died:
        return Cause("no-failover", f"{ordinary.failed_daemon(died[0])}, which was not the primary's", tuple(died[:2]))
    if tokens and not left:
        formed = [e for e in scene.all("membership") if e["ts_est"] >= tokens[0]["ts_est"]]
        why = "the token was lost, and " + ("the same members went on" if formed else "no log here shows what followed")
        return Cause("false-alarm", why, (*tokens[:1], *formed[:1]))
    if left:
        gone = {event.get("peer") for event in scene.all("peer_state", new="lost")}
        which = " that was not the primary's" if gone and scene.victim not in gone else ""
        return Cause("no-failover", f"a node left{which}", tuple(left[:2]))
    return Cause("no-failover", "no log here shows a failure of the primary", tuple(scene.rows[:1]))


# ---- the rules, the most certain first ------------------------------------------------------------------------------


def _commanded(scene: CauseScene) -> Cause | None:
    """Somebody asked for the fencing of the primary's node before anything had failed."""
    asked = scene.early("fence_request", peer=scene.victim)
    signs = [e for e in scene.before if _is_failure(e, scene) and e["kind"] not in ("will_fence", "fence_request")]
    if not asked or not attr(asked[0], "client") or any(not certainly_before(asked[0], sign) for sign in signs):
        return None
    fenced = scene.all("fence_op_done", peer=scene.victim)
    return Cause("fencing", ordinary.fenced_node(fenced, asked, scene.near), (*asked[:1], *fenced[:1]))


def _planned(scene: CauseScene) -> Cause | None:
    failed = [event for event in scene.before if _is_failure(event, scene)]
    first_failure = min((event["ts_est"] for event in failed), default=None)
    asked = [event for event in scene.before if _is_wish(event, scene.victim) or _is_open(event, scene, failed)]
    if asked and (first_failure is None or asked[0]["ts_est"] < first_failure):
        return Cause("planned", _wish(asked[0]), tuple(asked[:3]))
    orderly = [event for event in scene.before if _is_orderly(event, scene)]
    near = scene.facts.around(scene.before)
    doubt = any(is_failed_monitor(event) or event["kind"] == "sched_failed_op" for event in near)
    if not failed and not doubt and any(is_done(event, "demote") for event in orderly):
        why = "the primary was demoted in order, and no log here shows a failure"
        return Cause("planned", why, tuple(orderly[:2]))
    return None


def _is_failure(event: Event, scene: CauseScene) -> bool:
    kind = event["kind"]
    if kind in (
        "token_lost",
        "will_fence",
        "fence_request",
        "daemon_exit",
        "hung",
        "fenced_self",
        "self_fenced",
        "sbd_reset",
    ):
        return True
    if kind == "exit":
        return event.get("peer") == scene.victim and "exit code 0" not in (event.get("reason") or "")
    return scene.is_dead(event)


def _is_wish(event: Event, victim: str) -> bool:
    kind, source = event["kind"], event.get("source")
    if source in OWN and event.get("node") == victim:
        relocated = kind == "demote" and (event.get("reason") or "").startswith(("relocation", "stepping", "asked"))
        return relocated or kind == "stop" or (kind == "relocate" and event.get("result") == "begin")
    return source == MANAGER and kind == "promoted" and "planned" in (event.get("reason") or "")


def _is_open(event: Event, scene: CauseScene, failed: Sequence[Event]) -> bool:
    """A change was asked for, not of another node, and had not been made when something failed: the DC was not idle."""
    if not is_request(event) or event.get("peer") not in (scene.victim, None):
        return False
    idle = [row for row in scene.before if matches(row, "fsa", new="S_IDLE") and certainly_before(event, row)]
    return not any(certainly_before(row, failure) for row in idle[:1] for failure in failed[:1])


def _wish(event: Event) -> str:
    texts = {"relocate": f"relocation to {event.get('peer')}", "stop": f"a clean stop ({event.get('reason')})"}
    return texts.get(event["kind"], event.get("reason") or f"{event['kind']} was asked for")


def _is_orderly(event: Event, scene: CauseScene) -> bool:
    ends = _gives_up(scene.facts, event) or is_done(event, "demote")
    return ends and subject(event) == scene.victim and not scene.facts.is_other(event)


def _partition(scene: CauseScene) -> Cause | None:
    rings: dict[str, list[Event]] = {}
    for event in (e for e in scene.rows if is_loss(e) and attr(e, "ring_seq")):
        same = rings.setdefault(attr(event, "ring_seq"), [])
        for other in same:
            if attr(other, "rep") != attr(event, "rep"):
                why = f"two rings of one number: {attr(other, 'ring')} and {attr(event, 'ring')}"
                return Cause("partition", why, (other, event))
        same.append(event)
    alone = [e for e in scene.rows if _is_minority(e, scene.victim)]
    if alone:
        return Cause("partition", f"{scene.victim} was in a minority and lived", tuple(alone[:2]))
    lost, others = scene.early("backup_lost", node=scene.victim), scene.early("primary_lost", peer=scene.victim)
    if lost and others and not all(map(_was_closed, (*lost, *others))):
        why = f"{scene.victim} and the others lost each other, and both went on"
        return Cause("partition", why, (lost[0], others[0]))
    return None


def _is_minority(event: Event, node: str | None) -> bool:
    if matches(event, "isolated", node=node):
        return event.get("result") != "ended"
    return matches(event, "quorum_state", "quorum", node=node) and event.get("new") in ("non-primary", "lost")


def _was_closed(event: Event) -> bool:
    """The other side's system ended the connection."""
    return _CLOSED.search(event.get("reason") or "") is not None


def _controller(scene: CauseScene) -> Cause | None:
    exits, gone = scene.early("daemon_exit", node=scene.victim), scene.early("will_fence", peer=scene.victim)
    found = [*exits, *(event for event in gone if "peer process" in (event.get("reason") or ""))]
    if not found:
        return None
    return Cause("controller", ordinary.failed_daemon(found[0]), tuple(found[:3]))


def _hang(scene: CauseScene) -> Cause | None:
    hung = [e for e in scene.rows if _stands(e, scene.victim)]
    if hung:
        what = hung[0].get("reason") or (f"not scheduled for {attr(hung[0], 'ms')} ms" if attr(hung[0], "ms") else "")
        return Cause("hang", f"{scene.victim} stood still" + (f": {what}" if what else ""), tuple(hung[:2]))
    back = select(scene.after, "demote", node=scene.victim)
    if not back:
        return None
    own = scene.facts.own.get(scene.victim, [])
    same = [e for e in own if e.get("proc") == back[0].get("proc") and e["ts_est"] < back[0]["ts_est"]]
    signs = scene.early("primary_lost", "token_lost", "hung")
    if same and signs and same[-1]["ts_hi"] <= signs[0]["ts_lo"]:
        why = f"{scene.victim} wrote nothing from before it was missed until it came back, and had not been restarted"
        return Cause("hang", why, (same[-1], signs[0], back[0]))
    return None


def _stands(event: Event, node: str) -> bool:
    if matches(event, "sched_pause", "resumed", node=node):
        return event.get("result") != "ended"
    return matches(event, "hung", peer=node)


def _crash(scene: CauseScene) -> Cause | None:
    reset = scene.early("sbd_reset", node=scene.victim)
    if reset:
        return Cause("crash", f"sbd reset the node of {scene.victim}", tuple(reset[:1]))
    left = [*filter(is_loss, scene.before)]
    lost = scene.early("will_fence", "fence_op_done", peer=scene.victim)
    lost += scene.early("peer_state", peer=scene.victim, new="lost")
    if not left or not (lost or scene.early("token_lost")):
        return None
    evidence = (left[0], *lost[:1])
    silent = [name.capitalize() for name, nodes in scene.facts.daemons.items() if scene.victim not in nodes]
    if silent:
        what = "crashed, was cut off, or only its cluster software ended"
        why = f"the others lost {scene.victim}, and no log of {' or '.join(silent)} there tells whether it {what}"
        return Cause("unknown", why, evidence)
    why = f"the node of {scene.victim} was lost" if lost else f"a node was lost while {scene.victim} was primary"
    return Cause("crash", why, evidence)


def _kill(scene: CauseScene) -> Cause | None:
    found = [*scene.early("exit", peer=scene.victim), *filter(scene.is_dead, scene.before)]
    if not scene.early("token_lost"):
        found += filter(_was_closed, scene.early("primary_lost"))
    if not found:
        return None
    what = found[0].get("reason") or found[0].get("result") or ""
    return Cause("kill", f"the process of {scene.victim} died ({what})", tuple(found[:3]))


def _power(scene: CauseScene) -> Cause | None:
    """All were down: no log can say whether power, a person or a defect ended them."""
    for loss in power.find(scene.facts):
        here = {id(event) for event in scene.before}
        starts = [each.start for each in loss.returns if id(each.start) in here]
        if starts and scene.victim in loss.nodes:
            names = ", ".join(sorted(loss.nodes))
            why = f"{names} ended without a clean stop, were down at one moment, and came back with their journals"
            return Cause("power-loss", why, (*starts, *loss.journals.values()))
    return None


def _total(scene: CauseScene) -> Cause | None:
    """The new primary reports that all brokers had died."""
    said = [e for e in scene.all("promoted") if attr(e, "total_failure").lower() == "true"]
    starts = [e for e in scene.early("start") if e.get("source") in OWN]
    if not said:
        return None
    return Cause("crash", "every member of the in-sync set had died or been restarted", (*starts[:2], said[0]))


_RULES: Final = (_commanded, _planned, _power, _total, _partition, _hang, _controller, _crash, _kill)
