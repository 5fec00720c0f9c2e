"""All kinds of settings, and what their values must be.                                                        Pure."""

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.broker.policies import KINDS as POLICIES
from qpidd_py.broker.policies import check_policy
from qpidd_py.security.entries import KINDS as RIGHTS
from qpidd_py.security.entries import check_entry

KINDS: Final = (*RIGHTS, *POLICIES)


def check_setting(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of this kind."""
    (check_policy if kind in POLICIES else check_entry)(kind, value)
