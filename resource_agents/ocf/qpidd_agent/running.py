"""What the running broker was started with.  Shell.

Parameters and the configuration file may change while a broker runs.  Until the next start the agent looks for the
broker where it is: otherwise it would find none, and Pacemaker would restart all of them together, which empties them.
"""

import os

from qpidd_agent.ocf import Operation
from qpidd_agent.parameters import Parameters
from qpidd_agent.process import holder

STARTED, APPLIED, NEXT = "started", "applied", "applied-next"
TEXTS = ("port", "door", "host", "data_dir", "user", "mechanism")
TUPLES = ("login", "tls")


def note_start(parameters: Parameters, operation: Operation) -> None:
    """Readable by our user only: the login is in it."""
    lines = [f"{name}={getattr(parameters, name)}" for name in TEXTS]
    lines += [f"{name}=" + "\t".join(getattr(parameters, name) or ()) for name in TUPLES]
    try:
        descriptor = os.open(operation.path(STARTED), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
    except OSError:
        pass  # changes then take effect at once, as far as the agent is concerned
    note_applied(parameters, operation)


def recall(parameters: Parameters, operation: Operation) -> None:
    """Take the values with which the running broker was started, if it was started by us and runs."""
    try:
        with open(operation.path(STARTED), encoding="utf-8") as file:
            pairs = [line.partition("=") for line in file.read().split("\n")]
    except (OSError, UnicodeDecodeError):
        return
    values = {name: value for name, _, value in pairs}
    if {*values} != {*TEXTS, *TUPLES} or not holder(os.path.join(values["data_dir"], "lock")):
        return
    for name in TEXTS:
        setattr(parameters, name, values[name])
    for name in TUPLES:
        setattr(parameters, name, tuple(values[name].split("\t")) if values[name] else None)


def forget_start(operation: Operation) -> None:
    for name in (STARTED, APPLIED, NEXT):
        try:
            os.unlink(operation.path(name))
        except OSError:
            pass  # there was none


# ---- the parameters, as the running broker has got them


def missed(parameters: Parameters, operation: Operation) -> "list[str]":
    """Names of the parameters that have changed since they were applied: `changes.py`.

    Without a note (an earlier version of the agent has started the broker) those of now are taken for applied."""
    wanted = _given(parameters)
    try:
        with open(operation.path(APPLIED), "rb") as file:
            applied = file.read()
    except OSError:
        note_applied(parameters, operation)
        return []
    if applied == wanted:
        return []
    lines = {*applied.split(b"\n")} ^ {*wanted.split(b"\n")}
    return sorted({os.fsdecode(line.partition(b"=")[0]) for line in lines})


def note_applied(parameters: Parameters, operation: Operation) -> None:
    try:
        write_applied(parameters, operation)
    except OSError:
        return  # the next monitor tries again
    keep_applied(operation)


def write_applied(parameters: Parameters, operation: Operation) -> None:
    """Prepare the note that the parameters given now are applied; `keep_applied` makes it valid.  Raises `OSError`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(operation.path(NEXT), flags, 0o600), "wb") as file:
        file.write(_given(parameters))


def no_room(operation: Operation) -> bool:
    """True if the last note could be made but not filled: the disk was full then."""
    try:
        return os.stat(operation.path(NEXT)).st_size == 0
    except OSError:
        return False


def keep_applied(operation: Operation) -> None:
    try:
        os.replace(operation.path(NEXT), operation.path(APPLIED))
    except OSError:
        pass  # another call has done it


def _given(parameters: Parameters) -> bytes:
    return b"\n".join(os.fsencode(f"{name}={value}") for name, value in parameters.given.items())
