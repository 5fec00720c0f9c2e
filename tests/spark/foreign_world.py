"""Clusters that others run, as Pacemaker 1.1 to 3.0 and Corosync write them, in the layouts of their collectors.

A `Cluster` says what happened in seconds since START, true for all nodes.  A `Dialect` has the wording of one release:
the texts are those of crmd/te_*.c, fencing/remote.c, pengine and mcp of 1.1.12, of 2.0.1 and 2.1.5, and of
log_executor_event, finalize_op, handle_fence_notification and pcmk_child_exit of 3.0.  A layout says where each node's
logs lie.  System logs have what is `notice` or worse, without what is behind ` | `.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.spark.truth.world import START, Files

CODES = (0, 1, 7, 8)
Names = tuple[str, str, str, str]
Head = Callable[[datetime], str]


@dataclass(frozen=True)
class Dialect:
    """`old`: Pacemaker 1.1 with its names of daemons; `codes`: what it calls CODES; `texts`: what → text."""

    name: str
    codes: Names
    texts: Mapping[str, str]
    old: bool = False

    def code(self, rc: int) -> str:
        return self.codes[CODES.index(rc)]


_ALL = {
    "fsa": "State transition {old} -> {new} | input={reason} cause=C_FSA_INTERNAL origin=made",
    "quorum": "Quorum {new} | membership=7 members=1",
    "will_fence": "Cluster node {peer} will be fenced: {reason}",
    "calculated": "Calculated transition {trans}, saving inputs in /var/lib/pacemaker/pengine/pe-input-{trans}.bz2",
    "graph": "Processing graph {trans} (ref=pe_calc-dc-{epoch}-{trans}) derived from /var/lib/pacemaker/pengine/x.bz2",
    "initiate": "Initiating {task} operation {rsc}_{task}_{every} {local}on {node} | action {action}",
    "state": "Node {peer} state is now {new} | nodeid={number} previous={old} source=crm_update_peer_proc",
    "asked": "Requesting fencing ({how}) of node {peer} | action=1 timeout=60000",
    "attr": "Setting {name}[{peer}]: {old} -> {new} | from {writer}",
    "shutdown": "Shutting down Pacemaker",
    "stopped": "Shutdown complete",
    "up": "Starting Pacemaker {version} | build=made features:made",
    "plan": "Actions: {verb:<10} {rsc}     ( {places} )",
    "plan_fence": "Actions: Fence ({how}) {peer} '{reason}'",
    "changed": "Transition {trans} aborted by {by} doing modify {change}: Configuration change | cib=0.33.0 "
    "source=te_update_diff_v2:499 path=/cib/configuration complete=true",
}
_V20 = {
    **_ALL,
    "done": "Result of {task} operation for {rsc} on {node}: {rc} ({code}) | call={call} key={rsc}_{task}_{every} "
    "confirmed=true cib-update=9",
    "slow": "Result of {task} operation for {rsc} on {node}: Timed Out | call={call} key={rsc}_{task}_{every} "
    "timeout=20000ms",
    "request": "Performing key={action}:{trans}:0:dc0ffee0-1111 op={rsc}_{task}_{every}",
    "confirmed": "Action {rsc}_{task}_{every} ({action}) confirmed on {node} (rc={rc})",
    "unexpected": "Transition {trans} action {action} ({rsc}_{task}_{every} on {node}): expected '{wanted}' but got "
    "'{code}' | target-rc={want} rc={rc} call-id={call} event='arrived after initial scheduling'",
    "fenced": "Operation {how} of {peer} by {by} for {client}.{pid}@{origin}.{event}: {result}",
    "told": "Peer {peer} was{negated} terminated ({how}) by {by} on behalf of {client}.{pid}: {result} | "
    "initiator={origin} ref={event}-aaaa",
    "killed": "{child}[{pid}] terminated with signal 9 (core=0)",
    "exited": "{child}[{pid}] exited with status 0 (OK)",
    "wants": "Client {client}.{pid}.{event} wants to fence ({how}) '{peer}' with device '(any)'",
    "waits": "Waiting 10s for {peer} to self-fence ({how}) for {client}.{event} (0x55d0f1c2a3b0)",
    "assumed": "Remote {how} operation on {peer} for {client}.{event} assumed complete",
}
_V11 = {
    **_V20,
    "done": "process_lrm_event: Operation {rsc}_{task}_{every}: {code} (node={node}, call={call}, rc={rc}, "
    "cib-update=9, confirmed=true)",
    "slow": "process_lrm_event: Operation {rsc}_{task}_{every}: Timed Out (node={node}, call={call}, timeout=20000ms)",
    "initiate": "te_rsc_command: Initiating action {action}: {task} {rsc}_{task}_{every} on {node}{behind}",
    "asked": "te_fence_node: Executing {how} fencing operation (1) on {peer} (timeout=60000)",
    "told": "tengine_stonith_notify: Peer {peer} was{negated} terminated ({how}) by {by} for {origin}: {result} "
    "(ref={event}-aaaa) by client {client}.{pid}",
    "fenced": "remote_op_done: Operation {how} of {peer} by {by} for {client}.{pid}@{origin}.{event}: {result}",
    "state": "crm_update_peer_state: pcmk_quorum_notification: Node {peer}[{number}] - state is now {new} (was {old})",
    "fsa": "do_state_transition: State transition {old} -> {new} [ input={reason} cause=C_FSA_INTERNAL origin=made ]",
    "will_fence": "pe_fence_node: Node {peer} will be fenced because {reason}",
    "calculated": "process_pe_message: Calculated Transition {trans}: /var/lib/pacemaker/pengine/pe-input-{trans}.bz2",
    "plan": "LogActions: {verb:<8}{rsc}\t({places})",
    "plan_fence": "stage6: Scheduling Node {peer} for STONITH",
    "killed": "pcmk_child_exit: The {child} process ({pid}) terminated with signal 9 (core=0)",
    "exited": "pcmk_child_exit: The {child} process ({pid}) exited: OK (0)",
    "unexpected": "process_graph_event: Detected action ({trans}.{action}) {rsc}_{task}_{every}.{call}={code}: failed",
    "shutdown": "pcmk_shutdown_worker: Shutting down Pacemaker",
    "stopped": "pcmk_shutdown_worker: Shutdown complete",
    "up": "main: Starting Pacemaker {version} (Build: made)",
    "attr": "attrd_peer_update: Setting {name}[{peer}]: {old} -> {new} from {writer}",
    "quorum": "pcmk_quorum_notification: Membership 7: quorum {new} (1)",
    "waits": "call_remote_stonith: Waiting 10s for {peer} to self-fence ({how}) for {client}.{event} (0x55d0f1c2a3b0)",
    "assumed": "remote_op_watchdog_done: Remote {how} operation on {peer} for {client}.{event} assumed complete",
    "changed": "abort_transition_graph: Transition aborted by {by}, {change}: Non-status change (modify cib=0.33.0, "
    "source=te_update_diff:383, path=/cib/configuration, 1)",
}
_V21 = {
    **_V20,
    "done": "Result of {task} operation for {rsc} on {node}: {code} | CIB update 9, graph action confirmed; "
    "call={call} key={rsc}_{task}_{every} rc={rc}",
    "slow": "Result of {task} operation for {rsc} on {node}: Timed Out after 20s (Resource agent did not complete "
    "within 20s) | graph action unconfirmed; call={call} key={rsc}_{task}_{every}",
    "request": "Requesting local execution of {task} operation for {rsc} on {node} | "
    "transition_key={action}:{trans}:0:dc0ffee0-1111 op_key={rsc}_{task}_{every}",
    "confirmed": "Transition {trans} action {action} ({rsc}_{task}_{every} on {node}) confirmed: "
    "{code} | rc={rc} call-id={call}",
    "fenced": "Operation '{how}' targeting {peer} by {by} for {client}.{pid}@{origin}: {result} (complete) | "
    "id={event}",
    "told": "Peer {peer} was{negated} terminated ({how}) by {by} on behalf of {client}.{pid}@{origin}: {result} | "
    "event={event}-aaaa",
    "wants": "Client {client}.{pid} wants to fence ({how}) {peer} using any device",
    "waits": "Waiting 10s for {peer} to self-fence ({how}) for client {client}.{pid} | id={event}",
    "assumed": "Self-fencing ({how}) by {peer} for {client}.{pid} assumed complete | id={event}",
}
_V30 = {
    **_V21,
    "done": "Result of {task} operation for {rsc} on {node}: {code} | graph action confirmed; "
    "call={call} key={rsc}_{task}_{every} rc={rc}",
    "request": "Requesting local execution of {task} operation for {rsc} on {node} | transition "
    "{action}:{trans}:0:dc0ffee0-1111",
    "asked": "Requesting fencing ({how}) targeting node {peer} | action=1 timeout=60000",
    "killed": "{child}[{pid}] terminated with signal 9 (Killed)",
    "fenced": "Operation '{how}' targeting {peer} by {by} for {client}.{pid}@{origin}{merged}: {result} (complete) | "
    "id={event}",
}
V11 = Dialect("1.1", ("ok", "unknown error", "not running", "master"), _V11, old=True)
V20 = Dialect("2.0", ("ok", "unknown error", "not running", "master"), _V20)
V21 = Dialect("2.1", ("ok", "error", "not running", "promoted"), _V21)
V30 = Dialect("3.0", ("OK", "Error occurred", "Not running", "Promoted"), _V30)
DIALECTS = (V11, V20, V21, V30)

_OLD = {"controld": "crmd", "fenced": "stonith-ng", "schedulerd": "pengine", "attrd": "attrd", "pacemakerd": "mcp"}
_INFO = frozenset({"request", "confirmed", "graph", "exited"})


def _short(moment: datetime, parts: str = "") -> str:
    return f"{moment:%b} {moment.day:>2} {moment:%H:%M:%S}{parts}"


def _milliseconds(moment: datetime) -> str:
    return f"{moment:%b %d %H:%M:%S}.{moment.microsecond // 1000:03}"


def _iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}+00:00"


@dataclass(frozen=True)
class Layout:
    """Paths with {node}; `system`: the head of a line in the system log."""

    name: str
    pacemaker: str
    corosync: str
    log: str
    system: Head


REPORT = Layout("crm report", "crm_report/{node}/pacemaker.log", "", "crm_report/{node}/ha-log.txt", _iso)
SOS = Layout(
    "sosreport",
    "sosreport-{node}-2026-06-01-xyzzy/var/log/pacemaker/pacemaker.log",
    "sosreport-{node}-2026-06-01-xyzzy/var/log/cluster/corosync.log",
    "sosreport-{node}-2026-06-01-xyzzy/var/log/messages",
    _short,
)
DEBIAN = Layout(
    "Debian",
    "{node}/var/log/pacemaker/pacemaker.log",
    "{node}/var/log/corosync/corosync.log",
    "{node}/var/log/syslog",
    _iso,
)
LAYOUTS = (REPORT, SOS, DEBIAN)


@dataclass
class Cluster:
    """`dc`: the node that plans; it changes when it dies."""

    dialect: Dialect = V21
    layout: Layout = SOS
    nodes: tuple[str, ...] = ("n1", "n2")
    dc: str = "n1"
    trans: int = 4
    _call: int = 20
    _lines: list[tuple[float, int, str, str]] = field(default_factory=list)

    # ---- lines -------------------------------------------------------------------------------------------------------

    def say(self, at: float, node: str, daemon: str, what: str, /, **words: object) -> None:
        """A line of one of Pacemaker's daemons."""
        known = {"trans": self.trans, "call": self._call, "action": self._call, "pid": 57, "merged": "", "every": 0}
        known |= {"epoch": (START + round(at * 1e6)) // 1_000_000, "version": self.dialect.name, "number": 2}
        body = self.dialect.texts[what].format(**{**known, **words})
        name = self._daemon(daemon)
        self._file(at, node, name, body)
        if what not in _INFO:
            self.system(at, node, name, f" notice: {body.partition(' | ')[0]}")

    def _daemon(self, daemon: str) -> str:
        if self.dialect.old:
            return "pacemakerd" if daemon == "pacemakerd" else _OLD[daemon]
        return daemon if daemon == "pacemakerd" else f"pacemaker-{daemon}"

    def _file(self, at: float, node: str, name: str, body: str) -> None:
        moment = _moment(at)
        if self.dialect.old:
            function, colon, rest = body.partition(": ")
            if not colon or " " in function:
                function, rest = "made", body
            line = f"{_short(moment)} [57] {node} {name:>10}:   notice: {function}:\t{rest}"
        else:
            line = f"{_milliseconds(moment)} {node} {name:<20}[57] (made) \tnotice: {body}"
        self._add(at, self.layout.pacemaker, node, line)

    def system(self, at: float, node: str, name: str, body: str) -> None:
        self._add(at, self.layout.log, node, f"{self.layout.system(_moment(at))} {node} {name}[57]: {body}")

    def corosync(self, at: float, node: str, part: str, text: str) -> None:
        self.system(at, node, "corosync", f"  [{part:<6}] {text}")
        if self.layout.corosync:
            moment = _moment(at)
            head = f"{_short(moment)} [26] {node} corosyncnotice " if self.dialect.old else None
            head = head or f"{_milliseconds(moment)} [26] {node} corosync notice "
            self._add(at, self.layout.corosync, node, f"{head} [{part:<6}] {text}")

    def sbd(self, at: float, node: str, level: str, text: str, servant: str = "") -> None:
        """As sbd 1.4 and 1.5 write; `servant`: a disk, `pcmk` or `cluster`, else it is the inquisitor."""
        who = f"{servant:>10}: " if servant else ""
        self.system(at, node, "sbd", f"{who}{level:>7}: {text}")

    def changed(self, at: float, by: str, change: str) -> None:
        """An administrator's change of the configuration, as the DC sees it."""
        self.say(at, self.dc, "controld", "changed", by=by, change=change)

    def _add(self, at: float, path: str, node: str, line: str) -> None:
        self._lines.append((at, len(self._lines), path.format(node=node), line))

    def files(self) -> Files:
        found: Files = {}
        for _, _, path, line in sorted(self._lines, key=lambda item: item[:2]):
            found.setdefault(path, []).append(line.encode() + b"\n")
        return found

    # ---- what happens ------------------------------------------------------------------------------------------------

    def run(self, at: float, task: str, rsc: str, node: str, rc: int = 0, took: float = 0.1, every: int = 0) -> None:
        """An operation that the DC asks for."""
        self._call += 1
        local = node == self.dc
        words = {"task": task, "rsc": rsc, "node": node, "every": every, "rc": rc, "code": self.dialect.code(rc)}
        here = {"local": "locally ", "behind": " (local)"} if local else {"local": "", "behind": ""}
        self.say(at, self.dc, "controld", "initiate", **words, **here)
        self.say(at + 0.002, node, "controld", "request", **words)
        self.say(at + took, node, "controld", "done", **words)
        self.say(at + took + 0.004, self.dc, "controld", "confirmed", **words)

    def found(self, at: float, rsc: str, node: str, rc: int, want: int = 0, every: int = 10000) -> None:
        """A monitor that finds something else than before."""
        words = {"task": "monitor", "rsc": rsc, "node": node, "every": every, "rc": rc, "want": want}
        words |= {"code": self.dialect.code(rc), "wanted": self.dialect.code(want)}
        self.say(at, node, "controld", "done", **words)
        if rc != want:
            self.say(at + 0.003, self.dc, "controld", "unexpected", **words)

    def plan(self, at: float, *steps: tuple[str, str, str]) -> None:
        """The DC decides; steps: (verb, resource, places)."""
        self.trans += 1
        self.say(at, self.dc, "controld", "fsa", old="S_IDLE", new="S_POLICY_ENGINE", reason="I_PE_CALC")
        for verb, rsc, places in steps:
            self.say(at + 0.01, self.dc, "schedulerd", "plan", verb=verb, rsc=rsc, places=places)
        self.say(at + 0.011, self.dc, "schedulerd", "calculated")
        self.say(at + 0.015, self.dc, "controld", "graph")

    def idle(self, at: float) -> None:
        self.say(at, self.dc, "controld", "fsa", old="S_TRANSITION_ENGINE", new="S_IDLE", reason="I_TE_SUCCESS")

    def lost(self, at: float, gone: str, *by: str, token: bool = True, ring: int = 20) -> None:
        """The others lose a node: by the token, or (`token` false) because it left in order."""
        for node in by:
            if token:
                self.corosync(at, node, "TOTEM", "A processor failed, forming new configuration.")
            self.corosync(at + 1.2, node, "TOTEM", f"A new membership (2.{ring}) was formed. Members left: 1")
            if token:
                self.corosync(at + 1.2, node, "TOTEM", "Failed to receive the leave message. failed: 1")
            for daemon in ("attrd", "fenced", "controld"):
                self.say(at + 1.21, node, daemon, "state", peer=gone, old="member", new="lost")

    def ask(self, at: float, peer: str, how: str = "reboot") -> None:
        """The DC wants a node to be fenced."""
        reason = "peer is no longer part of the cluster"
        self.say(at, self.dc, "schedulerd", "will_fence", peer=peer, reason=reason)
        self.say(at + 0.001, self.dc, "schedulerd", "plan_fence", how=how, peer=peer, reason=reason)
        self.say(at + 0.05, self.dc, "controld", "asked", how=how, peer=peer)

    def fenced(
        self, at: float, peer: str, result: str = "OK", how: str = "reboot", by: str = "", **words: object
    ) -> None:
        """All that live are told of the end of a fencing."""
        event = f"{round(at * 1000) & 0xFFFFFFFF:08x}"
        client = str(words.pop("client", "crmd" if self.dialect.old else "pacemaker-controld"))
        told: dict[str, object] = {"peer": peer, "how": how, "by": by or self.dc, "origin": self.dc, "event": event}
        told |= {"client": client, "result": result, "negated": "" if result == "OK" else " not", **words}
        for number, node in enumerate(node for node in self.nodes if node != peer):
            self.say(at + number / 1000, node, "fenced", "fenced", **told)
            self.say(at + number / 1000 + 0.01, node, "controld", "told", **told)

    def self_fenced(self, at: float, peer: str, how: str = "reboot") -> None:
        """Without a device, by `stonith-watchdog-timeout`: nobody saw it; it had 10 s for it since `at`."""
        client = "crmd" if self.dialect.old else "pacemaker-controld"
        told = {"peer": peer, "how": how, "client": client, "event": "ab12cd34"}
        self.say(at, self.dc, "fenced", "waits", **told)
        self.say(at + 10, self.dc, "fenced", "assumed", **told)
        self.fenced(at + 10.001, peer, how=how)

    def leave(self, at: float, node: str, took: float = 2.0) -> None:
        """Its Pacemaker is stopped in order (`pcs cluster stop`, `crm cluster stop`)."""
        epoch = (START + round(at * 1e6)) // 1_000_000
        self.say(at, node, "pacemakerd", "shutdown")
        told = {"name": "shutdown", "peer": node, "old": "(unset)", "new": epoch, "writer": node}
        for other in self.nodes:
            self.say(at + 0.05, other, "attrd", "attr", **told)
        children = ("controld", "schedulerd", "attrd", "fenced")
        for number, child in enumerate(children):
            name = self._daemon(child)
            self.say(at + took + number / 100, node, "pacemakerd", "exited", child=name, pid=60 + number)
        self.say(at + took + 0.1, node, "pacemakerd", "stopped")


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp((START + round(at * 1e6)) / 1e6, UTC)
