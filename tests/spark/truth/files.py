"""What happens to log files before somebody reads them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeVar

from tests.spark.truth.world import Files

T = TypeVar("T")


def rotated(files: Files, name: str, at: int) -> Files:
    """The first `at` lines as `NAME.1`."""
    return {**files, f"{name}.1": files[name][:at], name: files[name][at:]}


def torn(files: Files, name: str, octets: int = 20) -> Files:
    """The last line ends in its middle."""
    return {**files, name: [*files[name][:-1], files[name][-1][:octets]]}


def without(files: Files, prefix: str) -> Files:
    return {name: lines for name, lines in files.items() if not name.startswith(prefix)}


def shuffled(files: Files, seed: int, lines_too: bool = False) -> Files:
    """The files in another order; of JSON files the lines, too."""
    chance = random.Random(seed)
    names = list(files)
    chance.shuffle(names)
    return {name: _shuffled(files[name], chance) if lines_too and ".jsonl" in name else files[name] for name in names}


def _shuffled(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return chance.sample(lines, len(lines))


def thinned(files: Mapping[str, list[T]], seed: int, share: float) -> dict[str, list[T]]:
    """Without a share of the lines, or rows."""
    chance = random.Random(seed)
    return {name: [line for line in lines if chance.random() >= share] for name, lines in files.items()}
