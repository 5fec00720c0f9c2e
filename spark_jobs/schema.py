"""The event: one row for each fact that a broker, a client or the cluster's software wrote down (pure).

This is the contract between the writers (`ha.shell.events`, `client_lib.events`), the parsers of `spark_jobs.parse` and
the jobs; a test writes with the real writers and reads with the real parsers.  All columns but `source`, `kind` and
the provenance may be empty.  Times are microseconds.  A column that a writer gives is never overwritten: what we
conclude has columns and tables of its own.

`python -m spark_jobs.schema` prints the JSON Schema of a line, for other writers.

VERSION is that of a table's layout.  A job refuses a table of another major version; within one, columns are only
added.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

VERSION = "1.0"
REMOVED: Final = "removed"
"""Certainty of a note that tells of days whose rows `maintain` has removed."""
EXPLAINED_BY: Final = ("return", "reject", "expire", "drop", "dead_letter", "purge", "queue_dump")
"""Kinds of rows that explain why a message was not dequeued; the first of them is named as its cause."""
Event = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """`type` in words that Spark's and DuckDB's SQL share; `written`: writers give it, we do not derive it."""

    name: str
    type: str
    note: str
    written: bool = True


TEXTS = "map<string,string>"
COLUMNS = (
    Column("cluster", "string", "name of the cluster; empty if no source names it"),
    Column("node", "string", "machine or broker that wrote it"),
    Column("source", "string", "one of KINDS"),
    Column("proc", "string", "the life of one process: seq is without gaps in it"),
    Column("boot_id", "string", "of the machine's boot: CLOCK_MONOTONIC begins anew with it"),
    Column("seq", "bigint", "from 1, without gaps: a gap is a lost line"),
    Column("ts_wall", "bigint", "us since 1970 UTC, as written"),
    Column("ts_mono", "bigint", "us of CLOCK_MONOTONIC"),
    Column("ts_res", "int", "resolution of ts_wall in us"),
    Column("kind", "string", "one of KINDS"),
    Column("term", "bigint", "epoch of the promotion"),
    Column("queue", "string", ""),
    Column("first_pos", "bigint", "position in the log, inclusive"),
    Column("last_pos", "bigint", "position in the log, inclusive"),
    Column("peer", "string", "the other one: broker, node or address"),
    Column("client_id", "string", ""),
    Column("conn_id", "string", "one connection of a client"),
    Column("channel", "string", ""),
    Column("msg_id", "string", "PRODUCER:NUMBER, of the first message if the row is a run"),
    Column("old", "string", "state or value before"),
    Column("new", "string", "state or value after"),
    Column("reason", "string", ""),
    Column("result", "string", ""),
    Column("resend", "boolean", "sent before, and not confirmed"),
    Column("redelivered", "boolean", "handed out before, and not acknowledged"),
    Column("planned", "boolean", "it was requested"),
    Column("attrs", TEXTS, "the rest"),
    Column("file", "string", "where it was read, relative to what was given", written=False),
    Column("line_no", "bigint", "from 1", written=False),
    Column("raw", "string", "the line, of text logs", written=False),
    Column("producer", "string", "msg_id without its number", written=False),
    Column("pub_first", "bigint", "number of the first message of a run; 0 if the id has none", written=False),
    Column("pub_last", "bigint", "number of the last message of a run", written=False),
)
NAMES = tuple(column.name for column in COLUMNS)

BROKER_KINDS = frozenset(
    {"start", "stop", "stop_request", "state", "promote_request", "promoted", "demote", "claim", "membership"}
    | {"relocate", "primary_lost", "twin", "resumed"}
    | {"backup_connected", "backup_lost", "catchup_begin", "catchup_end", "salvage", "isolated", "fenced_self", "clock"}
    | {"repl_send", "repl_recv", "replack_send", "replack_recv", "confirm_sent", "enqueue", "expire", "drop"}
    | {"dead_letter", "purge", "queue_dump", "client_open", "client_close", "state_file", "limit", "paging", "log_end"}
    | {"journal_read", "identity_lost", "backup_late"}
)
MANAGER_KINDS = frozenset(
    {"starting", "start", "stop", "state", "election", "no_primary", "promote_request", "promoted", "refused"}
    | {"adopted", "command", "exit", "restart_planned", "hung", "awake", "kill", "down", "admin_refused"}
    | {"admin_closed", "log_end"}
)
"""Of qpid-cluster, the supervisor for one machine."""
MESSAGE_KINDS = frozenset({"publish", "resend", "confirm", "nack", "return", "deliver", "ack", "reject", "release"})
"""A client's events about messages: nearly all rows."""
CLIENT_KINDS = MESSAGE_KINDS | frozenset(
    {"connect", "connect_refused", "connected", "disconnected", "blocked", "unblocked", "recovered", "drain_begin"}
    | {"drain_end", "log_end"}
)
CLUSTER_KINDS = frozenset(
    {"token_warning", "token_lost", "membership", "leave_missed", "members", "quorum_state", "no_links", "link_down"}
    | {"sched_pause", "peer_state", "quorum", "fsa", "op_unexpected", "sched_failed_op", "will_fence", "plan", "graph"}
    | {"calculated", "initiate", "op_request", "op_result", "op_confirmed", "fence_request", "fence_op_done", "abort"}
    | {"fence_notify", "self_fenced", "attr", "daemon_exit", "start", "stopped", "lines_dropped", "node", "resource"}
    | {"fence_delay", "fence_device", "stop_request"}
)
READER_KINDS = frozenset({"torn"})
"""What parsers say themselves: a last line without its end."""
KINDS = {
    "broker": BROKER_KINDS,
    "client": CLIENT_KINDS,
    "qpid-cluster": MANAGER_KINDS,
    "pacemaker": CLUSTER_KINDS,
    "corosync": CLUSTER_KINDS,
    "syslog": CLUSTER_KINDS,
    "crm_mon": CLUSTER_KINDS,
    "text": BROKER_KINDS,
}
_PYTHON = {"string": (str,), "bigint": (int,), "int": (int,), "boolean": (bool,), TEXTS: (dict,)}
_JSON = {"string": "string", "bigint": "integer", "int": "integer", "boolean": "boolean", TEXTS: "object"}


def day(moment: int) -> str:
    """Of µs since 1970, UTC."""
    return datetime.fromtimestamp(moment / 1_000_000, UTC).strftime("%Y-%m-%d")


def faults(event: Event) -> list[str]:
    """What is wrong with a written event, in words; empty if nothing."""
    found = [f"no {name}" for name in ("source", "kind") if not event.get(name)]
    source, kind = event.get("source"), event.get("kind")
    if source in KINDS and kind not in KINDS[source] | READER_KINDS:
        found.append(f"kind {kind!r} is unknown for source {source!r}")
    elif source and source not in KINDS:
        found.append(f"source {source!r}, wanted one of {', '.join(sorted(KINDS))}")
    written = {column.name: column for column in COLUMNS if column.written}
    for name, value in event.items():
        if name not in written:
            found.append(f"no column {name!r}")
        elif value is not None and not _fits(value, written[name].type):
            found.append(f"{name}: {value!r}, wanted {written[name].type}")
    return found


def _fits(value: Any, type_: str) -> bool:
    if isinstance(value, bool) != (type_ == "boolean") or not isinstance(value, _PYTHON[type_]):
        return False
    return not isinstance(value, dict) or all(isinstance(item, str) for pair in value.items() for item in pair)


def ddl(names: tuple[str, ...] = NAMES) -> str:
    """The columns as Spark's SQL declares them."""
    return ", ".join(f"{column.name} {column.type}" for column in COLUMNS if column.name in names)


def struct() -> StructType:
    """The columns as Spark's type."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl())


def arrow_type(type_: str) -> pa.DataType:
    """Arrow's type for one of ours."""
    import pyarrow as pa

    text = pa.string()
    types = {"string": text, "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
    return types[type_] if type_ != TEXTS else pa.map_(text, text)


def arrow() -> pa.Schema:
    """The columns as Arrow's schema."""
    import pyarrow as pa

    return pa.schema([(column.name, arrow_type(column.type)) for column in COLUMNS])


def json_schema() -> dict[str, Any]:
    """JSON Schema of one line of an event log."""
    written = [column for column in COLUMNS if column.written]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"qpidd event {VERSION}",
        "type": "object",
        "properties": {column.name: {"type": _JSON[column.type], "description": column.note} for column in written},
        "required": ["source", "kind", "ts_wall"],
        "additionalProperties": False,
    }


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
