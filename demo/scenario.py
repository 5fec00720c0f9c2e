"""The course of the demo: faults one after the other under load, each with its recovery, and the output meanwhile."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from demo.cluster import Clients, Cluster, DemoError, wait_for

SERVED_LIMIT = 25.0  # seconds that clients may need to be served again; plain pika sees a hung broker after 6 to 12
READY_LIMIT = 20.0  # seconds for a returning broker


@dataclass
class Fault:
    """One fault and what followed; moments in µs of CLOCK_MONOTONIC."""

    action: str  # "relocate", "kill -9", "pause"
    node: str
    role: str  # of the node when it happened
    moment: int
    returned: int = 0  # its process runs (again)
    ready: int = 0
    end: int = 0
    new_primary: str = ""
    promoted: int = 0


class Narrator:
    """Prints with the seconds since the beginning; silent with --json."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._begin = time.monotonic()

    def say(self, text: str) -> None:
        if not self._quiet:
            print(f"{time.monotonic() - self._begin:6.1f} s  {text}", flush=True)

    def tell(self, lines: Iterable[str]) -> None:
        """As they are."""
        if not self._quiet:
            print("\n".join(lines), flush=True)


class Scenario:
    """Carries the faults out; `run` returns them."""

    def __init__(self, cluster: Cluster, clients: Clients, say: Callable[[str], None], calm: float) -> None:
        self.cluster = cluster
        self.clients = clients
        self.say = say
        self.calm = calm
        self.faults: list[Fault] = []
        self._shown = (time.monotonic(), 0, 0)

    def run(self) -> list[Fault]:
        self.rest()
        self.relocate(self.cluster.backups()[0])
        self.rest()
        self.kill(self.cluster.primary)
        self.rest()
        self.pause(self.cluster.primary)
        self.rest()
        self.kill(self.cluster.backups()[0])
        self.rest()
        return self.faults

    # ---- the faults --------------------------------------------------------------------------------------------

    def relocate(self, target: str) -> None:
        """No fault, but a planned switch-over: the primary hands over to a backup."""
        node = self.cluster.primary
        self.say(f"--- planned switch-over from {node} to {target} ---")
        fault = Fault("relocate", node, "primary", self.cluster.command("promote", target, timeout=20.0))
        self.faults.append(fault)
        self._promoted(fault)
        self._all_served(fault)
        fault.returned = fault.promoted
        self._until_ready(fault)

    def kill(self, node: str) -> None:
        """kill -9; the supervisor restarts it."""
        starts = self._starts(node)
        fault = self._inflict("kill -9", "kill", node)
        self._all_served(fault)
        self._await(lambda: self._starts(node) > starts, "the restart of " + node)
        self._until_ready(fault)

    def pause(self, node: str) -> None:
        """SIGSTOP; resumed when all clients are served again."""
        fault = self._inflict("pause", "pause", node)
        self._all_served(fault)
        self.say(f"resume {node} (it does not know yet that it was replaced)")
        fault.returned = self.cluster.command("start", node)
        self._until_ready(fault)

    def _inflict(self, action: str, command: str, node: str) -> Fault:
        role = "primary" if node == self.cluster.primary else "backup"
        self.say(f"--- {action} of {node}, {'the primary' if role == 'primary' else 'a backup'} ---")
        fault = Fault(action, node, role, self.cluster.command(command, node))
        self.faults.append(fault)
        if role == "primary":
            self._promoted(fault)
        return fault

    def _promoted(self, fault: Fault) -> None:
        self._await(lambda: self.cluster.primary not in ("", fault.node), "the promotion of another broker", 0.01)
        note = self._note("promoted", fault.moment)
        fault.promoted, fault.new_primary = note["ts_mono"], note["node"]
        after = (fault.promoted - fault.moment) / 1000
        self.say(f"{fault.new_primary} is promoted, {after:.0f} ms after the {fault.action}")

    def _all_served(self, fault: Fault) -> None:
        """Waits until every client makes progress again; prints each one that does."""
        since = fault.promoted or fault.moment
        waiting = {client.name for client in self.clients.all}
        deadline = time.monotonic() + SERVED_LIMIT
        while waiting:
            now = time.monotonic_ns() // 1000
            served = {client.name for client in self.clients.served_since(since)} & waiting
            waiting -= served
            if served and fault.role == "primary":
                self.say(f"served again within {(now - fault.moment) / 1000:.0f} ms: {' '.join(sorted(served))}")
            if time.monotonic() > deadline:
                raise DemoError(f"not served {SERVED_LIMIT:g} s after the {fault.action}: {' '.join(sorted(waiting))}")
            self._show()
            time.sleep(0.005)

    def _until_ready(self, fault: Fault) -> None:
        self._await(lambda: self.cluster.node(fault.node).get("state") == "ready", f"{fault.node} ready")
        if not fault.returned:
            fault.returned = self._note("start", fault.moment, fault.node)["ts_mono"]
        fault.ready = self._note("state", fault.returned, fault.node, new="ready")["ts_mono"]
        fault.end = time.monotonic_ns() // 1000
        took = (fault.ready - fault.returned) / 1000
        self.say(f"{fault.node} is a ready backup again, {took:.0f} ms after its return")

    def _note(self, kind: str, since: int, node: str = "", **attrs: str) -> dict[str, Any]:
        """The supervisor's first event of that kind since a moment, with its time."""
        for note in self.cluster.history():
            about = note["kind"] == kind and node in ("", note["node"])
            if about and note["ts_mono"] >= since and attrs.items() <= note["attrs"].items():
                return note
        raise DemoError(f"the supervisor noted no {kind} {node} {attrs or ''}")

    def _starts(self, node: str) -> int:
        return int(self.cluster.node(node).get("starts") or 0)

    # ---- reporting -----------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Some calm under load."""
        until = time.monotonic() + self.calm
        self._await(lambda: time.monotonic() >= until, "calm", 0.02)

    def _await(self, condition: Callable[[], bool], what: str, interval: float = 0.02) -> None:
        def looked() -> bool:
            self.clients.check()
            self._show()
            return condition()

        wait_for(what, looked, READY_LIMIT, interval)

    def _show(self) -> None:
        """Once a second: the state of each broker, and the rates."""
        then, confirmed, delivered = self._shown
        now = time.monotonic()
        if now - then < 1.0:
            return
        self._shown = (now, self.clients.total("producer"), self.clients.total("consumer"))
        rates = [(new - old) / (now - then) for new, old in zip(self._shown[1:], (confirmed, delivered), strict=True)]
        states = "  ".join(f"{node['name']} {_word(node)}" for node in self.cluster.status().get("nodes", ()))
        self.say(f"{states}  | confirmed {rates[0]:.0f}/s delivered {rates[1]:.0f}/s")


def _word(node: dict[str, object]) -> str:
    process = node["process"]
    word = node["state"] if process == "up" else process
    return f"{word or 'unknown'!s:<8}"


# Queue, producer, its share of the rate, consumer.  Not mixed: a consumer without a running producer makes no progress,
# so the outage of one kind of client would count for the other.
LOAD = (
    ("q1", "library", 0.3, "library"),
    ("q2", "library", 0.3, "library"),
    ("q3", "plain", 0.2, "plain"),
    ("q4", "plain", 0.2, "plain"),
)


def start_load(clients: Clients, rate: float, styles: tuple[str, ...] = ("library", "plain")) -> None:
    """A producer and a consumer for each queue; returns when all of them have made progress."""
    for number, (queue, producer, share, consumer) in enumerate(LOAD, 1):
        clients.start("consumer", consumer if consumer in styles else "plain", f"c{number}", queue)
        clients.start("producer", producer if producer in styles else "plain", f"p{number}", queue, rate * share)
    wait_for("progress of all clients", lambda: _all_begun(clients), 20.0, 0.02)


def _all_begun(clients: Clients) -> bool:
    clients.check()
    return len(clients.served_since(0)) == len(clients.all)
