"""Who has to notice a mistake: unit tests, then the simulator.  Runs in the process that has the mistake."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutants.finder import ROOT, install
from tests.mutants.operators import Mutant

UNUSED = ("cacheprovider", "xdist", "unraisableexception", "threadexception")
OPTIONS = [option for name in UNUSED for option in ("-p", f"no:{name}")]
COMPILED = ROOT / "build" / "mutants" / "compiled"
QUICK = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.generate),
)
"""No person reads the example that notices a mutant: it need not be made small."""


@dataclass(frozen=True)
class Plan:
    """What is tried on a mutant."""

    stages: Sequence[Sequence[str]] = ()
    """Unit tests by name, one stage after the other."""
    seeds: int = 0
    """Of the simulator, for each mode."""
    modes: Sequence[str] = ("quorum", "manager", "registry", "availability")


HANGS: Final = 25.0
"""Seconds of processor time after which a test is taken to hang: several times what the slowest needs."""


class First:
    """A plug-in of pytest: which test fails first?  One that hangs has failed."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_sessionstart(self) -> None:
        """After conftest.py has loaded its own profile, before the tests are imported."""
        settings.register_profile("mutants", QUICK)
        settings.load_profile("mutants")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        signal.signal(signal.SIGPROF, lambda number, frame: pytest.fail("it hangs"))
        signal.setitimer(signal.ITIMER_PROF, HANGS)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = f"import of {report.nodeid}"


def judge(mutant: Mutant, plan: Plan) -> str:
    """What has noticed it; empty: nothing."""
    install(mutant)
    for tests in plan.stages:
        if who := _units(tests):
            return who
    return _simulator(plan.modes, range(plan.seeds))


def _units(tests: Sequence[str]) -> str:
    first = First()
    files = {test.partition("::")[0] for test in tests}
    # Named one by one they are collected file by file, again and again; so the files are, and the others deselected.
    chosen = Chosen(tests)
    code = pytest.main([*OPTIONS, "-q", "-x", "--tb=short", *sorted(files)], [first, chosen])
    return first.failed or (f"pytest: exit code {code}" if code else "")


class Chosen:
    """A plug-in of pytest: these tests (or all of these files), in this order."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}

    def _place(self, item: Any) -> int | None:
        return self._order.get(item.nodeid, self._order.get(item.nodeid.partition("::")[0]))

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        places = {item: place for item in items if (place := self._place(item)) is not None}
        items[:] = sorted(places, key=lambda item: places[item])


def _simulator(modes: Iterable[str], seeds: Iterable[int]) -> str:
    seeds = list(seeds)
    if not seeds:
        return ""
    from tests.simulator.plan import plan
    from tests.simulator.shrink import outcome

    for seed in seeds:
        for mode in modes:
            try:
                violation = outcome(plan(seed, mode))
            except Exception as error:
                violation = f"{type(error).__name__}: {error}"
            if violation:
                return f"simulator {mode} {seed}: {violation}"
    return ""


def prepare() -> None:
    """Import what every judge needs and no mistake is made in, once for all processes."""
    import yaml  # noqa: F401

    import qpidd_py.amqp.client
    import qpidd_py.broker.broker
    import qpidd_py.core  # noqa: F401

    COMPILED.mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*OPTIONS, "-q", "--collect-only", str(COMPILED)])  # nothing is there: imports its plug-ins
    # Compiled once for all processes, also where Python is told to leave no files behind; the mutated module never is.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(COMPILED)
    assert not any(name == "ha" or name.startswith("ha.") for name in sys.modules), "ha must be imported later"
    os.environ["CI"] = "1"  # tests that choose at random choose the same every time
