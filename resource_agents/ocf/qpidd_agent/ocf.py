"""The basics of an OCF agent: exit codes, the requested operation, logging.  Shell."""

import os
import sys
import time

OCF_SUCCESS = 0
OCF_ERR_GENERIC = 1
OCF_ERR_ARGS = 2
OCF_ERR_UNIMPLEMENTED = 3
OCF_ERR_PERM = 4
OCF_ERR_INSTALLED = 5
OCF_ERR_CONFIGURED = 6
OCF_NOT_RUNNING = 7
OCF_RUNNING_PROMOTED = 8
OCF_FAILED_PROMOTED = 9

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module `typing` costs more than all of ours
    from collections.abc import Mapping


class Failure(Exception):
    """Ends the action with this exit code; the text becomes Pacemaker's exit reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Operation:
    """The requested action, its resource and its timeout."""

    def __init__(self, action: str, environment: "Mapping[str, str]") -> None:
        self.action = action
        self.instance = environment.get("OCF_RESOURCE_INSTANCE", "") or "qpidd"
        """The resource as Pacemaker names it; with :0 and so on only in globally unique clones."""
        self.directory = environment.get("HA_RSCTMP", "") or "/run/resource-agents"
        """Directory for files that a boot removes."""
        self.interval = _milliseconds(environment, "interval")
        """Seconds between two monitors; 0 for other actions and for probes."""
        self.timeout = _milliseconds(environment, "timeout")
        """Seconds until Pacemaker kills us; 0 if not known."""
        self.notified = environment.get("OCF_RESKEY_CRM_meta_notify", "").lower() in ("true", "yes", "on", "1")
        """True if the clone has notifications: they would wait for a running monitor."""
        self.on_fail = environment.get("OCF_RESKEY_CRM_meta_on_fail", "")
        """What Pacemaker does when this fails; empty: its default."""

    @property
    def half(self) -> float:
        """Half of the timeout in seconds, which leaves time to act; 0 if there is no limit."""
        return self.timeout / 2

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, f"qpidd-{self.instance}.{suffix}")


def _milliseconds(environment: "Mapping[str, str]", name: str) -> float:
    value = environment.get(f"OCF_RESKEY_CRM_meta_{name}", "")
    return int(value) / 1000 if value.isascii() and value.isdigit() else 0.0


LEVELS = {"debug": 7, "info": 6, "notice": 5, "warning": 4, "error": 3}
"""Levels and their numbers in the system log."""


def log(level: str, text: str) -> None:
    """Log as `ocf_log` does: to HA_LOGFILE and the system log, as set by Pacemaker; else, or at a terminal, to
    stderr."""
    if level == "debug" and _variable("debug") in ("", "0"):
        return
    name, instance = "qpidd", os.environ.get("OCF_RESOURCE_INSTANCE", "")
    tag = f"{name}({instance})[{os.getpid()}]" if instance else f"{name}[{os.getpid()}]"
    text = f"{level.upper()}: {' '.join(text.split())}"
    file = _variable("logfile")
    written = _append(file, f"{tag}:\t{_now()}{text}\n") if file and file != "/dev/null" else False
    facility = _variable("logfacility")
    if facility and facility != "none":
        _to_syslog(facility, tag, level, text)
    elif not written or sys.stderr.isatty():
        sys.stderr.write(f"{tag}:\t{_now()}{text}\n")
        sys.stderr.flush()


def _variable(name: str) -> str:
    """The variable in either spelling: Pacemaker sets both, ocf-tester and old stacks only one."""
    return os.environ.get(f"HA_{name.upper()}", "") or os.environ.get(f"HA_{name}", "")


def _now() -> str:
    """The time with milliseconds, as in Pacemaker's log, unless a format is set."""
    now = time.time()
    wanted = os.environ.get("HA_DATEFMT", "")
    return time.strftime(wanted or f"%b %d %T.{int(now % 1 * 1000):03d} ", time.localtime(now))


def _append(file: str, line: str) -> bool:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _to_syslog(facility: str, tag: str, level: str, text: str) -> None:
    import syslog

    syslog.openlog(tag, 0, getattr(syslog, f"LOG_{facility.upper()}", syslog.LOG_DAEMON))
    syslog.syslog(LEVELS[level], text.replace("\0", " "))


def exit_reason(reason: str, *, logged: bool = False) -> None:
    """The reason that crm_mon shows with the failed action; `logged`: it is in the log already."""
    prefix = os.environ.get("OCF_EXIT_REASON_PREFIX", "ocf-exit-reason:")
    sys.stderr.write(f"{prefix}{' '.join(reason.split())}\n")
    sys.stderr.flush()
    if not logged:
        log("error", reason)
