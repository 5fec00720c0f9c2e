"""Hints: remarkable facts of one incident, by a table of rules (pure).

A rule looks at the incident's facts and gives the lines that speak for it.  Confidence: `certain` (the lines say it),
`likely` (they fit, and hardly anything else does), `possible` (worth a look).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.schema import Event
from spark_jobs.solve import power
from spark_jobs.solve.bounds import Phase
from spark_jobs.solve.incidents import Incident
from spark_jobs.solve.phases import UNPROMOTED
from spark_jobs.solve.signs import (
    MANAGER,
    OWN,
    SECOND,
    Facts,
    attr,
    by_hand,
    certainly_before,
    is_failed_monitor,
    is_fenced,
    places,
    subject,
)

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
PAUSE_BEFORE: Final = 5 * SECOND
RAPID: Final = 600 * SECOND
STEP: Final = 500_000
"""us by which wall and monotonic clock of one process may drift apart before it is a step."""
SLOW: Final = SECOND
"""us: a decision or a wait that is worth a word."""
Row = dict[str, Any]
Found = tuple[str, str, Sequence[Event]]
"""(text, confidence, lines)"""


@dataclass(frozen=True)
class Scene:
    incident: Incident
    facts: Facts
    rows: Sequence[Event]
    phases: Sequence[Phase]
    near: Sequence[Row]
    earlier: Sequence[Incident]

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.rows if event["kind"] in kinds]

    def phase(self, name: str) -> Phase:
        return next((phase for phase in self.phases if phase.name == name), Phase(name))


def find(
    incident: Incident,
    facts: Facts,
    phases: Sequence[Phase] = (),
    near: Sequence[Row] = (),
    incidents: Sequence[Incident] = (),
) -> list[Row]:
    """As the table `hints` has them.  `near`: the incident's near misses; `incidents`: all of this cluster."""
    earlier = [other for other in incidents if other.begin < incident.begin]
    scene = Scene(incident, facts, incident.facts(facts), phases, near, earlier)
    return [
        {"rule": name, "text": text, "confidence": confidence, "evidence": places(lines)}
        for name, rule in RULES.items()
        for text, confidence, lines in rule(scene)
    ]


def _paused(scene: Scene) -> Iterable[Found]:
    """A node that was not scheduled loses the token although its network is well."""
    for token in scene.of("token_lost")[:1]:
        for pause in scene.of("sched_pause"):
            if pause["ts_est"] >= token["ts_est"] - PAUSE_BEFORE:
                ms = attr(pause, "ms")
                about = f"{pause.get('node')} was not scheduled for {ms} ms"
                text = f"{about}: overload or a frozen machine, not the network"
                yield text, CERTAIN, (pause, token)
                return


def _one_sided(scene: Scene) -> Iterable[Found]:
    """All links of one host down, seen by the others: its own network."""
    lost: dict[str, list[Event]] = defaultdict(list)
    for event in scene.of("no_links"):
        lost[attr(event, "host_name") or event.get("peer") or ""].append(event)
    several = {host: {event.get("node") for event in rows} for host, rows in lost.items()}
    alone = [host for host, seen in several.items() if len(seen) > 1]
    if len(alone) == 1:
        rows = lost[alone[0]]
        yield f"only host {alone[0]} lost all its links: its own network or it died", LIKELY, rows[:3]
    elif len(several) == 1 and lost:
        host, rows = next(iter(lost.items()))
        yield f"links to host {host} were lost by {rows[0].get('node')} alone", POSSIBLE, rows[:2]


def _monitor_timeout(scene: Scene) -> Iterable[Found]:
    """The monitor got no answer, and no line says that the process ended: too slow, not dead."""
    for event in scene.of("op_unexpected", "op_result", "sched_failed_op"):
        text = f"{event.get('result') or ''} {event.get('reason') or ''}".lower()
        if attr(event, "task") != "monitor" or ("timed out" not in text and "timeout" not in text):
            continue
        ended = [e for e in scene.rows if _ended(e) and subject(e) == subject(event) and not certainly_before(event, e)]
        if not ended:
            about = f"the monitor of {attr(event, 'resource')} on {subject(event)} got no answer in time"
            yield f"{about}, and no line here says that it had ended: a longer timeout may avoid this", LIKELY, (event,)
            return


def _ended(event: Event) -> bool:
    gone = is_failed_monitor(event) and event.get("result") == "not running"
    return gone or is_fenced(event) or event["kind"] in ("exit", "daemon_exit", "stop")


def _fence_retries(scene: Scene) -> Iterable[Found]:
    failed = [e for e in scene.of("fence_op_done") if e.get("result") not in ("OK", None)]
    asked = scene.of("fence_request")
    for peer in sorted({str(event.get("peer")) for event in failed}):
        mine = [event for event in failed if event.get("peer") == peer]
        done = [e for e in scene.rows if is_fenced(e) and e.get("peer") == peer and not certainly_before(e, mine[0])]
        how = "once" if len(mine) == 1 else f"{len(mine)} times"
        end = ", and was done" if done else ""
        end = ", and an administrator said that it was down" if done and all(map(by_hand, done)) else end
        yield f"fencing of {peer} failed {how} ({mine[0].get('result')}){end}", CERTAIN, (*mine[:3], *done[:1])
    if not failed and len(asked) > len({event.get("peer") for event in asked}):
        yield f"fencing of {asked[-1].get('peer')} was asked for {len(asked)} times", LIKELY, asked[:3]


def _fence_delayed(scene: Scene) -> Iterable[Found]:
    """`pcmk_delay_max` and `pcmk_delay_base`."""
    for event in scene.of("fence_delay")[:1]:
        delay = attr(event, "delay")
        number, unit = (delay[:-2], "ms") if delay.endswith("ms") else (delay[:-1], "s")
        about = event.get("peer") or "the node"
        yield f"the device {attr(event, 'device')} waited {number} {unit} before it fenced {about}", CERTAIN, (event,)


def _promote_timeout(scene: Scene) -> Iterable[Found]:
    for event in scene.of("op_result", "op_unexpected"):
        bad = (event.get("result") or "").lower() not in ("ok", "", "promoted")
        if attr(event, "task") == "promote" and bad:
            yield f"a promotion on {subject(event)} failed: {event.get('result')}", CERTAIN, (event,)
            return
    refused = [
        e for e in scene.of("promote_request", "refused") if e.get("result") == "refused" or e["kind"] == "refused"
    ]
    if refused:
        yield f"a promotion was refused: {refused[0].get('reason')}", CERTAIN, refused[:3]


def _near_misses(scene: Scene) -> Iterable[Found]:
    """Their lines are those of the near misses; see `near_misses`."""
    for row in scene.near:
        yield row["text"], CERTAIN, [_Line(text) for text in row["evidence"]]


class _Line(dict[str, Any]):
    """A line of which only the place is known."""

    def __init__(self, text: str) -> None:
        file, _, number = text.rpartition(":")
        super().__init__(file=file, line_no=int(number or 0))


def _rapid(scene: Scene) -> Iterable[Found]:
    recent = [o for o in scene.earlier if scene.incident.begin - o.begin <= RAPID and o.cause.type != "planned"]
    if recent:
        seconds = (scene.incident.begin - recent[-1].begin) // SECOND
        lines = [*recent[-1].seeds[:1], *scene.incident.seeds[:1]]
        yield f"{len(recent)} more within 10 minutes, the last {seconds} s before: one cause?", LIKELY, lines
    if len(scene.incident.promotions) > 1:
        nodes = " then ".join(promotion.node for promotion in scene.incident.promotions)
        lines = [promotion.done for promotion in scene.incident.promotions]
        yield f"a second failure before the first was over: {nodes} were promoted", CERTAIN, lines


def _watchdog(scene: Scene) -> Iterable[Found]:
    for event in scene.of("self_fenced", "fenced_self")[:1]:
        yield f"{event.get('node')} learned that it was fenced while it still ran", CERTAIN, (event,)


def _self_fenced(scene: Scene) -> Iterable[Found]:
    """sbd resets its node, and no other node's message had told it to."""
    told = {event.get("node") for event in scene.of("self_fenced")}
    for event in [event for event in scene.of("sbd_reset") if event.get("node") not in told][:1]:
        late = [row for row in scene.of("sbd_late") if row.get("node") == event.get("node")]
        after = f", which nothing had told for {attr(late[-1], 'seconds')} s that all was well" if late else ""
        yield f"the sbd of {event.get('node')}{after}, reset its node", CERTAIN, (*late[-1:], event)


_UNMANAGED: Final = re.compile(r"(?:(?P<of>\S+)-)?(maintenance-mode|maintenance|is-managed)(?: doing \w+|,) \2=(\w+)")


def _unmanaged(scene: Scene) -> Iterable[Found]:
    """An administrator had told Pacemaker to leave something alone, as far as the logs say."""
    last: dict[str, tuple[bool, str, Event]] = {}
    for event in scene.facts.kinds.get("abort", ()):
        said = _UNMANAGED.match(attr(event, "by"))
        if said and event["ts_est"] <= scene.incident.begin:
            on = (said[3] in ("true", "on", "yes", "1")) != (said[2] == "is-managed")
            last[said[0].partition("=")[0]] = on, f"{said[2]}={said[3]}, of {said['of'] or 'the cluster'}", event
    for on, what, event in last.values():
        if on:
            yield f"Pacemaker had been told to leave this alone ({what})", LIKELY, (event,)


def _clock_step(scene: Scene) -> Iterable[Found]:
    """Within one process the wall clock and the monotonic one go together."""
    last: dict[str, Event] = {}
    for event in sorted(scene.rows, key=lambda e: (str(e.get("proc")), e.get("seq") or 0)):
        if event.get("ts_mono") is None or not event.get("proc"):
            continue
        before = last.get(event["proc"])
        last[event["proc"]] = event
        if before is None or before.get("boot_id") != event.get("boot_id"):
            continue
        step = (event["ts_wall"] - before["ts_wall"]) - (event["ts_mono"] - before["ts_mono"])
        if abs(step) > STEP:
            text = f"the clock of {event.get('node')} was set by {step / 1e6:+.3f} s between two lines"
            yield text, CERTAIN, (before, event)


def _recovering_long(scene: Scene) -> Iterable[Found]:
    """The new primary waits for backups up to ha-backup-timeout, and then gives them up."""
    phase = scene.phase("recovering")
    given_up = [e for e in scene.rows if e["kind"] == "membership" and e.get("result") == "removed"]
    if phase.known and (phase.duration or 0) >= SLOW and given_up:
        peers = ", ".join(sorted({str(event.get("peer")) for event in given_up}))
        text = f"recovering took {(phase.duration or 0) / 1e6:.3f} s, until {peers} was given up: see ha-backup-timeout"
        yield text, LIKELY, given_up[:2]


def _slow_decision(scene: Scene) -> Iterable[Found]:
    phase = scene.phase("decision")
    if phase.known and (phase.duration or 0) >= SLOW and scene.incident.cause.type != "planned":
        lines = [bound.line for bound in (phase.begin, phase.end) if bound and bound.line]
        yield f"the manager took {(phase.duration or 0) / 1e6:.3f} s to decide", CERTAIN, lines


def _no_fencing(scene: Scene) -> Iterable[Found]:
    """A partition without fencing relies on the brokers' own rules alone."""
    if scene.incident.cause.type != "partition" or not scene.incident.promotions:
        return
    first = scene.incident.promotions[0]
    done = [event for event in scene.rows if is_fenced(event) and event["peer"] == scene.incident.victim]
    early = [event for event in done if event["ts_lo"] <= first.hi]
    if not early:
        what = "only after" if done else "not, or no log says so, before"
        text = f"the old primary was fenced {what} the promotion of {first.node}"
        yield text, CERTAIN if done else LIKELY, [*done[:1], first.done]


def _lines_dropped(scene: Scene) -> Iterable[Found]:
    rows = scene.of("lines_dropped")
    if rows:
        yield f"{rows[0].get('node')}: the system log dropped lines in the incident", CERTAIN, rows[:3]


def _isolated(scene: Scene) -> Iterable[Found]:
    for event in scene.of("isolated"):
        if event.get("result") != "ended" and event.get("source") in OWN:
            yield (
                f"{event.get('node')} was isolated and sent its clients away: {event.get('reason')}",
                CERTAIN,
                (event,),
            )


def _manager_gone(scene: Scene) -> Iterable[Found]:
    """No promotion is known."""
    if scene.incident.promotions or scene.incident.victim is None:
        return
    waiting = [e for e in scene.rows if e.get("source") == MANAGER and _says_why(e)]
    if waiting:
        yield f"{UNPROMOTED}; the manager says: {waiting[-1].get('reason')}", CERTAIN, waiting[-1:]
    else:
        yield f"{UNPROMOTED}, and no manager's log says why", POSSIBLE, scene.incident.seeds[:1]


def _says_why(event: Event) -> bool:
    return bool(event.get("reason")) and (
        event["kind"] in ("no_primary", "refused") or event.get("result") == "refused"
    )


def _journals(scene: Scene) -> Iterable[Found]:
    """After a power loss: what each disk brought back, who was ahead, who copied, and what that leaves open."""
    if scene.incident.cause.type != "power-loss":
        return
    read = {str(e.get("node")): e for e in scene.incident.cause.evidence if e["kind"] == "journal_read"}
    for node, event in sorted(read.items()):
        yield f"{node}: {power.described(event)}", CERTAIN, (event,)
    whole = {node: event for node, event in read.items() if event.get("result") == "whole"}
    if whole:
        best = max(event.get("last_pos") or 0 for event in whole.values())
        ahead = sorted(node for node, event in whole.items() if event.get("last_pos") == best)
        behind = sorted(read.keys() - set(ahead))
        than = f", ahead of {', '.join(behind)}" if behind else ""
        most = whole[ahead[0]]
        yield f"{', '.join(ahead)} held the most: up to {power.position(most)}{than}", CERTAIN, (most,)
    for new in scene.incident.promotions[:1]:
        joined = [e for e in scene.of("catchup_end") if e.get("node") == new.node and e["ts_est"] >= new.at]
        for event in joined:
            octets = attr(event, "octets") or "0"
            what = "nothing: it had everything" if octets == "0" else f"{octets} octets that it lacked"
            yield f"{event.get('peer')} copied {what}, from {new.node}", CERTAIN, (event,)
    yield from _journals_left(scene, read, set(whole))


def _journals_left(scene: Scene, read: dict[str, Event], whole: set[str]) -> Iterable[Found]:
    """Whether anything that was confirmed can be missing.  A disk that no log speaks of may say otherwise."""
    silent = sorted(set(scene.facts.brokers) - read.keys())
    forced = [promotion.done for promotion in scene.incident.promotions if attr(promotion.done, "forced")]
    new = scene.incident.promotions[0] if scene.incident.promotions else None
    lines = [*forced[:1], *read.values()][:3]
    if new is None:
        yield f"{UNPROMOTED}: what the disks hold is still there", CERTAIN, lines
    elif forced:
        yield f"{new.node} was promoted by force: what other disks held beyond it is not in the cluster", CERTAIN, lines
    elif new.node in whole:
        what = "nothing that was confirmed on its disk is missing"
        yield f"{new.node} was promoted with all that it had acknowledged: {what}", CERTAIN, (read[new.node], new.done)
    else:
        yield f"no log shows that {new.node} held all that was confirmed: it may lack something", POSSIBLE, lines
    if silent:
        yield f"no log says what the disks of {', '.join(silent)} held", CERTAIN, lines


RULES: Final[dict[str, Callable[[Scene], Iterable[Found]]]] = {
    "paused": _paused,
    "one-host-without-links": _one_sided,
    "monitor-timeout": _monitor_timeout,
    "fence-retries": _fence_retries,
    "fencing-delayed": _fence_delayed,
    "promotion-failed": _promote_timeout,
    "near-miss": _near_misses,
    "rapid-succession": _rapid,
    "watchdog": _watchdog,
    "self-fenced": _self_fenced,
    "unmanaged": _unmanaged,
    "clock-step": _clock_step,
    "backup-timeout": _recovering_long,
    "slow-decision": _slow_decision,
    "late-or-no-fencing": _no_fencing,
    "lines-dropped": _lines_dropped,
    "isolated": _isolated,
    "none-promoted": _manager_gone,
    "journals": _journals,
}
