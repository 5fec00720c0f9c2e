"""The end of the demo: one table of at most 80 columns, or the same as JSON.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from demo.scenario import Fault
from testkit.library_events import LibraryHistory, outage


def summary(
    faults: Sequence[Fault],
    history: LibraryHistory,
    styles: Mapping[str, str],
    seconds: float,
    brokers: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Everything that the table shows; times in ms unless a name says otherwise.  `brokers`: their events."""
    verdict = history.verdict()
    return {
        "messages": {**asdict(verdict), "resent": history.resent, "valid": verdict.valid},
        "seconds": round(seconds, 1),
        "faults": [{**_fault(fault, history, styles), "copying": _copying(fault, brokers)} for fault in faults],
    }


def _fault(fault: Fault, history: LibraryHistory, styles: Mapping[str, str]) -> dict[str, Any]:
    found = {client: outage(history.progress[client], fault.moment, fault.end) for client in styles}
    return {
        "action": fault.action,
        "node": fault.node,
        "role": fault.role,
        "new_primary": fault.new_primary or None,
        "promoted": _ms(fault.promoted - fault.moment) if fault.promoted else None,
        "outages": {client: None if value is None else round(value, 1) for client, value in found.items()},
        "away": _ms(fault.returned - fault.moment),
        "catch_up": _ms(fault.ready - fault.returned),
    }


def _copying(fault: Fault, brokers: Sequence[Mapping[str, Any]]) -> float | None:
    """The catch-up time that the returning broker itself logged."""
    for event in sorted(brokers, key=lambda event: int(event["ts_mono"])):
        mine = event["kind"] == "catchup_end" and event["node"] == fault.node
        if mine and fault.returned <= event["ts_mono"] <= fault.end:
            return round(float(event.get("attrs", {}).get("seconds", 0)) * 1000, 1)
    return None


def _ms(microseconds: int) -> float:
    return round(microseconds / 1000, 1)


def table(found: Mapping[str, Any], styles: Mapping[str, str]) -> str:
    """The report as text."""
    m = found["messages"]
    counted = {"published": "attempted", "confirmed": "confirmed", "delivered": "received"}
    counted |= {"lost": "lost", "duplicated": "duplicated"}
    lines = [
        "",
        "messages " + "".join(f"{name:>12}" for name in counted),
        "         " + "".join(f"{m[name]:>12}" for name in counted.values()),
        f"  re-sent after a fail-over {m['resent']}; duplicates not marked as such {m['unmarked']};",
        f"  never confirmed but delivered {m['recovered']}; delivered but never sent {m['unexpected']}",
        "",
        f"{'fault':<26}{'promoted':>10}{'outage, client_lib':>22}{'outage, plain pika':>22}",
    ]
    for fault in found["faults"]:
        what = f"{fault['action']} {fault['node']} ({fault['role']})"
        promoted = "-" if fault["promoted"] is None else f"{fault['promoted']:.0f} ms"
        ranges = "".join(f"{_range(fault['outages'], styles, style):>22}" for style in ("library", "plain"))
        lines.append(f"{what:<26}{promoted:>10}{ranges}")
    lines += ["", f"{'return':<26}{'away':>10}{'start until ready':>22}{'of that, copying':>22}"]
    for fault in found["faults"]:
        copying = "-" if fault["copying"] is None else f"{fault['copying']:.0f} ms"
        lines.append(f"{fault['node']:<26}{fault['away'] / 1000:>8.1f} s{fault['catch_up']:>19.0f} ms{copying:>22}")
    return "\n".join([*lines, "", verdict_line(m), ""])


def _range(outages: Mapping[str, float | None], styles: Mapping[str, str], style: str) -> str:
    values = [outages[client] for client, its in styles.items() if its == style]
    known = sorted(value for value in values if value is not None)
    if not values:
        return "-"
    if len(known) < len(values):
        return "never back"
    return f"{known[0]:.0f} to {known[-1]:.0f} ms"


def verdict_line(messages: Mapping[str, Any]) -> str:
    confirmed, ids = messages["confirmed"], messages["ids"]
    if messages["valid"]:
        return f"{confirmed} messages were confirmed and every one of them was delivered."
    if messages["lost"]:
        return f"LOST: {messages['lost']} confirmed messages, among them {' '.join(ids['missing'])}"
    if messages["unaccounted"]:
        return f"UNACCOUNTED: {messages['unaccounted']} confirmed messages; a queue was not drained to its end"
    return f"UNEXPECTED: {messages['unexpected']} messages were delivered but never sent: {ids.get('unexpected')}"
