"""Shell completion: the shipped files are those of the parsers, and a real shell suggests what they have."""

import os
import pty
import select
import subprocess
from pathlib import Path

import pytest

from tests.support.system import needs
from tests.support.wait import wait_for
from tools.completion.__main__ import files
from tools.completion.model import Option, Place, Program, Value
from tools.completion.programs import all_programs

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "packaging/completion"

# What bash does at a Tab: it sets these variables and calls the function that `complete` named.
TAB = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
function=$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def suggested(*words: str) -> list[str]:
    """What bash suggests for the last of these words."""
    file = SHIPPED / "bash" / words[0]
    done = subprocess.run(
        ["bash", "--norc", "-c", TAB, "bash", str(file), *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_shipped_files_are_up_to_date() -> None:
    shipped = {str(path.relative_to(SHIPPED)): path.read_text() for path in SHIPPED.rglob("*") if path.is_file()}
    assert shipped == files(), "options have changed: run `make completion`"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("qpid-ha st", ["status"]),
        ("qpid-ha -b node1:5672 st", ["status"]),
        ("qpid-ha -b st", []),  # an address
        ("qpid-ha status --expect re", ["ready", "recovering", "recovering-journal"]),
        ("qpid-ha --expect active status --is", ["--is-primary"]),
        ("qpid-ha ping --is", []),
        ("qpid-ha promote --fo", ["--force"]),
        ("qpid-ha member ", ["list", "add", "remove"]),
        ("qpid-ha salvage re", ["restore"]),
        ("qpid-ha status --config pyproj", ["pyproject.toml"]),
        ("qpid-config add q", ["queue"]),
        ("qpid-config add exchange ", ["direct", "fanout", "headers", "topic"]),
        ("qpid-config add exchange topic ", []),
        ("qpid-config add queue x --limit-policy r", ["reject", "ring"]),
        ("qpid-config --durable del ", ["connection", "exchange", "queue"]),
        ("qpid-cluster ki", ["kill"]),
        ("qpid-cluster kill --ho", ["--hold"]),
        ("qpid-cluster render --for pace", ["pacemaker"]),
        ("qpid-cluster render pyproj", ["pyproject.toml"]),
        ("qpidd --ha-safety ", ["auto", "manager", "availability", "quorum"]),
        ("qpidd --ha-cluster ", ["yes", "no"]),
        ("qpidd --ha-cluster --ha-replicate a", ["all"]),
        ("qpidd --ha-brokers", ["--ha-brokers-url"]),
        ("qpidd --config pyproj", ["pyproject.toml"]),
        ("qpidd --port ", []),
        ("qpid-send --content-s", ["--content-string", "--content-size", "--content-stdin"]),
        ("qpid-send -a q --event-log pyproj", ["pyproject.toml"]),
        ("qpid-send --durable ", ["yes", "no"]),
        ("qpid-send --durable --tt", ["--ttl"]),
        ("qpid-receive -a ", []),
        ("qpid-receive --print-headers ", ["yes", "no"]),
        ("qpid-receive --log-enable w", ["warning+"]),
        ("qpid-receive --check", ["--check-redelivered"]),
        ("failover-report re", ["report"]),
        ("failover-report report --engine ", ["auto", "spark", "duckdb"]),
        ("failover-report report ruff.toml pyproj", ["pyproject.toml"]),
        ("failover-report report ruff.toml -o pyproj", ["pyproject.toml"]),
        ("failover-report check --max-un", ["--max-unaccounted", "--max-unexpected", "--max-unmarked"]),
        ("failover-report --no-progress wat", ["watch"]),
        ("failover-report watch --no-progress pyproj", ["pyproject.toml"]),
        ("failover-report explain pyproject.toml msg --th", ["--threads"]),
    ],
)
def test_bash_suggests(line: str, wanted: list[str]) -> None:
    assert sorted(suggested(*line.split(" "))) == sorted(wanted)


@pytest.mark.parametrize("program", all_programs(), ids=lambda program: program.name)
def test_bash_knows_every_option_at_every_place(program: Program) -> None:
    for path, place in program.places.items():
        wanted = {name for option in place.options for name in option.names}
        assert set(suggested(program.name, *path, "-")) == wanted, path


@needs("zsh")
@pytest.mark.parametrize("program", all_programs(), ids=lambda program: program.name)
def test_zsh_files_are_zsh(program: Program) -> None:
    subprocess.run(["zsh", "-n", str(SHIPPED / "zsh" / f"_{program.name}")], check=True)


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self.said = ""

    def write(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read_until(self, text: str, timeout: float = 20.0) -> None:
        def come() -> bool:
            if select.select([self._ours], [], [], 0.05)[0]:
                self.said += os.read(self._ours, 4096).decode(errors="replace")
            return text in self.said

        wait_for(come, timeout, lambda: f"{text!r} in {self.said!r}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@needs("zsh")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("qpid-ha -b node1 stat", "qpid-ha -b node1 status "),
        ("qpid-ha status --expect rea", "qpid-ha status --expect ready "),
        ("qpid-config add exch", "qpid-config add exchange "),
        ("qpidd --ha-brok", "qpidd --ha-brokers-url "),
        ("qpid-cluster kill --ho", "qpid-cluster kill --hold "),
        ("qpid-receive -a q --igno", "qpid-receive -a q --ignore-duplicates "),
        ("qpid-send -a q --log-enable not", "qpid-send -a q --log-enable notice+ "),
        ("failover-report che", "failover-report check "),
    ],
)
def test_zsh_completes(typed: str, completed: str) -> None:
    """In a terminal: the one possibility is written out when Tab is struck."""
    terminal = Terminal("env", "TERM=dumb", "zsh", "-f", "-i")
    try:
        terminal.write(f"unsetopt zle_bracketed_paste; fpath=({SHIPPED / 'zsh'} $fpath); PS1='> '\n")
        terminal.write("autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word; echo rea''dy\n")
        terminal.read_until("ready")
        terminal.write(f"echo {typed}\t'. '\n".replace("echo ", "", 1).replace("'. '", ""))
        terminal.read_until(completed)
    finally:
        terminal.close()


def test_option_that_means_two_things_is_refused() -> None:
    """The functions look at the word before the cursor only; that must be enough."""
    one, other = Option(("--to",), "", Value.FILE), Option(("--to",), "", Value.OTHER)
    with pytest.raises(ValueError, match="--to takes"):
        Program("x", {(): Place((one,)), ("a",): Place((other,))}).options_with(Value.FILE)
