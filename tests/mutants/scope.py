"""Which modules of `ha` a plain `make mutants` tries: those of which every survivor was reviewed, that is killed by a
new test or excused with a reason (`equivalent.yaml`).  Each module of `ha` is on exactly one list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REVIEWED: Final = (
    "claims",
    "difference",
    "membership",
    "position",
    "promotion",
    "registry",
    "roster",
    "safety",
    "staging",
    "state_file",
    "takeover",
)
UNREVIEWED: Final[Mapping[str, tuple[str, ...]]] = {
    "it decides what is safe; its survivors are not reviewed yet (judged by the simulator and its planted mistakes)": (
        "arrivals",
        "backup",
        "brokers",
        "catchup",
        "disk",
        "election",
        "failing",
        "finder",
        "joining",
        "losses",
        "node",
        "operations",
        "peer",
        "primary",
        "promoter",
        "protocol",
        "registry_view",
        "relocation",
        "requests",
        "role",
        "salvage",
        "salvage_copies",
        "salvage_files",
        "salvager",
        "slow",
        "status",
        "survey",
        "twins",
        "view",
    ),
    "it is about when and whom, not about what is safe; its survivors are not reviewed yet": (
        "asker",
        "candidacy",
        "replica",
        "replica_link",
        "replica_source",
        "score",
        "shutdown",
        "stall",
        "supervision",
        "supervisor",
    ),
    "it only reports: a mistake misleads people and loses nothing": (
        "advice",
        "allowance",
        "client_rows",
        "clock_readings",
        "events",
        "lag",
        "queue_dump",
        "removals",
        "supervisor_events",
    ),
    "it speaks with sockets, files and other programs, or reads options: real processes judge it (tests/integration)": (
        "admin_link",
        "cluster_hooks",
        "connection_guard",
        "connector",
        "control",
        "core_link",
        "environment",
        "link",
        "living",
        "local_manager",
        "plugin",
        "processes",
        "public_url",
        "registry_attributes",
        "registry_commands",
        "registry_file",
        "registry_helper",
        "registry_pacemaker",
        "registry_worker",
        "salvage_door",
        "salvage_publisher",
        "settings",
        "standalone",
        "supervisor_shell",
    ),
    "it is a command, or writes files for other programs: its output is compared as a whole (tests/unit)": (
        "cli",
        "cli_ask",
        "cli_cluster",
        "cli_commands",
        "cli_output",
        "cli_parser",
        "cli_replicate",
        "cli_salvage",
        "cluster_file",
        "cluster_values",
        "deployment",
        "render",
    ),
}
"""Reason -> modules; `render` is a package."""


def said() -> str:
    """For people: what was left out, and why."""
    lines = [f"reviewed, and tried: {' '.join(REVIEWED)}"]
    lines += [f"not tried, {reason}: {' '.join(names)}" for reason, names in UNREVIEWED.items()]
    return "\n".join(lines)
