"""Login: the mechanisms of `qpidd_py.amqp.sasl` over the known users."""

import logging

from qpidd_py.amqp.sasl import Authenticate, credentials, refused
from qpidd_py.security.users import Users

log = logging.getLogger(__name__)


def authenticator(users: Users) -> Authenticate:
    """A function (mechanism, response) -> user name that raises `ConnectionException` 403."""

    def authenticate(mechanism: str, response: bytes) -> str:
        try:
            name, password = credentials(mechanism, response)
        except ValueError as error:
            log.info("login refused, malformed %s response: %s", mechanism, error)
            raise refused(mechanism) from error
        if not users.check(name, password):
            log.warning("login refused for user %r using %s", name, mechanism)
            raise refused(mechanism)
        return name

    return authenticate
