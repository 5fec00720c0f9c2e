"""Explores the spaces of `spaces.py`, or one mistake in its own.

python -m tests.model                                every space
python -m tests.model --space promotions             one of them
python -m tests.model --mistake grant-unwritten      the shortest schedule that shows it
"""

from __future__ import annotations

import argparse
import sys

from tests.model.bounds import Bounds
from tests.model.explorer import Result, explore
from tests.model.mistakes import MISTAKES
from tests.model.spaces import SPACES

EVERY = 20.0
"""Seconds between two lines of progress."""


def main() -> int:
    options = _parser().parse_args()
    if options.mistake:
        mistake = MISTAKES[options.mistake]
        with mistake.apply():
            return 0 if _explored(options.mistake, mistake.bounds, options.most).fault else 1
    spaces = {options.space: SPACES[options.space]} if options.space else SPACES
    results = [_explored(name, bounds, options.most) for name, bounds in spaces.items()]
    return 1 if any(result.fault for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--space", default="", choices=("", *SPACES))
    parser.add_argument("--mistake", default="", choices=("", *MISTAKES))
    parser.add_argument("--most", type=int, default=10_000_000, help="states, at most; then it is not complete")
    return parser


def _explored(name: str, bounds: Bounds, most: int) -> Result:
    told = [0.0]

    def tell(result: Result, waiting: int) -> None:
        if result.seconds - told[0] >= EVERY:
            told[0] = result.seconds
            print(f"{name}: {result.text()}, {waiting:,} states wait", flush=True)

    result = explore(*bounds.begin(), most, tell)
    print(f"{name}: {result.text()}{'' if result.complete else ' (NOT COMPLETE)'}: {result.fault or 'nothing broken'}")
    for number, label in enumerate((*(words.split() for words in bounds.prefix), *result.schedule), 1):
        if result.fault:
            print(f"  {number:3}  {' '.join(label)}")
    sys.stdout.flush()
    return result


if __name__ == "__main__":
    sys.exit(main())
