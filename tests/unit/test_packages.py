"""Each package comes from this project: others of the same name exist (`ha` on PyPI)."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import EntryPoint, distribution, entry_points
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


def program_points() -> list[EntryPoint]:
    """As setup.cfg has them; what is installed may be older."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options.entry_points"]["console_scripts"].split("\n")
    pairs = [line.split(" = ") for line in lines if line]
    return [EntryPoint(name, value, "console_scripts") for name, value in pairs]


@pytest.mark.parametrize("point", [pytest.param(point, id=point.name) for point in program_points()])
def test_every_program_tells_its_version(
    point: EntryPoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [point.name, "--version"])
    try:
        code = point.load()()
    except SystemExit as end:
        code = end.code
    assert (code or 0, capsys.readouterr().out) == (0, f"qpidd-py {distribution('qpidd-py').version}\n")


@pytest.mark.parametrize("name", ["send", "receive"])
@pytest.mark.parametrize("word", ["--help", "--version", "-a"])
def test_without_pika_the_client_tools_say_what_is_missing(name: str, word: str) -> None:
    without = (
        f"import sys; sys.modules['pika'] = None; from qpidd_py.cli.client_programs import {name}; sys.exit({name}())"
    )
    done = subprocess.run([sys.executable, "-c", without, word], capture_output=True, text=True, check=False, cwd=ROOT)
    text = f"qpid-{name}: the Python package pika is missing; `pip install pika` installs it\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


def test_without_its_packages_qpid_http_says_what_is_missing() -> None:
    for package in ("aiohttp", "pika"):
        without = (
            f"import sys; sys.modules[{package!r}] = None; from qpidd_py.http.main import main; sys.exit(main([]))"
        )
        done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False, cwd=ROOT)
        text = f"qpid-http: the Python package {package} is missing; `pip install {package}` installs it\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


def test_without_pika_qpid_shovel_says_what_is_missing() -> None:
    without = "import sys; sys.modules['pika'] = None; from qpidd_py.shovel.main import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False, cwd=ROOT)
    text = "qpid-shovel: the Python package pika is missing; `pip install pika` installs it\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


MODULE_OF = {"google-re2": "re2", "prometheus-client": "prometheus_client", "pyyaml": "yaml"}
EXTRA = {"qpidd_py/http/": {"aiohttp", "pika"}, "qpidd_py/shovel/": {"client_lib", "pika"}}
"""Folders that need more, which the extra `http` or `client` brings."""


def imports_of(node: ast.AST) -> Iterator[str]:
    """Top-level names that are imported when the module runs, also inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (name.name.partition(".")[0] for name in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module.partition(".")[0]
        yield from imports_of(child)


@pytest.mark.parametrize("package", ["qpidd_py", "ha"])
def test_what_the_broker_imports_is_what_an_installation_has(package: str) -> None:
    wanted = [text for text in distribution("qpidd-py").requires or () if "extra ==" not in text]
    names = [re.split(r"[^\w-]", text)[0].lower() for text in wanted]
    known = {*sys.stdlib_module_names, *(MODULE_OF.get(name, name) for name in names), "qpidd_py", "ha"}
    found = {
        (file.relative_to(ROOT).as_posix(), name)
        for file in sorted((ROOT / package).rglob("*.py"))
        for name in imports_of(ast.parse(file.read_text(encoding="utf-8")))
        if name not in known
        and not any(file.is_relative_to(ROOT / folder) and name in more for folder, more in EXTRA.items())
    }
    assert not found


def test_folders_without_packages_stay_without() -> None:
    assert not list((ROOT / "config").glob("**/__init__.py"))
