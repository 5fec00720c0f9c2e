"""What the running broker was started with.  Shell.

Parameters and the configuration file may change while a broker runs.  Until the next start the agent looks for the
broker where it is: otherwise it would find none, and Pacemaker would restart all of them together, which empties them.
"""

import os

from qpidd_agent.ocf import Operation
from qpidd_agent.parameters import Parameters
from qpidd_agent.process import holder

TEXTS = ("port", "door", "host", "data_dir", "user", "mechanism")
TUPLES = ("login", "tls")


def note_start(parameters: Parameters, operation: Operation) -> None:
    """Readable by our user only: the login is in it."""
    lines = [f"{name}={getattr(parameters, name)}" for name in TEXTS]
    lines += [f"{name}=" + "\t".join(getattr(parameters, name) or ()) for name in TUPLES]
    try:
        descriptor = os.open(_path(operation), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
    except OSError:
        pass  # changes then take effect at once, as far as the agent is concerned


def recall(parameters: Parameters, operation: Operation) -> None:
    """Take the values with which the running broker was started, if it was started by us and runs."""
    try:
        with open(_path(operation), encoding="utf-8") as file:
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
    try:
        os.unlink(_path(operation))
    except OSError:
        pass  # there was none


def _path(operation: Operation) -> str:
    return operation.path("started")
