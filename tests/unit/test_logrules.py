"""Log rules, categories and lines."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidd_py.config import LogSettings
from qpidd_py.errors import ConfigError
from qpidd_py.logrules import NOTICE, TRACE, RuleFilter, category, log_notice, parse_rule, set_up


@pytest.fixture
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raising
    root.setLevel(level)


def wanted(*enabled: str, disabled: tuple[str, ...] = ()) -> RuleFilter:
    return RuleFilter(map(parse_rule, enabled), map(parse_rule, disabled))


def test_categories() -> None:
    assert category("qpidd_py.broker.client_connection") == "Broker"
    assert category("ha.shell.environment") == "HA"
    assert category("ha") == "HA"
    assert category("hamster") == "Unspecified"
    assert category("qpidd_py") == "System"


def test_levels_and_signs() -> None:
    exactly, above, below = wanted("info"), wanted("info+"), wanted("info-")
    assert [rules.wants("ha", logging.INFO) for rules in (exactly, above, below)] == [True, True, True]
    assert [rules.wants("ha", logging.ERROR) for rules in (exactly, above, below)] == [False, True, False]
    assert [rules.wants("ha", logging.DEBUG) for rules in (exactly, above, below)] == [False, False, True]


def test_patterns_and_disabling() -> None:
    rules = wanted("notice+", "debug+:ha", disabled=("error:Security",))
    assert rules.wants("ha.node", logging.DEBUG)
    assert not rules.wants("qpidd_py.broker", logging.INFO)
    assert rules.wants("qpidd_py.broker", NOTICE)
    assert rules.wants("qpidd_py.security.sasl", logging.CRITICAL)
    assert not rules.wants("qpidd_py.security.sasl", logging.ERROR)
    assert rules.lowest_level == logging.DEBUG


@pytest.mark.parametrize("text", ["", "loud", "info*", "info+:Kitchen", "+:HA", "info-+"])
def test_no_rules(text: str) -> None:
    with pytest.raises(ConfigError, match="log rule"):
        parse_rule(text)


@pytest.mark.usefixtures("root_logger")
def test_lines() -> None:
    out = io.StringIO()
    set_up(LogSettings(log_time=False, log_prefix="n1 "), stderr=out)
    log_notice(logging.getLogger("ha.node"), "ready after %d s", 2)
    logging.getLogger("ha.node").info("not wanted")
    logging.getLogger("qpidd_py.broker").warning("queue %s", "a\nb")
    assert out.getvalue() == "n1 [HA] notice: ready after 2 s\nn1 [Broker] warning: queue a\\nb\n"


@pytest.mark.usefixtures("root_logger")
def test_time_and_trace() -> None:
    out = io.StringIO()
    set_up(LogSettings(trace=True, log_hires_timestamp=True), stderr=out)
    logging.getLogger("ha").log(TRACE, "x")
    date, time, rest = out.getvalue().split(" ", 2)
    assert (len(date), len(time), rest) == (10, 15, "[HA] trace: x\n")


@pytest.mark.usefixtures("root_logger")
def test_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    set_up(LogSettings(log_to_stderr=False, log_to_file=file, log_time=False))
    logging.getLogger("qpidd_py").error("found %s", "umlaut ä")
    assert file.read_text(encoding="utf-8") == "[System] error: found umlaut ä\n"
    with pytest.raises(ConfigError, match="cannot log to"):
        set_up(LogSettings(log_to_file=tmp_path / "missing" / "log"))
