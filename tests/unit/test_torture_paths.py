"""What the switch does with packets; what the manager of a campaign decides."""

from torture.manager import Plan, Seen, decide, majority_side
from torture.paths import BACKLOG, CLEAR, Effect, Wires, addresses, combined
from torture.watch import View

PATH = ("10.77.0.1", "10.77.0.2")
CUT = Effect(cut=True)


def test_addresses_of_a_packet():
    packet = bytes([0x45]) + bytes(11) + bytes([10, 77, 0, 1]) + bytes([10, 77, 0, 2])
    assert addresses(packet) == PATH
    assert addresses(bytes([0x60]) + bytes(39)) is None
    assert addresses(b"\x45") is None


def test_effects_add_up():
    assert combined([]) == CLEAR
    assert combined([Effect(delay=0.1), Effect(delay=0.2, rate=50.0), Effect(rate=20.0)]).rate == 20.0
    assert combined([CUT, CLEAR]).cut


def test_a_clear_path_delivers_at_once():
    assert Wires().offer(PATH, b"x", 1.0)


def test_a_cut_concerns_one_direction():
    wires = Wires()
    wires.set(PATH, CUT, 0.0)
    assert not wires.offer(PATH, b"x", 1.0)
    assert wires.offer(PATH[::-1], b"x", 1.0)
    assert wires.due(9.0) == []
    wires.set(PATH, CLEAR, 2.0)
    assert wires.offer(PATH, b"x", 2.0)


def test_a_delayed_path_keeps_the_order_also_when_the_delay_ends():
    wires = Wires()
    wires.set(PATH, Effect(delay=0.5), 0.0)
    assert not wires.offer(PATH, b"1", 1.0)
    assert wires.due(1.49) == []
    assert wires.next_due() == 1.5
    wires.set(PATH, CLEAR, 1.1)
    assert not wires.offer(PATH, b"2", 1.1)
    assert [packet for _, packet in wires.due(1.1)] == [b"1", b"2"]
    assert wires.offer(PATH, b"3", 1.2)


def test_a_slow_path_takes_its_time_and_drops_what_does_not_fit():
    wires = Wires()
    wires.set(PATH, Effect(rate=1000.0), 0.0)
    for _ in range(3):
        wires.offer(PATH, bytes(500), 0.0)
    assert [len(wires.due(moment)) for moment in (0.49, 0.5, 1.0, 1.5)] == [0, 1, 1, 1]
    wires.offer(PATH, bytes(BACKLOG), 2.0)
    wires.offer(PATH, b"x", 2.0)
    assert wires.dropped == 1


def test_a_path_that_is_slow_no_more_delivers_what_waits_at_once():
    wires = Wires()
    wires.set(PATH, Effect(rate=1000.0), 0.0)
    for _ in range(20):
        wires.offer(PATH, bytes(1000), 0.0)
    wires.set(PATH, CLEAR, 2.5)
    assert len(wires.due(2.5)) == 20
    assert wires.offer(PATH, b"x", 2.6)


def test_what_is_under_way_when_the_path_is_cut_is_lost():
    wires = Wires()
    wires.set(PATH, Effect(delay=0.5), 0.0)
    wires.offer(PATH, b"1", 0.0)
    wires.set(PATH, CUT, 0.1)
    assert (wires.due(1.0), wires.dropped) == ([], 1)


def seen(name, status="ready", hears="abc", alive=True, known=True, whole=True, epoch=1, position=10):
    facts = {"status": status, "whole": whole, "position": position, "epoch": epoch, "broker_id": name}
    return Seen(name, alive, View(0.0, facts) if alive else View(), known, frozenset(hears))


def test_the_majority_hears_each_other_in_both_directions():
    a, b, c = seen("a", hears="a"), seen("b", hears="bc"), seen("c", hears="bc")
    assert [one.name for one in majority_side([a, b, c])] == ["b", "c"]
    assert majority_side([a, seen("b", hears="b"), seen("c", hears="c")]) == []


def test_of_two_sides_that_share_a_broker_the_one_with_the_primary_stays():
    a, b, c = seen("a", hears="ac"), seen("b", hears="bc"), seen("c", "active", hears="abc")
    assert decide([a, b, c], fences=True).leader == "c"


def test_a_careless_manager_promotes_on_the_majoritys_side_and_kills_no_broker():
    brokers = [seen("a", "active", hears="a"), seen("b", hears="bc", position=5), seen("c", hears="bc", position=9)]
    plan = decide(brokers, fences=False)
    assert (plan.leader, plan.kill, plan.candidates) == ("", (), ("c", "b"))


def test_a_manager_with_fences_kills_who_is_not_seen_first():
    brokers = [seen("a", "active", hears="a"), seen("b", hears="bc", whole=False, position=99), seen("c", hears="bc")]
    plan = decide(brokers, fences=True)
    assert (plan.kill, plan.candidates) == (("a",), ("c", "b"))


def test_a_host_without_a_broker_has_a_vote_but_is_no_candidate():
    brokers = [seen("a", "active", hears="a"), seen("b", hears="bc"), seen("c", hears="bc", alive=False)]
    plan = decide(brokers, fences=True)
    assert (plan.kill, plan.candidates) == (("a", "c"), ("b",))
    brokers[2] = seen("c", hears="bc", alive=False, known=False)
    assert decide(brokers, fences=True).kill == ("a",)


def test_without_a_majority_the_primary_is_demoted_by_a_manager_with_rules():
    brokers = [seen("a", "active", hears="a"), seen("b", hears="b"), seen("c", hears="c")]
    assert decide(brokers, fences=True) == Plan(demote=("a",))
    assert decide(brokers, fences=False) == Plan()
