"""The report of a campaign: all findings, as JSON and as a table of at most 80 columns.  Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any

from testkit.judge import History, longest_pause, quantile
from torture.arrivals import Arrivals
from torture.brokers import Exit
from torture.campaign import Outcome
from torture.lab import Plan
from torture.load import UNTIMED

WIDTH = 80
NAMES = {"unmarked": "duplicates without a mark", "repeated": "came twice from one queue without a mark"}
"""Failures in words, where the name is none."""


def summary(
    plan: Plan,
    outcome: Outcome,
    history: History,
    exits: Sequence[Exit],
    contradictions: Sequence[str],
    salvaged: Set[str] = frozenset(),
    arrivals: Arrivals | None = None,
) -> dict[str, Any]:
    """All figures; times in seconds.  `contradictions`: what the brokers' logs say against them; `salvaged`: ids of the
    messages in their salvage files; `arrivals`: of what was moved to or from another broker."""
    verdict = history.verdict(outcome.drained)
    producers = [sorted(confirms) for client, confirms in history.confirms.items() if client not in UNTIMED]
    everybody = [sorted(moment for confirms in producers for moment in confirms)]
    return {
        "mode": plan.mode,
        "brokers": plan.brokers,
        "seed": plan.seed,
        "seconds": round(outcome.seconds, 1),
        "faults": len(outcome.faults),
        "kinds": dict(sorted(Counter(fault.kind for fault in outcome.faults).items())),
        "rounds": len(outcome.rounds),
        "messages": {**asdict(verdict), "valid": verdict.valid},
        "moved": arrivals.counts() if arrivals else {},
        "salvaged": len(salvaged & set(history.missing())),
        "outages": {"all": _outages(outcome, everybody), "one": _outages(outcome, producers)},
        "stuck": outcome.stuck,
        "left": outcome.left,
        "exits": [asdict(one) for one in exits],
        "contradictions": list(contradictions),
    }


def _outages(outcome: Outcome, lines: Sequence[Sequence[int]]) -> dict[str, float]:
    """For each round, the longest time without a confirm on any of these time lines (each sorted, µs); of all rounds
    the quantiles."""
    rounds = [one for one in outcome.rounds if one.served]
    found = [max(_pause(line, one.began, one.served) for line in lines) for one in rounds if lines]
    shares = {"p50": 0.5, "p90": 0.9, "max": 1.0}
    return {name: round(quantile(found, share), 2) for name, share in shares.items()}


def _pause(line: Sequence[int], begin: int, end: int) -> float:
    first, last = max(0, bisect_left(line, begin) - 1), bisect_right(line, end) + 1
    return longest_pause(line[first:last], begin, end)


def failures(found: Mapping[str, Any]) -> list[str]:
    """The reasons why the campaign failed; empty if it passed.  With `availability` losses are allowed."""
    messages = found["messages"]
    counted = ("unexpected", "phantom", "changed", "unaccounted", "unmarked", "repeated")
    promised = ("lost", "torn", "returned") if found["mode"] != "availability" else ()
    texts = [
        f"{messages[name]} {NAMES.get(name, name)}{_ids(messages, name)}"
        for name in (*promised, *counted)
        if messages[name]
    ]
    if found["stuck"]:
        texts.append(f"stuck: {found['stuck']}")
    if found["left"] and not found["stuck"]:
        texts.append(f"left after the drain: {found['left']}")
    exits = Counter(f"{one['broker']} ended with {one['code']}" for one in found["exits"])
    texts += [f"{text}, {count} times" if count > 1 else text for text, count in exits.items()]
    return texts + list(found["contradictions"])


def _ids(messages: Mapping[str, Any], name: str) -> str:
    ids = messages["ids"].get("missing" if name in ("lost", "unaccounted") else name, ())
    return f" ({' '.join(ids[:5])}{' ...' if len(ids) > 5 else ''})" if ids else ""


def table(found: Mapping[str, Any]) -> str:
    """The report as text."""
    m, outages = found["messages"], found["outages"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in found["kinds"].items())
    head = f"mode {found['mode']}, {found['brokers']} brokers, seed {found['seed']}, {found['seconds']:.0f} s"
    lines = [
        "",
        f"{head}: {found['faults']} faults in {found['rounds']} rounds",
        *_wrapped(kinds),
        "",
        _row("attempted", "confirmed", "refused", "unknown", "received", "recovered"),
        _row(*(m[name] for name in ("attempted", "confirmed", "refused", "unknown", "received", "recovered"))),
        "",
        _row("lost", "unaccounted", "unexpected", "torn", "phantom", "changed"),
        _row(*(m[name] for name in ("lost", "unaccounted", "unexpected", "torn", "phantom", "changed"))),
        "",
        f"  duplicated {m['duplicated']}: {m['marked']} marked redelivered or x-resent, {m['unmarked']} not",
        f"  removed {m['removed']}: by a limit, a purge, no binding, or lost by an auto-ack reader",
        *(f"  moved by a {name}: {_moved(counts)}" for name, counts in found["moved"].items()),
        "  longest time without a confirm, of the rounds:",
        f"  any producer  {_quantiles(outages['all'])}",
        f"  each producer {_quantiles(outages['one'])}",
        "",
    ]
    if m["lost"]:
        lines.insert(-1, f"  {found['salvaged']} of the lost are in salvage files, from which they can be restored")
    failed = failures(found)
    verdict = [f"FAILED: {text}" for text in failed] or [_success(m)]
    return "\n".join([*lines, *verdict])


def _moved(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _quantiles(found: Mapping[str, float]) -> str:
    return "   ".join(f"{name} {value:6.2f} s" for name, value in found.items())


def _success(messages: Mapping[str, Any]) -> str:
    if messages["lost"]:
        return f"{messages['lost']} confirmed messages were lost, as this mode allows."
    rest = ", but what was removed" if messages["removed"] else ""
    return f"{messages['confirmed']} messages were confirmed and every one of them was delivered{rest}."


def _row(*cells: object) -> str:
    return "  " + "".join(f"{cell!s:>13}" for cell in cells)


def _wrapped(text: str) -> list[str]:
    lines, line = [], " "
    for word in text.split(" "):
        if len(line) + len(word) + 1 > WIDTH:
            lines.append(line)
            line = " "
        line += f" {word}"
    return [*lines, line] if line.strip() else lines
