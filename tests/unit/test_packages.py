"""Each package comes from this project: others of the same name exist (`ha` on PyPI)."""

import importlib
from importlib.metadata import distribution, entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["qpidd_py", "ha", "client_lib"])
def test_packages_are_ours(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__file__ is not None
    installed = {Path(str(distribution("qpidd-py").locate_file(name))).resolve(), ROOT / name}
    assert Path(package.__file__).resolve().parent in installed
    assert (Path(package.__file__).parent / "py.typed").exists()


def test_programs_and_the_plug_in_are_declared() -> None:
    ours = {point.name: point for point in distribution("qpidd-py").entry_points}
    assert {"qpidd", "qpid-ha", "qpid-cluster", "qpid-config", "ha"} <= ours.keys()
    plugin = next(point for point in entry_points(group="qpidd.plugins") if point.name == "ha")
    assert plugin.value == "ha.plugin:load"


def test_folders_without_packages_stay_without() -> None:
    assert not list((ROOT / "config").glob("**/__init__.py"))
