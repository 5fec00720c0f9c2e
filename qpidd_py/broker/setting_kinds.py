"""All kinds of settings, and what their values must be.                                                        Pure."""

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.broker.host_settings import KINDS as HOSTS
from qpidd_py.broker.host_settings import check_host
from qpidd_py.broker.parameters import KINDS as PARAMETERS
from qpidd_py.broker.parameters import check_parameter
from qpidd_py.broker.policies import check_policy
from qpidd_py.broker.policy_keys import KINDS as POLICIES
from qpidd_py.broker.quotas import KINDS as LIMITS
from qpidd_py.broker.quotas import check_limits
from qpidd_py.security.entries import KINDS as RIGHTS
from qpidd_py.security.entries import check_entry

_CHECKS: Final = {
    **dict.fromkeys(RIGHTS, check_entry),
    **dict.fromkeys(POLICIES, check_policy),
    **dict.fromkeys(LIMITS, check_limits),
    **dict.fromkeys(PARAMETERS, check_parameter),
    **dict.fromkeys(HOSTS, check_host),
}
KINDS: Final = tuple(_CHECKS)


def check_setting(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of this kind."""
    _CHECKS[kind](kind, value)
