"""The decisions of the local supervisor, without processes, sockets or a clock.

Theory
------
The supervisor is a resource manager for one machine.  It may be wrong about a broker (a slow one looks hung), so the
safety of data does not depend on it: the brokers refuse a promotion that would lose messages, and epochs make a second
primary harmless.  Its only task is to promote *some* broker soon, and to restart dead ones.

A node's process is in one of five states:

    DOWN ──Start──> STARTING ──first answer──> UP <──answers again── HUNG        (UP: when its journal is read)
      ^                 │                       │  ──no answer for hang_timeout──> ^
      └───── exit (seen at once through the process's pidfd), from any state ──────┘

`wanted`: the administrator wants the node to run.  Only a wanted node is restarted, after a delay that doubles as long
as it dies at once.  A hung broker is never killed: a replaced primary notices when it runs again, demotes itself in
place and keeps its content.

Promotion is decided in election.py.

Callers: the shell in qpid_cluster/shell.py, from one thread.  Every method takes `now` (seconds, monotonic) and returns
effects in the order in which they must happen.
"""

import signal

from ha.qpid_cluster.election import Electing
from ha.qpid_cluster.supervision import (
    Effect,
    ElectionPhase,
    ManagedBroker,
    Note,
    Process,
    Refused,
    Report,
    Signal,
    Start,
)

INSIST = 0.3  # seconds after which a broker gets a second SIGTERM when the whole cluster goes down
QUICK_DEATH = 5.0  # seconds; a broker that ran for a shorter time is restarted after a growing delay


class Supervisor(Electing):
    """One cluster; see the module's theory."""

    # ---- what happens ------------------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Effect]:
        """Start every node; the election begins when they answer."""
        self._began = self._last_tick = now
        effects: list[Effect] = []
        for node in self.nodes.values():
            effects += self._start(node, now, "the cluster starts")
        return effects + self._evaluate(now)

    def started(self, name: str, pid: int, now: float) -> list[Effect]:
        """The process exists."""
        node = self.nodes[name]
        node.pid, node.started_at, node.silent_since = pid, now, now
        return [Note("start", f"{name} started, pid {pid}", name, {"pid": pid, "starts": node.starts})]

    def connected(self, name: str, now: float) -> list[Effect]:
        """The admin connection to the broker is open."""
        node = self.nodes[name]
        node.connected = True
        return [self._ask(node, now)]

    def disconnected(self, name: str, now: float) -> list[Effect]:
        """The admin connection has ended.  No decision follows from this alone: the process may still run."""
        node = self.nodes[name]
        node.connected, node.asked = False, 0
        if node.silent_since is None:
            node.silent_since = now
        return self._no_longer_waiting(name, now)

    def answered(self, name: str, serial: int, report: Report, now: float) -> list[Effect]:
        """The broker answered a question."""
        node = self.nodes[name]
        if node.process is Process.DOWN:
            return []  # an answer of a broker that has died since
        effects = self._alive(node, report, now)
        old, node.report = node.report, report
        election = self.election
        self._notice_step_down(name, old, report, now)
        if old is None or (old.state, old.epoch) != (report.state, report.epoch):
            if election and election.phase is ElectionPhase.RESTING:
                election.deadline = now  # the state has changed, so ask again at once
            before = old.state if old else "none"
            attrs = {"old": before, "new": report.state, "term": report.epoch, "position": report.position}
            effects.append(Note("state", f"{name} is {report.state} (was {before}), epoch {report.epoch}", name, attrs))
        if serial >= node.asked:
            node.asked, node.silent_since = 0, None
            node.next_ping = now + self.watch.ping_interval
        if election and election.phase is ElectionPhase.ASKING and serial >= election.waiting.get(name, serial + 1):
            del election.waiting[name]
        return effects + self._evaluate(now)

    def exited(self, name: str, how: str, now: float) -> list[Effect]:
        """The process has ended; `how` is `exit code 3` or `signal 9`."""
        node = self.nodes[name]
        ran = now - node.started_at
        node.quick_deaths = node.quick_deaths + 1 if ran < QUICK_DEATH else 0
        node.process, node.pid, node.paused, node.connected = Process.DOWN, 0, False, False
        node.report, node.silent_since, node.kill_at, node.insist_at, node.asked = None, None, None, None, 0
        effects: list[Effect] = [Note("exit", f"{name} ended: {how}, after {ran:.1f} s", name, {"reason": how})]
        if self.switch_over is not None and self.switch_over.source == name:
            self.switch_over = None
        effects += self._evaluate(now, f"the primary {name} died ({how})" if name == self.primary else "")
        if node.wanted and not self.closing:
            delay = min(self.watch.restart_limit, self.watch.restart_delay * 2 ** max(0, node.quick_deaths - 1))
            node.restart_at = now + delay
            effects.append(Note("restart_planned", f"{name} will be restarted in {delay:g} s", name, {"delay": delay}))
        return effects + self._no_longer_waiting(name, now)

    def tick(self, now: float) -> list[Effect]:
        """Check the deadlines; called every few tens of milliseconds."""
        late = now - self._last_tick > self.watch.hang_timeout / 2
        self._last_tick = now
        effects: list[Effect] = []
        for node in self.nodes.values():
            if late and node.silent_since is not None:
                node.silent_since = now  # this process was paused; answers may be unread
            effects += self._tick_node(node, now)
        return effects + self._evaluate(now)

    # ---- commands ----------------------------------------------------------------------------------------------

    def kill(self, name: str, hold: bool, now: float) -> list[Effect]:
        """kill -9; with `hold` it stays down."""
        node = self._running(name)
        node.wanted = not hold
        return [Note("command", f"kill -9 of {name} requested", name), Signal(name, signal.SIGKILL)]

    def stop(self, name: str, now: float) -> list[Effect]:
        """Clean stop; it stays down until `start`."""
        node = self._running(name)
        node.wanted = False
        return [Note("command", f"stop of {name} requested", name), *self._terminate(node, now)]

    def pause(self, name: str, now: float) -> list[Effect]:
        """SIGSTOP.  That it hangs is detected by the pings, as with any other broker."""
        node = self._running(name)
        node.paused = True
        return [Note("command", f"pause of {name} requested (SIGSTOP)", name), Signal(name, signal.SIGSTOP)]

    def start(self, name: str, now: float) -> list[Effect]:
        """Start a node that is down, resume one that is paused."""
        node = self.nodes[name]
        node.wanted = True
        if node.paused:
            node.paused = False
            return [Note("command", f"{name} is resumed (SIGCONT)", name), Signal(name, signal.SIGCONT)]
        if node.process is not Process.DOWN:
            raise Refused(f"{name} runs already (pid {node.pid})")
        return self._start(node, now, "start requested")

    def promote(self, name: str, now: float) -> list[Effect]:
        """Make `name` the primary; a living primary is asked to hand over."""
        node = self._running(name)
        if node.is_primary:
            raise Refused(f"{name} is primary already")
        state = node.report.state if node.report and node.process is Process.UP else node.process.value
        if self.primary and self.nodes[self.primary].is_primary:
            if state != "ready":
                raise Refused(f"{name} is {state}, not ready; {self.primary} stays primary")
            return self._relocate(name, now)
        self.preferred = name
        if self.election and self.election.phase is ElectionPhase.RESTING:
            self.election.deadline = now
        return [Note("command", f"promotion of {name} requested", name), *self._evaluate(now)]

    def close(self, now: float) -> list[Effect]:
        """Stop every node; none is restarted."""
        self.closing, self.election = True, None
        effects: list[Effect] = [Note("stop", "the cluster stops")]
        for node in self.nodes.values():
            node.wanted, node.restart_at = False, None
            if node.process is not Process.DOWN:
                effects += self._terminate(node, now)
                node.insist_at = now + INSIST
        return effects

    @property
    def all_down(self) -> bool:
        return all(node.process is Process.DOWN for node in self.nodes.values())

    def _running(self, name: str) -> ManagedBroker:
        node = self.nodes[name]
        if node.process is Process.DOWN:
            raise Refused(f"{name} is down")
        return node

    # ---- one node ----------------------------------------------------------------------------------------------

    def _start(self, node: ManagedBroker, now: float, reason: str) -> list[Effect]:
        node.process, node.restart_at, node.starts = Process.STARTING, None, node.starts + 1
        node.started_at = node.silent_since = now
        return [Note("starting", f"{node.name} is started: {reason}", node.name, {"reason": reason}), Start(node.name)]

    def _terminate(self, node: ManagedBroker, now: float) -> list[Effect]:
        node.kill_at = now + self.watch.stop_timeout
        effects: list[Effect] = [Signal(node.name, signal.SIGTERM)]
        if node.paused:  # a stopped process takes the SIGTERM only once it runs again
            node.paused = False
            effects.append(Signal(node.name, signal.SIGCONT))
        return effects

    def _alive(self, node: ManagedBroker, report: Report, now: float) -> list[Effect]:
        was, node.process = node.process, Process.STARTING if report.starting else Process.UP
        if was is Process.HUNG:
            silent = now - (node.silent_since or now)
            text = f"{node.name} answers again after {silent:.2f} s; it is {report.state}"
            return [Note("awake", text, node.name, {"seconds": round(silent, 3)})]
        return []

    def _tick_node(self, node: ManagedBroker, now: float) -> list[Effect]:
        if node.process is Process.DOWN:
            if node.restart_at is not None and now >= node.restart_at and not self.closing:
                return self._start(node, now, "it had died")
            return []
        effects: list[Effect] = []
        if node.insist_at is not None and now >= node.insist_at:
            node.insist_at = None
            effects.append(Signal(node.name, signal.SIGTERM))
        if node.kill_at is not None and now >= node.kill_at:
            effects += self._not_stopped(node)
        if node.connected and not node.asked and now >= node.next_ping:
            effects.append(self._ask(node, now))
        return effects + self._check_silence(node, now)

    def _not_stopped(self, node: ManagedBroker) -> list[Effect]:
        """The time for a clean stop is over.  A broker that still answers has refused; its log has the reason."""
        node.kill_at = None
        waited = f"did not stop within {self.watch.stop_timeout:g} s"
        if not self.closing and node.is_primary and node.connected:
            node.wanted = True
            text = f"{node.name} {waited} and keeps running: it refused to stop, see its log"
            return [Note("refused", text, node.name)]
        return [Note("kill", f"{node.name} {waited} and is killed", node.name), Signal(node.name, signal.SIGKILL)]

    def _check_silence(self, node: ManagedBroker, now: float) -> list[Effect]:
        if node.silent_since is None or node.process is Process.HUNG:
            return []
        limit = self.watch.start_timeout if node.process is Process.STARTING else self.watch.hang_timeout
        silent = now - node.silent_since
        if silent < limit:
            return []
        node.process = Process.HUNG
        text = f"{node.name} hangs: no answer for {silent:.2f} s (limit {limit:g} s)"
        return [Note("hung", text, node.name, {"seconds": round(silent, 3)}), *self._no_longer_waiting(node.name, now)]
