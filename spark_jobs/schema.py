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

from spark_jobs.data import table

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "1.0"
REMOVED: Final = "removed"
"""Certainty of a note that tells of days whose rows `maintain` has removed."""
LATE: Final = "late"
"""Of one that tells of lines that came when `watch` had closed their days."""
APART: Final = (REMOVED, LATE)
"""Of notes about what is in no conclusion."""
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
_TABLES: Final = table("spark_jobs", "schema")
COLUMNS = tuple(
    Column(name, type_, note, side == "written")
    for side in ("written", "derived")
    for name, (type_, note) in _TABLES[side].items()
)
NAMES = tuple(column.name for column in COLUMNS)


def _kinds(of: str) -> frozenset[str]:
    return frozenset(_TABLES["kinds"][of].split())


BROKER_KINDS = _kinds("broker")
MANAGER_KINDS = _kinds("manager")
"""Of qpid-cluster, the supervisor for one machine."""
MESSAGE_KINDS = _kinds("message")
"""A client's events about messages: nearly all rows."""
CLIENT_KINDS = MESSAGE_KINDS | _kinds("client")
CLUSTER_KINDS = _kinds("cluster")
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
_JSON = {"string": "string", "bigint": "integer", "int": "integer", "boolean": "boolean", TEXTS: "object"}


def day(moment: int) -> str:
    """Of µs since 1970, UTC."""
    return datetime.fromtimestamp(moment / 1_000_000, UTC).strftime("%Y-%m-%d")


def ddl(names: tuple[str, ...] = NAMES) -> str:
    """The columns as Spark's SQL declares them."""
    return ", ".join(f"{column.name} {column.type}" for column in COLUMNS if column.name in names)


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
