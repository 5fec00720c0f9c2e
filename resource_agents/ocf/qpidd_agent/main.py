"""Entry point: command line in, exit code out.  Shell."""

import os
import sys

from qpidd_agent.ocf import (
    OCF_ERR_ARGS,
    OCF_ERR_GENERIC,
    OCF_ERR_UNIMPLEMENTED,
    OCF_SUCCESS,
    Failure,
    Operation,
    exit_reason,
)

USAGE = "usage: qpidd start|stop|monitor|promote|demote|notify|reload-agent|validate-all|meta-data"


def main(words: "list[str]") -> int:
    if len(words) != 1:
        print(USAGE, file=sys.stderr)
        return OCF_ERR_ARGS
    action = words[0]
    if action == "meta-data":
        from qpidd_agent.metadata import metadata

        print(metadata())
        return OCF_SUCCESS
    if action in ("usage", "help", "--help", "-h"):
        print(USAGE)
        return OCF_SUCCESS
    return _act(action)


def _act(action: str) -> int:
    from qpidd_agent.actions import ACTIONS
    from qpidd_agent.parameters import Parameters
    from qpidd_agent.running import recall

    if action not in ACTIONS:
        print(USAGE, file=sys.stderr)
        return OCF_ERR_UNIMPLEMENTED
    parameters, operation = Parameters(os.environ), Operation(action, os.environ)
    try:
        if action != "validate-all":
            recall(parameters, operation)
        return ACTIONS[action](parameters, operation)
    except Failure as failure:
        exit_reason(f"{action}: {failure.reason}")
        return failure.code
    except OSError as error:
        exit_reason(f"{action}: {error}")
        return OCF_ERR_GENERIC
