"""Names of clusters and files are anybody's: as texts in a query they are what they are, to both engines."""

from __future__ import annotations

from spark_jobs.engine.base import Engine
from spark_jobs.sql.rows import quoted
from tests.support.slow import both_engines

NAMES = (
    *(
        "plain",
        "it's",
        "''",
        "a\\b",
        "a\\",
        "a\\'",
        "\\n",
        "\\u0041",
        "${env:HOME}",
        "$x",
        "%",
        "--",
        "/*",
        "\n",
        "",
        "ü",
    ),
    *("x' or true", "\\' or true --"),
)


@both_engines
def test_a_name_is_found_by_itself(engine: Engine) -> None:
    engine.table("named", "name string", [{"name": name} for name in NAMES])
    found = engine.large("named")
    for name in NAMES:
        assert [row["name"] for row in found.rows(f"select name from named where name in ({quoted([name])})")] == [name]
    rows = found.rows(f"select name from named where name in ({quoted(NAMES)})")
    assert sorted(row["name"] for row in rows) == sorted(NAMES)
