"""Fuzzers: hostile input for every door of a broker and every file that it reads.

    python -m tests.fuzz [--seconds 600] [--only NAME] [--seed N]

A *target* (`target.py`) makes an input from a random source and judges what becomes of it.  The random source is
Hypothesis's in `make test` (few examples, always the same ones), and a seeded one in `make fuzz`, whose
failures are repeated by the line that is printed.  The verdict is the same for both:

    files      one clear line and a documented exit code; never the name of an error of Python, never a traceback
    doors      an error answer, or a closed connection or link; nothing in the log that says a defect
               (`internal error`, a traceback), the process lives, its memory is bounded, and a queue with messages
               that others have put there is intact
"""
