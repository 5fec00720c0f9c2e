"""Manual pages: the shipped files are those of the parsers, have every option, and troff finds nothing wrong."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.packaging.test_install import PROGRAMS
from tests.support.system import needs
from tools.docs.manpages import files
from tools.programs import programs

SHIPPED = Path(__file__).resolve().parents[2] / "packaging/man"
PAGES = files()


def test_shipped_files_are_up_to_date() -> None:
    shipped = {path.name: path.read_text() for path in SHIPPED.iterdir()}
    assert shipped == PAGES, "options have changed: run `make man`"


def test_every_program_has_a_page() -> None:
    assert {name.rpartition(".")[0] for name in PAGES} == set(PROGRAMS)


@pytest.mark.parametrize("name", PAGES)
def test_every_option_of_help_is_there(name: str) -> None:
    program = programs()[name.rpartition(".")[0]]
    helps = [program.general.format_help(), *(command.parser.format_help() for command in program.commands)]
    options = {option for text in helps for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)} - {"--help"}
    plain = PAGES[name].replace("\\-", "-")
    assert options and {option for option in options if option not in plain} == set()


@needs("/usr/bin/groff")
@pytest.mark.parametrize("name", PAGES)
def test_troff_finds_nothing_wrong(name: str) -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-z"]
    done = subprocess.run(command, input=PAGES[name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
