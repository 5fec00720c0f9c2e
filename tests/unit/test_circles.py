"""No module of a package needs one that needs it, not even for its types."""

import graphlib

import grimp
import pytest

PACKAGES = ("qpidd_py", "ha", "client_lib", "spark_jobs")


def imports_of(package: str) -> dict[str, set[str]]:
    """By module, those that it imports, also for type checkers only."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circles(package: str) -> None:
    imports = imports_of(package)
    assert len(list(graphlib.TopologicalSorter(imports).static_order())) == len(imports) > 60


def test_a_circle_is_found() -> None:
    imports = imports_of("qpidd_py")
    wrong = {**imports, "qpidd_py.errors": {*imports["qpidd_py.errors"], "qpidd_py.broker.queue"}}
    with pytest.raises(graphlib.CycleError):
        list(graphlib.TopologicalSorter(wrong).static_order())
