"""Random fail-overs under load: a few in `make test`, a hundred in `make test-all`."""

import random

import pytest

from tests.faults.scene import QpiddScene
from tests.faults.soak import soak
from tests.support.slow import few


def test_a_few_failovers(qpidd: QpiddScene) -> None:
    soak(qpidd, few(12), random.randrange(1_000_000), print)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_failovers(qpidd: QpiddScene) -> None:
    report = soak(qpidd, 100, random.randrange(1_000_000), print)
    assert report.losses >= 100
    assert report.twice_taken <= report.resent
