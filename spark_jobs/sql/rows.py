"""The rows that the big queries count, as narrow as they can be (pure text).

A run (one row for the messages pub_first..pub_last) becomes one row a message; in between its times are spread
evenly, as `solve.runs` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from spark_jobs.schema import EXPLAINED_BY

CODES: Final = {
    "publish": 1, "resend": 2, "confirm": 3, "nack": 4, "return": 5, "deliver": 6, "ack": 7, "reject": 8, "release": 9,
}  # fmt: skip
"""Numbers for the kinds: comparing texts a dozen times a row is what such a query spends its time with."""
_READ_BY_SPARK: Final = re.compile(r"([\\$])")
NONE: Final = "false"
"""The condition that no row meets."""
FLAGS: Final = {kind: 2 << index for index, kind in enumerate(EXPLAINED_BY)}
"""Bit of a cause in `flags`."""
REDELIVERED: Final = 1
RESENT: Final = 2 << len(EXPLAINED_BY)
"""A delivery said that its producer had sent it before."""
SENDS: Final = "('publish', 'resend', 'confirm', 'nack', 'return')"
TAKES: Final = "('deliver', 'ack', 'reject', 'release')"
_WALL: Final = "ts_wall"


def quoted(words: Iterable[str]) -> str:
    """As texts of SQL, for a list."""
    return ", ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Inside of a text Spark reads escapes, and puts in variables and the environment; DuckDB does neither."""
    parts = [part for part in _READ_BY_SPARK.split(word) if part]
    texts = [f"chr({ord(part)})" if part in ("\\", "$") else "'" + part.replace("'", "''") + "'" for part in parts]
    return texts[0] if len(texts) == 1 else f"concat({', '.join(texts)})" if texts else "''"


def _code() -> str:
    cases = " ".join(f"when '{kind}' then {code}" for kind, code in CODES.items() if kind != "publish")
    return f"case kind when 'publish' then case when resend then 2 else 1 end {cases} else 0 end"


def _flags() -> str:
    cases = " ".join(f"when '{kind}' then {bit}" for kind, bit in FLAGS.items())
    marks = f"(case when redelivered then {REDELIVERED} else 0 end)"
    marks += f" + (case when kind = 'deliver' and resend then {RESENT} else 0 end)"
    return f"{marks} + (case kind {cases} else 0 end)"


def _span() -> str:
    return (
        "case when pub_last > pub_first "
        "then greatest(0, coalesce(try_cast(attrs['last_ts_mono'] as bigint) - ts_mono, 0)) else 0 end"
    )


def _spread(columns: str, narrow: str, steps: str) -> str:
    all_of = "case when pub_last > pub_first then sequence(pub_first, pub_last) else array_repeat(pub_first, 1) end"
    spread = f"select {columns}, pub_first, pub_last, ts as row_ts, span, explode({all_of}) as pub from {narrow}"
    later = "div(span * (pub - pub_first), pub_last - pub_first)"
    return (
        f"select {columns}, {steps} row_ts + case when span > 0 then {later} else 0 end as ts "
        f"from (select * from ({spread}))"
    )


def messages(events: str = "events_raw", clock: str = _WALL, undone: str = NONE) -> str:
    """One row a message and fact: cluster, producer, pub, code, flags, client, place, ts, done_ts (µs; of a run when
    its last message was).  `clock`: expression for a row's time.

    What brokers said counts as a cause only (code 0), unless it is `undone` (a condition)."""
    narrow = f"""(
  select coalesce(cluster, '') as cluster, producer, pub_first, pub_last, {clock} as ts, {_span()} as span,
    case when source = 'client' then {_code()} else 0 end as code, {_flags()} as flags,
    xxhash64(coalesce(client_id, '')) as client, xxhash64(coalesce(queue, '')) as place
  from {events}
  where producer is not null and ((source = 'client' and kind in ({quoted([k for k in CODES if k != "release"])}))
    or (source <> 'client' and kind in ({quoted(EXPLAINED_BY)}) and not {undone}))
)"""
    columns = "cluster, producer, code, flags, client, place"
    return _spread(columns, narrow, "pub, row_ts + span as done_ts,")


def coded(events: str = "events_raw", clock: str = _WALL) -> str:
    """Rows of clients as they are (runs stay runs), with the number of their kind and the span of a run."""
    return f"""(
  select coalesce(cluster, '') as cluster, coalesce(nullif(proc, ''), client_id, '') as proc,
    coalesce(client_id, '') as client_id, coalesce(queue, '') as queue, seq, producer, {_code()} as code,
    {clock} as ts, {clock} + {_span()} as done_ts, kind, result
  from {events} where source = 'client'
)"""


def takes(events: str = "events_raw", clock: str = _WALL) -> str:
    """What consumers got and settled, one row a message: cluster, client_id, code, ts."""
    narrow = f"""(
  select coalesce(cluster, '') as cluster, coalesce(client_id, '') as client_id, {_code()} as code, {clock} as ts,
    coalesce(pub_first, 0) as pub_first, coalesce(pub_last, 0) as pub_last, {_span()} as span
  from {events} where source = 'client' and kind in {TAKES}
)"""
    return _spread("cluster, client_id, code", narrow, "")
