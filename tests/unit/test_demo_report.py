"""The table at the end of the demo: what stands in it, and that it fits a terminal."""

from demo.report import summary, table
from demo.scenario import Fault
from testkit.library_events import LibraryHistory

STYLES = {"p1": "library", "p2": "plain", "c1": "library", "c2": "plain"}


def faults():
    return [
        Fault("kill -9", "node1", "primary", 1_000_000, 2_000_000, 2_300_000, 2_400_000, "node2", 1_003_000),
        Fault("pause", "node2", "primary", 3_000_000, 13_000_000, 13_300_000, 14_000_000, "node3", 4_010_000),
        Fault("kill -9", "node1", "backup", 15_000_000, 16_000_000, 16_100_000, 17_000_000),
    ]


def history(lost=False):
    events = []
    for number, moment in enumerate((900_000, 1_050_000, 5_000_000, 14_900_000, 15_010_000, 18_000_000)):
        for producer, consumer in (("p1", "c1"), ("p2", "c2")):
            name = f"{producer}:{number}"
            events += [{"kind": kind, "client_id": producer, "msg_id": name, "ts_mono": moment}
                       for kind in ("publish", "confirm")]  # fmt: skip
            if not (lost and name == "p2:3"):
                events += [{"kind": kind, "client_id": consumer, "msg_id": name, "ts_mono": moment}
                           for kind in ("deliver", "ack")]  # fmt: skip
    events += [{"kind": "drain_end", "client_id": name, "result": "ok", "ts_mono": 1} for name in ("c1", "c2")]
    return LibraryHistory().add(events)


def test_the_table_fits_80_columns_and_says_what_happened():
    copied = {"kind": "catchup_end", "node": "node2", "ts_mono": 13_200_000, "attrs": {"seconds": "0.0213"}}
    text = table(summary(faults(), history(), STYLES, 60.0, [copied]), STYLES)
    assert max(len(line) for line in text.splitlines()) <= 80
    lines = text.splitlines()
    first = next(line for line in lines if line.startswith("kill -9 node1 (primary)"))
    assert "3 ms" in first
    assert "3950 to 3950 ms" in first
    assert "every one of them was delivered" in text
    assert any(line.startswith("node2") and "10.0 s" in line and "300 ms" in line and "21 ms" in line for line in lines)


def test_a_loss_is_named():
    found = summary(faults(), history(lost=True), STYLES, 60.0)
    assert found["messages"]["valid"] is False
    assert "LOST: 1 confirmed messages, among them p2:3" in table(found, STYLES)


def test_a_client_that_never_came_back_is_said_so():
    styles = {**STYLES, "p3": "library"}
    assert "never back" in table(summary(faults(), history(), styles, 60.0), styles)
