"""Logins for brokers in a test's process."""

from __future__ import annotations

from collections.abc import Mapping

from qpidd_py.amqp.sasl import Attempt, Authenticate, Decided, credentials


def password_check(users: Mapping[str, str]) -> Authenticate:
    """An `Authenticate` over a table of passwords; the table may change later."""

    def authenticate(attempt: Attempt, decided: Decided) -> None:
        try:
            user, password = credentials(attempt.mechanism, attempt.response)
        except ValueError:
            decided(None)
            return
        decided(user if users.get(user) == password else None)

    return authenticate
