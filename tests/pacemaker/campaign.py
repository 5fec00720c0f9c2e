"""What the tests of this directory share: which disasters are run when, and how one is survived.      Shell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.pacemaker.cluster import Cluster
from tests.pacemaker.disasters import DISASTERS, LOSES, Disaster
from tests.pacemaker.judge import Report
from tests.pacemaker.trial import Trial

LIMIT: Final = 300
"""Seconds for one disaster, with everything that has to come back after it."""


def selection(short: Sequence[str], long: Sequence[str]) -> list[object]:
    """Parameters of a test: the short ones in `make test`, the long ones in `make pacemaker` and `make test-all`."""
    limit = pytest.mark.timeout(LIMIT)
    return [*(pytest.param(name, marks=limit) for name in short),
            *(pytest.param(name, marks=(limit, pytest.mark.slow)) for name in long)]  # fmt: skip


def survive(cluster: Cluster, name: str, directory: Path, disaster: Disaster | None = None) -> Report:
    """One disaster under load: nothing confirmed is lost, and never do two brokers both confirm."""
    cluster.ready()
    cluster.mark_logs()
    cluster.hurt = True
    with Trial(cluster, name, directory) as trial:
        (disaster or DISASTERS[name])(cluster, trial)
    cluster.hurt = False
    report = trial.check(may_lose=name in LOSES and not cluster.setup.journals)
    assert report.messages.confirmed > 0
    return report
