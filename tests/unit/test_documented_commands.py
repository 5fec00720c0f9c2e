"""Every command line on our pages is one that the program takes; pages and links exist; the tables are complete."""

import re
import shlex
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, PluginError

from ha.qpid_ha import parser as cli_parser
from qpidd_py.cli.target import UsageError
from qpidd_py.config import GROUPS
from qpidd_py.errors import ConfigError
from qpidd_py.options import load
from qpidd_py.plugins import load_plugins
from spark_jobs.schema import BROKER_KINDS
from tests.support.documents import PAGES, ROOT, Block, all_blocks, blocks, commands
from tools.docs.generated import GENERATED
from tools.docs.hook import ELSEWHERE, MARK, loads, on_page_markdown
from tools.programs import programs

LANGUAGES = {"console", "sh", "python", "text", "java", "javascript", "go"}
PROGRAMS = programs()
SHELL = re.compile(r"&&|\|\||[;|]|\$\(|\)|^do |^done")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def words_of(line: str) -> list[list[str]]:
    """The commands of a line of shell, as words; variables stand for one word."""
    quoted = re.sub(r"'[^']*'", lambda found: found[0].replace(";", "\0").replace("|", "\1").replace(")", "\2"), line)
    parts = [part.replace("\0", ";").replace("\1", "|").replace("\2", ")") for part in SHELL.split(quoted)]
    return [words for part in parts if (words := shlex.split(part, comments=True))]


def our_commands() -> list[tuple[str, list[str]]]:
    found = [
        (name_of(block.page), words)
        for block in all_blocks("console", "sh")
        for command in commands(block)
        for words in words_of(command.line)
    ]
    return list({(page, *words): (page, words) for page, words in found}.values())


OPTIONS = ("$HA", "$FILES", "$ME")
"""Variables of the pages that hold several options."""


def take(words: list[str]) -> None:
    """Raises SystemExit or an error of the program, when its parser does not take the words."""
    name, arguments = words[0], [word for word in words[1:] if word not in OPTIONS]
    if name == "qpidd":
        load([*GROUPS, *(group for plugin in load_plugins() for group in plugin.option_groups)], arguments, {}, "/none")
    elif name == "qpid-ha":
        command, rest = cli_parser.find_command(arguments)
        cli_parser.command_parser(command).parse_args(rest)
    else:
        PROGRAMS[name].general.parse_args(arguments)


OURS = [(page, words) for page, words in our_commands() if words[0] in PROGRAMS]
MAKE = [(page, words) for page, words in our_commands() if words[0] == "make"]


@pytest.mark.parametrize(("page", "words"), [pytest.param(*one, id=f"{one[0]}: {' '.join(one[1])}") for one in OURS])
def test_command_is_taken(page: str, words: list[str]) -> None:
    take(words)


def test_there_are_commands_of_each_program() -> None:
    assert {words[0] for _, words in OURS} == set(PROGRAMS)
    assert len(OURS) > 60


REMOTE = re.compile(r"-b (?!127\.)[\w.-]+:\d+")
LOGIN = re.compile(r"-b \S+@|--config|QPID_CONFIG=")


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_commands_for_another_machine_have_a_login(page: Path) -> None:
    """`guest` is refused there: on the line itself, or above it on the page."""
    text = "\n".join(block.text for block in blocks(page) if block.language in ("console", "sh"))
    for found in re.finditer(r"^.*\bqpid-(?:ha|config) .*$", text, re.MULTILINE):
        if REMOTE.search(found[0]):
            assert LOGIN.search(text[: found.end()]), found[0]


PASSWORD = re.compile(r"-b\s+[^\s@/]+/[^\s@]+@|--ha-password[ =]|password:")


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_no_command_line_has_a_password(page: Path) -> None:
    """Every user of a machine can read command lines."""
    for block in blocks(page):
        assert block.language not in ("console", "sh") or not PASSWORD.search(block.text), PASSWORD.search(block.text)


def test_a_password_would_be_noticed() -> None:
    assert PASSWORD.search("qpid-ha promote -b ha/secret@node1:5672") and PASSWORD.search("qpidd --ha-password secret")
    assert not PASSWORD.search("qpid-ha promote -b ha@node1:5672 --password-file ha-password")


def test_each_command_of_qpid_ha_that_a_person_types_is_shown() -> None:
    shown = {cli_parser.find_command(words[1:])[0] for _, words in OURS if words[0] == "qpid-ha"}
    pages = (ROOT / "docs/reference/qpid-ha.md").read_text()
    assert {name for name in cli_parser.COMMANDS if name not in shown and f"qpid-ha {name}" not in pages} == set()


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {word for _, words in MAKE for word in words[1:] if "=" not in word}
    assert {"install", "build", "docs", "simulate"} <= wanted <= targets
    for target in re.findall(r"`make ([a-z-]+)", "".join(page.read_text() for page in PAGES)):
        assert target in targets


def test_a_wrong_option_is_noticed() -> None:
    for line in ("qpid-ha status --is-primry", "qpidd --data-dri x", "qpid-send -a orders --count 5"):
        with pytest.raises((SystemExit, ConfigError, UsageError)):
            take(shlex.split(line))


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_every_block_says_what_it_is(page: Path) -> None:
    """And no command of ours hides in a block that is not read."""
    assert {block.language for block in blocks(page)} <= LANGUAGES
    if name_of(page) != "docs/reference/qpid-ha.md" and name_of(page) != "docs/reference/qpid-config.md":
        assert not [block for block in blocks(page) if block.language == "text" and hides(block)]


def hides(block: Block) -> bool:
    return any(line.split(" ")[0] in PROGRAMS for line in block.text.splitlines())


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_of_pages_in_the_root_lead_somewhere(page: str) -> None:
    """Those of docs/ are checked by `make docs`."""
    made = {f"docs/{name}" for name in ELSEWHERE}
    for link in LINK.findall((ROOT / page).read_text()):
        assert (ROOT / link).exists() or link in made, link


def test_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8000


def test_everything_generated_is_used() -> None:
    texts = [page.read_text() for page in PAGES]
    used = {name for text in texts for name in MARK.findall(text)} | {"options of failover-report"}
    assert used == set(GENERATED)


def test_every_kind_of_event_is_explained() -> None:
    text = (ROOT / "docs/reference/events.md").read_text().partition("## Kinds of brokers")[2]
    named = {kind for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for kind in re.findall(r"`(\w+)`", row)}
    assert named == BROKER_KINDS


def test_every_management_method_is_explained() -> None:
    """Found in the tables of the sources."""
    sources = [*(ROOT / "ha").rglob("*.py"), *(ROOT / "qpidd_py/management").glob("*.py")]
    pattern = r'"((?:ha|broker|queue|exchange|binding|session)\.\w+)":'
    found = {name for path in sources for name in re.findall(pattern, path.read_text())}
    text = (ROOT / "docs/reference/management.md").read_text()
    assert len(found) > 12
    assert {method for method in found if f"`{method}`" not in text} == set()


QUOTED = ("There is no primary", "A promotion is refused", "Confirms wait", "Log lines")
"""Sections of the runbook whose tables begin with what a broker says."""


def test_the_runbook_quotes_what_brokers_say() -> None:
    """Each piece between values stands in a source; a changed message has to be changed there, too."""
    found = [block for folder in ("ha", "qpidd_py") for block in (ROOT / folder).rglob("*.py")]
    sources = "".join(path.read_text() for path in found)
    text = (ROOT / "docs/runbook.md").read_text()
    sections = [part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(QUOTED)]
    assert len(sections) == len(QUOTED)
    quotes = [
        quote
        for part in sections
        for row in re.findall(r"^\| (`.+?) \|", part, re.MULTILINE)
        for quote in row.split("`, `")
    ]
    pieces = {
        piece.strip(" :;`(),") for quote in quotes for piece in re.split(r"NODE|\b[NMK]\b|\.\.\.|'guest'|;|: ", quote)
    }
    assert len(pieces) > 40
    assert {piece for piece in pieces if len(piece) > 3 and piece not in sources} == set()


def test_a_page_that_needs_a_network_is_noticed() -> None:
    assert loads('<script defer src="https://example.com/a.js"></script>') == ["https://example.com/a.js"]
    assert loads("<link rel=stylesheet href=//example.com/a.css>") == ["//example.com/a.css"]
    assert loads('<a href="https://example.com">x</a><script src="assets/a.js"></script>') == []


def test_an_unknown_placeholder_is_refused() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="x.md"))
    with pytest.raises(PluginError, match=r"x\.md: nothing is generated under the name 'nonsense'"):
        on_page_markdown("a\n<!-- generated: nonsense -->\nb", page)
    assert "| `joining` |" in on_page_markdown("<!-- generated: states -->", page)


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """With the settings of the site, on a page of its own."""
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs/index.md"
    where: dict = {"docs_dir": str(page.parent), "site_dir": str(tmp_path / "site"), "nav": ["index.md"], "hooks": []}
    for text, fails in (("[x](#y)\n\n# y\n", False), ("[x](nowhere.md)", True), ("[x](#nowhere)", True)):
        page.write_text(text)
        config = load_config(str(ROOT / "mkdocs.yml"), strict=True, **where)
        with pytest.raises(Abort) if fails else nullcontext():
            build(config)


def test_make_docs_counts_warnings() -> None:
    """With --quiet mkdocs does not see the warnings that --strict is about."""
    recipe = (ROOT / "Makefile").read_text().partition("\ndocs: ")[2].partition("\n\n")[0]
    assert "build --strict" in recipe and "quiet" not in recipe
