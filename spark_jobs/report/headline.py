"""The summary of an incident in a few sentences (pure): for an engineer on call at night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from spark_jobs.data import Row
from spark_jobs.report import dual, words
from spark_jobs.report.units import UNKNOWN, by_note, clock, date, duration, moment, number, percent, plural, with_error
from spark_jobs.solve.phases import UNFAILED

NO_CLIENTS: Final = "no log of a client was read"


def sentences(document: Row) -> list[str]:
    told, fates, both = clients(document), fate(document), dual.sentence(document)
    parts = [fencing(document), resources(document), when(document), told, noticed(document), fates, both]
    parts.append(redundancy(document))
    if document["messages"] is None and told.endswith(f"{NO_CLIENTS}."):
        parts = [part for part in parts if part not in (told, fates)]
        parts.append(f"How long clients stood still, and what became of messages, is unknown: {NO_CLIENTS}.")
    bad = {fates} if _is_bad((document["messages"] or {}).get("total")) else set()
    bad |= {both} if document["incident"]["dual"] == "certain" else set()
    ranked = sorted(parts, key=lambda part: part not in bad)
    return [part for part in (what(document), *ranked) if part]


def short(document: Row) -> dict[str, Any]:
    """The row of an incident in the overview."""
    incident, union = document["incident"], document["outage_union"] or {}
    total = (document["messages"] or {}).get("total") or {}
    names = ("incident", "cluster", "begin", "end", "type", "planned", "failover", "old_primary", "new_primary")
    return {
        "number": document["number"],
        **{name: incident[name] for name in (*names, "total_us", "dual")},
        **{name: union.get(name) for name in ("all_down", "any_down", "most", "clients")},
        "away_us": max((row["down_hi"] or row["down_lo"] or 0 for row in document["resources"]), default=None),
        **{name: total.get(name) for name in ("lost", "unaccounted", "unmarked", "unexpected")},
        "words": document["words"],
        "file": f"incident-{document['number']}.json",
    }


# ---- what and when --------------------------------------------------------------------------------------------------


def named(document: Row) -> str:
    """`blue: node crash, node1 → node2`"""
    cluster = f"{document['cluster']}: " if document["cluster"] else ""
    return f"{cluster}{title(document['incident'])}"


def title(incident: Row) -> str:
    """`node crash, node1 → node2`"""
    name = words.TYPES.get(incident["type"], incident["type"])
    old, new = incident["old_primary"], incident["new_primary"]
    if new and old and old != new:
        return f"{name}, {old} → {new}"
    return f"{name}, {old or new}" if old or new else str(name)


def what(document: Row) -> str:
    incident = document["incident"]
    old = f"the primary {incident['old_primary']}" if incident["old_primary"] else "the primary"
    known: dict[str, str] = words.WORDS["happened"]
    happened = known.get(incident["type"], "{old} was lost, and no log says how").format(old=old)
    if incident["type"] in words.STAYED:
        return _sentence(happened, incident["why"] or "")
    new = incident["new_primary"]
    if new is None and incident["old_primary"] is None:  # none is known of: nothing can be said of it
        return _sentence(incident["why"], "") if incident["why"] else "Something failed, and no log here says what."
    if new is None:
        taken = "no log here shows that another node took over"
    elif new == incident["old_primary"]:
        taken = f"{new} became primary again"
    else:
        taken = f"{new} took over"
    more = f" (after {plural(incident['promotions'], 'promotion')})" if incident["promotions"] > 1 else ""
    return _sentence(f"{happened}, {taken}{more}", _reason(incident))


def _reason(incident: Row) -> str:
    """The reason for the type, unless the sentence contains it."""
    text = incident["why"] or ""
    said = (f"the node of {incident['old_primary']} was lost", f"{incident['old_primary']} stood still")
    if incident["type"] == "power-loss":
        return ""
    if incident["type"] == "fencing":
        return text.removeprefix(f"node {incident['old_primary']} was fenced, ")
    for prefix in (*said, f"the process of {incident['old_primary']} died"):
        if text.startswith(prefix):
            return text.removeprefix(prefix).strip(" :").removeprefix("(").removesuffix(")")
    return text


def _sentence(text: str, reason: str) -> str:
    text = text[0].upper() + text[1:]
    return f"{text}: {reason}." if reason else f"{text}."


def when(document: Row) -> str:
    incident = document["incident"]
    begin = f"It began at {moment(incident['begin'])}"
    if incident["end"] is None:
        return f"{begin} and was not over when the logs ended."
    return f"{begin} and was over {duration(incident['end'] - incident['begin'])} later."


def phase(document: Row, name: str) -> dict[str, Any]:
    """Its row; an unknown one if there is none."""
    missing = {"phase": name, "known": False, "note": "", "begin": None, "end": None, "duration_us": None}
    return next((row for row in document["phases"] if row["phase"] == name), missing)


def told(document: Row) -> tuple[list[Row], str]:
    """(phases that are known or had begun, the others in one line); without a fail-over there are none."""
    if not document["incident"]["failover"] and document["incident"]["old_primary"] is None:
        return [], ""
    known = [row for row in document["phases"] if row["known"] or row["censored"] or row["phase"] == "fault"]
    silent = [(words.PHASES[row["phase"]][0].lower(), row["note"]) for row in document["phases"] if row not in known]
    return known, f"Not seen: {by_note(silent)}." if silent else ""


def outage(document: Row) -> tuple[int, int | None, int | None] | None:
    """us: how long there was no service for new connections, at the least, at the most; None if unknown."""
    total = document["incident"]["total_us"]
    death = phase(document, "fault")
    ends = [phase(document, name) for name in ("promotion", "recovering", "path")]
    last = max((row for row in ends if row["end"] is not None), key=lambda row: row["end"], default=None)
    if total is None or last is None or death["end"] is None:
        return None
    low, high = last["end_lo"] - death["end_hi"], last["end_hi"] - death["end_lo"]
    return (total, None, None) if high > UNKNOWN else (total, max(0, low), high)


def advice(budget: Sequence[Row]) -> str:
    """What would make it shorter: of the longest phase, if it took about what its setting allows."""
    first = budget[0]
    name, setting = words.PHASES[first["phase"]][0], first["setting_us"]
    text = f"{name} took {percent(first['share'])} of the time"
    if setting is None or not setting / 2 <= first["duration_us"] <= setting * 3 / 2:
        return f"{text}."
    return f"{text}: {first['setting']} is {duration(setting)}; half of that would save about {duration(setting // 2)}."


def fencing(document: Row) -> str:
    """Of an incident that is one."""
    row = phase(document, "fencing")
    if document["incident"]["type"] != "fencing" or not row["known"]:
        return ""
    length = with_error(row["duration_us"], row["duration_lo_us"], row["duration_hi_us"])
    return f"It took {length}: asked for at {clock(row['begin'])}, done at {clock(row['end'])}."


def resources(document: Row) -> str:
    """Which of Pacemaker's ordinary resources were away, and how long the longest."""
    found = document.get("resources") or []
    said = []
    for kind in ("stopped", "moved", "restarted"):
        rows = [row for row in found if row["what"] == kind]
        if rows:
            ways = {(row["old_node"], row["new_node"]) for row in rows}
            names, (old, new) = ", ".join(sorted({row["resource"] for row in rows})), next(iter(ways))
            where = f" from {old} to {new}" if kind == "moved" and len(ways) == 1 else ""
            said.append(f"{names} {_ENDED[kind]}{where}{_away(rows)}")
    return f"Resources: {'; '.join(said)}." if said else ""


_ENDED: Final = {
    "stopped": "ended, and no log here shows them up again",
    "moved": "moved",
    "restarted": "ended and came back",
}


def _away(rows: Sequence[Row]) -> str:
    """`, away for 154.951 s` or `, away for 0.699 s at the least`"""
    known = [row for row in rows if row["down_lo"] is not None]
    if not known:
        return ""
    longest = max(known, key=lambda row: row["down_hi"] or row["down_lo"])
    return f", away for {away(longest)}"


def away(row: Row) -> str:
    low, high = row["down_lo"], row["down_hi"]
    if low is None:
        return "unknown"
    if high is None or high > UNKNOWN:
        return f"{duration(low)} at the least"
    return duration(high) if high - low < 10_000 else f"{duration(low)} to {duration(high)}"


# ---- clients --------------------------------------------------------------------------------------------------------


def longest(document: Row) -> dict[str, Any] | None:
    """The longest outage of a client; one without end before all others."""
    return max(document["outages"], key=_length, default=None)


def _length(row: Row) -> tuple[bool, int, str]:
    return bool(row["censored"]), row["ts_end"] - row["ts_begin"], row["client_id"] or ""


def stood(row: Row) -> str:
    """The length of a client's outage."""
    length = duration(row["ts_end"] - row["ts_begin"])
    return f"more than {length}, never back" if row["censored"] else length


def clients(document: Row) -> str:
    union, worst = document["outage_union"], longest(document)
    if union is None and worst is None:
        return f"How long clients stood still is unknown: {NO_CLIENTS}."
    if worst is None:
        count = (union or {}).get("clients")
        return f"None of {plural(count, 'client')} stood still." if count else "No client ran at the time."
    many = len({row["client_id"] for row in document["outages"]}) if not document["outages_more"] else None
    about = f"{many} of {document['lane']['clients']}" if many else f"Of {document['lane']['clients']}, many"
    text = f"{about} clients stood still, the longest for {stood(worst)} ({worst['client_id'] or 'nameless'})"
    if union and union["all_down"]:
        text += f"; all of them at once for {duration(union['all_down'])}"
    return f"{text}."


def noticed(document: Row) -> str:
    row = phase(document, "fault")
    if row["end"] is None:
        return _sentence(row["note"] or UNFAILED, "")
    place = f"{row['end_file']}:{row['end_line']}"
    event = next((event for event in document["events"] if event["place"] == place), None)
    said = words.sentence(event) if event is not None else words.plain(row["end_what"])
    # a line about another node does not name who wrote it
    who = f" by {row['end_node']}" if row["end_node"] and not said.startswith(row["end_node"]) else ""
    if document["incident"]["planned"]:
        return f"It was asked for at {clock(row['end'])}{who}: {said}."
    late = f", at most {duration(row['duration_hi_us'])} after the failure" if row.get("duration_hi_us") else ""
    return f"Noticed first{who} at {clock(row['end'])}{late}: {said}."


# ---- messages -------------------------------------------------------------------------------------------------------


def fate(document: Row) -> str:
    total = (document["messages"] or {}).get("total")
    if total is None:
        return f"What became of messages is unknown: {NO_CLIENTS}."
    return messages(total)


def messages(total: Row) -> str:
    """One sentence."""
    if is_empty(total):
        return "No message was sent."
    found = [f"{number(total['lost'])} lost"]
    found += [f"{total[name]} {words_}" for name, words_ in words.WORDS["counts"].items() if total.get(name)]
    return f"Of {plural(total['confirmed'], 'confirmed message')}: {', '.join(found)}."


def is_empty(total: Row) -> bool:
    return not any(total.get(name) for name in ("attempts", "confirmed", "ok", "unexpected"))


# ---- redundancy -----------------------------------------------------------------------------------------------------


def redundancy(document: Row) -> str:
    row = phase(document, "redundancy")
    if row["known"]:
        length = with_error(row["duration_us"], row["duration_lo_us"], row["duration_hi_us"])
        return f"All backups were ready again {length} after the promotion."
    if not document["incident"]["failover"] or not row["note"]:
        return ""
    return f"Redundancy was not seen to come back: {row['note']}."


# ---- over all -------------------------------------------------------------------------------------------------------


def summary(overview: Row) -> list[str]:
    """The first sentences of the report, the worst first."""
    rows: Sequence[Row] = overview["incidents"]
    total = (overview["messages"] or {}).get("total")
    fates = f"What became of messages is unknown: {NO_CLIENTS}." if total is None else messages(total)
    both, worst = dual.of_all(rows)
    parts = [(1, counted(rows)), (0 if _is_bad(total) else 1, fates), (worst, both)]
    return [text for _, text in sorted(parts, key=lambda part: part[0]) if text]


def counted(rows: Sequence[Row]) -> str:
    if not rows:
        return "No incident was found in what was read."
    days = sorted({date(row["begin"]) for row in rows})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    counts = sorted(Counter(row["type"] for row in rows).items(), key=lambda item: (-item[1], item[0]))
    kinds = ", ".join(f"{count} × {words.TYPES.get(kind, kind)}" for kind, count in counts)
    return f"{plural(len(rows), 'incident')} ({span}, UTC): {kinds}."


def _is_bad(total: Row | None) -> bool:
    return total is not None and bool(total.get("lost") or total.get("unmarked"))
