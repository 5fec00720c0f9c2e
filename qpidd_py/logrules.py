"""Selection and format of log lines.

A rule is `LEVEL[+|-][:PATTERN]`: this level, or it and all above (`+`) or below (`-`), in categories whose name
contains PATTERN (case-insensitive).  A line is written when a `log-enable` rule matches and no
`log-disable` rule does.  Categories follow from the module that logs.

Two levels are added to Python's: trace (5) and notice (25).
"""

import logging
import logging.handlers
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from qpidd_py.config import LogSettings
from qpidd_py.errors import ConfigError

TRACE = 5
NOTICE = 25
LONGEST = 2048
"""Characters of a message that are written; tracebacks are written whole."""

LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": NOTICE,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
CATEGORIES = (
    "Security",
    "Broker",
    "Management",
    "Protocol",
    "System",
    "HA",
    "Messaging",
    "Store",
    "Network",
    "Test",
    "Client",
    "Application",
    "Model",
    "Unspecified",
)
_BY_MODULE = {
    "qpidd_py.amqp": "Protocol",
    "qpidd_py.broker": "Broker",
    "qpidd_py.core": "Protocol",
    "qpidd_py.management": "Management",
    "qpidd_py.security": "Security",
    "qpidd_py.server": "Network",
    "qpidd_py.store": "Store",
    "qpidd_py": "System",
    "ha": "HA",
    "client_lib": "Client",
    "asyncio": "System",
    "tests": "Test",
}


def category(logger: str) -> str:
    """Category of a logger, by the longest known prefix of its dotted name."""
    name = logger
    while name:
        if name in _BY_MODULE:
            return _BY_MODULE[name]
        name = name.rpartition(".")[0]
    return "Unspecified"


@dataclass(frozen=True)
class Rule:
    """Levels from `lowest` to `highest`, in categories whose name contains `pattern` (lower case)."""

    lowest: int
    highest: int
    pattern: str

    def matches(self, level: int, category_name: str) -> bool:
        return self.lowest <= level <= self.highest and self.pattern in category_name.lower()


def parse_rule(text: str) -> Rule:
    """Raises `ConfigError` for anything that is no rule, and for a pattern that no category contains."""
    level_text, _, pattern = text.partition(":")
    sign = level_text[-1:] if level_text[-1:] in ("+", "-") else ""
    level = LEVELS.get(level_text.removesuffix(sign).strip().lower() if sign else level_text.strip().lower())
    if level is None:
        raise ConfigError(f"log rule: found {text!r}, expected LEVEL[+|-][:PATTERN], LEVEL one of {', '.join(LEVELS)}")
    if not any(pattern.lower() in name.lower() for name in CATEGORIES):
        raise ConfigError(f"log rule: found {text!r}, expected a pattern in one of {', '.join(CATEGORIES)}")
    return Rule(0 if sign == "-" else level, 1000 if sign == "+" else level, pattern.lower())


class RuleFilter(logging.Filter):
    """Passes the lines that the rules select; caches the verdicts, since there are few (logger, level) pairs."""

    def __init__(self, enabled: Iterable[Rule], disabled: Iterable[Rule] = ()) -> None:
        super().__init__()
        self.enabled = tuple(enabled)
        self.disabled = tuple(disabled)
        self._verdicts: dict[tuple[str, int], bool] = {}

    def wants(self, logger: str, level: int) -> bool:
        name = category(logger)
        return any(rule.matches(level, name) for rule in self.enabled) and not any(
            rule.matches(level, name) for rule in self.disabled
        )

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.name, record.levelno)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self.wants(*key)
        return verdict

    @property
    def lowest_level(self) -> int:
        """The lowest level that any rule selects."""
        return min((rule.lowest for rule in self.enabled), default=1000)


class LineFormatter(logging.Formatter):
    """`TIME [Category] level: message`, each part as set by the `log-*` options; control characters are escaped."""

    def __init__(self, settings: LogSettings) -> None:
        parts = []
        if settings.log_time:
            parts.append("%(asctime)s.%(usecs)06d" if settings.log_hires_timestamp else "%(asctime)s")
        if settings.log_category:
            parts.append("[%(category)s]")
        if settings.log_thread:
            parts.append("%(threadName)s")
        if settings.log_source:
            parts.append("%(filename)s:%(lineno)d")
        if settings.log_function:
            parts.append("%(funcName)s")
        level = "%(levelname)s: " if settings.log_level else ""
        super().__init__(f"{settings.log_prefix}{' '.join(parts)} {level}%(message)s".lstrip(), "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.category = category(record.name)
        record.usecs = int(record.created % 1 * 1_000_000)
        record.levelname = record.levelname.lower()
        record.message = _printable(record.message)
        return super().formatMessage(record)


def _printable(message: str) -> str:
    """Names come from peers: a line feed in one must not forge a log line, and a long one not fill the disk."""
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]}... ({len(message)} characters)"
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() or c in "\t" else c.encode("unicode_escape").decode() for c in message)


def rules(settings: LogSettings) -> RuleFilter:
    enabled = ("trace+",) if settings.trace else settings.log_enable
    return RuleFilter(map(parse_rule, enabled), map(parse_rule, settings.log_disable))


def set_up(settings: LogSettings, stderr: TextIO | None = None, stdout: TextIO | None = None) -> None:
    """Configures all logging of this process from the settings; raises `ConfigError`."""
    logging.addLevelName(TRACE, "trace")
    logging.addLevelName(NOTICE, "notice")
    wanted = rules(settings)
    handlers = _handlers(settings, stderr or sys.stderr, stdout or sys.stdout)
    formatter = LineFormatter(settings)
    for handler in handlers:
        handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    for handler in handlers:
        root.addHandler(handler)
    use(wanted)
    logging.raiseExceptions = False  # a full disk for the log must not flood standard error


def use(wanted: RuleFilter) -> None:
    """From now on these lines are written."""
    root = logging.getLogger()
    for handler in root.handlers:
        handler.filters[:] = [wanted]
    root.setLevel(max(wanted.lowest_level, 1))


def _handlers(settings: LogSettings, stderr: TextIO, stdout: TextIO) -> Sequence[logging.Handler]:
    handlers: list[logging.Handler] = []
    if settings.log_to_stderr:
        handlers.append(logging.StreamHandler(stderr))
    if settings.log_to_stdout:
        handlers.append(logging.StreamHandler(stdout))
    try:
        if settings.log_to_file is not None:
            handlers.append(logging.handlers.WatchedFileHandler(settings.log_to_file, encoding="utf-8"))
        if settings.log_to_syslog:
            handlers.append(_syslog(settings.syslog_name))
    except OSError as error:
        raise ConfigError(f"cannot log to {settings.log_to_file or 'the system log'}: {error}") from None
    return handlers or [logging.NullHandler()]


class _SysLogHandler(logging.handlers.SysLogHandler):
    priority_map = logging.handlers.SysLogHandler.priority_map | {"notice": "notice", "trace": "debug"}


def _syslog(name: str) -> logging.Handler:
    handler = _SysLogHandler("/dev/log", logging.handlers.SysLogHandler.LOG_DAEMON)
    handler.ident = f"{name}: "
    return handler


def log_notice(logger: logging.Logger, message: str, *values: Any) -> None:
    """Between info and warning: events of interest to an operator that are no problem."""
    logger.log(NOTICE, message, *values, stacklevel=2)


class Floods:
    """Lines that peers can cause at will: LINES of a kind in each period are written, the others are counted.  The
    owner calls `tick` several times in a period."""

    LINES = 20
    PERIOD = 10.0  # seconds

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._began = 0.0
        self._counts: Counter[tuple[int, str]] = Counter()

    def write(self, level: int, message: str, *values: Any) -> None:
        """`message` is the kind."""
        self._counts[level, message] += 1
        if self._counts[level, message] <= self.LINES:
            self._log.log(level, message, *values, stacklevel=2)

    def tick(self, now: float) -> None:
        """Sums up what was not written in the period that has ended."""
        if now - self._began < self.PERIOD:
            return
        for (level, message), count in self._counts.items():
            if count > self.LINES:
                kind = message.partition(" %")[0].rstrip(":")
                self._log.log(level, "%s: and %s more in the last %g s", kind, f"{count - self.LINES:,}", self.PERIOD)
        self._counts.clear()
        self._began = now
