"""Reports: Qpid's columns, and JSON lines; with a manual clock."""

import io
import json

from client_lib.cli.report import Figures, Reporter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def reporter(**options) -> tuple[Reporter, Clock, io.BytesIO]:
    clock, out = Clock(), io.BytesIO()
    return Reporter(out=out, clock=clock, **options), clock, out


def test_throughput() -> None:
    report, clock, out = reporter(total=True)
    for _ in range(50):
        report.message()
    clock.now += 0.5
    report.print_total(ignored=1)
    assert out.getvalue() == b"tp(m/s)\n100\n"


def test_time_counts_from_begin_to_end() -> None:
    report, clock, out = reporter(total=True, header=False)
    clock.now += 1000
    report.begin()
    for _ in range(10):
        report.message()
    clock.now += 2
    report.end()
    clock.now += 1000
    report.end()
    report.print_total()
    assert out.getvalue() == b"5\n"


def test_every_is_about_its_own_messages_with_one_header() -> None:
    report, clock, out = reporter(every=10, total=True, with_latency=True)
    for number in range(25):
        clock.now += 0.1 if number < 10 else 0.01
        report.message(1.0 + number)
    report.end()
    report.print_total()
    lines = out.getvalue().decode().splitlines()
    assert lines == [
        "tp(m/s)\tl-min\tl-max\tl-avg",
        "10\t1.00\t10.00\t5.50",
        "100\t11.00\t20.00\t15.50",
        "22\t1.00\t25.00\t13.00",
    ]


def test_no_latency_and_no_time() -> None:
    report, _, out = reporter(total=True, with_latency=True)
    report.message()
    report.print_total()
    assert out.getvalue().splitlines()[1] == b"0\t-\t-\t-"


def test_negative_latency_of_a_clock_that_is_ahead() -> None:
    figures = Figures(0.0)
    for latency in (-2.0, 4.0):
        figures.add(latency)
    assert (figures.least, figures.most) == (-2.0, 4.0)


def test_json() -> None:
    report, clock, out = reporter(every=2, total=True, as_json=True)
    report.message(1.0)
    clock.now += 0.5
    report.message(2.0)
    report.print_total(in_doubt=3)
    every, total = map(json.loads, out.getvalue().splitlines())
    latency = {"min": 1.0, "max": 2.0, "avg": 1.5}
    assert every == {"report": "every", "messages": 2, "seconds": 0.5, "rate": 4.0, "latency_ms": latency}
    assert total == {**every, "report": "total", "in_doubt": 3}


def test_nothing_is_reported_unasked() -> None:
    report, _, out = reporter()
    report.message()
    report.print_total()
    assert out.getvalue() == b""
