"""Tables, parsing and the plan of the benchmarks. Nothing here measures time."""

import os
from pathlib import Path

import pytest

from benchmarks import load_generator, measurements, plots, run, suites, tables
from benchmarks.processes import BenchmarkError, cpu_seconds, free_ports, resident_bytes
from benchmarks.samples import Key, Results, Sample

BOTH = Key(3, "both", 1024)


def results_of(*samples: tuple[Key, str, dict[str, float]]) -> Results:
    return Results([Sample(key, side, values) for key, side, values in samples])


def test_value_is_the_median_of_the_repetitions() -> None:
    results = results_of(*[(BOTH, "qpidd-py", {"rate": rate}) for rate in (5.0, 1.0, 3.0)])
    assert results.value(BOTH, "qpidd-py", "rate") == 3.0
    assert results.largest(BOTH, "qpidd-py", "rate") == 5.0
    assert results.value(BOTH, "RabbitMQ", "rate") is None


def test_throughput_row_shows_ratios_in_favour_of_us() -> None:
    results = results_of(
        (
            BOTH,
            "qpidd-py",
            {
                "rate": 400_000,
                "cpu_us": 4,
                "confirm_ms_p50": 2.5,
                "confirm_ms_p99": 4,
                "rss_mb": 120,
                "foreign_cpu_percent": 2.0,
            },
        ),
        (
            BOTH,
            "RabbitMQ",
            {
                "rate": 20_000,
                "cpu_us": 100,
                "confirm_ms_p50": 50,
                "confirm_ms_p99": 70,
                "rss_mb": 900,
                "foreign_cpu_percent": 7.0,
            },
        ),
    )
    row = tables.throughput_table(results).splitlines()[2]
    expected = "3 | both | 1024 | 400,000 | 20,000 | 20 × | 4 | 100 | 25 × | 2.5/4 | 50/70 | 120 | 900 | 7"
    assert row == f"| {expected} |"


def test_what_was_not_measured_is_a_dash() -> None:
    results = results_of((Key(1, "drain", 16), "qpidd-py", {"rate": 2_000_000}))
    row = tables.throughput_table(results).splitlines()[2].split(" | ")
    assert row[3:6] == ["2,000,000", "–", "–"]
    assert "no" not in tables.target_table(results).split()


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.3811, "0.381"), (12.345, "12.3"), (1234.5, "1,234"), (0, "0")]
)
def test_number(value: float | None, text: str) -> None:
    assert tables.number(value) == text


def test_targets_are_judged_by_the_worst_outage() -> None:
    key = Key(3, "outage", 1024)
    results = results_of((key, "qpidd-py", {"outage_ms": 40.0}), (key, "qpidd-py", {"outage_ms": 140.0}))
    line = next(line for line in tables.target_table(results).splitlines() if "worst outage" in line)
    assert line.endswith("| 140 | no |")


def test_other_table_has_every_suite() -> None:
    samples = [(Key(3, load, 1000), "qpidd-py", {rows[0][1]: 1.0}) for load, rows in tables.OTHERS.items()]
    text = tables.other_table(results_of(*samples))
    assert all(f"| {rows[0][0].format(size=1000)} |" in text for rows in tables.OTHERS.values())


@pytest.mark.parametrize(("late", "verdict"), [(59.0, "59 | yes |"), (61.0, "61 | no |")])
def test_a_target_is_met_up_to_its_limit(late: float, verdict: str) -> None:
    results = results_of((Key(3, "late", 5000), "qpidd-py", {"confirm_ms_p99": late}))
    line = next(line for line in tables.target_table(results).splitlines() if "a late backup" in line)
    assert line.endswith(f"| ≤ 60 | {verdict}")


def test_plots_show_what_was_measured(tmp_path: Path) -> None:
    routed = [(Key(1, "routes topic", n), "qpidd-py", {"cpu_us": 1.0}) for n in (100, 10_000)]
    files = plots.write(results_of(*routed, (Key(1, "routes queues", 10), "RabbitMQ", {"cpu_us": 30.0})), tmp_path)
    assert [file.name for file in files] == ["cost-over-n.svg"]
    text = files[0].read_text()
    assert all(word in text for word in ("qpidd-py, topic", "RabbitMQ, queues", "10,000"))
    assert "headers" not in text


def test_samples_survive_json() -> None:
    sample = Sample(BOTH, "qpidd-py", {"rate": 1.5})
    assert Sample.from_json(sample.to_json()) == sample


def test_generator_command() -> None:
    words = load_generator.command("load", size=16, no_consume=True, transient=False)
    assert words[1:] == ["load", "--size", "16", "--no-consume"]


def test_a_fault_found_by_the_generator_voids_the_run() -> None:
    assert load_generator.parse('{"messages": 3}', "", 0) == {"messages": 3}
    with pytest.raises(BenchmarkError, match="came twice"):
        load_generator.parse("", "amqp_load: 3 messages came twice\n", 2)


def test_plan_of_a_quick_run() -> None:
    plan = run.make_plan(
        run.parse_arguments(["--quick", "--only", "outage", "--brokers", "3"]), rabbitmq_installed=True
    )
    assert (plan.suites, plan.brokers, plan.repeat, plan.with_rabbitmq) == (("outage",), (3,), 1, True)
    plan = run.make_plan(run.parse_arguments(["--no-rabbitmq"]), rabbitmq_installed=True)
    assert (plan.suites, plan.brokers, plan.with_rabbitmq) == (suites.SUITES, (1, 3), False)


def test_transient_messages_only_where_both_sides_can_keep_them_in_memory() -> None:
    assert any(not cell.persistent for cell in measurements.cells(1, [1024]))
    assert all(cell.persistent for cell in measurements.cells(3, [1024, 16]))


def test_a_void_run_is_noted_and_the_session_goes_on() -> None:
    lines: list[str] = []
    session = run.Session(run.make_plan(run.parse_arguments([]), rabbitmq_installed=False), lines.append)

    def broken() -> list[Sample]:
        raise BenchmarkError("the queue holds 1 message")

    session._measure("both", broken)
    session._measure("both", lambda: [Sample(BOTH, "qpidd-py", {"rate": 1.0})])
    assert session.results.failures == ["both: the queue holds 1 message"]
    assert len(session.results.samples) == 1
    assert "Void runs" in tables.report(session.results, "a machine")


def test_readings_of_this_process() -> None:

    assert cpu_seconds([os.getpid()]) > 0
    assert resident_bytes([os.getpid()]) > 1_000_000
    assert len(set(free_ports(5))) == 5


@pytest.mark.parametrize("option", ["--json", "--markdown", "--plot"])
def test_what_cannot_be_written_ends_it_before_the_first_run(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.Session, "run", lambda self: pytest.fail("it ran"))
    (tmp_path / "file").touch()
    assert run.main([option, str(tmp_path / "file" / "below")]) == 2
    assert str(tmp_path / "file" / "below") in capsys.readouterr().err


def test_plain_c_passes_everything_on() -> None:
    """Every message is confirmed by both backups, delivered and acknowledged; one at a time and many."""
    load_generator.build()
    for size, window, count in ((16, 1000, 20_000), (1024, 1, 200), (300_000, 3, 50)):
        report = load_generator.run("floor", size=size, window=window, count=count)
        assert report["messages"] == count and report["confirm_ms"]["max"] > 0 and report["cpu_us"] > 0
