"""Calls after whose failure the process must not go on.                                                       Shell."""

from __future__ import annotations

from collections.abc import Callable

from qpidd_py.errors import InvariantError


def consistently(call: Callable[[], None], where: str) -> None:
    """Raises InvariantError for any error of `call`: its changes may be half done, so the loop's handler ends the
    process.  `where`: for people."""
    try:
        call()
    except InvariantError:
        raise
    except Exception as error:
        raise InvariantError(f"in {where}: {error!r}") from error
