"""`qpidd`: reads the settings, finds the plug-ins, runs the broker.

Exit codes
    0   stopped cleanly (SIGTERM, SIGINT); --daemon: it listens, or still reads its journal after --wait;
        --check: it runs; --quit: it has stopped; --check-config: nothing is wrong
    1   could not start: settings, port, data directory, plug-in; --check: it does not run; --quit: it did not stop;
        --check-config: something is wrong
    3   a plug-in could not go on, such as HA told that this broker cannot be part of the cluster (its data directory is
        a copy of another living broker's: start it once with --new-identity)
    4   the disk of the journal has failed, or messages that had left memory cannot be read back: nothing was confirmed
        after it
    70  an invariant of the broker was broken, or the data path failed: ended at once, nothing was confirmed after it
"""

import dataclasses
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from qpidd_py.config import (
    GROUPS,
    DaemonSettings,
    DataSettings,
    LogSettings,
    NetworkSettings,
    SecuritySettings,
    data_directory,
)
from qpidd_py.errors import ConfigError
from qpidd_py.logrules import rules, set_up
from qpidd_py.options import Settings, load
from qpidd_py.plugins import Plugin, linking_users, load_plugins
from qpidd_py.process import (
    PidFile,
    Readiness,
    go_to_background,
    lock_path,
    pid_path,
    quit_running,
    raise_descriptor_limit,
    running_pid,
)

EXIT_OK: Final = 0
EXIT_START: Final = 1
EXIT_INVARIANT: Final = 70
EXIT_PLUGIN: Final = 3

log = logging.getLogger("qpidd_py")


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        plugins = load_plugins()
        groups = [*GROUPS, *(group for plugin in plugins for group in plugin.option_groups)]
        words = sys.argv[1:] if arguments is None else arguments
        read = partial(load, groups, words, os.environ, version=_version())
        settings = read()
        daemon = settings[DaemonSettings]
        if daemon.check_config:
            return _check_config(settings, plugins)
        if daemon.check or daemon.quit:
            return _check_or_quit(settings)
        readiness = go_to_background(daemon.wait) if daemon.daemon else Readiness()
        return _run(settings, plugins, readiness, read)
    except ConfigError as error:
        print(f"qpidd: {error}", file=sys.stderr)
        return EXIT_START


def _run(settings: Settings, plugins: Sequence[Plugin], readiness: Readiness, read: Callable[[], Settings]) -> int:
    try:
        set_up(_log_settings(settings))
    except ConfigError as error:
        readiness.tell(str(error))
        raise
    try:
        return _serve(settings, plugins, readiness, read)
    except (ConfigError, OSError) as error:
        log.critical("cannot start: %s", error)
        readiness.tell(str(error))
        return EXIT_START


def _serve(settings: Settings, plugins: Sequence[Plugin], readiness: Readiness, read: Callable[[], Settings]) -> int:
    # imported late: not needed for --help, --check or a wrong option
    from qpidd_py.server import collector
    from qpidd_py.server.watchdog import run_watched
    from qpidd_py.service import Service

    os.umask(0o077)  # messages, events and what is put aside: files 0600, folders 0700; the log is open already
    log.debug("up to %d descriptors", raise_descriptor_limit())
    for warning in settings.warnings:
        log.warning("%s", warning)
    data_dir = data_directory(settings[DataSettings])
    for warning in (warning for plugin in plugins for warning in plugin.check(settings, data_dir)):
        log.warning("%s", warning)
    files = [PidFile(lock_path(data_dir))] if data_dir is not None else []
    try:
        service = Service(settings, plugins, data_dir, _version(), EXIT_INVARIANT)
        pid_dir = settings[DaemonSettings].pid_dir
        if pid_dir is not None:
            files.append(PidFile(pid_path(pid_dir, service.port)))
        collector.set_up()
        service.on_refused = partial(_tell, files)
        service.read_settings = read
        if not service.read_journal(readiness.busy):
            return EXIT_OK
        return run_watched(service.run(lambda: _ready(settings, service.port, readiness)))
    finally:
        for file in reversed(files):
            file.remove()


def _tell(files: Sequence[PidFile], text: str) -> None:
    for file in files:
        file.tell(text)


def _ready(settings: Settings, port: int, readiness: Readiness) -> None:
    chosen = str(port) if settings[NetworkSettings].port == 0 else ""
    if chosen and not settings[DaemonSettings].daemon:
        print(chosen, flush=True)
    readiness.tell(f"ready {chosen}".rstrip())


def _log_settings(settings: Settings) -> LogSettings:
    """A daemon has no standard error; without a file of its own it logs to the system log."""
    wanted = settings[LogSettings]
    if not settings[DaemonSettings].daemon:
        return wanted
    to_syslog = wanted.log_to_syslog or (wanted.log_to_file is None and Path("/dev/log").exists())
    return dataclasses.replace(wanted, log_to_stderr=False, log_to_stdout=False, log_to_syslog=to_syslog)


def _check_config(settings: Settings, plugins: Sequence[Plugin]) -> int:
    """Opens no port and writes nothing.  Raises ConfigError for what a start refuses."""
    from qpidd_py.acl_file import AclFile
    from qpidd_py.security.users import read_users
    from qpidd_py.server.tls import context

    rules(settings[LogSettings])
    data_dir = data_directory(settings[DataSettings])
    context(settings[SecuritySettings])
    read_users(settings[SecuritySettings].user_file)
    AclFile(settings, linking_users(plugins, settings))
    found = [warning for plugin in plugins for warning in plugin.check(settings, data_dir)]
    for text in (*settings.warnings, *found):
        print(f"qpidd: {text}", file=sys.stderr)
    return EXIT_START if found else EXIT_OK


def _check_or_quit(settings: Settings) -> int:
    daemon = settings[DaemonSettings]
    data_dir = data_directory(settings[DataSettings])
    if daemon.pid_dir is not None:
        path = pid_path(daemon.pid_dir, settings[NetworkSettings].port)
    elif data_dir is not None:
        path = lock_path(data_dir)
    else:
        raise ConfigError("--check and --quit need a data-dir or a pid-dir to find the broker by")
    if daemon.quit:
        why = quit_running(path, daemon.wait)
        if why:
            print(f"qpidd: {why}", file=sys.stderr)
        return EXIT_START if why else EXIT_OK
    pid = running_pid(path)
    if pid is None:
        return EXIT_START
    print(pid)
    return EXIT_OK


def _version() -> str:
    try:
        return version("qpidd-py")
    except PackageNotFoundError:
        return "0"


if __name__ == "__main__":
    sys.exit(main())
