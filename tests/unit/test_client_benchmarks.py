"""Tables, targets and gaps of `python -m benchmarks.client`.  Nothing here measures time."""

from benchmarks.client import CASES, Results, load_table, outage_table, parse_arguments, report, target_table, targets
from benchmarks.client_loads import BARE, LOADS, PATTERNS, SIDES
from benchmarks.client_outage import longest_gap


def results() -> Results:
    found = Results()
    for rate in (1000.0, 3000.0, 2000.0):
        found.add("window", "pika Select", {"rate": rate, "cpu_us": 40.0})
        found.add("window", "threaded", {"rate": 20 * rate, "cpu_us": 10.0})
        found.add("sync", "pika Blocking", {"rate": rate / 2, "cpu_us": 40.0})
    found.outages["outage"] = [
        {"outage_ms": ms, "delivery_gap_ms": 5.0, "lost": 0, "duplicates": 1} for ms in (40.0, 160.0, 60.0)
    ]
    return found


def test_medians_and_ratios() -> None:
    table = load_table(results())
    assert "| window | pika Select | 2,000 | – | 40 | – |" in table
    assert "| window | threaded | 40,000 | 20 × | 10 | 0.25 × |" in table


def test_outages_show_median_and_worst() -> None:
    assert "| outage of the sender, ms | 60 | 160 |" in outage_table(results(), "outage")


def test_targets_can_be_missed() -> None:
    met = {text: met for text, _, _, met in targets(results())}
    assert met["window, threaded: × pika Blocking"]
    assert not met["window, threaded: CPU µs/msg"]
    assert not met["outage, median, ms"]
    assert "| outage, median, ms | ≤ 30 | 60 | no |" in target_table(results())


def test_what_was_not_measured_is_not_claimed() -> None:
    assert targets(Results()) == []
    found = Results(failures=["sync, threaded: status 1"])
    assert "- sync, threaded: status 1" in report(found, "a machine")


def test_every_pattern_has_a_side_to_compare_with() -> None:
    assert set(BARE) == set(PATTERNS)
    assert all((BARE[pattern], pattern) in LOADS for pattern in PATTERNS)
    assert {side for side, _ in LOADS} == set(SIDES)
    assert {pattern for pattern, _, _ in CASES.values()} == set(PATTERNS)


def test_longest_gap() -> None:
    assert longest_gap([1.0, 2.0, 5.0, 6.0]) == 3.0
    assert longest_gap([1.0]) == longest_gap([]) == 0.0


def test_options() -> None:
    assert parse_arguments(["--only", "sync", "--only", "outage"]).only == ["sync", "outage"]
