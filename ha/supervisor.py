"""The decisions of the local supervisor, without processes, sockets or a clock.

Theory
------
The supervisor is a resource manager for one machine.  It may be wrong about a broker (a slow one looks hung), so it
never protects data: the brokers refuse a promotion that would lose something, and epochs make a second primary
harmless.  Its only duty is that *some* broker gets promoted, soon, and that dead ones come back.

A node's process is in one of five states:

    DOWN ──Start──> STARTING ──first answer──> UP <──answers again── HUNG
      ^                 │                       │  ──no answer for hang_timeout──> ^
      └───── exit (seen at once through the process's pidfd), from any state ──────┘

`wanted` says whether the administrator wants it to run: only a wanted node is restarted, after a delay that doubles
while it dies at once.  A hung broker is never killed: a primary that was replaced finds out when it wakes, demotes
itself in place and keeps what it holds.

There is a *primary* when a node that is UP answered `recovering` or `active`; of several, the highest epoch counts, for
the others have not yet noticed that they were deposed.  Without one, an *election* runs, one at a time:

    ASKING ──all answered, or ask_timeout──> PROMOTING ──accepted──> (over)
      ^                                          │ refused or promote_timeout: the next candidate
      └────────── RESTING (bounded back-off) <───┘ no candidate left

The election ends at once when an asked broker turns out to be primary already.  Order of candidates: ready ones, others
that hold everything up to their position (a deposed primary), joining ones, those that were catching up; among equals
the newest position, then the order of the cluster file.  Every candidate is tried, for the brokers themselves refuse a
promotion that could lose something.  When the best is neither ready nor whole (a fresh cluster, or a total failure),
the election waits until all brokers that should run have answered or gather_timeout has passed, since the one with the
newest data may be the slowest to start.

Callers: the shell in supervisor_shell.py, from one thread.  Every method takes `now` (seconds, monotonic) and returns
effects in the order in which they must happen.
"""

import signal
from collections.abc import Iterable, Mapping

from ha.cluster_file import Watch
from ha.supervision import (
    Ask,
    Effect,
    Election,
    Node,
    Note,
    Phase,
    Process,
    Promote,
    Refused,
    Signal,
    Start,
    View,
    rank,
    rest,
    show_position,
)

QUICK_DEATH = 5.0  # seconds; a broker that ran shorter than this is restarted more and more slowly


class Supervisor:
    """One cluster; see the module's theory."""

    def __init__(self, names: Iterable[str], watch: Watch) -> None:
        self.nodes = {name: Node(name) for name in names}
        self.watch = watch
        self.primary = ""
        self.election: Election | None = None
        self.preferred = ""
        self.closing = False
        self._serial = 0
        self._began = 0.0
        self._last_tick = 0.0

    # ---- what happens ------------------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Effect]:
        """Starts every node; the election follows when they answer."""
        self._began = self._last_tick = now
        effects: list[Effect] = []
        for node in self.nodes.values():
            effects += self._start(node, now, "the cluster is brought up")
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
        """The admin connection is gone; the process may still be there, so this alone decides nothing."""
        node = self.nodes[name]
        node.connected, node.asked = False, 0
        if node.silent_since is None:
            node.silent_since = now
        return self._no_longer_waiting(name, now)

    def answered(self, name: str, serial: int, view: View, now: float) -> list[Effect]:
        """The broker answered a question."""
        node = self.nodes[name]
        if node.process is Process.DOWN:
            return []  # the last words of a broker that has died
        effects = self._alive(node, view, now)
        old, node.view = node.view, view
        election = self.election
        if old is None or (old.state, old.epoch) != (view.state, view.epoch):
            if election and election.phase is Phase.RESTING:
                election.deadline = now  # something has changed, so asking again is worth it at once
            before = old.state if old else "none"
            attrs = {"old": before, "new": view.state, "term": view.epoch, "position": view.position}
            effects.append(Note("state", f"{name} is {view.state} (was {before}), epoch {view.epoch}", name, attrs))
        if serial >= node.asked:
            node.asked, node.silent_since = 0, None
            node.next_ping = now + self.watch.ping_interval
        if election and election.phase is Phase.ASKING and serial >= election.waiting.get(name, serial + 1):
            del election.waiting[name]
        return effects + self._evaluate(now)

    def exited(self, name: str, how: str, now: float) -> list[Effect]:
        """The process has ended; `how` is `exit code 3` or `signal 9`."""
        node = self.nodes[name]
        ran = now - node.started_at
        node.quick_deaths = node.quick_deaths + 1 if ran < QUICK_DEATH else 0
        node.process, node.pid, node.paused, node.connected = Process.DOWN, 0, False, False
        node.view, node.silent_since, node.kill_at, node.asked = None, None, None, 0
        effects: list[Effect] = [Note("exit", f"{name} ended: {how}, after {ran:.1f} s", name, {"reason": how})]
        effects += self._evaluate(now, f"the primary {name} died ({how})" if name == self.primary else "")
        if node.wanted and not self.closing:
            delay = min(self.watch.restart_limit, self.watch.restart_delay * 2 ** max(0, node.quick_deaths - 1))
            node.restart_at = now + delay
            effects.append(Note("restart_planned", f"{name} will be restarted in {delay:g} s", name, {"delay": delay}))
        return effects + self._no_longer_waiting(name, now)

    def promoted(self, name: str, serial: int, error: str | None, now: float) -> list[Effect]:
        """The answer to a promotion: no error is success."""
        election, node = self.election, self.nodes[name]
        if election is None or election.promoting != name or election.serial != serial:
            return []  # it came after promote_timeout; the pings will tell who is primary
        if error is not None:
            return self._next_candidate(f"{name} refused the promotion: {error}", now)
        took = (now - election.begun) * 1000
        if node.view is not None:
            node.view = View("recovering", node.view.epoch, node.view.position)
        self.primary, self.election, self.preferred = name, None, ""
        text = f"{name} is promoted, {took:.1f} ms after: {election.reason}"
        return [Note("promoted", text, name, {"ms": round(took, 3), "reason": election.reason})]

    def tick(self, now: float) -> list[Effect]:
        """Deadlines; call it every few tens of milliseconds."""
        late = now - self._last_tick > self.watch.hang_timeout / 2
        self._last_tick = now
        effects: list[Effect] = []
        for node in self.nodes.values():
            if late and node.silent_since is not None:
                node.silent_since = now  # we were asleep ourselves; their answers may be waiting for us
            effects += self._tick_node(node, now)
        return effects + self._evaluate(now)

    # ---- commands ----------------------------------------------------------------------------------------------

    def kill(self, name: str, hold: bool, now: float) -> list[Effect]:
        """kill -9; with `hold` it stays down."""
        node = self._running(name)
        node.wanted = not hold
        return [Note("command", f"kill -9 of {name} asked for", name), Signal(name, signal.SIGKILL)]

    def stop(self, name: str, now: float) -> list[Effect]:
        """Clean stop; it stays down until `start`."""
        node = self._running(name)
        node.wanted = False
        return [Note("command", f"stop of {name} asked for", name), *self._terminate(node, now)]

    def pause(self, name: str, now: float) -> list[Effect]:
        """SIGSTOP.  Whether it hangs is left to the pings, as with any other broker."""
        node = self._running(name)
        node.paused = True
        return [Note("command", f"pause of {name} asked for (SIGSTOP)", name), Signal(name, signal.SIGSTOP)]

    def start(self, name: str, now: float) -> list[Effect]:
        """Starts a node that is down, resumes one that is paused."""
        node = self.nodes[name]
        node.wanted = True
        if node.paused:
            node.paused = False
            return [Note("command", f"{name} is resumed (SIGCONT)", name), Signal(name, signal.SIGCONT)]
        if node.process is not Process.DOWN:
            raise Refused(f"{name} runs already (pid {node.pid})")
        return self._start(node, now, "start asked for")

    def promote(self, name: str, now: float) -> list[Effect]:
        """Makes `name` the primary; a primary that lives is stopped cleanly and comes back as a backup."""
        node = self._running(name)
        if node.is_primary:
            raise Refused(f"{name} is primary already")
        state = node.view.state if node.view and node.process is Process.UP else node.process.value
        if self.primary and self.nodes[self.primary].is_primary:
            if state != "ready":
                raise Refused(f"{name} is {state}, not ready; {self.primary} stays primary")
            self.preferred = name
            text = f"switch-over from {self.primary} to {name} asked for"
            return [Note("command", text, name), *self._terminate(self.nodes[self.primary], now)]
        self.preferred = name
        if self.election and self.election.phase is Phase.RESTING:
            self.election.deadline = now
        return [Note("command", f"promotion of {name} asked for", name), *self._evaluate(now)]

    def close(self, now: float) -> list[Effect]:
        """Stops every node for good."""
        self.closing, self.election = True, None
        effects: list[Effect] = [Note("stop", "the cluster is brought down")]
        for node in self.nodes.values():
            node.wanted, node.restart_at = False, None
            if node.process is not Process.DOWN:
                effects += self._terminate(node, now)
        return effects

    @property
    def all_down(self) -> bool:
        return all(node.process is Process.DOWN for node in self.nodes.values())

    def _running(self, name: str) -> Node:
        node = self.nodes[name]
        if node.process is Process.DOWN:
            raise Refused(f"{name} is down")
        return node

    # ---- one node ----------------------------------------------------------------------------------------------

    def _start(self, node: Node, now: float, reason: str) -> list[Effect]:
        node.process, node.restart_at, node.starts = Process.STARTING, None, node.starts + 1
        node.started_at = node.silent_since = now
        return [Note("starting", f"{node.name} is started: {reason}", node.name, {"reason": reason}), Start(node.name)]

    def _terminate(self, node: Node, now: float) -> list[Effect]:
        node.kill_at = now + self.watch.stop_timeout
        effects: list[Effect] = [Signal(node.name, signal.SIGTERM)]
        if node.paused:  # a stopped process takes the SIGTERM only once it runs again
            node.paused = False
            effects.append(Signal(node.name, signal.SIGCONT))
        return effects

    def _ask(self, node: Node, now: float) -> Ask:
        self._serial += 1
        node.asked = self._serial
        if node.silent_since is None:
            node.silent_since = now
        return Ask(node.name, self._serial)

    def _alive(self, node: Node, view: View, now: float) -> list[Effect]:
        was, node.process = node.process, Process.UP
        if was is Process.HUNG:
            silent = now - (node.silent_since or now)
            text = f"{node.name} answers again after {silent:.2f} s; it is {view.state}"
            return [Note("awake", text, node.name, {"seconds": round(silent, 3)})]
        return []

    def _tick_node(self, node: Node, now: float) -> list[Effect]:
        if node.process is Process.DOWN:
            if node.restart_at is not None and now >= node.restart_at and not self.closing:
                return self._start(node, now, "it had died")
            return []
        effects: list[Effect] = []
        if node.kill_at is not None and now >= node.kill_at:
            node.kill_at = None
            text = f"{node.name} did not stop within {self.watch.stop_timeout:g} s and is killed"
            effects += [Note("kill", text, node.name), Signal(node.name, signal.SIGKILL)]
        if node.connected and not node.asked and now >= node.next_ping:
            effects.append(self._ask(node, now))
        return effects + self._check_silence(node, now)

    def _check_silence(self, node: Node, now: float) -> list[Effect]:
        if node.silent_since is None or node.process is Process.HUNG:
            return []
        limit = self.watch.start_timeout if node.process is Process.STARTING else self.watch.hang_timeout
        silent = now - node.silent_since
        if silent < limit:
            return []
        node.process = Process.HUNG
        text = f"{node.name} hangs: no answer for {silent:.2f} s (limit {limit:g} s)"
        return [Note("hung", text, node.name, {"seconds": round(silent, 3)}), *self._no_longer_waiting(node.name, now)]

    # ---- the election ------------------------------------------------------------------------------------------

    def _evaluate(self, now: float, reason: str = "") -> list[Effect]:
        """Adopts the primary that is there, or moves the search for one on."""
        if self.closing:
            return []
        seen = self._seen_primary()
        if seen:
            return self._adopt(seen, now)
        if self.election is None:
            self.election = Election(reason or self._why(), now, deadline=now)
            self.primary = ""
            why = self.election.reason
            return [Note("election", f"a primary is wanted: {why}", attrs={"reason": why}), *self._advance(now)]
        return self._advance(now)

    def _seen_primary(self) -> str:
        views = {name: node.view for name, node in self.nodes.items() if node.is_primary and node.view}
        newest = max((node.view.epoch for node in self.nodes.values() if node.view), default=0)
        current = {name: view for name, view in views.items() if view.epoch >= newest or name == self.primary}
        return max(current, key=lambda name: (current[name].epoch, name == self.primary), default="")

    def _why(self) -> str:
        if not self.primary:
            return "none has been promoted yet"
        node = self.nodes[self.primary]
        if node.process is Process.HUNG:
            return f"the primary {self.primary} hangs"
        if node.process is Process.DOWN:
            return f"the primary {self.primary} is down"
        return f"{self.primary} is no longer primary, it is {node.view.state if node.view else 'silent'}"

    def _adopt(self, name: str, now: float) -> list[Effect]:
        election, old = self.election, self.primary
        if election is not None and election.phase is Phase.PROMOTING:
            return []  # the answer to the promotion itself comes in a moment, with the time that it took
        self.primary, self.election = name, None
        if name == old:
            return []
        return [Note("adopted", f"{name} is primary already; nothing to promote", name)]

    def _advance(self, now: float) -> list[Effect]:
        election = self.election
        assert election is not None
        if election.phase is Phase.RESTING:
            return self._ask_all(election, now) if now >= election.deadline else []
        if election.phase is Phase.ASKING:
            return self._choose(election, now) if not election.waiting or now >= election.deadline else []
        if now < election.deadline:
            return []
        return self._next_candidate(f"{election.promoting} did not answer the promotion in time", now)

    def _ask_all(self, election: Election, now: float) -> list[Effect]:
        election.phase, election.rounds = Phase.ASKING, election.rounds + 1
        election.deadline = now + self.watch.ask_timeout
        questions = [self._ask(node, now) for node in self._reachable()]
        election.waiting = {question.node: question.serial for question in questions}
        return [*questions] if questions else self._choose(election, now)

    def _reachable(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.process is Process.UP and node.connected]

    def _choose(self, election: Election, now: float) -> list[Effect]:
        """All have answered, or the time is over: the order in which to try."""
        silent = set(election.waiting)
        views = {node.name: node.view for node in self._reachable() if node.view and node.name not in silent}
        election.candidates = rank(views, self.preferred)
        if not election.candidates:
            return self._rest(election, self._no_candidate(views), now)
        missing, best = self._missing(), views[election.candidates[0]]
        if best.state != "ready" and not best.whole and missing and not self._gathered(election, now):
            return self._rest(election, f"nobody is ready; waiting for {', '.join(missing)}", now)
        return self._next_candidate("", now)

    def _no_candidate(self, views: Mapping[str, View]) -> str:
        seen = ", ".join(f"{name} {view.state}" for name, view in views.items())
        return f"no broker can be promoted ({seen or 'none answers'})"

    def _missing(self) -> list[str]:
        """Brokers that should run and have not answered yet; a paused or hung one is not waited for."""
        late = (Process.DOWN, Process.STARTING)
        return [node.name for node in self.nodes.values() if node.wanted and node.process in late]

    def _gathered(self, election: Election, now: float) -> bool:
        return now - max(election.begun, self._began) >= self.watch.gather_timeout

    def _next_candidate(self, why: str, now: float) -> list[Effect]:
        election = self.election
        assert election is not None
        effects: list[Effect] = []
        if why and election.refusals.get(election.promoting) != why:
            election.refusals[election.promoting] = why
            effects.append(Note("refused", why, election.promoting, {"reason": why}))
        election.promoting = ""
        while election.candidates:
            name = election.candidates.pop(0)
            node = self.nodes[name]
            if node.process is not Process.UP or not node.connected or node.view is None:
                continue
            self._serial += 1
            election.phase, election.promoting, election.serial = Phase.PROMOTING, name, self._serial
            election.deadline = now + self.watch.promote_timeout
            view = node.view
            text = f"promoting {name}: {view.state}, epoch {view.epoch}, position {show_position(view.position)}"
            attrs = {"position": view.position, "reason": election.reason, "term": view.epoch}
            if name not in election.refusals:
                effects.append(Note("promote_request", text, name, attrs))
            return [Promote(name, self._serial), *effects]
        return effects + self._rest(election, why or "no candidate left", now)

    def _rest(self, election: Election, excuse: str, now: float) -> list[Effect]:
        election.phase, election.promoting = Phase.RESTING, ""
        election.deadline = now + rest(election.rounds)
        if excuse == election.told:
            return []
        election.told = excuse
        return [Note("no_primary", f"no primary yet: {excuse}; asking again", attrs={"reason": excuse})]

    def _no_longer_waiting(self, name: str, now: float) -> list[Effect]:
        """A node that is gone cannot answer: the election goes on without it."""
        election = self.election
        if election is None or self.closing:
            return []
        if election.phase is Phase.ASKING and election.waiting.pop(name, None) is not None:
            return self._advance(now)
        if election.phase is Phase.PROMOTING and election.promoting == name:
            return self._next_candidate(f"{name} went away while it was promoted", now)
        return []
