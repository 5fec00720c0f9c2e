"""Makes small mistakes in the code, one at a time, and says which of them no test notices.

python -m tests.mutants                                   the modules that are reviewed (scope.py)
python -m tests.mutants ha/promotion/claims.py:grant --seeds 0      one function, unit tests only
python -m tests.mutants core                              the edits of the Cython core
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path

from tests.mutants import core
from tests.mutants.calls import calls
from tests.mutants.campaign import KNOWN, Result, Target, campaign, chosen, known, write
from tests.mutants.judges import Plan, prepare
from tests.mutants.scope import REVIEWED, said
from tests.mutants.verdicts import Verdicts


def main() -> int:
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # as Ctrl-C: end what was started
    if options.only == ["core"]:
        return core.listed(options.match) if options.list else core.main(options.match)
    prepare()
    targets = [Target.of(text) for text in options.only or [f"ha/{name}.py" for name in REVIEWED]]
    work = [mutant for mutant in chosen(targets) if options.match in mutant.name]
    whole = {target.path for target in targets if not (target.function or target.line or options.match)}
    if options.sample:
        work, whole = random.Random(options.sample).sample(work, min(options.sample, len(work))), set()
    if options.list:
        print("\n".join(f"{mutant.line}\t{mutant.name}" for mutant in work))
        return 0
    plan = Plan([options.tests] if options.tests else (), options.seeds)
    verdicts = None if options.tests else Verdicts(seeds=options.seeds)
    if verdicts and options.again:
        verdicts.forget()
    tests = {} if options.tests else calls(options.again)
    result = campaign(work, plan, tests, options.jobs, known(options.known), whole, verdicts)
    if options.json:
        write(result, options.json)
    if not options.only:
        print(said())
    return _report(result)


def _report(result: Result) -> int:
    for name in result.stale:
        print(f"STALE    {name}: it is noticed, or gone; take its reason out of equivalent.yaml")
    for name in result.open:
        print(f"OPEN     {result.lines[name]} {name}")
    harmless = len(result.survived) - len(result.open)
    print(
        f"{len(result.killed) + len(result.survived)} mutants in {result.seconds:.0f} s: {len(result.killed)} noticed, "
        f"{harmless} harmless for a reason, {len(result.open)} survive without one, {len(result.stale)} reasons stale"
    )
    return int(result.fails)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", default=[], metavar="PATH[:FUNCTION|:LINE]", help="or the word core")
    parser.add_argument("--match", default="", metavar="TEXT", help="only mutants with this in their names")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N of them, chosen at random")
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="unit tests, instead of those that fit")
    parser.add_argument("--known", type=Path, default=KNOWN, metavar="FILE", help="survivors with reasons")
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="of the simulator, for each mode")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to a file")
    parser.add_argument("--again", action="store_true", help="try also what an earlier campaign has tried")
    parser.add_argument("--list", action="store_true", help="print the mutants and make none")
    return parser


if __name__ == "__main__":
    sys.exit(main())
