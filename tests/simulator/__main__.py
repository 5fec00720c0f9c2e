"""Runs seeds: `python -m tests.simulator --seed N --verbose` prints what happens in one; `--seeds A:B` runs many."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from tests.simulator.mutants import MUTANTS
from tests.simulator.scheduler import Violation
from tests.simulator.simulation import Simulation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", default="0:1000", metavar="A:B", help="run A to B-1")
    parser.add_argument("--safety", default="", choices=("", "manager", "quorum"), help="the seed decides by default")
    parser.add_argument("--faults", default="", metavar="NAME,...", help="kinds of faults; the seed decides by default")
    parser.add_argument("--mutant", default="", choices=("", *MUTANTS), help="break the HA core like that")
    parser.add_argument("--verbose", action="store_true", help="print the schedule also when nothing fails")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    seeds = [options.seed] if options.seed is not None else range(first, last)
    with MUTANTS[options.mutant]() if options.mutant else nullcontext():
        return run(list(seeds), options)


def run(seeds: list[int], options: argparse.Namespace) -> int:
    started, failures, counts = time.perf_counter(), 0, Counter[str]()
    slowest = (0.0, -1)
    for seed in seeds:
        simulation = Simulation(seed, options.safety, [name for name in options.faults.split(",") if name])
        text = ""
        try:
            simulation.run()
        except Violation as violation:
            text = f"seed {seed} FAILS: {violation}"
            failures += 1
        counts.update(simulation.history.counts, steps=simulation.scheduler.steps)
        if options.verbose or (text and not options.keep_going):
            print(simulation.schedule())
        if text:
            print(text, flush=True)
            if not options.keep_going:
                break
        slowest = max(slowest, (simulation.repair_time, seed))
    seconds = time.perf_counter() - started
    print(f"longest repair: {slowest[0]:.1f} virtual seconds, seed {slowest[1]}")
    print(f"{len(seeds)} seeds, {failures} failed, {seconds:.1f} s, {1000 * seconds / len(seeds):.1f} ms for each")
    print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
