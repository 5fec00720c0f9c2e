"""A broker with the HA module outside a cluster: answers the management methods and has no other function."""

from __future__ import annotations

from ha.model.environment import Json, Reply
from ha.model.status import State
from ha.requests import Handler, LaterHandler, RequestTable
from qpidd_py.errors import LinkError


class Standalone(RequestTable):
    """Answers the management methods; promotion is accepted and changes nothing, as in Apache Qpid."""

    def __init__(self, name: str, id: str, steerer: str = "", replicate: LaterHandler | None = None) -> None:
        """Without `replicate` (the replication of single queues) its method is refused."""
        status: Json = {"state": State.STANDALONE.value, "name": name, "id": id, "epoch": 0, "score": None}
        query: Json = {"status": State.STANDALONE.value, "name": name, "broker_id": id}
        query.update(brokers_url="", public_url="", replicate="none", members=[], primary="")
        now: dict[str, Handler] = {
            "ha.status": _always(status),
            "ha.query": _always(query),
            "ha.promote": _always({}),
        }
        super().__init__(steerer, now, {"ha.replicate": replicate or _refuse_replication})


def _always(result: Json) -> Handler:
    return lambda arguments, user: result


def _refuse_replication(arguments: Json, user: str, reply: Reply) -> None:
    raise LinkError("ha-queue-replication is off here")
