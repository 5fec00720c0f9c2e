"""Clusters that run something else: what is said of them, and that nothing is said of a primary.

`foreign/sles-sbd`: two nodes with sbd and ordinary resources (an address, a file system), in the words of Pacemaker
2.0.1 as SLES 15 logs them.  An administrator asks for the fencing of sles2 at 10:56:55.002; sbd waits; the token is
lost at 10:57:21.901; the fencing is done at 10:57:27.502, 32.5 s after it was asked for; both resources go on at sles1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_jobs.report import figures, headline
from tests.spark.truth.reading import tables

SBD = Path(__file__).parent / "foreign" / "sles-sbd" / "messages"
PRIMARY = ("primary", "broker")


def found(lines: list[bytes]) -> dict[str, list[dict[str, Any]]]:
    return tables({"messages": lines})


def lines() -> list[bytes]:
    return SBD.read_bytes().splitlines(keepends=True)


def test_a_fencing_that_was_asked_for_is_an_incident_of_its_own() -> None:
    rows = found(lines())
    (incident,) = rows["incidents"]
    assert (incident["type"], incident["old_primary"], incident["new_primary"]) == ("fencing", None, None)
    assert incident["why"] == "node sles2 was fenced, asked for by stonith_admin (an administrator's command)"
    fencing = next(row for row in rows["phases"] if row["phase"] == "fencing")
    assert fencing["known"] and fencing["duration_us"] == 32_500_000
    assert (
        headline.what({"incident": incident})
        == "Node sles2 was fenced, asked for by stonith_admin (an administrator's command)."
    )


def test_without_its_end_it_is_not_said_to_have_been_done() -> None:
    kept = [line for line in lines() if b": OK" not in line]
    (incident,) = found(kept)["incidents"]
    assert incident["why"].startswith("node sles2 was to be fenced, and no log here says that it was")
    fencing = next(row for row in found(kept)["phases"] if row["phase"] == "fencing")
    assert not fencing["known"] and fencing["note"] == "sles2 was never reported as fenced"


def test_any_line_may_be_missing_and_nothing_is_said_of_a_primary() -> None:
    for gone in range(len(lines())):
        rows = found([line for number, line in enumerate(lines()) if number != gone])
        for incident in rows["incidents"]:
            assert incident["type"] in ("fencing", "unknown")
            said = headline.what({"incident": incident})
            assert not any(word in said for word in PRIMARY), said


def test_the_figures_claim_nothing_of_a_primary() -> None:
    rows = found(lines())
    document = {"incident": rows["incidents"][0], "phases": rows["phases"], "dual": [], "resources": []}
    for figure in (figures._service(document), figures._dual(document)):
        assert (figure.value, figure.tone) == ("unknown", figures.DOUBT)
