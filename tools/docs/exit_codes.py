"""The exit codes of the programs, for the pages and the manual pages; those of two programs are in their `--help`."""

from collections.abc import Mapping
from typing import Final

from client_lib.cli.common import EXIT_CODES as CLIENT_EXIT_CODES
from spark_jobs.cli.errors import EXIT_CODES as REPORT_EXIT_CODES

QPIDD_CODES: Final = """\
exit codes:
  0   ended by SIGTERM or SIGINT; --check: the broker runs; --quit: it has stopped
  1   cannot start; --check: the broker does not run; --quit: it refuses to stop
  3   cannot be part of its cluster
  4   the disk of the journal has failed, or the page file cannot be read; nothing was confirmed after it
  70  found itself in contradiction, and stopped at once"""
TOOL_CODES: Final = """\
exit codes:
  0   done, or the test is true
  1   everything else; one line says what"""
HA_CODES: Final = f"""\
{TOOL_CODES}
  2   salvage discard: neither --yes nor a terminal to ask at; nothing is deleted"""
JOURNAL_CODES: Final = """\
exit codes:
  0   done, and the journal is whole
  1   the journal is damaged, or the command could not be carried out
  2   wrong usage"""
PASSWD_CODES: Final = """\
exit codes:
  0   done, or (check) this is the password
  1   everything else; one line says what
  2   wrong usage"""
EVENTS_CODES: Final = """\
exit codes:
  0   ended by Ctrl-C
  1   a broker refuses the login or the request, or wrong usage; one line says what"""
CLUSTER_CODES: Final = """\
exit codes:
  0   done
  1   refused, failed, or (status) the cluster has no primary
  2   wrong usage or cluster file
  3   the cluster is not running"""
CODES: Final[Mapping[str, str]] = {
    "qpidd": QPIDD_CODES,
    "qpid-ha": HA_CODES,
    "qpid-config": TOOL_CODES,
    "qpid-stat": TOOL_CODES,
    "qpid-metrics": TOOL_CODES,
    "qpid-printevents": EVENTS_CODES,
    "qpidd-journal": JOURNAL_CODES,
    "qpidctl": TOOL_CODES,
    "qpid-http": TOOL_CODES,
    "qpid-route": TOOL_CODES,
    "qpid-shovel": TOOL_CODES,
    "qpid-passwd": PASSWD_CODES,
    "qpid-cluster": CLUSTER_CODES,
    "qpid-send": CLIENT_EXIT_CODES,
    "qpid-receive": CLIENT_EXIT_CODES,
    "failover-report": REPORT_EXIT_CODES,
}


def rows(text: str) -> list[tuple[str, str]]:
    """Code and meaning of `  0   done` lines below a heading; a line without a code goes on."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines()[1:]:
        number, _, meaning = line.strip().partition(" ")
        if line.startswith("   "):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            found.append((number, meaning.strip()))
    return found
