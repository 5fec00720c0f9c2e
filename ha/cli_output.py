"""What `qpid-ha` prints: lines, tables of at most 80 columns, JSON.  Takes the broker's answers as they come."""

from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 80

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
    print_members(answer.get("members") or [], {member_id(member) for member in in_sync.get("members") or []})


def member_id(member: Any) -> str:
    return str(member.get("id", "")) if isinstance(member, Mapping) else str(member)


def member_state(member: Mapping[str, Any]) -> str:
    """With how far it has come, while it catches up: queues done / queues to do."""
    state, progress = str(member.get("state") or ""), member.get("catchup")
    if not isinstance(progress, Mapping):
        return state
    queues, left = progress.get("queues", 0), progress.get("left", 0)
    return f"{state} {queues - left}/{queues}"


def print_members(members: Sequence[Mapping[str, Any]], in_sync: set[str]) -> None:
    heads = ("Member", "Address", "State", "In sync", "Lag")
    rows = [
        (
            str(member.get("name") or member.get("id", "")),
            str(member.get("address", "")),
            member_state(member),
            "yes" if str(member.get("id")) in in_sync else "no",
            str(member["lag"]) if member.get("lag") is not None else "",
        )
        for member in members
    ]
    print_table(heads, rows)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Two blanks between columns; what would make lines longer than 80 is cut from the widest column."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    print()
    for row in (heads, ["=" * width for width in widths], *rows):
        print("  ".join(clip(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())


def clip(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else text[: width - 1] + "~"


def format_position(position: Any) -> str:
    """EPOCH.SEQUENCE, as the broker's log has it."""
    return f"{position >> 48}.{position & (1 << 48) - 1}" if isinstance(position, int) else ""


def print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))


def describe(error: BaseException) -> str:
    """One line, `ClassName: text`."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
