"""`qpid-http` before members of a cluster: a backup shows and changes nothing, and health says what a stop means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.integration.test_http_api import TIME, Api, serving
from tests.integration.test_http_walk import TABLE, Row, having, told
from tests.support.members import Members
from tests.support.wait import wait_for

CRITICAL = ("/health/checks/node-is-quorum-critical", "/health/checks/node-is-mirror-sync-critical")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Members, Api, Api]]:
    """A cluster of two, its primary and its backup."""
    folder = tmp_path_factory.mktemp("members")
    members = Members(folder, names="ab")
    with ExitStack() as stack:
        stack.callback(members.close)
        members.up()
        yield members, _api(stack, members, folder, "a"), _api(stack, members, folder, "b")


def _api(stack: ExitStack, members: Members, folder: Path, name: str) -> Api:
    (folder / name).mkdir()
    return Api(stack.enter_context(serving(members.brokers[name], folder / name)))


def plain(row: Row) -> bool:
    return "{" not in row.path


@pytest.mark.parametrize("path", [row.path for row, _ in having("GET") if plain(row) and row.path not in CRITICAL])
def test_a_backup_answers_lists(both: tuple[Members, Api, Api], path: str) -> None:
    _, primary, backup = both
    assert told(backup, "GET", path)[0] == 200
    assert type(told(backup, "GET", path)[1]) is type(told(primary, "GET", path)[1])


CHANGES = (
    ("PUT", "/queues/%2F/q", {}),
    ("PUT", "/exchanges/%2F/x", {"type": "topic"}),
    ("POST", "/bindings/%2F/e/amq.topic/q/there", {"routing_key": "k"}),
    ("DELETE", "/queues/%2F/there", None),
    ("DELETE", "/queues/%2F/there/contents", None),
    ("POST", "/queues/%2F/there/get", {"ackmode": "ack_requeue_true"}),
    ("POST", "/exchanges/%2F/amq.default/publish", {"routing_key": "there", "payload": ""}),
    ("PUT", "/users/anna", {"tags": ""}),
    ("POST", "/users/bulk-delete", {"users": ["maria"]}),
    ("DELETE", "/users/maria", None),
    ("PUT", "/permissions/%2F/maria", {"configure": "", "write": "", "read": ""}),
    ("PUT", "/policies/%2F/p", {"pattern": "", "definition": {"max-length": 1}}),
    ("PUT", "/vhosts/v", None),
    ("PUT", "/vhost-limits/%2F/max-queues", {"value": 5}),
    ("POST", "/definitions", {"queues": [{"name": "q"}]}),
    ("POST", "/definitions/%2F", {"queues": [{"name": "q"}]}),
    ("GET", "/aliveness-test/%2F", None),
)


def test_a_backup_changes_nothing(both: tuple[Members, Api, Api]) -> None:
    """It says so with 503, and when to ask again."""
    _, primary, backup = both
    assert primary.request("PUT", "/queues/%2F/there", {})[0] == 201
    assert primary.request("PUT", "/users/maria", {"tags": ""})[0] == 201
    wait_for(lambda: told(backup, "GET", "/queues/%2F/there")[0] == 200, TIME)
    for method, path, body in CHANGES:
        status, found, headers = told(backup, method, path, body)
        assert (status, headers.get("Retry-After")) == (503, "1") and found["reason"], (method, path, found)
    assert told(primary, "GET", "/queues/%2F/q")[0] == told(primary, "GET", "/users/anna")[0] == 404
    assert told(primary, "GET", "/users/maria")[0] == 200


def test_pages_of_a_backup(both: tuple[Members, Api, Api]) -> None:
    _, primary, backup = both
    primary.request("PUT", "/queues/%2F/deep", {})
    for _ in range(5):
        primary.request("POST", "/exchanges/%2F/amq.default/publish", {"routing_key": "deep", "payload": ""})
    path = "/queues?page=1&sort=messages&sort_reverse=true"
    wait_for(
        lambda: [(each["name"], each["messages"]) for each in backup.get(path)["items"]][:1] == [("deep", 5)], TIME
    )


def test_which_stop_would_leave_none(both: tuple[Members, Api, Api]) -> None:
    """Runs last: the backup ends."""
    members, primary, backup = both
    for path in CRITICAL:
        assert told(primary, "GET", path)[:2] == (200, {"status": "ok"})
        status, found, _ = told(backup, "GET", path)
        assert status == 501 and members.brokers["a"].address in found["reason"]
    members.brokers["b"].kill()
    for path in CRITICAL:
        found = wait_for(partial(_failed, primary, path), TIME)
        assert found["status"] == "failed" and "none can take over" in found["reason"]


def _failed(primary: Api, path: str) -> dict[str, str]:
    """What it says when it says that."""
    status, found, _ = told(primary, "GET", path)
    return found if status == 503 else {}


def test_the_table_is_walked() -> None:
    assert sum(map(plain, TABLE)) > 30
