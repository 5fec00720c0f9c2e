"""A broker that is not a member of a cluster but has the HA module: it answers the questions, and that is all."""

from __future__ import annotations

from collections.abc import Callable

from ha.environment import Json
from ha.status import State


class Standalone:
    """Answers the management methods; promotion is accepted and changes nothing, as in the original."""

    def __init__(self, name: str, id: str) -> None:
        self._name = name
        self._id = id

    def request(self, method: str, arguments: Json, reply: Callable[[Json], None]) -> bool:
        status: Json = {"state": State.STANDALONE.value, "name": self._name, "id": self._id, "epoch": 0}
        query: Json = {"status": State.STANDALONE.value, "name": self._name, "broker_id": self._id}
        query.update(brokers_url="", public_url="", replicate="none", members=[], primary="")
        results: dict[str, Json] = {"ha.status": status, "ha.query": query, "ha.promote": {}}
        if method not in results:
            return False
        reply({"ok": True, "result": results[method]})
        return True
