"""Every `failover-report` of docs/how-to/read-a-report.md and spark_jobs/README.md is a command that the program takes;
those about logs that are in this repository run, and print what is printed there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from spark_jobs.cli.main import PROGRAM, VERBS, make_parser
from spark_jobs.workspace import TABLES
from tests.spark.cli_documents import Program
from tests.support.documents import ROOT, blocks, commands

PAGE = ROOT / "docs/how-to/read-a-report.md"
COMMAND = re.compile(rf"^ {{4}}(?:spark-submit .*main\.py|{PROGRAM}) (.*)$")


class Documented(NamedTuple):
    page: str
    words: list[str]
    said: list[str]


def documented() -> Iterator[Documented]:
    for block in blocks(PAGE):
        for command in commands(block):
            if command.line.startswith(f"{PROGRAM} "):
                yield Documented(PAGE.stem, shlex.split(command.line)[1:], command.said)
    for line in (ROOT / "spark_jobs/README.md").read_text().replace("\\\n", " ").splitlines():
        if found := COMMAND.match(line):
            yield Documented("spark_jobs", shlex.split(found[1], comments=True), [])


ALL = list(documented())


@pytest.mark.parametrize("one", ALL, ids=lambda one: " ".join(one.words))
def test_command_is_taken(one: Documented) -> None:
    make_parser().parse_args(one.words)


def test_every_verb_is_documented() -> None:
    assert {one.words[0] for one in ALL} == set(VERBS)


def test_tables_that_are_documented_exist() -> None:
    section = (ROOT / "spark_jobs/README.md").read_text().partition("## 4. Tables")[2].partition("## 5.")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named <= TABLES and {"events_raw", "incidents", "message_verdicts"} <= named


def fits(line: str, said: str) -> bool:
    """What ends in `...` is the beginning."""
    return said.startswith(line.removesuffix("...").rstrip()) if line.endswith("...") else line == said


def test_commands_of_the_page_print_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    program = Program(capsys)
    ours = [one for one in ALL if one.page == PAGE.stem and "demo-run" not in " ".join(one.words)]
    assert [one.words[0] for one in ours] == ["report", "explain", "diff", "check"]
    for one in ours:
        said = program(*one.words)
        assert said.err == "" and said.code == (1 if any(": breach" in line for line in one.said) else 0)
        lines = said.out.splitlines()
        if one.said:
            assert len(lines) == len(one.said), said.out
        for wanted, line in zip(one.said, lines, strict=False):
            assert fits(wanted, line), (wanted, line)
