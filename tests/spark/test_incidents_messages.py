"""Messages around a fail-over, judged by hand; the fail-over itself is found as in the first story."""

import pytest

from tests.spark.messages_judge import Judge
from tests.spark.truth import files as made
from tests.spark.truth.messages import LEDGERS
from tests.spark.truth.reading import events, tables


def judged(files):
    return {verdict.number: verdict for verdict in Judge().add(events(files)).verdicts() if verdict.producer == "m"}


@pytest.mark.parametrize("make", LEDGERS, ids=lambda make: make.__name__)
def test_ledger(make):
    ledger = make()
    found = judged(ledger.files)
    assert {number: verdict.verdict for number, verdict in found.items()} == {
        number: verdict for number, (verdict, _) in ledger.verdicts.items()
    }
    for number, (_, cause) in ledger.verdicts.items():
        assert not cause or found[number].cause == cause
    assert [row["type"] for row in tables(ledger.files)["incidents"]] == ["kill"]


@pytest.mark.parametrize("make", LEDGERS, ids=lambda make: make.__name__)
def test_deleting_any_file_makes_nothing_lost_and_nothing_up(make):
    ledger = make()
    for gone in ledger.files:
        for number, found in judged({name: of for name, of in ledger.files.items() if name != gone}).items():
            assert found.verdict != "lost" or ledger.verdicts[number][0] == "lost", (gone, number, found.cause)
            assert found.verdict != "unexpected" or found.cause, (gone, number)


@pytest.mark.parametrize("make", LEDGERS, ids=lambda make: make.__name__)
def test_deleting_lines_never_makes_a_message_lost(make):
    ledger = make()
    lost = {number for number, verdict in judged(ledger.files).items() if verdict.verdict == "lost"}
    # of the consumer's log: a line of a broker that explains a loss is another matter
    for seed in range(20):
        kept = made.thinned({name: ledger.files[name] for name in ledger.files if "c1" in name}, seed, 0.2)
        found = judged({**ledger.files, **kept})
        assert {number for number, verdict in found.items() if verdict.verdict == "lost"} <= lost
