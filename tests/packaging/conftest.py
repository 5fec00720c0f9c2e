"""The installation, made once for all tests here: as a tree below a DESTDIR, as a tarball, and on a machine."""

import subprocess
from pathlib import Path

import pytest

from tests.pacemaker.lab.package import QUICKLY, interpreter
from tests.packaging.machine import Machine

ROOT = Path(__file__).resolve().parents[2]
CLEAN = ("env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "-u", "DESTDIR", "-u", "PREFIX")
BUILD_TIME = 900.0  # seconds; the core is compiled and pip fetches what the broker needs


def make(*words: str) -> str:
    """What `make` prints; with the settings of a person who calls it, not of the make that runs the tests."""
    done = subprocess.run(
        [*CLEAN, "make", "-C", str(ROOT), "--no-print-directory", *words, f"INSTALL_PYTHON={interpreter()}"],
        capture_output=True, text=True, env=QUICKLY, timeout=BUILD_TIME, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"make {' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DESTDIR of an installation."""
    directory = tmp_path_factory.mktemp("destdir")
    make("install", f"DESTDIR={directory}")
    return directory


@pytest.fixture(scope="session")
def package() -> Path:
    """The tarball that `make package` names on its last line."""
    return ROOT / make("package").split()[-1]


@pytest.fixture
def machine(tmp_path: Path, package: Path) -> Machine:
    place = tmp_path / "machine"
    place.mkdir()
    found = Machine(place, package)
    if reason := found.why_not():
        pytest.skip(f"no machine in namespaces (root and overlayfs are wanted): {reason}")
    return found
