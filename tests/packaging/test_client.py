"""`qpidd-client`: the client library in an environment without the broker and without a compiler."""

import configparser
import os
import subprocess
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import BUILD_TIME, ROOT
from tests.support.process import BrokerProcess

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
PROJECT = tomllib.loads((ROOT / "packaging/client/pyproject.toml").read_text())["project"]
PROGRAM = """
import sys
import client_lib, qpidd_client, qpidd_client.aio
import qpidd_client.urls.rabbit as rabbit

assert qpidd_client is client_lib and qpidd_client.aio is client_lib.aio
assert sys.modules["client_lib.urls.rabbit"] is rabbit is client_lib.urls.rabbit
assert client_lib.aio.__spec__.name == client_lib.aio.__name__ == "client_lib.aio"
with qpidd_client.Connection(sys.argv[1]) as connection:
    session = connection.session()
    session.declare_queue("q")
    session.sender("q").send(client_lib.Message({"id": 1}))
    message = session.receiver("q").fetch(20)
    session.acknowledge(message)
    print(message.content["id"])
"""


@pytest.fixture(scope="module")
def wheel(package: Path) -> Path:
    """Built together with the tarball."""
    return package.with_name(f"qpidd_client-{SETUP['metadata']['version']}-py3-none-any.whl")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new one, with the wheel and what it asks for."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=True)
    run(place / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return place


def run(program: Path, *words: str) -> str:
    """What it prints.  The tools to compile with are not found."""
    hidden = {"PATH": str(program.parent), "CC": "/bin/false", "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, env={**os.environ, **hidden}, cwd="/", timeout=BUILD_TIME
    )
    assert done.returncode == 0, f"{program} {' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_it_holds_the_client_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "client_lib").rglob("*.py")}
    assert {name for name in names if ".dist-info/" not in name} == {
        *modules, "client_lib/py.typed", "qpidd_client.py",
    }  # fmt: skip


def test_it_asks_for_what_the_extra_asks_for() -> None:
    assert PROJECT["dependencies"] == SETUP["options.extras_require"]["client"].split("\n")[1:]
    assert PROJECT["requires-python"] == SETUP["options"]["python_requires"]


def test_it_brings_pika_only(environment: Path) -> None:
    packages = {path.name.partition("-")[0] for path in environment.glob("lib/python3*/site-packages/*.dist-info")}
    assert packages - {"pip", "setuptools"} == {"qpidd_client", "pika"}


def test_a_program_with_it(environment: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert run(environment / "bin/python", "-c", PROGRAM, broker.address) == "1\n"
        url = ("-b", broker.address)
        run(environment / "bin/qpid-send", *url, "-a", "q", "--content-string", "hello")
        assert "hello" in run(environment / "bin/qpid-receive", *url, "-a", "q", "-m", "1")
