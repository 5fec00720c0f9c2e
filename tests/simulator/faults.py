"""What goes wrong: carries out the actions of a scenario.

A target is a broker's name, or `primary` (the one with the highest ballot), or `backup` (a running broker that is not).
An action whose target does not exist at its time does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ha.model.environment import Json
from tests.simulator.coincidences import Coincidences
from tests.simulator.disk import Killed
from tests.simulator.journal_faults import JournalFaults
from tests.simulator.manager import promote
from tests.simulator.network import Pairs
from tests.simulator.scenario import Action
from tests.simulator.scheduler import Call

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

CLIENTS_DO = ("publish", "configure", "scrap", "discard")
"""Actions of clients; all others are faults."""
STEPS = 3
"""At each of so many steps of a write to the disk a process may die."""
Do = Callable[[Mapping[str, Any]], None]


def both_ways(name: str, others: Iterable[str]) -> Pairs:
    return {(name, other) for other in others} | {(other, name) for other in others}


class Faults:
    """Until `stop`."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.rules = simulation.rules
        self.stopped = False
        self._entering: set[str] = set()
        """Addresses of copies that will be members; that may take until the faults are over."""
        self._traps: list[Mapping[str, Any]] = []
        self.kinds: dict[str, Do] = {
            "crash": self._crash,
            "blackout": self._blackout,
            "cut": self._cut,
            "isolate": self._isolate,
            "split": self._split,
            "pause": self._pause,
            "promote": self._promote,
            "slow": self._slow,
            "narrow": self._narrow,
            "linger": self._linger,
            "reset": self._reset,
            "reject": self._reject,
            "repeat": self._repeat,
            "delay": self._delay,
            "clock-step": self._clock_step,
            "ambush": self._ambush,
            "duel": self._duel,
            "trap": self._trap,
            "slow-disk": self._slow_disk,
            "page-rots": self._page_rots,
            "disk-error": self._disk_error,
            "relocate": self._relocate,
            "demote": self._demote,
            "member": self._member,
            "clone": self._clone,
            "registry-down": self._registry_down,
            "registry-slow": self._registry_slow,
            "registry-silent": self._registry_silent,
            "registry-disk": self._registry_disk,
            "ring-cut": self._ring_cut,
            "stack-stop": self._stack_stop,
            "daemon-down": self._daemon_down,
            **Coincidences(self).kinds,
            **JournalFaults(self).kinds,
        }

    def do(self, action: Action) -> None:
        if not self.stopped:
            self.kinds[action.do](action.fields)

    def end(self) -> None:
        """No more of them."""
        self.stopped = True
        self._traps.clear()

    def stop(self) -> None:
        """No more of them, and what is broken is repaired."""
        self.end()
        simulation = self.simulation
        self.scheduler.log("", "--- faults end: everything is repaired ---")
        simulation.network.heal_all()
        simulation.registry.repair()
        for process in simulation.brokers:
            process.write_seconds, process.buried, process.mute = 0.0, False, frozenset()
            process.disk.fault = ""
            if process.life and process.pages is not None:
                process.pages.rots = 0
            self._part(process)
        for process in simulation.brokers:
            if not process.alive and process.life:
                process.boot()
            process.resume()
        for client in simulation.clients:
            client.calm()

    def target(self, name: str) -> BrokerProcess | None:
        """None when there is none now."""
        primaries = [process for process in self.simulation.brokers if process.is_primary]
        primary = max(primaries, key=lambda process: process.node.local.persisted.ballot, default=None)
        if name == "primary":
            return primary
        if name == "backup":
            return next((each for each in self.simulation.brokers if each.running and not each.is_primary), None)
        return self.simulation.by_name.get(name)

    def later(self, seconds: float, call: Call) -> None:
        self.scheduler.at(seconds, lambda: None if self.stopped else call())

    # ---- processes ------------------------------------------------------------------------------------------------

    def _crash(self, fields: Mapping[str, Any]) -> None:
        process = self.target(fields["who"])
        if process is None or not self.rules.may_kill(process):
            return
        self.rules.stop(process, bool(fields.get("power")), float(fields["for"]))
        if fields.get("disk") == "lost" and self._may_be_replaced(process):
            self.scheduler.log(process.name, "is replaced by a machine with an empty disk")
            process.new_machine()
            self.simulation.history.fewer()
            process.configure()
            self.rules.replaced = True

    def _blackout(self, fields: Mapping[str, Any]) -> None:
        """All die, one soon after the other, and come back; `ends`: seconds until it dies, and until it is back."""
        for name, (after, back) in fields["ends"].items():
            self.later(after, partial(self._black, self.simulation.by_name[name], bool(fields["power"]), back))

    def _black(self, process: BrokerProcess, power: bool, back: float) -> None:
        if self.rules.may_kill(process):
            self.rules.stop(process, power, back)

    def _may_be_replaced(self, process: BrokerProcess) -> bool:
        """A voter must not forget (see scenarios/quorum-vote-forgotten.yaml); it has to leave the cluster first."""
        scenario = self.simulation.scenario
        voter = scenario.mode == "quorum" and process in self.simulation.members
        return not voter or bool(scenario.option("unfenced", False))

    def died(self, process: BrokerProcess) -> None:
        """In the middle of a write."""
        self.rules.stop(process)

    def _pause(self, fields: Mapping[str, Any]) -> None:
        process = self.target(fields["who"])
        if process is not None and process.running:
            life = process.life
            process.pause()
            self.later(fields["for"], lambda: process.resume() if process.life == life else None)

    def _page_rots(self, fields: Mapping[str, Any]) -> None:
        """What it reads back next from its page file is not what was written, if others hold it."""
        process = self.target(fields["who"])
        if process is not None and process.alive and process.pages is not None:
            process.pages.rots = fields["pages"]

    def _slow_disk(self, fields: Mapping[str, Any]) -> None:
        process = self.target(fields["who"])
        if process is None:
            return
        self.scheduler.log(process.name, f"writes take {fields['delay']} s")
        process.write_seconds = fields["delay"]
        self.later(fields["for"], lambda: setattr(process, "write_seconds", 0.0))

    def _disk_error(self, fields: Mapping[str, Any]) -> None:
        """Writes of the state file fail; `kind` as in `disk.FAULTS`."""
        process = self.target(fields["who"])
        if process is None:
            return
        self.scheduler.log(process.name, f"the disk fails: {fields['kind']}")
        disk = process.disk
        disk.fault = fields["kind"]
        self.later(fields["for"], lambda: setattr(disk, "fault", ""))

    # ---- the manager errs -----------------------------------------------------------------------------------------

    def _promote(self, fields: Mapping[str, Any]) -> None:
        process = self.target(fields["who"])
        if process is not None:
            promote(self.simulation, process, "rm", bool(fields.get("force")))

    # ---- what administrators do -----------------------------------------------------------------------------------

    def _relocate(self, fields: Mapping[str, Any]) -> None:
        self.simulation.history.relocated_at = self.scheduler.now
        self._ask_primary("ha.relocate", {"to": fields["to"]})

    def _demote(self, fields: Mapping[str, Any]) -> None:
        self._ask_primary("ha.demote", {})

    def _member(self, fields: Mapping[str, Any]) -> None:
        process = self.simulation.by_name.get(fields["who"])
        if process is None or self.target("primary") is None:
            return
        if not process.life and fields["action"] == "add":
            process.configure()
            process.boot()
        arguments = {"action": fields["action"], "address": process.address}
        self._ask_primary("ha.member", arguments, self._write_members)

    def _write_members(self) -> None:
        """Into the configuration of each of them; read at its next start."""
        for process in self.simulation.members:
            process.configure()

    def _clone(self, fields: Mapping[str, Any]) -> None:
        """A spare is started from a copy of a member's data directory: where no broker is expected, and without
        knowing its address (a port forwarded, a copied container), or as a new member."""
        original, process = self.target(fields["of"]), self.simulation.by_name.get(fields["who"])
        if original is None or process is None or process.life or not original.life:
            return
        address = process.address
        process.copy_of(original, address if fields.get("listed") else "")
        self.scheduler.log(process.name, f"starts from a copy of {original.name}'s data directory")
        self.simulation.history.counts["clones"] += 1
        process.boot()
        if fields.get("listed"):
            self._entering.add(address)
            self._ask_primary("ha.member", {"action": "add", "address": address})

    def _part(self, process: BrokerProcess) -> None:
        """An administrator stops the copy; if it has a place in the cluster it comes back with a new identity, or its
        original does, if the copy is in sync."""
        original, history = process.original, self.simulation.history
        if original is None:
            return
        placed = process.address in history.enrolled | self._entering
        stays = placed and process.alive and history.newest.lists(process.node.local.member)
        leaving = original if stays else process
        process.original = None
        leaving.kill()
        if placed:
            leaving.new_identity()
        else:
            process.put_away()

    def _ask_primary(self, method: str, arguments: Json, done: Callable[[], None] = lambda: None) -> None:
        process = self.target("primary")
        if process is None:
            return
        shown = " ".join(str(value) for value in arguments.values())
        self.scheduler.log("adm", f"{method} {shown} at {process.name}")

        def reply(value: Json) -> None:
            result = value.get("result", {}) if value["ok"] else value["error"]
            self.scheduler.log("adm", f"{method} {shown}: {result}")
            self.simulation.history.counts[f"{method} {'done' if value['ok'] else 'refused'}"] += 1
            if value["ok"]:
                done()

        process.run("admin", lambda: process.handle(method, arguments, reply))

    # ---- the network ----------------------------------------------------------------------------------------------

    def _cut(self, fields: Mapping[str, Any]) -> None:
        one, other = fields["from"], fields["to"]
        self._cut_for({(one, other), (other, one)} if fields.get("both") else {(one, other)}, fields["for"])

    def _isolate(self, fields: Mapping[str, Any]) -> None:
        """One broker from all others; from the clients as well, if so."""
        process = self.target(fields["who"])
        if process is None:
            return
        others = [other.name for other in self.simulation.brokers if other is not process]
        if fields.get("clients"):
            others += [client.name for client in self.simulation.clients]
        self._cut_for(both_ways(process.name, others), fields["for"])

    def _split(self, fields: Mapping[str, Any]) -> None:
        """Two sides that do not see each other."""
        side = set(fields["side"])
        rest = {process.name for process in self.simulation.brokers} - side
        pairs: Pairs = set()
        for name in side:
            pairs |= both_ways(name, rest)
        self._cut_for(pairs, fields["for"])

    def _cut_for(self, pairs: Pairs, seconds: float) -> None:
        shown = " ".join(f"{one}>{other}" for one, other in sorted(pairs))
        self.scheduler.log("", f"cut {shown}")
        self.simulation.network.cut(pairs)

        def heal() -> None:
            self.scheduler.log("", f"healed {shown}")
            self.simulation.network.heal(pairs)

        self.later(seconds, heal)

    def _slow(self, fields: Mapping[str, Any]) -> None:
        one, other = fields["from"], fields["to"]
        self.scheduler.log("", f"slow {one}>{other}: {fields['delay']} s")
        self.simulation.network.slow[one, other] = fields["delay"]
        self.later(fields["for"], lambda: self.simulation.network.slow.update({(one, other): 0.0}))

    def _narrow(self, fields: Mapping[str, Any]) -> None:
        """A link, or all that a host sends to other brokers, or both directions, has little bandwidth."""
        one = self.target(fields["from"])
        if one is None:
            return
        everyone = [each.name for each in self.simulation.brokers if each is not one]
        others = [fields["to"]] if "to" in fields else everyone
        pairs = {(one.name, other) for other in others}
        if fields.get("both"):
            pairs |= {(other, name) for name, other in pairs}
        network = self.simulation.network
        shown = " ".join(f"{source}>{target}" for source, target in sorted(pairs))
        self.scheduler.log("", f"narrow {shown}: {fields['octets']} octets/s")
        network.narrow.update(dict.fromkeys(pairs, fields["octets"]))
        self.later(fields["for"], lambda: network.widen(pairs))

    def _linger(self, fields: Mapping[str, Any]) -> None:
        """The connections of this moment hang in one direction: a client that gives up and connects again is faster."""
        one, other = fields["from"], fields["to"]
        self.scheduler.log("", f"connections {one}>{other} hang for {fields['for']} s")
        self.simulation.network.linger(one, other, self.scheduler.now + fields["for"])

    def _reset(self, fields: Mapping[str, Any]) -> None:
        """One connection of two living processes is reset; one end or both are told."""
        found = self.simulation.network.between(fields["from"], fields["to"])
        if found:
            self.scheduler.log("", f"connection {fields['from']}>{fields['to']} is reset")
            found[-1].reset(bool(fields.get("both")))

    def _reject(self, fields: Mapping[str, Any]) -> None:
        """A living host refuses new connections; those that exist go on, or are `broken` first."""
        process = self.target(fields["who"])
        if process is None:
            return
        pairs = {(other.name, process.name) for other in self.simulation.brokers if other is not process}
        pairs &= {(fields.get("from", source), target) for source, target in pairs}
        self.scheduler.log("", f"refused, and alive: {' '.join(f'{one}>{other}' for one, other in sorted(pairs))}")
        rejecting = self.simulation.network.rejecting
        rejecting |= pairs
        if fields.get("broken"):
            for source, target in sorted(pairs):
                for end in self.simulation.network.between(source, target):
                    end.reset(True)
        self.later(fields["for"], lambda: rejecting.difference_update(pairs))

    def _repeat(self, fields: Mapping[str, Any]) -> None:
        self._requests(self.simulation.network.repeated, "twice", fields)

    def _delay(self, fields: Mapping[str, Any]) -> None:
        self._requests(self.simulation.network.delayed, "late", fields)

    def _requests(self, kind: dict[tuple[str, str], float], what: str, fields: Mapping[str, Any]) -> None:
        """For a while requests of one broker arrive like that at another one."""
        pair = fields["from"], fields["to"]
        self.scheduler.log("", f"requests {pair[0]}>{pair[1]} arrive {what}, within {fields['delay']} s")
        kind[pair] = fields["delay"]

        def end() -> None:
            kind.pop(pair, None)

        self.later(fields["for"], end)

    def _clock_step(self, fields: Mapping[str, Any]) -> None:
        """The wall clock is set; the monotonic one runs on."""
        process = self.target(fields["who"])
        if process is not None:
            self.scheduler.log(process.name, f"its wall clock is set by {fields['by']} s")
            process.clock = replace(process.clock, wall=process.clock.wall + fields["by"])

    def _ambush(self, fields: Mapping[str, Any]) -> None:
        """A backup loses sight of the primary, is promoted, and then loses the others in the middle of that."""
        process = self.target(fields["who"])
        if process is None or not process.running or process.is_primary:
            return
        names = {each.name for each in self.simulation.brokers} - {process.name}
        hidden = {each.name for each in self.simulation.brokers if each.is_primary} & names
        self._cut_for(both_ways(process.name, hidden), fields["for"])
        self.later(fields["promote"], lambda: promote(self.simulation, process, "rm"))
        later = fields["promote"] + fields["cut"]
        self.later(later, lambda: self._cut_for(both_ways(process.name, names - hidden), fields["for"]))

    def _duel(self, fields: Mapping[str, Any]) -> None:
        """The primary and a backup lose sight of each other and of all that could tell, and the backup is promoted."""
        primary, rival = self.target("primary"), self.target(fields["who"])
        if primary is None or rival is None or not rival.running or rival is primary:
            return
        for process in self.simulation.brokers:
            if process not in (primary, rival):
                self._pause({"who": process.name, "for": fields["for"]})
        self._cut_for(both_ways(primary.name, [rival.name]), fields["for"])
        self._registry_slow({"delay": fields["delay"], "for": fields["for"]})
        self.later(fields["promote"], lambda: promote(self.simulation, rival, "rm"))

    # ---- the registry ---------------------------------------------------------------------------------------------

    def _registry_down(self, fields: Mapping[str, Any]) -> None:
        self.scheduler.log("rm", "the registry is out of reach")
        self.simulation.registry.down = True
        self.later(fields["for"], lambda: setattr(self.simulation.registry, "down", False))

    def _registry_slow(self, fields: Mapping[str, Any]) -> None:
        self.scheduler.log("rm", f"the registry is slow: {fields['delay']} s")
        self.simulation.registry.slowness = fields["delay"]
        self.later(fields["for"], lambda: setattr(self.simulation.registry, "slowness", 0.0))

    def _registry_silent(self, fields: Mapping[str, Any]) -> None:
        self.scheduler.log("rm", "the registry takes what it is told, and does not answer")
        self.simulation.registry.loses_answers = True
        self.later(fields["for"], lambda: setattr(self.simulation.registry, "loses_answers", False))

    def _registry_disk(self, fields: Mapping[str, Any]) -> None:
        """Where the registry is a file; Pacemaker's tools refuse, or say so (`tools.py`)."""
        self.scheduler.log("rm", f"the disk of the registry fails: {fields['kind']}")
        disk = self.simulation.registry.disk
        disk.fault = fields["kind"]
        self.later(fields["for"], lambda: setattr(disk, "fault", ""))

    def _ring_cut(self, fields: Mapping[str, Any]) -> None:
        """Corosync is cut between two sides, and the brokers are not."""
        pacemaker = self.simulation.registry.pacemaker
        if pacemaker is None:
            return
        side = set(fields["side"])
        cuts = {frozenset((one, other)) for one in side for other in pacemaker.nodes.keys() - side}
        self.scheduler.log("rm", f"Corosync is cut: {fields['side']} from the others")
        pacemaker.corosync.cuts |= cuts
        self.later(fields["for"], lambda: pacemaker.corosync.cuts.difference_update(cuts))

    def _stack_stop(self, fields: Mapping[str, Any]) -> None:
        """An administrator stops the cluster's stack on a node in an orderly way, and starts it again."""
        pacemaker, process = self.simulation.registry.pacemaker, self.target(fields["who"])
        if pacemaker is None or process is None or not self.rules.may_kill(process):
            return
        pacemaker.stop(process)
        self.rules.restart_later(process, fields["for"])

    def _daemon_down(self, fields: Mapping[str, Any]) -> None:
        pacemaker, process = self.simulation.registry.pacemaker, self.target(fields["who"])
        if pacemaker is None or process is None:
            return
        node = pacemaker.nodes[process.name]
        self.scheduler.log("rm", f"commands do not reach Pacemaker on {process.name}")
        node.deaf = True
        self.later(fields["for"], lambda: setattr(node, "deaf", False))

    # ---- at the worst moment --------------------------------------------------------------------------------------

    def _trap(self, fields: Mapping[str, Any]) -> None:
        """The next time that this happens: the action in `then`, at once or after `delay`."""
        self._traps.append(fields)

    def waits_for(self, what: str) -> bool:
        """Is there a trap for that?"""
        return any(trap["on"] == what for trap in self._traps)

    def moment(self, what: str, process: BrokerProcess) -> None:
        """Something happens in a broker.  May raise Killed."""
        for trap in self._traps:
            if trap["on"] == what and trap.get("who", process.name) == process.name:
                self._traps.remove(trap)
                self._spring(trap, what, process)
                return

    def _spring(self, trap: Mapping[str, Any], what: str, process: BrokerProcess) -> None:
        self.scheduler.log("", f"trap: {what} at {process.name}")
        then = dict(trap["then"])
        if then.get("who") == "it":
            then["who"] = process.name
        if then["do"] == "die":
            self._die(process, then)
        elif then["do"] == "disk-error" and "delay" not in trap:
            self._disk_error(then)  # this very write
        else:
            self.later(trap.get("delay", 0.0), lambda: self.do(Action.from_json({"at": 0.0, **then})))

    def _die(self, process: BrokerProcess, then: Mapping[str, Any]) -> None:
        """In this very write, at one of its steps, or right behind it."""
        if not self.rules.may_kill(process):
            return
        if then.get("step"):
            process.disk.crash_at = int(then["step"])
        else:
            raise Killed
