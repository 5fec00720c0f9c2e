"""Errors of users, and the exit codes."""

from __future__ import annotations

from typing import Final

OK, BREACH, USAGE, INTERNAL, INTERRUPTED, NO_READER = 0, 1, 2, 70, 130, 141
DEBUG: Final = "FAILOVER_REPORT_DEBUG"
"""In the environment: faults end with a traceback, and Java may say what it likes."""
EXIT_CODES: Final = """\
exit codes:
  0    done; check: nothing is beyond its limit
  1    check: a limit is broken, or what it limits is not known
  2    wrong usage, or an input that cannot be used; one line on standard error says which
  70   a fault of this program; FAILOVER_REPORT_DEBUG=1 prints where
  130  interrupted (141: the reader of the output has gone)"""


class UserError(ValueError):
    """One line: the file (and line), the value, what was expected."""
