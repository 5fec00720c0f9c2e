"""What `lint-imports` refuses by the list of what each room of `ha` may import."""

from configparser import ConfigParser
from pathlib import Path

import pytest
from grimp import ImportGraph

from tools.import_rules import AllowedContract

ROOT = Path(__file__).resolve().parents[2]


def kept(*rooms: str, **imports: str) -> bool:
    """Of a graph with modules a.x, a.y.z and others, in which each name (`_` is a dot) imports one module."""
    graph = ImportGraph()
    for importer, imported in imports.items():
        graph.add_import(importer=importer.replace("_", "."), imported=imported)
    for module in ("a", "a.y"):
        graph.add_module(module)
    return AllowedContract("rooms", {}, {"rooms": list(rooms)}).check(graph, False).kept


def test_a_room_may_import_itself_the_standard_library_and_what_is_listed() -> None:
    assert kept("a.y: b.c", a_y_z="b.c.d")
    assert kept("a.y:", a_y_z="a.y.w") and kept("a.y:", a_y_z="socket")


@pytest.mark.parametrize("imported", ["a.x", "b.cd", "b", "yaml"])
def test_anything_else_is_refused(imported: str) -> None:
    assert not kept("a.y: b.c", a_y_z=imported)


def test_a_whole_package_stands_for_its_first_file() -> None:
    assert kept("a.y: b", a_y_z="b") and not kept("a.y: b", a_y_z="b.c")


def test_every_room_of_ha_has_its_list() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = {
        line.partition(":")[0] for line in config["importlinter:contract:ha-allowed"]["rooms"].split("\n") if line
    }
    rooms = {
        f"ha.{path.stem}" for path in (ROOT / "ha").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert listed == rooms - {"ha.__init__"}
