"""Events of a made-up fleet, as the table `events_raw`, with the truth that was planted (arrays; no time, no randomness
but the seed's).

Each incident is a cluster of its own: producers and consumers at a steady rate, one outage in the middle, after which
what waited is sent again.  Rows of a cluster are shuffled: the harshest order for a grouping.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs import schema

T0: Final = 1_790_000_000_000_000
DAY: Final = 86_400_000_000
LENGTH: Final = 600_000_000
"""µs of one cluster's log."""
OUTAGE_AT: Final = 300_000_000
PRODUCERS: Final = 40
CONSUMERS: Final = 40
QUEUES: Final = 20
HOSTS: Final = 4
BROKERS: Final = 3
LOST, DOUBTFUL, RECOVERED, REDELIVERED, UNMARKED, GHOSTS = 37, 200, 120, 500, 5, 3
Column = Any
"""An array or one value for all rows."""
_TYPES: Final = {
    "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(),
    schema.TEXTS: pa.map_(pa.string(), pa.string()),
}  # fmt: skip


@dataclass
class Truth:
    """What the jobs have to find in one cluster.  `outages`: producer → (first µs, last µs); `offsets`: broker → µs of
    its clock before true time, `drifts` in ppm."""

    cluster: str
    counts: dict[str, int] = field(default_factory=dict)
    outages: dict[str, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    drifts: dict[str, float] = field(default_factory=dict)


class _Rows:
    """Blocks of rows, columns of which may be arrays."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._blocks: list[pa.Table] = []

    def add(self, count: int, **columns: Column) -> None:
        columns = {"cluster": self._cluster, "ts_res": 1, **columns}
        arrays = []
        for column in schema.COLUMNS:
            value, type_ = columns.get(column.name), _TYPES[column.type]
            if isinstance(value, np.ndarray):
                arrays.append(pa.array(value if value.dtype.kind in "ib" else value.astype(object), type_))
            elif isinstance(value, pa.Array):
                arrays.append(value)
            else:
                arrays.append(
                    pa.repeat(pa.scalar(value, type_), count) if value is not None else pa.nulls(count, type_)
                )
        self._blocks.append(pa.table(arrays, names=list(schema.NAMES)))

    def table(self, chance: np.random.Generator) -> pa.Table:
        """Numbered (`seq`) in each process in the order of time, then shuffled."""
        whole = pa.concat_tables(self._blocks).combine_chunks()
        order = pc.sort_indices(whole, [("proc", "ascending"), ("ts_wall", "ascending")])
        whole = whole.take(order)
        procs = whole["proc"].combine_chunks().dictionary_encode().indices.to_numpy()
        starts = np.r_[True, procs[1:] != procs[:-1]]
        index = np.arange(len(procs))
        seq = index - np.maximum.accumulate(np.where(starts, index, 0)) + 1
        whole = whole.set_column(schema.NAMES.index("seq"), "seq", pa.array(seq))
        return whole.take(pa.array(chance.permutation(whole.num_rows)))


def cluster(number: int, messages: int, batches: int, seed: int = 7) -> tuple[pa.Table, Truth]:
    """`messages`: published; `batches`: replicated, for each of which there are 8 rows."""
    chance = np.random.default_rng([seed, number])
    truth = Truth(f"c{number:02d}")
    rows = _Rows(truth.cluster)
    begin = T0 + number * DAY
    _clients(rows, truth, chance, begin, messages)
    _brokers(rows, truth, chance, begin, batches)
    return rows.table(chance), truth


def write(folder: Path, clusters: int, messages: int, batches: int, seed: int = 7) -> list[Truth]:
    """One file for each cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    truths = []
    for number in range(clusters):
        table, truth = cluster(number, messages, batches, seed)
        pq.write_table(table, folder / f"part-{number:02d}.parquet", compression="zstd", row_group_size=500_000)
        truths.append(truth)
    return truths


# ---- clients --------------------------------------------------------------------------------------------------------


def _clients(rows: _Rows, truth: Truth, chance: np.random.Generator, begin: int, count: int) -> None:
    # every producer at its own steady rate, with a jitter
    turn = np.arange(count)
    producer = turn % PRODUCERS
    step = LENGTH // count
    sent = begin + turn * step + chance.integers(0, max(1, step), count)
    number = turn // PRODUCERS + 1
    queue = (turn * 7919) % QUEUES
    per_queue = np.zeros(count, np.int64)
    for one in range(QUEUES):
        mine = queue == one
        per_queue[mine] = np.arange(mine.sum())
    consumer = queue + QUEUES * (per_queue % (CONSUMERS // QUEUES))
    dead = begin + OUTAGE_AT
    alive = dead + int(chance.integers(4_000_000, 15_000_000))
    down = (sent >= dead) & (sent < alive)
    delay = 400 + chance.exponential(1500, count).astype(np.int64)
    confirmed = np.where(down, alive + chance.integers(0, 800_000, count), sent + delay)
    delivered = confirmed + chance.exponential(3000, count).astype(np.int64)
    acked = delivered + chance.exponential(2000, count).astype(np.int64)

    inside, before = np.flatnonzero(down), np.flatnonzero((sent > dead - 5_000_000) & (sent < dead - 1_000_000))
    doubtful, recovered, lost, again, unmarked = (np.zeros(count, bool) for _ in range(5))
    picked = chance.choice(inside, min(DOUBTFUL, len(inside) // 4), replace=False)
    doubtful[picked] = True
    recovered[picked[: len(picked) * RECOVERED // DOUBTFUL]] = True
    lost[chance.choice(before, min(LOST, len(before) // 2), replace=False)] = True
    rest = np.flatnonzero(down & ~doubtful)
    again[chance.choice(rest, min(REDELIVERED, len(rest) // 2), replace=False)] = True
    unmarked[chance.choice(np.flatnonzero(~down & ~lost), UNMARKED, replace=False)] = True
    seen = ~lost & (~doubtful | recovered)
    truth.counts = {
        "attempts": count, "confirmed": int((~doubtful).sum()), "ok": int(seen.sum()), "lost": int(lost.sum()),
        "unaccounted": 0, "explained": 0, "recovered": int(recovered.sum()), "unexpected": GHOSTS,
        "duplicated": int(again.sum()) + UNMARKED, "redelivered": int(again.sum()), "resend": 0, "unmarked": UNMARKED,
        "unknown": int((doubtful & ~recovered).sum()), "refused": 0, "resends": int(down.sum()),
    }  # fmt: skip
    for one in range(PRODUCERS):
        mine = producer == one
        if not (mine & down).any():
            continue
        # what was sent before is answered by then
        first = max(int(sent[mine & down].min()), int(confirmed[mine & ~down & (sent < dead)].max()))
        truth.outages[f"prod-{one}"] = first, int(confirmed[mine & (sent >= dead) & ~doubtful].min())

    names = np.char.add(f"{truth.cluster}-p", producer.astype(str))
    places = np.char.add("q", queue.astype(str))

    def say(chosen: np.ndarray, kind: str, ts: np.ndarray, side: str, who: np.ndarray, **more: Column) -> None:
        client = np.char.add(f"{side}-", who[chosen].astype(str))
        numbers, ids = number[chosen], names[chosen]
        rows.add(
            int(chosen.sum()), source="client", kind=kind, ts_wall=ts[chosen], ts_mono=ts[chosen] - begin,
            client_id=client, proc=np.char.add(np.char.add(f"{truth.cluster}-", client), "-1"), queue=places[chosen],
            node=np.char.add("h", (who[chosen] % HOSTS).astype(str)), producer=ids, pub_first=numbers, pub_last=numbers,
            msg_id=np.char.add(np.char.add(ids, ":"), numbers.astype(str)), **more,
        )  # fmt: skip

    everything = np.ones(count, bool)
    say(everything, "publish", sent, "prod", producer)
    say(down, "resend", np.full(count, alive), "prod", producer, resend=True)
    say(~doubtful, "confirm", confirmed, "prod", producer)
    for kind, ts in (("deliver", delivered), ("ack", acked)):
        say(seen, kind, ts, "cons", consumer, redelivered=False)
        say(again, kind, ts + 50_000, "cons", consumer, redelivered=True)
        say(unmarked, kind, ts + 50_000, "cons", consumer, redelivered=False)
    _ends(rows, truth.cluster, begin, int(acked.max()) + 100_000)


def _ends(rows: _Rows, name: str, begin: int, end: int) -> None:
    """What each client writes besides, and messages that nobody sent."""
    for side, number in [("prod", n) for n in range(PRODUCERS)] + [("cons", n) for n in range(CONSUMERS)]:
        client = f"{side}-{number}"
        common = {"source": "client", "client_id": client, "proc": f"{name}-{client}-1", "node": f"h{number % HOSTS}"}
        rows.add(1, **common, kind="connected", ts_wall=begin - 1000, ts_mono=0)
        if side == "cons":
            queue = f"q{number % QUEUES}"
            rows.add(1, **common, kind="drain_end", ts_wall=end, ts_mono=end - begin, queue=queue, result="ok")
        rows.add(1, **common, kind="log_end", ts_wall=end + 1, ts_mono=end + 1 - begin)
    for ghost in range(GHOSTS):
        ids = {"producer": f"{name}-ghost", "pub_first": ghost + 1, "pub_last": ghost + 1, "queue": "q0"}
        for index, kind in enumerate(("deliver", "ack")):
            rows.add(
                1, source="client", client_id="cons-0", proc=f"{name}-cons-0-1", node="h0", kind=kind,
                ts_wall=begin + 1000 + index, ts_mono=index, msg_id=f"{name}-ghost:{ghost + 1}", **ids,
            )  # fmt: skip


# ---- brokers --------------------------------------------------------------------------------------------------------


def _brokers(rows: _Rows, truth: Truth, chance: np.random.Generator, begin: int, count: int) -> None:
    """A primary and two backups whose clocks are wrong and drift."""
    names = [f"n{index + 1}" for index in range(BROKERS)]
    offsets = np.r_[0, chance.integers(-400_000, 400_000, BROKERS - 1)]
    drifts = np.r_[0, chance.uniform(-60, 60, BROKERS - 1)]
    truth.offsets = dict(zip(names, offsets.tolist(), strict=True))
    truth.drifts = dict(zip(names, drifts.tolist(), strict=True))
    moments = np.sort(chance.integers(begin, begin + LENGTH, count))
    queue = np.char.add("q", chance.integers(0, QUEUES, count).astype(str))
    position = np.arange(count) * 10

    def say(kind: str, index: int, peer: int, ts: np.ndarray) -> None:
        wall = ts + offsets[index] + ((ts - begin) * drifts[index] * 1e-6).astype(np.int64)
        rows.add(
            count, source="broker", kind=kind, node=names[index], peer=names[peer], ts_wall=wall, ts_mono=ts - begin,
            proc=f"{truth.cluster}-{names[index]}-1", queue=queue, first_pos=position, last_pos=position + 9, term=1,
        )  # fmt: skip

    for peer in range(1, BROKERS):
        there = moments + 200 + chance.exponential(600, count).astype(np.int64)
        back = there + 50 + 180 + chance.exponential(500, count).astype(np.int64)
        say("repl_send", 0, peer, moments)
        say("repl_recv", peer, 0, there)
        say("replack_send", peer, 0, there + 50)
        say("replack_recv", 0, peer, back)
