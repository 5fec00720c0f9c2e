"""Runs the fuzzers for a given time, one after the other; see the package.

Exit codes: 0 nothing was found, 1 something was (it is printed, with the line that repeats it), 2 wrong command line.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

REPORT: Final = 10.0
"""Seconds between two lines on the progress."""
ROUND: Final = 200
"""Inputs after which a scene is judged as a whole."""


def run(target: Target, seconds: float, seed: int, only: int | None = None) -> tuple[int, bool]:
    """How many inputs were tried, and whether none was wrong.  `only`: the number of one input."""
    end, said, number = time.monotonic() + seconds, time.monotonic(), only or 0
    with tempfile.TemporaryDirectory() as folder, target.scene(Path(folder)) as scene:
        while time.monotonic() < end:
            try:
                scene.check(target.make(Random(f"{seed}:{number}")))
                if number % ROUND == ROUND - 1 or only is not None:
                    scene.finish()
            except Exception:
                print(traceback.format_exc(), file=sys.stderr)
                print(f"{target.name}: python -m tests.fuzz --only {target.name} --seed {seed} --number {number}")
                return number, False
            number += 1
            if only is not None:
                break
            if time.monotonic() - said > REPORT:
                said = time.monotonic()
                print(f"{target.name}: {number} inputs, {end - said:.0f} s left", flush=True)
        scene.finish()
    return number, True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all of them together (%(default)s)")
    parser.add_argument("--only", choices=TARGETS, help="one fuzzer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, help="one input, of --only and --seed")
    options = parser.parse_args()
    chosen = [TARGETS[options.only]] if options.only else list(TARGETS.values())
    right = True
    for target in chosen:
        number, fine = run(target, options.seconds / len(chosen), options.seed, options.number)
        print(f"{target.name}: {number} inputs, {'nothing' if fine else 'something'} found", flush=True)
        right &= fine
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
