"""Bindings in `qpid-http`: which lists of the broker an answer is made of.  A list of all queues is for few."""

from __future__ import annotations

from typing import Any

import pytest

from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.http.call import Call
from qpidd_py.http.door import Problem, told
from qpidd_py.http.routes import ROUTES
from tests.unit.test_queue_table import Site


class Asked:
    """A door to a broker with two queues, and what was asked there."""

    def __init__(self) -> None:
        self.site, self.methods = Site(("/", "a")), list[str]()
        vhost = self.site.broker.vhost
        for name in ("q", "r"):
            queue = self.site.declare(name)
            vhost.bindings.bind("amq.topic", queue, b"key", {})

    def ask(self, method: str, **arguments: Any) -> Any:
        self.methods.append(method)
        replies: list[Any] = []
        self.site.management.request(method, arguments, replies.append)
        with told():
            if not replies[-1]["ok"]:
                raise RequestRefused(replies[-1]["error"], replies[-1]["code"])
        return [item for reply in replies for item in reply["result"]] if len(replies) > 1 else replies[0]["result"]

    def ask_all(self, requests: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        return [self.ask(method, **arguments) for method, arguments in requests]


def found(asked: Asked, path: str, **names: str) -> list[tuple[str, str]]:
    """Source and destination of each."""
    (handler,) = [each for method, written, each in ROUTES if (method, written) == ("GET", f"/api{path}")]
    answer = handler(Call(asked, names, {}))  # type: ignore[arg-type]
    return sorted((each["source"], each["destination"]) for each in answer)


BETWEEN = "/bindings/{vhost}/e/{source}/{kind}/{destination}"
OF_QUEUE = "/queues/{vhost}/{name}/bindings"
SOURCE, DESTINATION = (f"/exchanges/{{vhost}}/{{name}}/bindings/{end}" for end in ("source", "destination"))
CASES: list[tuple[str, dict[str, str], list[tuple[str, str]]]] = [
    (OF_QUEUE, {"name": "q"}, [("", "q"), ("amq.topic", "q")]),
    (OF_QUEUE, {"name": "none"}, []),
    (SOURCE, {"name": "amq.topic"}, [("amq.topic", "q"), ("amq.topic", "r")]),
    (SOURCE, {"name": "none"}, []),
    (DESTINATION, {"name": "amq.topic"}, []),
    (BETWEEN, {"source": "amq.topic", "kind": "q", "destination": "r"}, [("amq.topic", "r")]),
    (BETWEEN, {"source": "amq.default", "kind": "q", "destination": "r"}, [("", "r")]),
    (BETWEEN, {"source": "amq.default", "kind": "q", "destination": "none"}, []),
    (BETWEEN, {"source": "amq.topic", "kind": "e", "destination": "r"}, []),
]


@pytest.mark.parametrize(("path", "names", "wanted"), CASES, ids=str)
def test_some_bindings_need_no_list_of_all_queues(path: str, names: dict[str, str], wanted: Any) -> None:
    asked = Asked()
    assert found(asked, path, vhost="/", **names) == wanted
    assert "queue.list" not in asked.methods


def test_all_bindings_do() -> None:
    every = [("", "q"), ("", "r"), ("amq.topic", "q"), ("amq.topic", "r")]
    assert found(Asked(), "/bindings") == found(Asked(), "/bindings/{vhost}", vhost="/") == every
    assert found(Asked(), SOURCE, vhost="/", name="amq.default") == every[:2]


@pytest.mark.parametrize(("path", "names", "wanted"), CASES, ids=str)
def test_a_virtual_host_that_is_not_there(path: str, names: dict[str, str], wanted: Any) -> None:
    with pytest.raises(Problem) as refusal:
        found(Asked(), path, vhost="none", **names)
    assert refusal.value.status == 404
