"""The index of headers exchanges against the definition, and what a message costs with many bindings."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.broker import headers
from qpidd_py.broker.headers import HeadersIndex, headers_match

names = st.sampled_from(["a", "b", "x-c"])
values = st.sampled_from(
    [None, 0, 1, True, False, 1.0, Decimal(1), "1", b"1", [1], {"a": 1}, float("nan"), "", bytearray(b"1")]
)
tables = st.dictionaries(names, values, max_size=3)
modes = st.sampled_from([{}, *({"x-match": mode} for mode in ("all", "any", "all-with-x", "any-with-x", 7))])
bindings = st.builds(lambda mode, table: {**mode, **table, "qpid.replicate": "all"}, modes, tables)


@given(st.lists(bindings, max_size=12), st.lists(tables, min_size=1, max_size=6), st.data())
def test_same_as_the_definition(arguments, messages, data):
    index: HeadersIndex[int] = HeadersIndex()
    kept = dict(enumerate(arguments))
    for number, table in kept.items():
        index.add(number, table)
    for number in data.draw(st.lists(st.sampled_from(sorted(kept)), unique=True)) if kept else ():
        index.remove(number)
        del kept[number]
    for message in messages:
        found = index.match(message)
        assert len(found) == len(set(found))
        assert set(found) == {number for number, table in kept.items() if headers_match(table, message)}
    for number in kept:
        index.remove(number)
    assert not index._at and not index._always and not index._places


def test_octets_match_whatever_type_they_arrived_as():
    index: HeadersIndex[int] = HeadersIndex()
    index.add(1, {"a": b"1"})
    index.add(2, {"a": bytearray(b"1")})
    assert set(index.match({"a": bytearray(b"1")})) == set(index.match({"a": b"1"})) == {1, 2}


@pytest.mark.parametrize("shape", ["one value each", "one in common", "any of two"])
def test_a_message_looks_at_what_it_may_match_however_many_there_are(shape, monkeypatch):
    looks = []

    def look(*pair):
        looks.append(pair)
        return headers_match(*pair)

    monkeypatch.setattr(headers, "headers_match", look)
    tables = {
        "one value each": lambda number: {"id": number},
        "one in common": lambda number: {"kind": "order", "id": number},
        "any of two": lambda number: {"x-match": "any", "id": number, "other": number},
    }
    counts = []
    for bindings in (100, 400, 1600):
        index: HeadersIndex[int] = HeadersIndex()
        for number in range(bindings):
            index.add(number, tables[shape](number))
        looks.clear()
        for number in range(50):
            assert index.match({"kind": "order", "id": number, "other": number}) == [number]
        counts.append(len(looks))
    assert max(counts) <= 100 and max(counts) <= counts[0] + 1
