"""Blocks of generated events as Arrow tables with the columns of the schema, and as Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs import schema

Column = Any
"""An array, or one value for all rows."""
ROWS: Final = 250_000
"""Of a row group."""
_TYPES: Final = {
    "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(),
    schema.TEXTS: pa.map_(pa.string(), pa.string()),
}  # fmt: skip


class Rows:
    """All rows of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._blocks: list[pa.Table] = []

    def add(self, count: int, **columns: Column) -> None:
        """Rows of which all columns but these are empty."""
        given = {"cluster": self.cluster, "ts_res": 1, **columns}
        arrays = [_array(given.get(column.name), _TYPES[column.type], count) for column in schema.COLUMNS]
        self._blocks.append(pa.table(arrays, names=list(schema.NAMES)))

    def one(self, attrs: Mapping[str, str] | None = None, **columns: Column) -> None:
        self.add(1, attrs=None if attrs is None else pa.array([list(attrs.items())], _TYPES[schema.TEXTS]), **columns)

    def table(self) -> pa.Table:
        """In the order of processes, and of time in each; numbered (`seq`) from 1."""
        whole = pa.concat_tables(self._blocks).combine_chunks()
        whole = whole.take(pc.sort_indices(whole, [("proc", "ascending"), ("ts_wall", "ascending")]))
        procs = whole["proc"].combine_chunks().dictionary_encode().indices.to_numpy()
        starts = np.r_[True, procs[1:] != procs[:-1]]
        index = np.arange(len(procs))
        seq = index - np.maximum.accumulate(np.where(starts, index, 0)) + 1
        return whole.set_column(schema.NAMES.index("seq"), "seq", pa.array(seq))


def _array(value: Column, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(value, np.ndarray):
        return pa.array(value if value.dtype.kind in "ib" else value.astype(object), kind)
    if isinstance(value, pa.Array):
        return value
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def write(table: pa.Table, path: Path, seed: int) -> None:
    """Shuffled, the harshest order for a grouping; clients' rows and others in row groups of their own, as `ingest`
    writes them."""
    chance = np.random.default_rng(seed)
    is_client = pc.equal(table["source"], "client")
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for part in (table.filter(is_client), table.filter(pc.invert(is_client))):
            shuffled = part.take(pa.array(chance.permutation(part.num_rows)))
            writer.write_table(shuffled, row_group_size=ROWS)
