"""The duration of each phase of an incident, compared with the setting that it depends on (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spark_jobs.solve.bounds import Phase
from spark_jobs.solve.incidents import Incident
from spark_jobs.solve.phases import interval
from spark_jobs.solve.signs import MANAGER, Facts, attr

Row = dict[str, Any]


def rows(found: Sequence[Phase], incident: Incident, facts: Facts) -> list[Row]:
    """The duration of each phase and the setting that it depends on, the longest first.

    Rows: phase, duration_us, share (of the time from the first sign of death to the last phase that clients wait for),
    setting, setting_us (None if the logs do not say it).
    """
    waits = [phase for phase in found if phase.known and phase.name in _WAITS]
    total = sum(phase.duration or 0 for phase in waits)
    settings = _settings(incident, facts)
    made = [
        {
            "phase": phase.name,
            "duration_us": phase.duration,
            "share": (phase.duration or 0) / total if total else 0.0,
            "setting": settings.get(phase.name, ("", None))[0],
            "setting_us": settings.get(phase.name, ("", None))[1],
        }
        for phase in waits
    ]
    return sorted(made, key=lambda row: (-row["duration_us"], row["phase"]))


_WAITS: Final = ("detection", "decision", "fencing", "promotion", "recovering", "path")


def _settings(incident: Incident, facts: Facts) -> dict[str, tuple[str, int | None]]:
    found: dict[str, tuple[str, int | None]] = {"recovering": ("ha-backup-timeout", None)}
    for event in incident.facts(facts):
        if event["kind"] == "token_lost" and attr(event, "consensus").isdigit():
            found.setdefault("detection", ("consensus (token before it)", int(attr(event, "consensus")) * 1000))
        elif interval(event) and facts.is_dead_broker(event):
            found.setdefault("detection", ("monitor interval", interval(event)))
        elif event["kind"] == "fence_request" and attr(event, "timeout").isdigit():
            found.setdefault("fencing", ("fencing timeout", int(attr(event, "timeout")) * 1000))
        elif event["kind"] == "hung" and event.get("source") == MANAGER:
            found.setdefault("detection", ("the manager's time until a broker hangs", None))
    return found
