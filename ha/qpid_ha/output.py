"""Prints the answers of brokers for `qpid-ha`."""

from collections.abc import Mapping, Sequence
from typing import Any

from qpidd_py.cli.output import WIDTH, clip, describe, print_table

QUERY_LINES = (
    ("Status", "status"),
    ("Broker ID", "broker_id"),
    ("Brokers URL", "brokers_url"),
    ("Public URL", "public_url"),
    ("Replicate", "replicate"),
)
VERBOSE_LINES = (
    ("Safety", "safety"),
    ("Epoch", "epoch"),
    ("Position", "position"),
    ("Safe position", "safe"),
    ("Primary", "primary"),
)


def print_line(name: str, value: Any) -> None:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    print(f"{name + ':':<20} {'' if value is None else value}".rstrip())


def print_query(answer: Mapping[str, Any], verbose: bool) -> None:
    for name, key in QUERY_LINES:
        print_line(name, answer.get(key, ""))
    if not verbose:
        return
    for name, key in VERBOSE_LINES:
        value = answer.get(key)
        print_line(name, format_position(value) if name.endswith("osition") else value)
    in_sync = answer.get("in_sync") or {}
    print_line("In-sync version", in_sync.get("version", ""))
    print_troubles(answer)
    print_members(answer.get("members") or [], in_sync_ids(answer))


def print_troubles(answer: Mapping[str, Any]) -> None:
    """Print each trouble as a sentence, on one line or more."""
    for name, text in troubles(answer):
        print(wrapped(f"{name + ':':<20} {text}", 21))


def print_paged(paged: Mapping[str, Any] | None) -> None:
    """What is in the page file of a broker, if there is anything to say."""
    if paged and paged["octets"]:
        print_line("Paged", f"{format_octets(paged['octets'])} of messages are in the page file")
    if paged and paged["reason"]:
        print_line("Page file", paged["reason"])


def wrapped(text: str, indent: int) -> str:
    import textwrap

    return textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def troubles(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The troubles of a broker as (name of the line, text)."""
    stalled, found = answer.get("stalled"), []
    if isinstance(stalled, Mapping):
        text = f"{stalled.get('why')}, for {stalled.get('seconds', 0):.1f} s; until {stalled.get('until')}"
        found.append(("Confirms wait", text))
    elif stalled:
        found.append(("Confirms wait", str(stalled)))
    alarms = answer.get("alarms") or {}
    found += [("Alarm", str(reason)) for _, reason in sorted(alarms.items())]
    if answer.get("isolated"):
        found.append(("Isolated", "clients are closed and refused, see ha-isolation-timeout"))
    for twin in answer.get("twins") or ():
        who = f"{twin.get('name')} ({twin.get('address') or 'address unknown'})"
        seen = f"seen {twin.get('seconds', 0):.0f} s ago"
        found.append(("Twin", f"{who} has the identity of {twin.get('other')}, {seen}; {twin.get('remedy')}"))
    if answer.get("advice") and answer["advice"] not in alarms.values():
        found.append(("Advice", str(answer["advice"])))
    return found


def in_sync_ids(answer: Mapping[str, Any]) -> set[str]:
    members = (answer.get("in_sync") or {}).get("members") or []
    return {str(member.get("id", "")) for member in members if isinstance(member, Mapping)}


def print_members(members: Sequence[Mapping[str, Any]], in_sync: set[str]) -> None:
    heads = ("Member", "Address", "State", "In sync", "Lag", "Octets", "Seconds")
    rows = []
    for member in members:
        name = str(member.get("name") or member.get("id", ""))
        synced = "yes" if str(member.get("id")) in in_sync else "no"
        rows.append((name, str(member.get("address", "")), str(member.get("state") or ""), synced, *lag_cells(member)))
    print_table(heads, rows)
    for member, row in zip(members, rows, strict=True):
        if isinstance(member.get("catchup"), Mapping):
            print(f"{clip(row[0], 24).strip()}: {catchup_text(member['catchup'])}")
        elif late := late_text(member):
            print(f"{clip(row[0], 24).strip()}: {late}")


def late_text(member: Mapping[str, Any]) -> str:
    """Why a linked member is kept out of the in-sync set; empty if it is not."""
    seconds = member.get("late")
    if seconds is None:
        return ""
    return f"late: confirms do not wait for it; it is back after {seconds:.0f} s in which it keeps up"


def lag_cells(member: Mapping[str, Any]) -> tuple[str, str, str]:
    """Operations, octets and seconds that a member lacks; empty if not known."""
    lag = member.get("lag")
    if not isinstance(lag, Mapping):
        return "", "", ""
    positions, octets, seconds = lag.get("positions"), lag.get("octets"), lag.get("seconds")
    return (
        "" if positions is None else str(positions),
        "" if octets is None else format_octets(octets),
        "" if seconds is None else f"{seconds:.2f}",
    )


def catchup_text(progress: Mapping[str, Any]) -> str:
    """Progress of a joining backup."""
    queues, left = progress.get("queues", 0), progress.get("left", 0)
    remaining = progress.get("remaining")
    return (
        f"{queues - left} of {queues} queues, {format_octets(progress.get('octets_left', 0))} left, "
        f"{format_octets(progress.get('rate', 0))}/s" + ("" if remaining is None else f", {remaining:.0f} s to go")
    )


def format_octets(count: float) -> str:
    for unit in ("", "K", "M", "G"):
        if count < 1024 or unit == "G":
            break
        count /= 1024
    return f"{count:.0f}{unit}" if not unit or count >= 10 else f"{count:.1f}{unit}"


def print_status_table(answers: Sequence[tuple[str, Mapping[str, Any] | Exception]]) -> None:
    """One row for each broker of a cluster, then a line for each trouble."""
    found = {address: answer for address, answer in answers if isinstance(answer, Mapping)}
    newest = max(found.values(), key=_set_key, default={})
    primary = next((answer for answer in found.values() if answer.get("status") in ("recovering", "active")), {})
    members = primary.get("members") or []
    lags = {str(member.get("id")): lag_cells(member) for member in members}
    names = {str(member.get("address")): str(member.get("name", "")) for member in members}
    rows, notes = [], []
    for address, answer in answers:
        if isinstance(answer, Mapping):
            id = str(answer.get("broker_id"))
            synced = "yes" if id in in_sync_ids(newest) else "no"
            cells = (str(answer.get("name", "")), address, str(answer.get("status", "unknown")), synced)
            rows.append((*cells, *lags.get(id, ("", "", ""))))
            notes += [f"{answer.get('name') or address}: {name}: {text}" for name, text in troubles(answer)]
        else:
            rows.append((names.get(address, ""), address, type(answer).__name__, "", "", "", ""))
            notes.append(describe(answer))
    notes += [f"{member.get('name')}: {late}" for member in members if (late := late_text(member))]
    print_table(("Member", "Address", "Status", "In sync", "Lag", "Octets", "Seconds"), rows)
    for note in ["", *notes] if notes else []:
        print(wrapped(note, 4))


def _set_key(answer: Mapping[str, Any]) -> tuple[int, str, int]:
    """Sort key: newer sets are greater, see `membership.InSync.key`."""
    in_sync = answer.get("in_sync") or {}
    return in_sync.get("epoch", 0), in_sync.get("leader", ""), in_sync.get("version", 0)


def format_position(position: Any) -> str:
    """EPOCH.SEQUENCE, as in the broker's log."""
    return f"{position >> 48}.{position & (1 << 48) - 1}" if isinstance(position, int) else ""
