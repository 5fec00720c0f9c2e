"""SIGHUP: reads again what may change while the broker runs.                                                  Shell.

Live options (`option(live=True)`), log rules among them, user file, certificates and authorities; plug-ins add theirs.
Everything is checked first: what cannot be used changes nothing.  Connections go on; new ones see the new certificate
and the new limits.
"""

import ssl
from collections.abc import Callable, Sequence

from qpidd_py.config import LogSettings, SecuritySettings
from qpidd_py.logrules import rules, use
from qpidd_py.options import Settings
from qpidd_py.security.users import Users, read_user_file
from qpidd_py.server.tls import context, renew

Apply = Callable[[], None]
Check = Callable[[Settings], Apply]
"""With the settings that are to be in force; raises ConfigError or OSError for what cannot be used; what it returns
makes it valid."""


def reload(
    settings: Settings,
    users: Users,
    tls: ssl.SSLContext | None,
    users_changed: Apply,
    plugins: Sequence[Check],
) -> None:
    """`settings`: the live options as read again, the others as at the start.  Raises ConfigError, OSError: nothing has
    changed."""
    security = settings[SecuritySettings]
    selected = rules(settings[LogSettings])
    read = read_user_file(security.user_file) if security.user_file is not None else None
    context(security)  # the running one must not be left with half of a pair
    applies = [check(settings) for check in plugins]
    if tls is not None:
        renew(tls, security)
    for apply in applies:
        apply()
    if read is not None:
        users.replace(read)
        users_changed()
    use(selected)
