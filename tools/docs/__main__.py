"""Writes the manual pages: `python -m tools.docs DIRECTORY`."""

import argparse
import sys
from pathlib import Path

from tools.docs.manpages import files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Write the manual pages.")
    parser.add_argument("directory", type=Path, help="it is made if it is not there")
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
