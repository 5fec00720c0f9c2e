"""Mutation: small mistakes are made in the code, one at a time, and the tests have to notice each.

    operators.py    the mistakes, as changes of a syntax tree
    finder.py       a module is imported with one mistake in it; nothing is written to the tree
    judges.py       the unit tests that execute the function, the quickest first; then seeds of the simulator
    calls.py        which test executes which function (measured once, kept in build/mutants)
    campaign.py     many mutants, some at a time, each in a process of its own with a time limit
    verdicts.py     what earlier campaigns have found: one that was interrupted goes on where it was
    scope.py        the modules that a plain run tries, and the others with the reason
    core.py         mistakes in the Cython core: edits of the source, built and judged in a copy of the tree
    equivalent.yaml survivors that change nothing that is promised, each with the reason
    core.yaml       the edits of the Cython core

    make mutants                                  the modules that are reviewed (scope.py)
    make mutants ONLY=ha/promotion/claims.py      one module; with :grant one function of it, with :80 one line
    make mutants ONLY=core                        the Cython core (ten seconds and more for each edit)
    make mutants MUTANTS_OPTIONS=--again          everything anew

A survivor without a reason, a reason without a survivor (it is noticed by now, or is gone), or an edit that finds no
place makes the run fail.  Own operators and not mutmut or cosmic-ray: the simulator has to be a judge, the core is
Cython, and an import hook in a forked process needs no copy of the tree.

A mistake is seen in the process that imports it: tests that start programs of their own do not see it there.
"""
