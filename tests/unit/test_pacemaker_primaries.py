"""Two confirming primaries: found when there are two, and only then."""

from tests.pacemaker.primaries import Epochs, Overlap, Sample, Span, by_clients, overlaps, primary_spans, verdict

NODES = {"10.0.0.1": "a", "10.0.0.2": "b"}
MS = 1000


def samples(node, begin, end, epoch, state="active", step=10, run=1, moves=True):
    """Answers every 10 ms (begin and end in ms), the safe position moving on with each of them."""
    return [
        Sample(node, run, at * MS, at * MS + 300, state, epoch, epoch << 48 | (at if moves else 1))
        for at in range(begin, end, step)
    ]


def plain(client, address, begin, end, step=10):
    """A client that has a message confirmed every 10 ms within 4 ms."""
    yield {"client": client, "kind": "fact", "t": begin * MS, "text": f"connected {address}"}
    for at in range(begin, end, step):
        id = f"{client}:{at}"
        yield {"client": client, "kind": "invoke", "t": at * MS, "id": id}
        yield {"client": client, "kind": "ok", "t": (at + 4) * MS, "id": id}
    yield {"client": client, "kind": "fact", "t": end * MS, "text": f"disconnected {address}: OSError"}


def test_one_after_the_other_is_well():
    assert verdict([*samples("a", 0, 100, 1), *samples("b", 120, 300, 2)], [], NODES) == []


def test_two_that_confirm_at_one_time_are_found():
    (found,) = verdict([*samples("a", 0, 200, 1), *samples("b", 100, 300, 2)], [], NODES)
    assert found.startswith("a confirmed in epoch 1 after b had confirmed in epoch 2")


def test_an_overlap_of_three_samples_is_enough():
    assert verdict([*samples("a", 0, 140, 1), *samples("b", 100, 300, 2)], [], NODES)


def test_two_that_call_themselves_primary_are_harmless_while_one_does_not_confirm():
    found = [*samples("a", 0, 100, 1), *samples("a", 100, 300, 1, moves=False), *samples("b", 120, 300, 2)]
    assert verdict(found[:10] + found[11:], [], NODES) == []
    both = overlaps(primary_spans(found))
    assert [(one.first, one.second) for one in both] == [("a", "b")]


def test_a_backup_that_follows_does_not_confirm():
    assert verdict([*samples("a", 0, 200, 1, "ready"), *samples("b", 50, 300, 1)], [], NODES) == []


def test_what_a_stopped_process_confirmed_before_it_was_stopped_is_not_held_against_it():
    """Asked at 90 ms, it answered when it was woken up at 900 ms; then it learned of the other."""
    late = Sample("a", 1, 90 * MS, 900 * MS, "active", 1, 1 << 48 | 91)
    assert verdict([*samples("a", 0, 90, 1), late, *samples("b", 200, 800, 2)], [], NODES) == []


def test_a_process_that_was_started_again_has_not_confirmed_in_between():
    found = [*samples("a", 0, 50, 1), *samples("b", 100, 300, 2), *samples("a", 400, 500, 1, moves=False, run=2)]
    assert verdict(found, [], NODES) == []


def test_what_clients_were_told_counts_without_the_brokers_word():
    """The old primary's positions stand still in the samples, but it confirms."""
    found = [*samples("a", 0, 300, 1, moves=False), *samples("b", 100, 300, 2)]
    assert verdict(found, plain("p", "10.0.0.1", 10, 90), NODES) == []
    (text,) = verdict(found, plain("p", "10.0.0.1", 10, 200), NODES)
    assert text.startswith("a confirmed in epoch 1 after b")


def test_clients_alone_convict():
    quiet = [*samples("a", 0, 300, 1, moves=False), *samples("b", 100, 300, 2, moves=False)]
    both = [*plain("p", "10.0.0.1", 10, 200), *plain("q", "10.0.0.2", 110, 290)]
    assert len(verdict(quiet, both, NODES)) == 1
    assert verdict(quiet, [*plain("p", "10.0.0.1", 10, 90), *plain("q", "10.0.0.2", 110, 290)], NODES) == []


def test_a_confirm_over_the_virtual_address_names_no_broker():
    assert by_clients(plain("p", "10.0.0.100", 10, 90), NODES, Epochs(samples("a", 0, 90, 1))) == []


def test_a_confirm_of_what_was_sent_over_another_connection_proves_nothing():
    events = list(plain("p", "10.0.0.1", 10, 30))
    late = {"client": "p", "kind": "ok", "t": 500 * MS, "id": "p:20"}
    again = {"client": "p", "kind": "fact", "t": 400 * MS, "text": "connected 10.0.0.1"}
    found = by_clients([*events, again, late], NODES, Epochs(samples("a", 0, 600, 1)))
    assert max(one.until for one in found) < 400 * MS


def test_overlaps():
    assert overlaps([Span("a", 0, 5), Span("b", 5, 9)]) == []
    assert overlaps([Span("b", 4, 9), Span("a", 0, 5)]) == [Overlap("a", "b", 4, 5)]
    assert overlaps([Span("a", 0, 5), Span("a", 4, 9)]) == []
