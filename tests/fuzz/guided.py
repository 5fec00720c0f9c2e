"""Guided by coverage: Atheris draws, and keeps what reaches new lines of our code (in this process: no broker's).

    python -m tests.fuzz.guided [--seconds 600] [--only NAME]

A fuzzer makes its input from a random source (`target.py`).  Here that source is the octets that Atheris has chosen.
What is wrong is printed with its octets, and `--octets HEX` repeats it.  Exit codes: as `python -m tests.fuzz`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Final

GUIDED: Final = ("files", "journals", "urls", "frames")
"""Modules whose targets run our code in this process."""
LONGEST: Final = 2048
"""Octets of an input."""
INPUTS: Final = r"number_of_executed_units: *(\d+)"
COVERED: Final = r" cov: (\d+) "
"""What libFuzzer prints."""


class Drawn(Random):
    """Draws from octets; when they are used up, from a generator that they seed."""

    def __init__(self, octets: bytes) -> None:
        super().__init__(octets)
        self._octets, self._at = octets, 0

    def getrandbits(self, k: int, /) -> int:
        size = -(-k // 8)
        end = self._at + size
        if end > len(self._octets):
            return super().getrandbits(k)
        drawn = int.from_bytes(self._octets[self._at : end], "big")
        self._at = end
        return drawn >> (8 * size - k)

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)


def guided_targets() -> list[str]:
    from tests.fuzz import targets

    return [target.name for name in GUIDED for target in getattr(targets, name).TARGETS]


def judge(name: str, folder: Path) -> Callable[[bytes], None]:
    """Tries one input.  Raises what is wrong."""
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    scene = target.scene(folder).__enter__()  # libFuzzer ends the process; the folder is its parent's

    def check(octets: bytes) -> None:
        try:
            scene.check(target.make(Drawn(octets)))
        except Exception:
            print(f"{name}: python -m tests.fuzz.guided --only {name} --octets {octets.hex()}", file=sys.stderr)
            raise

    return check


def fuzz(name: str, seconds: float, folder: Path) -> None:
    """Does not return: ends the process with 0 if nothing was found."""
    import atheris

    with atheris.instrument_imports(include=["qpidd_py", "ha", "client_lib"]):
        check = judge(name, folder)
    words = [name, f"-max_total_time={seconds:.0f}", f"-max_len={LONGEST}", "-rss_limit_mb=0", "-timeout=60"]
    atheris.Setup([*words, f"-artifact_prefix={folder}/", "-print_final_stats=1"], check)
    atheris.Fuzz()


def run(name: str, seconds: float) -> bool:
    """Whether nothing was found.  libFuzzer ends its process, so it has one of its own, and our folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--only", name, "--seconds", str(seconds), "--folder", folder]
        command = [sys.executable, "-m", "tests.fuzz.guided", *words]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace")
    inputs, lines = (max(map(int, re.findall(what, ended.stderr)), default=0) for what in (INPUTS, COVERED))
    found = "something" if ended.returncode else "nothing"
    print(f"{name}: {inputs} inputs, {lines} edges reached, {found} found", flush=True)
    if ended.returncode:
        print(ended.stderr[-4000:], file=sys.stderr)
    return not ended.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all of them together (%(default)s)")
    parser.add_argument("--only", metavar="NAME", help="one fuzzer")
    parser.add_argument("--octets", type=bytes.fromhex, help="one input of --only, in hexadecimal")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:  # first: what was imported before Atheris looks is not seen by it
        fuzz(options.only, options.seconds, options.folder)
    names = guided_targets()
    if options.only not in (None, *names):
        parser.error(f"--only: found {options.only!r}, expected one of {', '.join(names)}")
    if options.octets is not None:
        with tempfile.TemporaryDirectory() as folder:
            judge(options.only, Path(folder))(options.octets)
        return 0
    if find_spec("atheris") is None:
        parser.error("Atheris is missing, which there is for Linux on x86-64: pip install atheris")
    names = [options.only] if options.only else names
    right = [run(name, options.seconds / len(names)) for name in names]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
