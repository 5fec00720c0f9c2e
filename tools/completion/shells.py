"""A program as a completion function of bash and of zsh; text in, text out.

Both walk over the words before the cursor in the same way: options are passed over, with the values that belong to
them; every other word leads to a place, and for a place that is not known only the options are.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping

from tools.completion.model import Option, Path, Program, Value

Words = Mapping[str, str]
"""Suggestions with their explanations."""

HEAD = "# {shell} completion of {name}; written by `make completion` from the program's own parser."

FILES = {
    "bash": 'compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return',
    "zsh": "_files; return",
}

BASH = """\
{head}
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} place="" words="" i
    COMPREPLY=()
    case $before in
{values}
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
{skipped}
        -*) ;;
        *) place="${{place:+$place }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    if [[ $word == -* ]]; then
        case $place in
{options}
        esac
    else
        case $place in
{words}
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}}
complete -F {function} {name}
"""

ZSH = """\
#compdef {name}
{head}
{function}() {{
    local place="" i
    local -a suggestions
    case $words[CURRENT-1] in
{values}
    esac
    for ((i = 2; i < CURRENT; i++)); do
        case $words[i] in
{skipped}
        -*) ;;
        *) place="${{place:+$place }}$words[i]" ;;
        esac
    done
    if [[ $PREFIX == -* ]]; then
        case $place in
{options}
        esac
        _describe -o option suggestions
    else
        case $place in
{words}
        esac
        _describe command suggestions
    fi
}}
{function} "$@"
"""


def bash(program: Program) -> str:
    return _fill(BASH, "bash", program, _bash_values(program), _bash_suggestions)


def zsh(program: Program) -> str:
    return _fill(ZSH, "zsh", program, _zsh_values(program), _zsh_suggestions)


def _fill(template: str, shell: str, program: Program, values: list[str], suggest: Callable[[Words], str]) -> str:
    places = sorted(program.places, key=lambda path: (-len(path), path))
    taking = [name for option in program.options_with(Value.WORD, Value.FILE, Value.OTHER) for name in option.names]
    options = [
        f"{_inside(path)}) {suggest(_described(program.places[path].options))} ;;"
        for path in _without_repeats(program, places)
    ]
    words = [
        f"{_exactly(path)}) {suggest(place.words)} ;;" if place.words else f"{_inside(path)}) {FILES[shell]} ;;"
        for path, place in program.places.items()
        if place.words or place.files
    ]
    return template.format(
        head=HEAD.format(shell=shell, name=program.name),
        function="_" + program.name.replace("-", "_"),
        name=program.name,
        values=_indented(values, 4),
        skipped=_indented([f"{' | '.join(taking)}) ((i++)) ;;"], 8),
        options=_indented(options, 8),
        words=_indented(words, 8),
    )


def _described(options: Iterable[Option]) -> Words:
    return {name: option.help for option in options for name in option.names}


def _without_repeats(program: Program, places: list[Path]) -> list[Path]:
    """A place whose options are those of the one above it needs no line of its own."""
    return [path for path in places if not path or program.places[path].options != program.places[path[:-1]].options]


def _inside(path: Path) -> str:
    """A pattern for the place and all below; the first of the list that fits is taken."""
    return f'"{" ".join(path)}"*' if path else "*"


def _exactly(path: Path) -> str:
    return f'"{" ".join(path)}"'


def _names(options: Iterable[Option]) -> str:
    return " | ".join(name for option in options for name in option.names)


# ---- bash


def _bash_values(program: Program) -> list[str]:
    lines = []
    for option in program.options_with(Value.WORD, Value.OPTIONAL):
        fill = f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(option.words)}" -- "$word")'
        unless = "[[ $word == -* ]] || " if option.value is Value.OPTIONAL else ""
        lines.append(f"{_names([option])}) {unless}{{ {fill}; return; }} ;;")
    if files := program.options_with(Value.FILE):
        lines.append(f"{_names(files)}) {FILES['bash']} ;;")
    if others := program.options_with(Value.OTHER):
        lines.append(f"{_names(others)}) return ;;")
    return lines


def _bash_suggestions(words: Words) -> str:
    return f'words="{" ".join(words)}"'


# ---- zsh


def _zsh_values(program: Program) -> list[str]:
    lines = []
    for option in program.options_with(Value.WORD, Value.OPTIONAL):
        unless = "[[ $PREFIX == -* ]] || " if option.value is Value.OPTIONAL else ""
        lines.append(f"{_names([option])}) {unless}{{ compadd -- {' '.join(option.words)}; return; }} ;;")
    if files := program.options_with(Value.FILE):
        lines.append(f"{_names(files)}) {FILES['zsh']} ;;")
    if others := program.options_with(Value.OTHER):
        lines.append(f"{_names(others)}) return ;;")
    return lines


def _zsh_suggestions(words: Words) -> str:
    described = [f"{word}:{text}" if text else word for word, text in words.items()]
    return f"suggestions=({' '.join(shlex.quote(text) for text in described)})"


def _indented(lines: Iterable[str], width: int) -> str:
    return "\n".join(" " * width + line for line in lines)
