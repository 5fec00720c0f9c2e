"""Writes the files: `python -m tools.completion DIRECTORY`."""

import sys
from pathlib import Path

from tools.completion.programs import all_programs
from tools.completion.shells import bash, zsh


def files() -> dict[str, str]:
    """Path below the directory, and what belongs into it."""
    found = {}
    for program in all_programs():
        found[f"bash/{program.name}"] = bash(program)
        found[f"zsh/_{program.name}"] = zsh(program)
    return found


def main() -> int:
    for name, text in files().items():
        file = Path(sys.argv[1], name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
