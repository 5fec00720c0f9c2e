"""Our own paths of the HTTP API, before a cluster: schemathesis asks what is described, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, seed, settings
from requests.auth import HTTPBasicAuth
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance

from qpidd_py.management.events import WAIT_MAX
from tests.integration.test_http_api import serving
from tests.support.members import Members
from tests.support.openapi import FILE


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("schema")
    members = Members(folder)
    try:
        members.up()
        with serving(members.brokers["a"], folder) as port:
            yield f"http://127.0.0.1:{port}"
    finally:
        members.close()


ours = schemathesis.openapi.from_path(FILE)
ours.auth.set_from_requests(HTTPBasicAuth("guest", "guest"))


NAMED: Final = (400, 503)
"""Refusals of a relocation that is described well: no backup has that name, or this broker is one itself by now."""


@ours.parametrize()
@seed(1)
@settings(max_examples=5, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_described(case: schemathesis.Case, url: str) -> None:
    """What is of no use without `since` is not sent without it: OpenAPI has no words for that.  Nobody waits."""
    query = case.query
    if "since" not in query:
        for name in ("history", "wait"):
            query.pop(name, None)
    if str(query.get("wait")).isdecimal() and 0 < int(query["wait"]) <= WAIT_MAX:
        query["wait"] = 0
    answer = case.call(url)
    refused = case.operation.path == "/api/ha/relocate" and answer.status_code in NAMED
    excluded: list[Any] = [positive_data_acceptance, not_a_server_error] if refused else []
    case.validate_response(answer, excluded_checks=excluded)
