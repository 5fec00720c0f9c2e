"""A broker with the HA module outside a cluster: answers the management methods and has no other function."""

from __future__ import annotations

from ha.environment import Json
from ha.model.status import State
from ha.requests import Handler, RequestTable


class Standalone(RequestTable):
    """Answers the management methods; promotion is accepted and changes nothing, as in Apache Qpid."""

    def __init__(self, name: str, id: str, steerer: str = "") -> None:
        super().__init__(steerer)
        status: Json = {"state": State.STANDALONE.value, "name": name, "id": id, "epoch": 0}
        query: Json = {"status": State.STANDALONE.value, "name": name, "broker_id": id}
        query.update(brokers_url="", public_url="", replicate="none", members=[], primary="")
        for method, result in {"ha.status": status, "ha.query": query, "ha.promote": {}}.items():
            self.add(method, _always(result))


def _always(result: Json) -> Handler:
    return lambda arguments, user: result
