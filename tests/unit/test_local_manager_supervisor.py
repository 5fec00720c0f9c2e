"""The decisions of the local supervisor, by hand-fed events and a hand-driven clock."""

import signal
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ha.qpid_cluster.cluster_file import Watch
from ha.qpid_cluster.supervision import (
    Ask,
    Note,
    Process,
    Promote,
    Refused,
    Relocate,
    Report,
    Signal,
    Start,
    rank,
    rest,
)
from ha.qpid_cluster.supervisor import Supervisor

WATCH = Watch(hang_timeout=1.0, ping_interval=0.1, restart_delay=1.0, gather_timeout=5.0)
EPOCH = 1 << 48


SCORES = {"ready": 100, "joining": 10}


def report(state, epoch=0, position=0, whole=False, successor=""):
    """What such a broker usually answers when no primary lives."""
    score = 90 if whole and state != "ready" else SCORES.get(state)
    return Report(state, epoch, position, successor=successor, score=score)


class Lab:
    """A supervisor with brokers that answer when told to; keeps the effects of each step."""

    def __init__(self, names=("a", "b", "c"), watch=WATCH):
        self.core = Supervisor(names, watch)
        self.now = 100.0
        self.asked = {}
        self.promotions = {}
        self.notes = []
        self.reports = {name: report("joining") for name in names}
        self.do(self.core.begin(self.now))

    def do(self, effects):
        for effect in effects:
            if isinstance(effect, Ask):
                self.asked.setdefault(effect.node, []).append(effect.serial)
            elif isinstance(effect, Promote):
                self.promotions[effect.node] = effect.serial
            elif isinstance(effect, Note):
                self.notes.append(effect)
            elif isinstance(effect, Start):
                self.core.started(effect.node, 1000, self.now)
                self.asked.pop(effect.node, None)
        self.effects = effects
        return effects

    def connect(self, *names):
        for name in names:
            self.do(self.core.connected(name, self.now))

    def answer(self, *names):
        """Those brokers answer everything they were asked."""
        for name in names:
            for serial in self.asked.pop(name, []):
                self.do(self.core.answered(name, serial, self.reports[name], self.now))

    def accept(self, name, error=None):
        self.do(self.core.promoted(name, self.promotions.pop(name), error, self.now))
        if error is None:
            epoch = max(report.epoch for report in self.reports.values()) + 1
            self.reports[name] = report("active", epoch, epoch * EPOCH)

    def tick(self, seconds, step=0.02, live=()):
        until = self.now + seconds
        while self.now < until:
            self.now += step
            self.do(self.core.tick(self.now))
            self.answer(*live)

    def texts(self, kind):
        return [note.text for note in self.notes if note.kind == kind]

    def up(self):
        """All three run, a is primary, b and c are ready; b is ahead."""
        self.connect("a", "b", "c")
        self.answer("a", "b", "c")
        self.answer("a", "b", "c")
        self.answer("a", "b", "c")
        self.accept("a")
        self.reports["b"] = report("ready", 1, EPOCH + 20)
        self.reports["c"] = report("ready", 1, EPOCH + 10)
        self.tick(0.3, live="abc")
        return self


def test_a_fresh_cluster_promotes_the_first_of_the_file_when_all_have_answered():
    lab = Lab()
    lab.connect("a", "b")
    lab.answer("a", "b")
    assert not lab.promotions
    lab.connect("c")
    lab.answer("c")
    lab.tick(0.2, live="abc")
    assert list(lab.promotions) == ["a"]
    lab.accept("a")
    assert lab.core.primary == "a"


def test_a_fresh_cluster_does_not_wait_for_ever():
    lab = Lab()
    lab.connect("b", "c")
    lab.tick(4.8, live="bc")
    assert not lab.promotions
    assert any("waiting for a" in text for text in lab.texts("no_primary"))
    lab.tick(4.0, live="bc")
    assert list(lab.promotions) == ["b"]


def test_a_broker_that_reads_its_journal_is_starting_and_no_candidate():
    lab = Lab()
    lab.connect("a", "b", "c")
    lab.reports["a"] = report("recovering-journal")
    lab.tick(4.8, live="abc")
    assert lab.core.nodes["a"].process is Process.STARTING
    assert any("waiting for a" in text for text in lab.texts("no_primary"))
    lab.tick(30.0, live="abc")
    assert not lab.texts("hung")
    assert sorted(lab.promotions) == ["b", "c"], "both are tried, and it is not"
    lab.accept("b")
    lab.core.disconnected("a", lab.now)  # the doorman leaves
    lab.reports["a"] = report("ready", 1, EPOCH)
    lab.connect("a")
    lab.tick(0.3, live="abc")
    assert lab.core.nodes["a"].process is Process.UP


def test_death_of_the_primary_promotes_the_newest_ready_backup_without_any_tick():
    lab = Lab().up()
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    assert lab.core.primary == ""
    lab.answer("c")
    assert not lab.promotions
    lab.answer("b")
    assert list(lab.promotions) == ["b"]
    lab.accept("b")
    assert lab.core.primary == "b"
    assert "the primary a died (signal 9)" in lab.texts("promoted")[-1]


def test_answers_to_old_pings_do_not_count_in_an_election():
    lab = Lab().up()
    lab.tick(0.2)  # pings go out and are not answered
    old = {name: serials[:] for name, serials in lab.asked.items()}
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    for name in "bc":
        lab.do(lab.core.answered(name, old[name][0], lab.reports[name], lab.now))
    assert not lab.promotions
    lab.answer("b", "c")
    assert list(lab.promotions) == ["b"]


def test_a_refused_promotion_falls_through_to_the_next_candidate():
    lab = Lab().up()
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    lab.answer("b", "c")
    lab.accept("b", error="b is not in the in-sync set")
    assert list(lab.promotions) == ["c"]
    assert "not in the in-sync set" in lab.texts("refused")[-1]


def test_when_all_refuse_the_election_rests_and_asks_again():
    lab = Lab().up()
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    lab.answer("b", "c")
    lab.accept("b", error="no")
    lab.accept("c", error="no")
    assert not lab.promotions
    lab.tick(0.3, live="bc")
    assert list(lab.promotions) == ["b"]


def test_a_promotion_without_answer_ends_at_its_deadline():
    lab = Lab(watch=Watch(promote_timeout=0.5)).up()
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    lab.answer("b", "c")
    lab.tick(0.6, live="c")
    assert "c" in lab.promotions
    late = lab.promotions.pop("b")
    assert lab.core.promoted("b", late, None, lab.now) == []


def test_a_candidate_that_dies_is_skipped_at_once():
    lab = Lab().up()
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    lab.answer("b", "c")
    lab.do(lab.core.exited("b", "signal 9", lab.now))
    assert "c" in lab.promotions


def test_a_broker_that_dies_while_it_is_asked_is_not_waited_for():
    lab = Lab().up()
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    lab.answer("b")
    lab.do(lab.core.exited("c", "signal 9", lab.now))
    assert list(lab.promotions) == ["b"]


def test_a_hung_primary_is_replaced_and_stays():
    lab = Lab().up()
    lab.tick(0.95, live="bc")
    assert lab.core.primary == "a"
    lab.tick(0.3, live="bc")
    assert lab.core.nodes["a"].process is Process.HUNG
    assert list(lab.promotions) == ["b"]
    lab.accept("b")
    lab.tick(3.0, live="bc")
    assert not [note for note in lab.notes if note.kind == "exit"]
    assert not any(isinstance(effect, Signal) for effect in lab.effects)


def test_the_deposed_primary_that_wakes_does_not_become_primary_again():
    lab = Lab().up()
    lab.tick(1.3, live="bc")
    lab.accept("b")
    lab.tick(0.2, live="bc")
    lab.tick(0.2, live="abc")  # a still says active with its old epoch
    assert lab.core.primary == "b"
    lab.reports["a"] = report("joining", 2)
    lab.tick(0.2, live="abc")
    assert lab.core.primary == "b"
    assert lab.core.nodes["a"].process is Process.UP


def test_a_primary_that_wakes_before_anyone_was_promoted_goes_on():
    lab = Lab().up()
    lab.tick(1.3, live="bc")
    assert lab.core.primary == ""
    lab.accept("b", error="no")
    lab.accept("c", error="no")
    lab.tick(0.2, live="abc")
    assert lab.core.primary == "a"
    assert not lab.promotions


def test_no_broker_hangs_when_the_supervisor_itself_was_asleep():
    lab = Lab().up()
    lab.tick(0.15)
    lab.now += 30.0
    lab.do(lab.core.tick(lab.now))
    assert all(node.process is Process.UP for node in lab.core.nodes.values())
    lab.tick(1.2, live="bc")
    assert lab.core.nodes["a"].process is Process.HUNG


def test_a_lost_admin_connection_alone_decides_nothing():
    lab = Lab().up()
    lab.do(lab.core.disconnected("a", lab.now))
    assert lab.core.primary == "a"
    lab.tick(0.5, live="bc")
    lab.connect("a")
    lab.tick(0.2, live="abc")
    assert lab.core.primary == "a"
    assert lab.core.nodes["a"].process is Process.UP


def test_a_primary_that_deposed_itself_is_replaced():
    lab = Lab().up()
    lab.reports["a"] = report("joining", 1, EPOCH)
    lab.tick(0.2, live="abc")
    assert "b" in lab.promotions
    assert "no longer primary" in lab.texts("election")[-1]


def test_a_promotion_by_hand_is_adopted():
    lab = Lab().up()
    lab.reports["b"] = report("active", 2, 2 * EPOCH)
    lab.tick(0.2, live="abc")
    assert lab.core.primary == "b"
    assert not lab.promotions


def test_the_dead_one_is_restarted_after_the_delay_and_slower_each_time():
    lab = Lab().up()
    lab.tick(6.0, live="abc")
    lab.do(lab.core.exited("c", "exit code 1", lab.now))
    lab.tick(0.9, live="ab")
    assert lab.core.nodes["c"].process is Process.DOWN
    lab.tick(0.2, live="ab")
    assert lab.core.nodes["c"].process is Process.STARTING
    lab.do(lab.core.exited("c", "exit code 1", lab.now))
    lab.do(lab.core.tick(lab.now))
    delays = [note.attrs["delay"] for note in lab.notes if note.kind == "restart_planned"]
    for _ in range(3):
        lab.tick(10.0, live="ab")
        lab.do(lab.core.exited("c", "exit code 1", lab.core.nodes["c"].started_at + 0.1))
    delays = [note.attrs["delay"] for note in lab.notes if note.kind == "restart_planned"]
    assert delays == [1.0, 1.0, 2.0, 4.0, 8.0]


def test_a_stopped_node_stays_down_until_it_is_started():
    lab = Lab().up()
    assert Signal("c", signal.SIGTERM) in lab.do(lab.core.stop("c", lab.now))
    lab.do(lab.core.exited("c", "exit code 0", lab.now))
    lab.tick(5.0, live="ab")
    assert lab.core.nodes["c"].process is Process.DOWN
    assert Start("c") in lab.do(lab.core.start("c", lab.now))


def test_a_stop_that_is_not_obeyed_becomes_a_kill():
    lab = Lab().up()
    lab.do(lab.core.stop("c", lab.now))
    lab.now += WATCH.stop_timeout
    assert Signal("c", signal.SIGKILL) in lab.do(lab.core.tick(lab.now))


def test_kill_with_hold_keeps_it_down():
    lab = Lab().up()
    assert Signal("a", signal.SIGKILL) in lab.do(lab.core.kill("a", True, lab.now))
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    lab.answer("b", "c")
    lab.accept("b")
    lab.tick(5.0, live="bc")
    assert lab.core.nodes["a"].process is Process.DOWN


def test_pause_and_resume():
    lab = Lab().up()
    assert Signal("a", signal.SIGSTOP) in lab.do(lab.core.pause("a", lab.now))
    assert Signal("a", signal.SIGCONT) in lab.do(lab.core.start("a", lab.now))
    lab.do(lab.core.pause("a", lab.now))
    effects = lab.do(lab.core.stop("a", lab.now))
    assert [effect.number for effect in effects if isinstance(effect, Signal)] == [signal.SIGTERM, signal.SIGCONT]


def test_commands_that_make_no_sense_are_refused_with_a_reason():
    lab = Lab().up()
    with pytest.raises(Refused, match="runs already"):
        lab.core.start("a", lab.now)
    with pytest.raises(Refused, match="primary already"):
        lab.core.promote("a", lab.now)
    lab.reports["c"] = report("catchup", 1, EPOCH)
    lab.tick(0.2, live="abc")
    with pytest.raises(Refused, match="c is catchup, not ready; a stays primary"):
        lab.core.promote("c", lab.now)
    lab.core.stop("c", lab.now)
    lab.do(lab.core.exited("c", "exit code 0", lab.now))
    for command in (lab.core.pause, lab.core.stop, lab.core.promote):
        with pytest.raises(Refused, match="c is down"):
            command("c", lab.now)


def switching(lab, target="c"):
    """A switch-over was asked for and is under way; its serial."""
    effects = lab.do(lab.core.promote(target, lab.now))
    (relocate,) = [effect for effect in effects if isinstance(effect, Relocate)]
    assert (relocate.node, relocate.target) == ("a", target)
    lab.reports["a"] = report("joining", 1, EPOCH + 30, whole=True)
    return relocate.serial


def test_switch_over_is_asked_of_the_primary_and_elects_no_broker():
    lab = Lab().up()
    serial = switching(lab)
    lab.tick(0.5, live="abc")
    assert not lab.promotions
    lab.do(lab.core.relocated(serial, None, lab.now))
    assert (lab.core.primary, lab.core.switch_over, lab.core.preferred) == ("c", None, "")
    assert "c is promoted, " in lab.texts("promoted")[-1]
    assert "a planned switch-over from a" in lab.texts("promoted")[-1]
    lab.reports["c"] = report("active", 2, 2 * EPOCH)
    lab.tick(1.2, live="abc")
    assert lab.core.primary == "c"
    assert not lab.promotions


def test_a_refused_switch_over_leaves_the_primary():
    lab = Lab().up()
    effects = lab.do(lab.core.promote("c", lab.now))
    lab.do(lab.core.relocated(effects[-1].serial, "c was lost", lab.now))
    lab.tick(0.3, live="abc")
    assert (lab.core.primary, lab.core.refusal, lab.core.election) == ("a", "c was lost", None)
    assert "the switch-over from a to c came to nothing: c was lost" in lab.texts("refused")


def test_a_primary_whose_disk_hangs_is_replaced_and_not_again_at_once():
    lab = Lab().up()
    lab.reports["a"] = replace(lab.reports["a"], score=15)
    lab.tick(0.3, live="abc")
    switch = lab.core.switch_over
    assert switch is not None and switch.source == "a" and switch.target in "bc"
    assert any("is to take over: a has score 15" in text for text in lab.texts("command"))
    lab.do(lab.core.relocated(switch.serial, "it was lost", lab.now))
    lab.tick(0.3, live="abc")
    assert (lab.core.primary, lab.core.switch_over) == ("a", None)


def test_a_primary_without_a_better_backup_stays():
    lab = Lab().up()
    for name in "bca":  # the primary's is the last that the manager hears of
        lab.reports[name] = replace(lab.reports[name], score=15)
        lab.tick(0.5, live="abc")
    assert lab.core.switch_over is None and lab.core.primary == "a"


def test_one_switch_over_at_a_time():
    lab = Lab().up()
    switching(lab)
    with pytest.raises(Refused, match="a switch-over from a to c is under way"):
        lab.core.promote("b", lab.now)


def test_a_primary_that_dies_in_a_switch_over_is_replaced_by_the_one_that_was_wanted():
    lab = Lab().up()
    switching(lab)
    lab.do(lab.core.exited("a", "signal 9", lab.now))
    lab.answer("b", "c")
    assert list(lab.promotions) == ["c"]


def test_a_switch_over_without_answer_ends_at_its_deadline():
    lab = Lab().up()
    switching(lab)
    lab.tick(WATCH.relocate_timeout + 0.2, live="abc")
    assert (lab.core.switch_over, lab.core.refusal) == (None, "no answer in time")
    assert lab.promotions


def test_a_switch_over_that_a_primary_ignores_ends_too():
    lab = Lab().up()
    lab.do(lab.core.promote("c", lab.now))
    lab.tick(WATCH.relocate_timeout + 0.2, live="abc")
    assert (lab.core.switch_over, lab.core.refusal, lab.core.primary) == (None, "no answer in time", "a")
    assert not lab.promotions


def test_a_primary_that_steps_down_for_a_successor_gets_a_moment():
    lab = Lab().up()
    lab.reports["a"] = report("joining", 1, EPOCH + 30, whole=True, successor="127.0.0.1:5802")
    lab.tick(0.5, live="abc")
    assert not lab.promotions
    lab.tick(1.0, live="abc")
    assert lab.promotions


def test_down_insists():
    lab = Lab().up()
    lab.do(lab.core.close(lab.now))
    lab.do(lab.core.exited("b", "exit code 0", lab.now))
    again = [effect for effect in lab.do(lab.core.tick(lab.now + 0.4)) if isinstance(effect, Signal)]
    assert again == [Signal("a", signal.SIGTERM), Signal("c", signal.SIGTERM)]


def test_a_primary_that_refuses_to_stop_is_not_killed():
    lab = Lab().up()
    lab.do(lab.core.stop("a", lab.now))
    lab.tick(WATCH.stop_timeout + 0.1, live="abc")
    assert Signal("a", signal.SIGKILL) not in lab.effects
    assert lab.core.nodes["a"].wanted
    assert "a did not stop within 5 s and keeps running: it refused to stop, see its log" in lab.texts("refused")


def test_close_stops_all_and_elects_no_broker():
    lab = Lab().up()
    effects = lab.do(lab.core.close(lab.now))
    assert {effect.node for effect in effects if isinstance(effect, Signal)} == {"a", "b", "c"}
    for name in "abc":
        lab.do(lab.core.exited(name, "exit code 0", lab.now))
    assert lab.core.all_down
    lab.tick(3.0)
    assert not lab.promotions
    assert lab.core.all_down


def test_rank():
    reports = {
        "a": Report("joining", 0, 9, score=10),
        "b": Report("ready", 1, 5, score=100),
        "c": Report("ready", 1, 7, score=100),
        "d": Report("catchup", 1, 8),
    }
    assert rank(reports) == ["c", "b", "a", "d"]
    assert rank(reports, preferred="b") == ["b", "c", "a", "d"]
    assert rank(reports, preferred="d") == ["c", "b", "d", "a"]
    assert rank({"x": Report("joining", 0, 9, score=10), "y": Report("joining", 0, 2, score=90)}) == ["y", "x"]
    # None is known to hold everything: whether a broker has surveyed the others already says nothing.
    assert rank({"x": Report("joining", 0, 1, score=10), "y": Report("joining", 0, 2)}) == ["y", "x"]
    assert rank({"x": Report("standalone"), "y": Report("unknown"), "z": Report("active", score=100)}) == []


def test_rest_is_bounded():
    assert [rest(n) for n in (1, 2, 3)] == [0.05, 0.1, 0.2]
    assert rest(500) == 2.0


def test_view_takes_what_it_understands():
    in_sync = {"version": 2, "members": [{"name": "a"}, "b"]}
    answer = {"state": "ready", "epoch": 3, "position": 7, "whole": True, "in_sync": in_sync, "score": 90}
    assert Report.from_answer(answer) == Report("ready", 3, 7, 2, ("a", "b"), score=90)
    assert Report.from_answer({"state": "ready", "score": "no"}).score is None
    assert Report.from_answer({}) == Report("unknown")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["exit", "connect", "disconnect", "answer", "tick", "accept", "refuse", "pause", "start"]),
        st.sampled_from("abc"),
        st.sampled_from(["joining", "catchup", "ready", "active"]),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(EVENTS)
def test_any_history_ends_with_a_primary_once_everybody_is_well(events):
    """Whatever happened before: three brokers that answer, one of them promotable, get a primary; at most one promotion
    is under way at any time."""
    lab = Lab()
    for kind, name, state in events:
        node = lab.core.nodes[name]
        if kind == "exit" and node.process is not Process.DOWN:
            lab.do(lab.core.exited(name, "signal 9", lab.now))
            lab.asked.pop(name, None)
        elif kind == "connect" and node.process is not Process.DOWN and not node.connected:
            lab.connect(name)
        elif kind == "disconnect" and node.connected:
            lab.asked.pop(name, None)
            lab.do(lab.core.disconnected(name, lab.now))
        elif kind == "answer":
            lab.reports[name] = report(state, lab.reports[name].epoch)
            lab.answer(name)
        elif kind == "tick":
            lab.tick(0.3)
        elif kind in ("accept", "refuse") and name in lab.promotions:
            lab.do(lab.core.promoted(name, lab.promotions.pop(name), None if kind == "accept" else "no", lab.now))
        elif kind in ("pause", "start"):
            try:
                lab.do(getattr(lab.core, kind)(name, lab.now))
            except Refused:
                pass
        assert lab.core.election is None or not lab.core.closing
    for _ in range(400):
        for name, node in lab.core.nodes.items():
            if node.process is not Process.DOWN and not node.connected:
                lab.connect(name)
            if lab.reports[name].state != "active":
                lab.reports[name] = report("ready", lab.reports[name].epoch, 5)
        lab.tick(0.1, live="abc")
        for name in list(lab.promotions):
            if lab.core.nodes[name].process is Process.UP:
                lab.accept(name)
            else:
                lab.promotions.pop(name)
        if lab.core.primary and lab.core.election is None and lab.core.nodes[lab.core.primary].is_primary:
            return
    raise AssertionError(f"no primary: {lab.core.election} {lab.core.nodes}")
