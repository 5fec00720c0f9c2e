"""Intervals that overlap as one (pure text)."""

from __future__ import annotations


def islands(source: str, keys: str, slack: int = 0, more: str = "") -> str:
    """The union of the intervals [b, e) of `source` for each value of `keys`; two with less than `slack` between them
    are one, too, and so are two that touch.  `more`: more aggregates."""
    before = f"max(e) over (partition by {keys} order by b, e rows between unbounded preceding and 1 preceding)"
    joins = f"b <= {before}" if not slack else f"b - {before} < {slack}"
    extra = f", {more}" if more else ""
    so_far = f"partition by {keys} order by b, e rows between unbounded preceding and current row"
    return f"""
select {keys}, min(b) as b, max(e) as e{extra}
from (
  select *, sum(apart) over ({so_far}) as island
  from (select *, case when {joins} then 0 else 1 end as apart from {source})
)
group by {keys}, island"""
