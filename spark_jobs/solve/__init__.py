"""The small solvers: pure functions over rows, numpy at most."""
