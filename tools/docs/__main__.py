"""Writes the manual pages: `python -m tools.docs DIRECTORY`."""

import sys
from pathlib import Path

from tools.docs.manpages import files


def main() -> int:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
