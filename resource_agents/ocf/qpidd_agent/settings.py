"""The broker's command line, and the checks that need its program and its user.  Shell."""

import os
import time

from qpidd_agent.ocf import OCF_ERR_PERM, OCF_SUCCESS, Failure, Operation
from qpidd_agent.parameters import Parameters, account, check, refused, words
from qpidd_agent.tool import run

CHECKS = 1 / 3
"""Part of the timeout for all checks together; a monitor also needs half of it for its question to the broker."""


def validate_all(parameters: Parameters, operation: Operation) -> int:
    """Also runs `qpidd --check-config`, so that the broker validates its own options, as its user."""
    deadline = time.monotonic() + operation.timeout * CHECKS if operation.timeout else None
    check(parameters)
    check_files(parameters, deadline)
    check_settings(parameters, deadline)
    return OCF_SUCCESS


def identity(parameters: Parameters) -> "dict[str, object]":
    """Arguments of `subprocess` for a child of the broker's user; none for our own, or without the right."""
    user, group, _ = account(parameters.user)
    if os.geteuid() != 0 or user == 0:
        return {}
    return {"user": user, "group": group, "extra_groups": os.getgrouplist(parameters.user, group)}


def check_files(parameters: Parameters, deadline: "float | None" = None) -> None:
    """Raises `Failure` for files that the broker's user cannot use.  A child of that user tests: root may use all."""
    for path, flag, what in ((parameters.config_file, "-r", "read"), (parameters.data_dir, "-w", "write to")):
        if path and os.path.exists(path) and run(["test", flag, path], None, identity(parameters), deadline)[0]:
            raise Failure(OCF_ERR_PERM, f"user {parameters.user} cannot {what} {path}")


def check_settings(parameters: Parameters, deadline: "float | None" = None) -> None:
    """Raises `Failure` for settings that the broker refuses."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QPID_", "OCF_"))}
    command = [parameters.binary, "--check-config", *settings(parameters)]
    code, text = run(command, kept, identity(parameters), deadline)
    if code and text:
        raise refused(f"the broker refuses its settings: {text}")


def settings(parameters: Parameters) -> "list[str]":
    result = ["--config", parameters.config_file] if parameters.config_file else []
    result += ["--data-dir", parameters.data_dir, "--port", parameters.port]
    return result + words(parameters.options)
