"""The OpenAPI description of our own paths, against the paths and limits of the code."""

from __future__ import annotations

from typing import Any

import pytest

from ha.model.status import RECOVERING_JOURNAL, State
from ha.requests import RequestTable
from ha.shell.recovering import Recovering
from ha.shell.standalone import Standalone
from qpidd_py.broker.events import NAMES
from qpidd_py.http.event_query import HISTORY_MAX, LIMIT_MAX, PARAMETERS, SINCE_MAX, TYPES_MAX
from qpidd_py.http.events import PATH
from qpidd_py.http.routes import ROUTES
from qpidd_py.management.events import LIMIT, WAIT_MAX
from qpidd_py.store.progress import Progress
from tests.support.openapi import check, check_answer, description, resolved

EVENTS = description()["paths"][PATH]["get"]


def test_it_has_all_paths_that_are_our_own_and_no_other() -> None:
    ours = {(path, method.lower()) for method, path, _ in ROUTES if path.startswith("/api/ha/")} | {(PATH, "get")}
    assert {(path, method) for path, found in description()["paths"].items() for method in found} == ours


def test_the_limits_are_those_of_the_code() -> None:
    schemas = {each["name"]: each["schema"] for each in EVENTS["parameters"]}
    assert tuple(schemas) == PARAMETERS
    ranges = {
        name: (found.get("minimum"), found.get("maximum"), found.get("default")) for name, found in schemas.items()
    }
    assert ranges["since"] == (0, SINCE_MAX, None) and ranges["limit"] == (1, LIMIT_MAX, LIMIT)
    one = "|".join((*NAMES, r"ha\.[^,]*", r"\*"))
    assert schemas["type"]["pattern"] == f"^({one})(,({one})){{0,{TYPES_MAX - 1}}}$"
    assert ranges["wait"] == (0, WAIT_MAX, 0) and schemas["history"]["maxLength"] == HISTORY_MAX


def test_states_are_those_of_the_code() -> None:
    schemas = description()["components"]["schemas"]
    for kind, name in (("Status", "state"), ("Query", "status")):
        found = [schemas[who + kind]["properties"][name]["enum"] for who in ("Other", "Member")]
        assert found == [
            [State.STANDALONE.value, RECOVERING_JOURNAL],
            [state.value for state in State if state is not State.STANDALONE],
        ]


@pytest.mark.parametrize("what", ["status", "query"])
@pytest.mark.parametrize(
    "table", [Standalone("n", "id"), Recovering("n", lambda: Progress().step, "")], ids=["standalone", "reading"]
)
def test_who_is_no_member_answers_as_described(table: RequestTable, what: str) -> None:
    told: list[Any] = []
    assert table.request(f"ha.{what}", {}, told.append, "guest")
    check_answer(f"/api/ha/{what}", "GET", 200, told[0]["result"])
    short = {name: value for name, value in told[0]["result"].items() if name != "name"}
    with pytest.raises(AssertionError, match=r"is as 0 of its kinds: .*'name'} are missing"):
        check_answer(f"/api/ha/{what}", "GET", 200, short)


def references(found: Any) -> Any:
    if isinstance(found, dict):
        if "$ref" in found:
            yield found
        for each in found.values():
            yield from references(each)
    elif isinstance(found, list):
        for each in found:
            yield from references(each)


def test_every_reference_leads_somewhere() -> None:
    found = list(references(description()))
    assert len(found) > 10 and all(resolved(each) for each in found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "are missing"),
        ({"history": "h", "last": True, "next": 1, "missed": 0, "events": []}, "last: True"),
        ({"history": "h", "last": 1, "next": 1, "missed": 0, "events": [], "x": 1}, "are not described"),
        (
            {"history": "h", "last": 1, "next": 1, "missed": 0, "events": [{"number": 1}]},
            r"events\[0\]: .* are missing",
        ),
        ({"history": None, "last": 1, "next": 1, "missed": 0, "events": []}, "history is null"),
    ],
)
def test_the_check_finds_what_is_wrong(value: Any, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check(value, {"$ref": "#/components/schemas/Events"}, "answer")
