"""What is told to the broker about deliveries."""

from hypothesis import given
from hypothesis import strategies as st

from client_lib.core.ledger import Disposition, Ledger, Settle

ACCEPT, REJECT, RELEASE = Disposition.ACCEPT, Disposition.REJECT, Disposition.RELEASE


def filled(count: int) -> Ledger:
    ledger = Ledger()
    for tag in range(1, count + 1):
        ledger.delivered(tag)
    return ledger


def test_a_prefix_is_acknowledged_at_once() -> None:
    ledger = filled(5)
    for tag in (3, 1, 2, 5):
        assert ledger.settle(tag, ACCEPT)
    assert ledger.take() == [Settle(3, ACCEPT, multiple=True), Settle(5, ACCEPT)]
    assert len(ledger) == 1 and ledger.take() == []


def test_multiple_never_covers_an_open_or_rejected_delivery() -> None:
    ledger = filled(4)
    ledger.settle(1, ACCEPT)
    ledger.settle(2, REJECT)
    ledger.settle(3, ACCEPT)
    ledger.settle(4, RELEASE)
    assert ledger.take() == [Settle(1, ACCEPT), Settle(2, REJECT), Settle(3, ACCEPT), Settle(4, RELEASE)]


def test_the_first_decision_counts() -> None:
    ledger = filled(1)
    assert ledger.settle(1, REJECT)
    assert not ledger.settle(1, ACCEPT)
    assert not ledger.settle(7, ACCEPT)
    assert ledger.take() == [Settle(1, REJECT)]


def test_after_a_loss_nothing_is_said() -> None:
    ledger = filled(2)
    ledger.settle(1, ACCEPT)
    ledger.connection_lost()
    assert ledger.take() == [] and len(ledger) == 0


@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from(Disposition), st.booleans())))
def test_the_broker_understands_what_was_decided(steps: list[tuple[int, Disposition, bool]]) -> None:
    ledger = filled(12)
    wanted: dict[int, Disposition] = {}
    open_tags, heard = set(range(1, 13)), dict[int, Disposition]()
    for tag, disposition, send in steps:
        if ledger.settle(tag, disposition):
            wanted[tag] = disposition
        for settle in ledger.take() if send else []:
            tags = {t for t in open_tags if t <= settle.delivery_tag} if settle.multiple else {settle.delivery_tag}
            assert tags <= open_tags
            open_tags -= tags
            heard.update(dict.fromkeys(tags, settle.disposition))
    for settle in ledger.take():
        tags = {t for t in open_tags if t <= settle.delivery_tag} if settle.multiple else {settle.delivery_tag}
        open_tags -= tags
        heard.update(dict.fromkeys(tags, settle.disposition))
    assert heard == wanted
