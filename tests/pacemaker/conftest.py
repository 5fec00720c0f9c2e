"""Tests in the lab: skipped by name where there can be none; the logs of all nodes are saved when one fails."""

from __future__ import annotations

import re
import time
from collections.abc import Generator

import pytest

from tests.pacemaker.lab.lab import LIVE, LOGS
from tests.pacemaker.lab.requirements import problem


@pytest.fixture(scope="session")
def lab_possible() -> None:
    """To be used by whatever makes a lab."""
    if reason := problem():
        pytest.skip(f"no Pacemaker lab here: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        name = re.sub(r"\W+", "-", item.name).strip("-")
        for number, lab in enumerate(LIVE):
            target = LOGS / f"{time.strftime('%H%M%S')}-{name}-{report.when}" / str(number)
            report.sections.append(("lab", f"logs: {lab.save_logs(target)}"))
    return report
