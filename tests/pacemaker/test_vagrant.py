"""vagrant/: the Vagrantfile is valid, says what is missing, and its scripts are those that the lab runs."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.pacemaker.lab.lab import BOOT_SCRIPTS, FIRST_SCRIPTS, LOAD_SCRIPT
from tests.pacemaker.lab.names import PROJECT, PROVISION, node_names
from tests.support.system import needs

VAGRANT = PROJECT / "vagrant"
VALIDATION = 120.0
"""Seconds; it takes 3 to 6."""

needs_vagrant = needs("vagrant")


def validate(directory: Path, rendered: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Nothing is written to the tree or to the user's home."""
    places = {"VAGRANT_CWD": VAGRANT, "VAGRANT_HOME": directory / "home", "VAGRANT_DOTFILE_PATH": directory / "dot"}
    environment = os.environ | {name: str(path) for name, path in places.items()}
    environment |= {"VAGRANT_CHECKPOINT_DISABLE": "1"} | ({"QPID_RENDERED": str(rendered)} if rendered else {})
    words = ["vagrant", "validate", "--ignore-provider"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=VALIDATION, cwd=directory)


@needs_vagrant
def test_the_vagrantfile_is_valid_with_the_shipped_example(tmp_path):
    done = validate(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validated successfully" in done.stdout
    assert all(f"{name}: " in done.stdout for name in node_names(3))


@needs_vagrant
def test_a_missing_configuration_is_named(tmp_path):
    done = validate(tmp_path, tmp_path / "nowhere")
    assert done.returncode != 0
    assert "qpid-cluster render" in done.stdout + done.stderr


def test_the_lab_runs_every_script_of_vagrant_in_its_order():
    numbered = sorted(path.name for path in PROVISION.glob("[0-9]*.sh"))
    assert numbered == [*FIRST_SCRIPTS, *BOOT_SCRIPTS, LOAD_SCRIPT]
    text = (VAGRANT / "Vagrantfile").read_text()
    assert all(f'"{name.removesuffix(".sh")}"' in text for name in numbered)


@pytest.mark.parametrize("script", sorted(PROVISION.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(script):
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    assert script.name == "common.sh" or os.access(script, os.X_OK)


def test_a_script_without_configuration_says_what_to_do(tmp_path):
    environment = {"PATH": os.environ["PATH"], "PROJECT": str(tmp_path), "PROVISION_APT": "no"}
    script = str(PROVISION / FIRST_SCRIPTS[0])
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cluster.env" in done.stderr and "qpid-cluster render" in done.stderr
