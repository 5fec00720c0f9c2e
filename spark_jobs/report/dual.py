"""Two primaries at once, in words (pure): the verdict over two of them, the margin between them, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spark_jobs.data import Row
from spark_jobs.report import words
from spark_jobs.report.units import UNKNOWN, duration, with_error

WORDS: Final = {"certain": "YES", "possible": "possible", "": "not known", "excluded": "no"}
"""The worst first."""
TONES: Final = {"certain": "bad", "possible": "doubt", "excluded": "good"}


def worst(document: Row) -> dict[str, Any] | None:
    ranks = {"certain": 2, "possible": 1, "excluded": 0}
    return max(document["dual"], key=lambda row: (ranks[row["verdict"]], ranks[row["roles"]], -row["at"]), default=None)


def margin(row: Row) -> str:
    """`65.6 ms ±1.8 ms`; empty if unknown."""
    if row["margin_ms"] is None:
        return ""
    us, error = round(abs(row["margin_ms"]) * 1000), round((row["error_ms"] or 0) * 1000)
    if error > UNKNOWN:
        return f"{duration(us)}, error unknown"
    return with_error(us, us - error, us + error)


def signed_margin(row: Row) -> str:
    """Negative: the length of the overlap."""
    text = margin(row)
    return f"{'-' if row['margin_ms'] < 0 else ''}{text}" if text else "unknown"


def sentence(document: Row) -> str:
    row = worst(document)
    if row is None:
        return ""
    return f"Two primaries at once: {WORDS[row['verdict']]}; {why(row)}."


def why(row: Row) -> str:
    apart = margin(row)
    if row["roles"] == "possible":  # what is best known is no claim
        return f"the logs leave it open ({row['why']})" if row["why"] else "the logs leave it open"
    if apart and row["margin_ms"] >= 0:
        apart = f"{row['old_node']} had ended {apart} before {row['new_node']} was promoted"
    elif apart:
        apart = f"{row['old_node']} ended {apart} after {row['new_node']} was promoted"
    else:
        apart = "the margin is unknown"
    return f"{apart} ({row['why']})" if row["why"] else apart


def of_all(rows: Sequence[Row]) -> tuple[str, int]:
    """`Two primaries at once: YES for 1 of 9, not known for 2, no for 6.`, and its rank."""
    if not any(row["dual"] for row in rows):
        return "", 1
    verdicts = [row["dual"] or ("excluded" if row["type"] in words.STAYED else "") for row in rows]
    counts = [(word, verdicts.count(name)) for name, word in WORDS.items() if name in verdicts]
    first, *others = [f"{word} for {count}" for word, count in counts]
    text = ", ".join([f"{first} of {len(rows)}", *others]) if others else counts[0][0]
    return f"Two primaries at once: {text}.", 0 if "certain" in verdicts else 1
