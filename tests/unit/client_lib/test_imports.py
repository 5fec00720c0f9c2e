"""No module of the library needs one that needs it.

An object names what it was made by for the application (`session.connection`, `sender.session`): these annotations are
the only imports that run back, and only type checkers follow them."""

import graphlib

import grimp
import pytest

BACK_REFERENCES = [
    ("session", "connection"),
    ("sender", "session"),
    ("receiver", "session"),
    ("aio.session", "aio.connection"),
    ("aio.sender", "aio.session"),
    ("aio.receiver", "aio.session"),
    ("failover.channel", "failover.connection"),
]


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """By module, those that it imports, also for type checkers only."""
    graph = grimp.build_graph("client_lib", cache_dir=None)
    for importer, imported in BACK_REFERENCES:
        graph.remove_import(importer=f"client_lib.{importer}", imported=f"client_lib.{imported}")
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_circles(imports: dict[str, set[str]]) -> None:
    assert len(list(graphlib.TopologicalSorter(imports).static_order())) == len(imports) > 60


def test_a_circle_is_found(imports: dict[str, set[str]]) -> None:
    wrong = {**imports, "client_lib.message": {*imports["client_lib.message"], "client_lib.errors"}}
    with pytest.raises(graphlib.CycleError):
        list(graphlib.TopologicalSorter(wrong).static_order())


def test_back_references_are_for_type_checkers() -> None:
    graph = grimp.build_graph("client_lib", exclude_type_checking_imports=True, cache_dir=None)
    for importer, imported in BACK_REFERENCES:
        assert not graph.direct_import_exists(importer=f"client_lib.{importer}", imported=f"client_lib.{imported}")
