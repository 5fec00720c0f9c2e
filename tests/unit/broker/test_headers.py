"""Matching of headers exchanges."""

import pytest

from qpidd_py.broker.headers import headers_match


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({}, {}, True),
        ({}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 3}, {"a": 1, "b": 2}, False),
        ({"x-match": "any", "a": 1, "b": 3}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": True}, True),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {}, False),
        ({"a": {"b": [1]}}, {"a": {"b": [1]}}, True),
        ({"x-other": 1}, {}, True),
        ({"x-match": "all-with-x", "x-other": 1}, {}, False),
        ({"x-match": "all-with-x", "x-other": 1}, {"x-other": 1}, True),
        ({"x-match": "any-with-x", "x-other": 1, "a": 1}, {"x-other": 1}, True),
        ({"qpid.replicate": "none", "a": 1}, {"a": 1}, True),
    ],
)
def test_headers_match(arguments, headers, expected):
    assert headers_match(arguments, headers) is expected
