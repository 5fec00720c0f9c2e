"""Where the SQL of Spark and of DuckDB differs (pure).

Both know `&`, `try_cast`, `greatest` and `least` (which ignore NULL), `bit_or`, `max_by` and windows.  Sums are cast:
DuckDB's of bigint is a hugeint.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """`spark`: Spark's, else DuckDB's."""

    spark: bool

    def name(self, word: str) -> str:
        """Of a column, which may be a word of SQL such as `end`."""
        return f"`{word}`" if self.spark else f'"{word}"'

    def shifted(self, value: str, bits: int) -> str:
        """`value >> bits` of a bigint."""
        return f"shiftright({value}, {bits})" if self.spark else f"(({value}) >> {bits})"

    def quotient(self, dividend: str, divisor: str) -> str:
        """The whole part; neither is negative."""
        return f"(({dividend}) div ({divisor}))" if self.spark else f"(({dividend}) // ({divisor}))"

    def day(self, value: str) -> str:
        """`2026-01-31` of µs UTC."""
        if self.spark:
            return f"date_format(timestamp_micros({value}), 'yyyy-MM-dd')"
        return f"strftime(make_timestamp({value}), '%Y-%m-%d')"

    def hashed(self, *values: str) -> str:
        """A bigint that stands for texts within one run of one engine: aggregates of texts are slow in Spark."""
        listed = ", ".join(values)
        return f"xxhash64({listed})" if self.spark else f"cast(hash({listed}) >> 1 as bigint)"

    def as_text(self, value: str) -> str:
        """Of a map: Spark hashes none."""
        return f"to_json({value})" if self.spark else f"cast({value} as varchar)"

    def numbers(self, first: str, last: str) -> str:
        """A column of a SELECT: one row for each number of [first, last]."""
        return f"explode(sequence({first}, {last}))" if self.spark else f"unnest(generate_series({first}, {last}))"

    def each(self, *values: str) -> str:
        """A column of a SELECT: one row for each of the values."""
        listed = ", ".join(values)
        return f"explode(array({listed}))" if self.spark else f"unnest([{listed}])"

    def spread(self, columns: str, relation: str, first: str, last: str, name: str) -> str:
        """`relation` with one row for each number of [first, last]; nearly all rows have one only.

        Spark is faster with one scan, DuckDB without lists."""
        if self.spark:
            listed = f"case when {last} > {first} then sequence({first}, {last}) else array({first}) end"
            return f"select {columns}, explode({listed}) as {name} from {relation}"
        return (
            f"select {columns}, {first} as {name} from {relation} where not coalesce({last} > {first}, false) "
            f"union all select {columns}, {self.numbers(first, last)} as {name} from {relation} where {last} > {first}"
        )


SPARK = Dialect(True)
DUCKDB = Dialect(False)
